/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm.c - the fake librdmacm: connections by IP address, for every kind of NIC.
 *
 * A unix socket connects two ids; a listening id is a socket whose name is made of address and port,
 * in a directory beside the fabric's file.  A request, a reply or a refusal, and "ready to use" go
 * over it; then it stays open as long as the connection, so that the death of a process shows.
 * cm_thread.c does all that: a thread for each event channel.
 *
 * As with the kernel's drivers, destroying an iWARP queue pair whose request has not been answered
 * blocks until the answer, or until it is too late for one.
 */
#include "tests/fake/cm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t cm_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t cm_answered = PTHREAD_COND_INITIALIZER;
struct cm_id *cm_ids;
struct cm_device cm_devices[DEVS_MAX];

static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;
static uint64_t serials;

uint64_t cm_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static int failed(int err)
{
	errno = err;
	return -1;
}

enum kind cm_kind_of(uint32_t port)
{
	return (enum kind)fake_fabric()->dev[port / PORTS_MAX].kind;
}

/* A forked child only has copies of its parent's ids, which it may free but not use. */
bool cm_is_forked(const struct cm_chan *c)
{
	return c->pid != getpid();
}

/* Counts a call on an id; it fails in a forked child, or if a test wants it to. */
static bool call_fails_on(struct rdma_cm_id *id, const char *name)
{
	if (cm_is_forked(TO(cm_chan, id->channel))) {
		errno = EIO;
		return true;
	}
	return fake_call_fails(name);
}

bool cm_is_iwarp(const struct cm_id *id)
{
	return id->src_port != PORT_NONE && cm_kind_of(id->src_port) == KIND_IWARP;
}

/* --- events ------------------------------------------------------------------------------------- */

/* m: its private data goes with the event; with InfiniBand, padded with zeros to a fixed length. */
void cm_push(struct cm_id *id, struct cm_id *owner, enum rdma_cm_event_type type, int status,
		 const struct msg *m)
{
	struct cm_event *e = calloc(1, sizeof(*e));
	uint64_t one = 1;

	if (!e)
		return;
	e->ibv.id = &id->ibv;
	e->ibv.listen_id = owner != id ? &owner->ibv : NULL;
	e->ibv.event = type;
	e->ibv.status = status;
	e->owner = owner;
	if (m) {
		uint8_t len = m->private_len;

		memcpy(e->data, m->private_data, len);
		if (len && cm_kind_of(m->port) != KIND_IWARP)
			len = m->type == MSG_REQ ? 56 : m->type == MSG_REP ? 196 : 148;
		e->ibv.param.conn = (struct rdma_conn_param){
			.private_data = len ? e->data : NULL, .private_data_len = len,
			.responder_resources = m->rd_out, .initiator_depth = m->rd_in,
			.retry_count = m->retry, .rnr_retry_count = m->rnr_retry, .qp_num = m->qpn,
		};
	}
	*owner->chan->last = e;
	owner->chan->last = &e->next;
	if (write(owner->chan->ibv.fd, &one, sizeof(one)) < 0)
		perror("fake librdmacm: eventfd");
}


/* Drops the events of an id that is destroyed, and the connections that they would have offered. */
static void drop_events(struct cm_id *id)
{
	for (struct cm_event **p = &id->chan->first; *p;) {
		struct cm_event *e = *p;
		uint64_t one;

		if (e->owner != id && e->ibv.id != &id->ibv) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		if (read(id->chan->ibv.fd, &one, sizeof(one)) < 0)
			perror("fake librdmacm: eventfd");
		if (e->ibv.id != &id->ibv)
			cm_id_free(TO(cm_id, e->ibv.id));
		free(e);
		p = &id->chan->first;
	}
	for (id->chan->last = &id->chan->first; *id->chan->last; id->chan->last = &(*id->chan->last)->next)
		;
}

EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct cm_chan *c = TO(cm_chan, channel);
	struct cm_event *e = NULL;
	uint64_t one;

	if (fake_call_fails(__func__))
		return -1;
	while (!e) {
		if (read(channel->fd, &one, sizeof(one)) < 0)
			return -1;
		pthread_mutex_lock(&cm_lock);
		e = c->first;
		if (e) {
			c->first = e->next;
			if (!e->next)
				c->last = &c->first;
			e->owner->unacked++;
		}
		pthread_mutex_unlock(&cm_lock);
	}
	*event = &e->ibv;
	return 0;
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct cm_event *e = TO(cm_event, event);

	pthread_mutex_lock(&cm_lock);
	e->owner->unacked--;
	pthread_cond_broadcast(&acked);
	pthread_mutex_unlock(&cm_lock);
	free(e);
	return 0;
}

/* --- devices ------------------------------------------------------------------------------------ */

/* rdma_cm opens a device once for all ids on it.  Lock held. */
int cm_take_device(struct cm_id *id, uint32_t port)
{
	uint32_t index = port / PORTS_MAX;

	if (!cm_devices[index].users && !cm_devices[index].ctx) {
		struct ibv_device **list = ibv_get_device_list(NULL);

		for (int i = 0; list && list[i]; i++)
			if ((uint32_t)ibv_get_device_index(list[i]) == index)
				cm_devices[index].ctx = ibv_open_device(list[i]);
		if (list)
			ibv_free_device_list(list);
		if (!cm_devices[index].ctx)
			return errno ? errno : ENODEV;
	}
	cm_devices[index].users++;
	id->ibv.verbs = cm_devices[index].ctx;
	id->ibv.port_num = (uint8_t)(port % PORTS_MAX + 1);
	id->src_port = port;
	return 0;
}

static void give_device(struct cm_id *id)
{
	uint32_t index = id->src_port / PORTS_MAX;

	if (!id->ibv.verbs)
		return;
	if (!--cm_devices[index].users) {
		if (ibv_close_device(cm_devices[index].ctx))
			fprintf(stderr, "fake librdmacm: objects outlive the last id\n");
		else
			cm_devices[index].ctx = NULL;
	}
	id->ibv.verbs = NULL;
}

/* --- addresses ---------------------------------------------------------------------------------- */

static bool from_sockaddr(const struct sockaddr *sa, struct in6_addr *ip, uint16_t *port)
{
	const void *p = sa;

	memset(ip, 0, sizeof(*ip));
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = p;

		if (in->sin_addr.s_addr) {
			ip->s6_addr[10] = ip->s6_addr[11] = 0xff;
			memcpy(&ip->s6_addr[12], &in->sin_addr, 4);
		}
		*port = ntohs(in->sin_port);
		return true;
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = p;

		*ip = in6->sin6_addr;
		*port = ntohs(in6->sin6_port);
		return true;
	}
	return false;
}

static void to_sockaddr(struct sockaddr_storage *ss, const struct in6_addr *ip, uint16_t port)
{
	memset(ss, 0, sizeof(*ss));
	if (IN6_IS_ADDR_V4MAPPED(ip)) {
		struct sockaddr_in *in = (struct sockaddr_in *)ss;

		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, &ip->s6_addr[12], 4);
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		in6->sin6_addr = *ip;
	}
}

static bool is_any(const struct in6_addr *ip)
{
	return IN6_IS_ADDR_UNSPECIFIED(ip);
}

void cm_set_addrs(struct cm_id *id)
{
	to_sockaddr(&id->ibv.route.addr.src_storage, &id->src, id->sport);
	to_sockaddr(&id->ibv.route.addr.dst_storage, &id->dst, id->dport);
}

static uint16_t new_port(void)
{
	return (uint16_t)(32768 + atomic_fetch_add(&fake_fabric()->next_port, 1) % 28000);
}

/* The name of the socket that listens for an address and port; the wildcard address has one too. */
static void socket_name(char *name, size_t len, const char *host, const struct in6_addr *ip, uint16_t port)
{
	if (is_any(ip)) {
		snprintf(name, len, "%s-any-%u", host, port);
		return;
	}
	for (unsigned i = 0; i < 16; i++)
		snprintf(name + 2 * i, len - 2 * i, "%02x", ip->s6_addr[i]);
	snprintf(name + 32, len - 32, "-%u", port);
}

static struct sockaddr_un socket_addr(const char *name)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	snprintf(un.sun_path, sizeof(un.sun_path), "/proc/self/fd/%d/%s", fake_fabric_dir(), name);
	return un;
}

/* --- ids ---------------------------------------------------------------------------------------- */

struct cm_id *cm_id_new(struct cm_chan *chan, void *context, enum rdma_port_space ps)
{
	struct cm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->ibv.channel = &chan->ibv;
	id->ibv.context = context;
	id->ibv.ps = ps;
	id->ibv.qp_type = IBV_QPT_RC;
	id->chan = chan;
	id->fd = -1;
	id->src_port = id->dst_port = PORT_NONE;
	id->serial = ++serials;
	id->next = cm_ids;
	cm_ids = id;
	return id;
}

void cm_watch(struct cm_id *id)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP, .data.u64 = id->serial };

	epoll_ctl(id->chan->epfd, EPOLL_CTL_ADD, id->fd, &ev);
}

/* Wakes the channel's thread, which has a new time to wait for. */
static void wake(struct cm_chan *c)
{
	uint64_t one = 1;

	if (write(c->stopfd, &one, sizeof(one)) < 0)
		perror("fake librdmacm: eventfd");
}

void cm_close_fd(struct cm_id *id)
{
	if (id->fd < 0)
		return;
	if (id->ibv.qp && cm_is_iwarp(id))
		fake_qp_stop(id->ibv.qp);
	close(id->fd);
	id->fd = -1;
	if (id->name[0])
		unlink(socket_addr(id->name).sun_path);
	id->name[0] = '\0';
}

void cm_id_free(struct cm_id *id)
{
	for (struct cm_id **p = &cm_ids; *p; p = &(*p)->next)
		if (*p == id) {
			*p = id->next;
			break;
		}
	cm_close_fd(id);
	give_device(id);
	free(id);
}

EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret, void *context,
			  enum rdma_port_space ps)
{
	struct cm_id *id;

	fake_call_takes(NULL, __func__);
	if (fake_call_fails(__func__))
		return -1;
	if (!channel)
		return failed(EOPNOTSUPP);
	if (ps != RDMA_PS_TCP)
		return failed(EPROTONOSUPPORT);
	pthread_mutex_lock(&cm_lock);
	id = cm_id_new(TO(cm_chan, channel), context, ps);
	pthread_mutex_unlock(&cm_lock);
	if (!id)
		return -1;
	*ret = &id->ibv;
	return 0;
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *ibv)
{
	struct cm_id *id = TO(cm_id, ibv);

	fake_call_takes(ibv->verbs, __func__);
	if (cm_is_forked(id->chan)) {
		close(id->fd);
		free(id);
		return 0;
	}
	pthread_mutex_lock(&cm_lock);
	id->state = CM_GONE;
	cm_close_fd(id);
	drop_events(id);
	while (id->unacked)
		pthread_cond_wait(&acked, &cm_lock);
	cm_id_free(id);
	pthread_mutex_unlock(&cm_lock);
	return 0;
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *ibv, struct sockaddr *addr)
{
	struct cm_id *id = TO(cm_id, ibv);
	uint32_t port;
	int err = 0;

	fake_call_takes(ibv->verbs, __func__);
	if (call_fails_on(ibv, __func__))
		return -1;
	if (!fake_fabric())
		return -1;
	pthread_mutex_lock(&cm_lock);
	if (id->state != CM_IDLE || !from_sockaddr(addr, &id->src, &id->sport)) {
		err = EINVAL;
	} else if (!is_any(&id->src)) {
		struct ibv_device **list = ibv_get_device_list(NULL);	/* enters our NICs in the fabric */

		if (list)
			ibv_free_device_list(list);
		port = fake_find_ip(fake_host(), &id->src);
		err = port == PORT_NONE ? ENODEV : cm_take_device(id, port);
	}
	if (!err) {
		if (!id->sport)
			id->sport = new_port();
		cm_set_addrs(id);
		if (is_any(&id->src))
			id->ibv.route.addr.src_addr.sa_family = addr->sa_family;
		id->state = CM_BOUND;
	}
	pthread_mutex_unlock(&cm_lock);
	return err ? failed(err) : 0;
}

/* busy=, busy_dials=: is the port that rdma_cm has chosen in use in TCP already? */
static bool port_taken(struct rdma_cm_id *ibv, bool dials)
{
	struct fdev *d = ibv->verbs ? to_ctx(ibv->verbs)->dev : NULL;
	uint32_t *left = d ? dials ? &d->busy_dials : &d->busy : NULL;

	if (!left || !*left)
		return false;
	--*left;
	errno = EADDRINUSE;
	return true;
}

EXPORT int rdma_listen(struct rdma_cm_id *ibv, int backlog)
{
	struct cm_id *id = TO(cm_id, ibv);
	struct sockaddr_un un;
	int err = 0;

	fake_call_takes(ibv->verbs, __func__);
	if (call_fails_on(ibv, __func__) || port_taken(ibv, false))
		return -1;
	pthread_mutex_lock(&cm_lock);
	if (id->state == CM_IDLE) {
		id->sport = new_port();
		id->state = CM_BOUND;
	}
	if (id->state != CM_BOUND) {
		pthread_mutex_unlock(&cm_lock);
		return failed(EINVAL);
	}
	socket_name(id->name, sizeof(id->name), fake_host(), &id->src, id->sport);
	un = socket_addr(id->name);
	id->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (id->fd < 0) {
		err = errno;
	} else if (bind(id->fd, (struct sockaddr *)&un, sizeof(un)) < 0) {
		int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		/* the socket of a dead process may be replaced */
		err = EADDRINUSE;
		if (connect(probe, (struct sockaddr *)&un, sizeof(un)) < 0 && errno == ECONNREFUSED) {
			unlink(un.sun_path);
			err = bind(id->fd, (struct sockaddr *)&un, sizeof(un)) < 0 ? errno : 0;
		}
		close(probe);
	}
	if (!err && listen(id->fd, backlog > 0 ? backlog : 128) < 0)
		err = errno;
	if (err) {
		if (err == EADDRINUSE)
			id->name[0] = '\0';
		if (id->fd >= 0)
			close(id->fd);
		id->fd = -1;
	} else {
		id->state = CM_LISTEN;
		cm_watch(id);
	}
	pthread_mutex_unlock(&cm_lock);
	return err ? failed(err) : 0;
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *ibv, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	struct cm_id *id = TO(cm_id, ibv);
	struct ibv_device **list;
	struct in6_addr from, ip;
	uint32_t src_port, dst_port;
	uint16_t port;
	int err;

	(void)timeout_ms;
	fake_call_takes(ibv->verbs, __func__);
	if (call_fails_on(ibv, __func__))
		return -1;
	list = ibv_get_device_list(NULL);
	if (!list)
		return -1;
	ibv_free_device_list(list);
	pthread_mutex_lock(&cm_lock);
	from = id->src;
	err = EINVAL;
	if ((id->state == CM_IDLE || id->state == CM_BOUND) && from_sockaddr(dst, &id->dst, &id->dport) &&
	    (!src || from_sockaddr(src, &from, &port))) {
		err = fake_route(fake_host(), is_any(&from) ? NULL : &from, &id->dst, &src_port, &dst_port,
				 &ip);
		if (err) {
			cm_push(id, id, RDMA_CM_EVENT_ADDR_ERROR, -err, NULL);
			err = 0;
		} else if (id->ibv.verbs && id->src_port != src_port) {
			err = EINVAL;
		} else if (id->ibv.verbs || !(err = cm_take_device(id, src_port))) {
			id->src = ip;
			id->dst_port = dst_port;
			if (!id->sport)
				id->sport = new_port();
			cm_set_addrs(id);
			id->state = CM_ADDR;
			cm_push(id, id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL);
		}
	}
	pthread_mutex_unlock(&cm_lock);
	return err ? failed(err) : 0;
}

EXPORT int rdma_resolve_route(struct rdma_cm_id *ibv, int timeout_ms)
{
	struct cm_id *id = TO(cm_id, ibv);
	int err = 0;

	(void)timeout_ms;
	fake_call_takes(ibv->verbs, __func__);
	if (call_fails_on(ibv, __func__))
		return -1;
	pthread_mutex_lock(&cm_lock);
	if (id->state != CM_ADDR) {
		err = EINVAL;
	} else {
		id->state = CM_ROUTE;
		cm_push(id, id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	}
	pthread_mutex_unlock(&cm_lock);
	return err ? failed(err) : 0;
}

/* --- queue pairs -------------------------------------------------------------------------------- */

EXPORT int rdma_create_qp(struct rdma_cm_id *ibv, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp *qp;

	fake_call_takes(ibv->verbs, __func__);
	if (call_fails_on(ibv, __func__))
		return -1;
	if (ibv->qp || !ibv->verbs || !pd || pd->context != ibv->verbs)
		return failed(EINVAL);
	qp = ibv_create_qp(pd, init);
	if (!qp)
		return -1;
	fake_qp_ready(qp, ibv->port_num);
	pthread_mutex_lock(&cm_lock);
	ibv->qp = qp;
	ibv->pd = pd;
	ibv->send_cq = init->send_cq;
	ibv->recv_cq = init->recv_cq;
	ibv->srq = init->srq;
	pthread_mutex_unlock(&cm_lock);
	return 0;
}

EXPORT void rdma_destroy_qp(struct rdma_cm_id *ibv)
{
	struct cm_id *id = TO(cm_id, ibv);
	struct ibv_qp *qp = ibv->qp;

	if (!cm_is_forked(id->chan)) {
		pthread_mutex_lock(&cm_lock);
		while (qp && cm_is_iwarp(id) && id->state == CM_CONNECTING)
			pthread_cond_wait(&cm_answered, &cm_lock);
		ibv->qp = NULL;
		pthread_mutex_unlock(&cm_lock);
	}
	if (qp)
		ibv_destroy_qp(qp);
}

/* Brings the queue pair to RTS, with what the two ends have exchanged. */
int cm_start_qp(struct cm_id *id, bool passive)
{
	const struct msg *l = &id->local, *r = &id->remote;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR, .path_mtu = (enum ibv_mtu)(l->mtu < r->mtu ? l->mtu : r->mtu),
		.dest_qp_num = r->qpn, .rq_psn = r->psn, .sq_psn = l->psn, .max_rd_atomic = l->rd_out,
		.max_dest_rd_atomic = l->rd_in, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = passive ? r->rnr_retry : l->rnr_retry,
	};

	if (cm_is_iwarp(id))
		return fake_qp_start(id->ibv.qp, r->qpn, r->port, l->psn, r->psn, l->rd_out, l->rd_in, passive,
				     id->fd);
	a.ah_attr.port_num = id->ibv.port_num;
	a.ah_attr.dlid = (uint16_t)r->lid;
	a.ah_attr.is_global = cm_kind_of(id->src_port) != KIND_IB;
	a.ah_attr.grh.dgid = r->gid;
	a.ah_attr.grh.hop_limit = 64;
	if (a.ah_attr.is_global) {
		struct ibv_gid_entry e;
		bool v2 = cm_kind_of(id->src_port) == KIND_ROCEV2;

		for (uint8_t i = 0; i < GIDS_MAX; i++)
			if (!ibv_query_gid_ex(id->ibv.verbs, id->ibv.port_num, i, &e, 0) &&
			    e.gid_type == (v2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1) &&
			    !memcmp(&e.gid, &id->src, sizeof(e.gid)))
				a.ah_attr.grh.sgid_index = i;
	}
	if (ibv_modify_qp(id->ibv.qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return EINVAL;
	a.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(id->ibv.qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* --- connecting --------------------------------------------------------------------------------- */

bool cm_fill(struct cm_id *id, struct msg *m, enum msg_type type, const struct rdma_conn_param *p,
		 uint8_t max)
{
	struct ibv_port_attr port;

	memset(m, 0, sizeof(*m));
	m->type = type;
	m->port = id->src_port;
	m->src = id->src;
	m->dst = id->dst;
	m->sport = id->sport;
	m->dport = id->dport;
	m->psn = (uint32_t)(serials * 2654435761u) & 0xffffff;
	memcpy(&m->gid, &id->src, sizeof(m->gid));
	if (p) {
		if (!cm_is_iwarp(id) && p->private_data_len > max)
			return false;
		m->private_len = p->private_data ? p->private_data_len : 0;
		if (m->private_len)
			memcpy(m->private_data, p->private_data, m->private_len);
		m->rd_out = p->initiator_depth;
		m->rd_in = p->responder_resources;
		m->retry = p->retry_count & 7;
		m->rnr_retry = p->rnr_retry_count & 7;
		m->qpn = id->ibv.qp ? id->ibv.qp->qp_num : p->qp_num;
	}
	if (ibv_query_port(id->ibv.verbs, id->ibv.port_num, &port))
		return false;
	m->mtu = (uint32_t)port.active_mtu;
	m->lid = port.lid;
	return true;
}

int cm_say(struct cm_id *id, const struct msg *m)
{
	return send(id->fd, m, sizeof(*m), MSG_NOSIGNAL) == sizeof(*m) ? 0 : ECONNRESET;
}

static int dial(struct cm_id *id)
{
	const char *host;
	char name[80];
	struct sockaddr_un un;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return errno;
	socket_name(name, sizeof(name), "", &id->dst, id->dport);
	un = socket_addr(name);
	if (connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0) {
		const struct in6_addr any = IN6ADDR_ANY_INIT;

		host = fake_fabric()->dev[id->dst_port / PORTS_MAX].host;
		socket_name(name, sizeof(name), host, &any, id->dport);
		un = socket_addr(name);
		if (connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0) {
			close(fd);
			return ECONNREFUSED;
		}
	}
	id->fd = fd;
	return 0;
}

struct fab_port *cm_port_of(uint32_t id)
{
	return &fake_fabric()->dev[id / PORTS_MAX].port[id % PORTS_MAX];
}

static bool port_up(uint32_t id)
{
	struct fab_port *p = cm_port_of(id);

	return atomic_load(&p->up) && !atomic_load(&p->drop);
}

EXPORT int rdma_connect(struct rdma_cm_id *ibv, struct rdma_conn_param *param)
{
	struct cm_id *id = TO(cm_id, ibv);
	int err = 0;

	fake_call_takes(ibv->verbs, __func__);
	if (call_fails_on(ibv, __func__) || port_taken(ibv, true))
		return -1;
	pthread_mutex_lock(&cm_lock);
	if (id->state != CM_ROUTE || !cm_fill(id, &id->local, MSG_REQ, param, 56)) {
		err = EINVAL;
	} else if (!port_up(id->src_port) || !port_up(id->dst_port)) {
		id->state = CM_GONE;
		cm_push(id, id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
	} else if (dial(id) || cm_say(id, &id->local)) {
		id->state = CM_GONE;
		cm_push(id, id, RDMA_CM_EVENT_REJECTED, cm_is_iwarp(id) ? -ECONNREFUSED : 8, NULL);
	} else {
		id->state = CM_CONNECTING;
		id->due_ns = cm_clock_ns() + to_ctx(ibv->verbs)->dev->mpa_ms * UINT64_C(1000000);
		cm_watch(id);
		wake(id->chan);
	}
	pthread_mutex_unlock(&cm_lock);
	return err ? failed(err) : 0;
}

EXPORT int rdma_accept(struct rdma_cm_id *ibv, struct rdma_conn_param *param)
{
	struct cm_id *id = TO(cm_id, ibv);
	struct rdma_conn_param none = { 0 };
	int err = EINVAL;

	fake_call_takes(ibv->verbs, __func__);
	if (call_fails_on(ibv, __func__))
		return -1;
	pthread_mutex_lock(&cm_lock);
	if (!param) {
		none.initiator_depth = id->remote.rd_in;
		none.responder_resources = id->remote.rd_out;
		none.rnr_retry_count = id->remote.rnr_retry;
		param = &none;
	}
	if (id->state == CM_REQUESTED && cm_fill(id, &id->local, MSG_REP, param, 196)) {
		err = id->ibv.qp ? cm_start_qp(id, true) : 0;
		if (!err) {
			bool iwarp = cm_is_iwarp(id);

			/* if the peer is gone, an end of file will show it */
			cm_say(id, &id->local);
			id->state = iwarp ? CM_CONNECTED : CM_ACCEPTING;
			if (iwarp)
				cm_push(id, id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
			cm_watch(id);
		}
	}
	pthread_mutex_unlock(&cm_lock);
	return err ? failed(err) : 0;
}

EXPORT int rdma_reject(struct rdma_cm_id *ibv, const void *data, uint8_t len)
{
	struct cm_id *id = TO(cm_id, ibv);
	struct rdma_conn_param p = { .private_data = data, .private_data_len = len };
	int err = EINVAL;

	fake_call_takes(ibv->verbs, __func__);
	if (call_fails_on(ibv, __func__))
		return -1;
	pthread_mutex_lock(&cm_lock);
	if (id->state == CM_REQUESTED && cm_fill(id, &id->local, MSG_REJ, &p, 148)) {
		err = 0;
		cm_say(id, &id->local);
		id->state = CM_GONE;
		cm_close_fd(id);
	}
	pthread_mutex_unlock(&cm_lock);
	return err ? failed(err) : 0;
}

EXPORT int rdma_establish(struct rdma_cm_id *ibv)
{
	struct cm_id *id = TO(cm_id, ibv);
	struct msg m;
	int err = EINVAL;

	if (call_fails_on(ibv, __func__))
		return -1;
	pthread_mutex_lock(&cm_lock);
	if (id->state == CM_CONNECTED && !ibv->qp && cm_fill(id, &m, MSG_RTU, NULL, 0))
		err = cm_say(id, &m);
	pthread_mutex_unlock(&cm_lock);
	return err ? failed(err) : 0;
}

/* The connection has ended, and an iWARP queue pair with it; others last until rdma_disconnect(). */
void cm_hang_up(struct cm_id *id)
{
	id->state = CM_ENDED;
	cm_close_fd(id);
	cm_push(id, id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
	if (!cm_is_iwarp(id))
		cm_push(id, id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL);
}

EXPORT int rdma_disconnect(struct rdma_cm_id *ibv)
{
	struct cm_id *id = TO(cm_id, ibv);
	int err = 0;

	if (call_fails_on(ibv, __func__))
		return -1;
	pthread_mutex_lock(&cm_lock);
	if (id->state == CM_CONNECTED || id->state == CM_ACCEPTING)
		cm_hang_up(id);
	else if (id->state != CM_ENDED)
		err = EINVAL;
	if (!err && ibv->qp) {
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

		err = ibv_modify_qp(ibv->qp, &a, IBV_QP_STATE);
	}
	pthread_mutex_unlock(&cm_lock);
	return err ? failed(err) : 0;
}

/* --- the rest ----------------------------------------------------------------------------------- */

EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return htons(TO(cm_id, id)->sport);
}

EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return htons(TO(cm_id, id)->dport);
}

EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen)
{
	size_t want = optname == RDMA_OPTION_ID_TOS || optname == RDMA_OPTION_ID_ACK_TIMEOUT ? 1 : sizeof(int);

	(void)id;
	if (fake_call_fails(__func__))
		return -1;
	if (level != RDMA_OPTION_ID || optname < RDMA_OPTION_ID_TOS || optname > RDMA_OPTION_ID_ACK_TIMEOUT)
		return failed(ENOSYS);
	if (!optval || optlen != want)
		return failed(EINVAL);
	if (optname == RDMA_OPTION_ID_TOS)
		fake_tos(*(uint8_t *)optval);
	return 0;
}

EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR", "RDMA_CM_EVENT_ROUTE_RESOLVED",
		"RDMA_CM_EVENT_ROUTE_ERROR", "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
		"RDMA_CM_EVENT_CONNECT_ERROR", "RDMA_CM_EVENT_UNREACHABLE", "RDMA_CM_EVENT_REJECTED",
		"RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_DEVICE_REMOVAL",
		"RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE",
		"RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};

	return (unsigned)event < sizeof(names) / sizeof(names[0]) ? names[event] : "UNKNOWN EVENT";
}
