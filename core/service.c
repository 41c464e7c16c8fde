/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * service.c - the tables (listens, links, dials) and the thread that looks after them.
 *
 * Locks, outermost first: svc.lock (a mutex: links, ports, dials, handshakes; set-up calls and
 * the thread take it for moments), a lane's io lock, a link's lock, svc.listen_lock (listens).
 *
 * The thread's body is service_step(): wait for events, handle them, look at the clock.  Links
 * are moved without svc.lock, for only this thread ever frees one.  A link is in one of two
 * modes: *active*, somebody calls on it, and the thread only looks by every TICK_MS; or *watched*,
 * nobody has called for a tick, and its sockets are in the thread's epoll set.
 */
#include "core/service.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/auth.h"
#include "core/conn.h"
#include "core/grow.h"
#include "core/log.h"
#include "core/os.h"
#include "core/param.h"
#include "core/pool.h"
#include "core/transport.h"

#define MS 1000000ull
#define SEC 1000000000ull

enum {
	TICK_MS = 2,
	BACKLOG = 1024,
	READY_MAX = 1024,		/* comms opened and not accepted, per listen */
	REDIAL_MS = 20, REDIAL_MAX_MS = 500,
	REFUSED_S = 3,			/* a closed port is believed after that */
	TRIES_MAX = 3,			/* links tried for one dial */
	STOP_MS = 100,			/* for goodbyes to leave */
};

struct port {				/* a device's listening socket */
	struct braid_list node;
	struct braid_dev *dev;
	int fd;
	uint16_t port;
	uint64_t paused_until_ns;	/* out of descriptors */
};

struct dial {
	uint32_t gen;
	uint64_t nonce;
	bool used;
	struct braid_handle to;
	struct braid_dev *dev;
	int traffic_class;
	struct braid_link *link;
	struct braid_comm *comm;
	unsigned tries;
	uint64_t deadline_ns;
};

struct braid_self braid_self;

static struct {
	pthread_mutex_t lock;
	bool ready;
	unsigned contexts;

	bool running, stop;
	pthread_t thread;
	int ep, efd;
	struct braid_lock kick_lock;	/* efd */
	uint64_t idle_since_ns, looked_ns;

	struct braid_list links, ports, conns;
	unsigned half_open;		/* conns that have proved nothing */
	atomic_uint dialling;
	struct dial **dials;
	unsigned ndials;
	uint64_t strangers, dropped;
	struct braid_log_gate gate_strangers, gate_fds, gate_version;

	struct braid_lock listen_lock;
	struct braid_list listens;
	atomic_uint nlistens;
} svc = { .lock = PTHREAD_MUTEX_INITIALIZER, .ep = -1, .efd = -1 };

/* What an epoll event is about: the low bits of the pointer. */
enum tag { TAG_WAKE, TAG_PORT, TAG_CONN, TAG_LANE, TAG_MASK = 7 };

static int watch(int op, int fd, uint32_t events, void *obj, enum tag tag)
{
	struct epoll_event ev = { .events = events, .data.u64 = (uint64_t)(uintptr_t)obj | tag };

	return braid_os->epoll_ctl(svc.ep, op, fd, &ev) ? -errno : 0;
}

/*
 * Before close, which is not enough: a child that was forked and has not come to exec yet may hold
 * the descriptor too, and epoll would go on to tell of it by a pointer to what is freed.
 */
static void unwatch(int fd)
{
	braid_os->epoll_ctl(svc.ep, EPOLL_CTL_DEL, fd, NULL);
}

/* --- process ------------------------------------------------------------------------------- */

/* In a forked child: descriptors are closed already; keys must not stay. */
static void wipe_child(void)
{
	for (struct braid_list *n = svc.links.next; n && n != &svc.links; n = n->next) {
		struct braid_link *link = braid_list_entry(n, struct braid_link, node);

		braid_auth_wipe(link->session, sizeof(link->session));
		braid_auth_wipe(&link->target, sizeof(link->target));
	}
	for (struct braid_list *n = svc.listens.next; n && n != &svc.listens; n = n->next)
		braid_auth_wipe(braid_list_entry(n, struct braid_listen, node)->token,
				BRAID_KEY_SIZE);
	for (unsigned i = 0; i < svc.ndials; i++)
		braid_auth_wipe(svc.dials[i]->to.token, BRAID_KEY_SIZE);
}

int braid_service_init(void)
{
	int err = 0;

	pthread_mutex_lock(&svc.lock);
	if (!svc.ready) {
		err = braid_auth_init();
		if (!err)
			err = braid_os_atfork(wipe_child);
		if (err)
			goto out;
		braid_list_init(&svc.links);
		braid_list_init(&svc.ports);
		braid_list_init(&svc.conns);
		braid_list_init(&svc.listens);
		braid_os->random(braid_self.process, sizeof(braid_self.process));
		braid_self.pid = (uint32_t)getpid();
		if (gethostname(braid_self.host, sizeof(braid_self.host) - 1))
			strcpy(braid_self.host, "unknown");
		svc.ready = true;
	}
out:
	pthread_mutex_unlock(&svc.lock);
	return err;
}

void braid_service_kick(void)
{
	braid_lock_wait(&svc.kick_lock);	/* now and then, for one write */
	if (svc.efd >= 0)
		braid_os->wake(svc.efd);
	braid_unlock(&svc.kick_lock);
}

static void *service_thread(void *arg);

static void close_fds(void)
{
	braid_lock_wait(&svc.kick_lock);
	if (svc.efd >= 0)
		braid_os->close(svc.efd);
	svc.efd = -1;
	braid_unlock(&svc.kick_lock);
	braid_os->close(svc.ep);
	svc.ep = -1;
}

static int start_failed(int err)
{
	return braid_error(err, "can't start the service thread: %s%s", strerror(-err),
			   err == -EMFILE ? ". Raise the limit: ulimit -n" : "");
}

/* With svc.lock held. */
static int service_start(void)
{
	int err;

	if (svc.running)
		return 0;
	svc.ep = braid_os->epoll_create();
	if (svc.ep < 0)
		return start_failed(-errno);
	braid_lock_wait(&svc.kick_lock);
	svc.efd = braid_os->eventfd();
	braid_unlock(&svc.kick_lock);
	err = svc.efd < 0 ? -errno : watch(EPOLL_CTL_ADD, svc.efd, EPOLLIN, NULL, TAG_WAKE);
	svc.stop = false;
	svc.idle_since_ns = 0;
	if (!err)
		err = braid_os->thread_start(&svc.thread, service_thread, NULL, "braid-service");
	if (err) {
		close_fds();
		return start_failed(err);
	}
	svc.running = true;
	return 0;
}

void braid_service_get(void)
{
	pthread_mutex_lock(&svc.lock);
	svc.contexts++;
	pthread_mutex_unlock(&svc.lock);
}

void braid_service_put(void)
{
	bool last;

	pthread_mutex_lock(&svc.lock);
	last = --svc.contexts == 0;
	pthread_mutex_unlock(&svc.lock);
	if (last)
		braid_service_stop();
}

void braid_service_stop(void)
{
	pthread_t thread;
	bool running;

	pthread_mutex_lock(&svc.lock);
	running = svc.running;
	thread = svc.thread;
	svc.stop = true;
	pthread_mutex_unlock(&svc.lock);
	if (!running)
		return;
	braid_service_kick();
	if (braid_os->thread_join(thread, 2000))
		braid_warn("the service thread did not end within 2 s; it is left behind");
}

/* --- listens ------------------------------------------------------------------------------- */

static int port_open(struct braid_dev *dev, struct port **ret)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t len = sizeof(sa);
	struct port *p;
	int fd, err, one = 1;

	braid_list_for(p, &svc.ports, node) {
		if (p->dev == dev) {
			*ret = p;
			return 0;
		}
	}
	memcpy(&sa, &dev->net.addr, sizeof(dev->net.addr));
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	fd = braid_os->socket(sa.ss_family);
	if (fd < 0)
		goto fail;
	if (sa.ss_family == AF_INET6)
		braid_os->setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (braid_os->bind(fd, (struct sockaddr *)&sa,
			   sa.ss_family == AF_INET ? sizeof(struct sockaddr_in) :
						     sizeof(struct sockaddr_in6)) ||
	    braid_os->listen(fd, BACKLOG) ||
	    braid_os->getsockname(fd, (struct sockaddr *)&sa, &len))
		goto fail;
	p->dev = dev;
	p->fd = fd;
	p->port = ntohs(sa.ss_family == AF_INET ? ((struct sockaddr_in *)&sa)->sin_port :
						  ((struct sockaddr_in6 *)&sa)->sin6_port);
	err = watch(EPOLL_CTL_ADD, fd, EPOLLIN, p, TAG_PORT);
	if (!err) {
		braid_list_add_tail(&svc.ports, &p->node);
		*ret = p;
		return 0;
	}
	errno = -err;
fail:
	err = -errno;
	if (fd >= 0)
		braid_os->close(fd);
	free(p);
	return braid_error(err, "device %s: can't listen on %s: %s%s", dev->net.name, dev->addr,
			   strerror(-err), err == -EMFILE ? ". Raise the limit: ulimit -n" : "");
}

static void handle_fill(struct braid_handle *h, const struct braid_listen *l, const struct port *p)
{
	const struct braid_netdev *net = &l->dev->net;

	h->least = BRAID_WIRE_LEAST;
	h->most = BRAID_WIRE_MOST;
	h->dev = (uint16_t)l->dev->index;
	h->listen_id = l->id;
	h->port = p->port;
	memcpy(h->process, braid_self.process, sizeof(h->process));
	memcpy(h->token, l->token, sizeof(h->token));
	if (net->addr.sa.sa_family == AF_INET) {
		h->has4 = 1;
		memcpy(h->addr4, &net->addr.in.sin_addr, sizeof(h->addr4));
	} else {
		h->has6 = 1;
		memcpy(h->addr6, &net->addr.in6.sin6_addr, sizeof(h->addr6));
	}
}

int braid_listen_new(struct braid_dev *dev, void *handle, struct braid_listen **ret)
{
	struct braid_listen *l = calloc(1, sizeof(*l));
	struct braid_handle h = { 0 };
	struct port *p = NULL;
	int err;

	if (!l)
		return -ENOMEM;
	l->dev = dev;
	braid_os->random(&l->id, sizeof(l->id));
	braid_os->random(l->token, sizeof(l->token));
	braid_list_init(&l->ready);
	braid_list_init(&l->ctx_node);
	pthread_mutex_lock(&svc.lock);
	err = service_start();
	if (!err)
		err = port_open(dev, &p);
	if (!err) {
		braid_lock_wait(&svc.listen_lock);
		braid_list_add_tail(&svc.listens, &l->node);
		svc.nlistens++;
		braid_unlock(&svc.listen_lock);
		svc.idle_since_ns = 0;
		handle_fill(&h, l, p);
	}
	pthread_mutex_unlock(&svc.lock);
	if (err) {
		free(l);
		return err;
	}
	braid_handle_pack(&h, handle);
	braid_auth_wipe(&h, sizeof(h));
	*ret = l;
	return 0;
}

static struct braid_listen *listen_by_id(uint64_t id)
{
	struct braid_listen *l;

	braid_list_for(l, &svc.listens, node) {
		if (l->id == id)
			return l;
	}
	return NULL;
}

int braid_listen_offer(struct braid_comm *c, const struct braid_open *open)
{
	uint8_t mac[BRAID_MAC_SIZE];
	struct braid_listen *l;
	int err = 0;

	braid_lock_wait(&svc.listen_lock);
	l = listen_by_id(open->listen_id);
	if (!l) {
		err = -ENOENT;
	} else {
		braid_auth_open(l->token, c->link->session, c->id, l->id, mac);
		if (!braid_auth_equal(mac, open->mac))
			err = -EACCES;
		else if (l->nready >= READY_MAX || l->dev != c->link->key.dev)
			err = -ENOSPC;
	}
	if (!err) {
		c->listen = l;
		l->nready++;
		braid_list_add_tail(&l->ready, &c->listen_node);
	}
	braid_unlock(&svc.listen_lock);
	return err;
}

struct braid_comm *braid_listen_accept(struct braid_listen *l)
{
	struct braid_comm *c = NULL;

	braid_lock_wait(&svc.listen_lock);
	if (!braid_list_empty(&l->ready)) {
		c = braid_list_entry(l->ready.next, struct braid_comm, listen_node);
		braid_list_del(&c->listen_node);
		c->listen = NULL;
		l->nready--;
	}
	braid_unlock(&svc.listen_lock);
	return c;
}

void braid_listen_close(struct braid_listen *l)
{
	struct braid_comm *c;

	braid_lock_wait(&svc.listen_lock);
	braid_list_del(&l->node);
	svc.nlistens--;
	braid_unlock(&svc.listen_lock);
	while ((c = braid_listen_accept(l)))
		braid_comm_close(c);
	braid_auth_wipe(l->token, sizeof(l->token));
	free(l);
	braid_service_kick();
}

/* --- links --------------------------------------------------------------------------------- */

static bool same_key(const struct braid_link_key *a, const struct braid_link_key *b)
{
	return !memcmp(a->process, b->process, sizeof(a->process)) && a->dev == b->dev &&
	       a->peer_dev == b->peer_dev && a->traffic_class == b->traffic_class &&
	       a->self_accepted == b->self_accepted;
}

static struct braid_link *link_find(const struct braid_link_key *key)
{
	struct braid_link *link;

	braid_list_for(link, &svc.links, node) {
		if (same_key(&link->key, key) && atomic_load(&link->state) != BRAID_LINK_DEAD &&
		    !link->peer_gone)
			return link;
	}
	return NULL;
}

static void conn_close(struct braid_conn *c)
{
	if (!c->dialler)
		svc.half_open--;
	if (c->link && c->link->conn == c)
		c->link->conn = NULL;
	braid_list_del(&c->node);
	if (c->fd >= 0) {
		unwatch(c->fd);
		braid_os->close(c->fd);
	}
	braid_auth_wipe(c, sizeof(*c));
	free(c);
}

/* svc.lock is held; the peer has proved itself in `c`: its socket becomes a lane. */
static int link_take_conn(struct braid_link *link, struct braid_conn *c, unsigned index)
{
	const struct braid_transport *tr = braid_transport_find(BRAID_TRANSPORT_TCP);
	int err;

	unwatch(c->fd);
	err = braid_link_add_lane(link, tr, index, c->theirs.epoch, c->fd);
	if (!err)
		c->fd = -1;
	return err;
}

static int link_up(struct braid_link *link, struct braid_conn *c)
{
	int err;

	braid_conn_session(c, link->session);
	link->dialler = c->dialler;
	link->id = c->dialler ? c->theirs.ident : c->mine.ident;
	link->next_comm = c->dialler ? 0 : 1;
	link->tx_window = c->theirs.window;
	link->lanes_max = c->theirs.lanes_max < c->mine.lanes_max ? c->theirs.lanes_max :
								    c->mine.lanes_max;
	link->rx_window = c->mine.window;
	c->mine.window = 0;
	snprintf(link->peer, sizeof(link->peer), "%s (pid %u, %s)", c->theirs.host, c->theirs.pid,
		 c->addr);
	err = link_take_conn(link, c, 0);
	if (!err)
		err = braid_link_attach(link);
	if (err)
		return err;
	braid_auth_wipe(link->target.token, BRAID_KEY_SIZE);
	atomic_store(&link->state, BRAID_LINK_UP);
	braid_grow_start(link);
	braid_info("device %s: link to %s is up, %s", link->key.dev->net.name, link->peer,
		   link->dialler ? "dialled" : "accepted");
	return 0;
}

static bool smaller_than_ours(const uint8_t *process)
{
	return memcmp(process, braid_self.process, BRAID_ID_SIZE) < 0;
}

static void key_of_hello(const struct braid_conn *c, struct braid_link_key *ret)
{
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->process, c->theirs.process, sizeof(ret->process));
	ret->dev = c->dev;
	ret->peer_dev = c->theirs.dev;
	ret->traffic_class = c->theirs.traffic_class;
	ret->self_accepted = !memcmp(ret->process, braid_self.process, sizeof(ret->process));
}

static bool common_transport(const struct braid_hello *h)
{
	for (unsigned i = 0; i < BRAID_TRANSPORTS_MAX && h->transports[i]; i++) {
		if (braid_transport_find(h->transports[i]))
			return true;
	}
	return false;
}

static void fill_transports(struct braid_hello *h)
{
	for (unsigned i = 0; braid_transports[i] && i < BRAID_TRANSPORTS_MAX; i++)
		h->transports[i] = braid_transports[i]->id;
}

static uint8_t lanes_limit(void)
{
	return (uint8_t)(braid_param.lanes ? braid_param.lanes : braid_param.lanes_max);
}

int braid_conn_find(struct braid_conn *c)
{
	struct braid_listen *l;
	struct braid_link *link;

	c->mine.kind = c->theirs.kind;
	c->mine.status = BRAID_HELLO_OK;
	c->mine.lane = c->theirs.lane;
	c->mine.epoch = c->theirs.epoch;
	c->mine.dev = (uint16_t)c->dev->index;
	c->mine.peer_dev = c->theirs.dev;
	c->mine.traffic_class = c->theirs.traffic_class;
	c->mine.lanes_max = lanes_limit();
	fill_transports(&c->mine);
	if (c->theirs.kind == BRAID_HELLO_LINK) {
		braid_lock_wait(&svc.listen_lock);
		l = listen_by_id(c->theirs.ident);
		if (l && l->dev == c->dev)
			memcpy(c->key, l->token, sizeof(c->key));
		else
			c->mine.status = BRAID_HELLO_NO_LISTEN;
		braid_unlock(&svc.listen_lock);
		return 0;
	}
	braid_list_for(link, &svc.links, node) {
		if (atomic_load(&link->state) != BRAID_LINK_UP || link->dialler ||
		    link->id != c->theirs.ident)
			continue;
		memcpy(c->key, link->session, sizeof(c->key));
		c->link = link;
		return 0;
	}
	c->mine.status = BRAID_HELLO_NO_LINK;
	return 0;
}

void braid_conn_admit(struct braid_conn *c)
{
	struct braid_link_key key;
	struct braid_link *link;

	if (c->theirs.kind == BRAID_HELLO_LANE) {
		if (c->theirs.lane != c->link->nlanes)
			c->mine.status = BRAID_HELLO_NO_LINK;
		return;
	}
	key_of_hello(c, &key);
	link = key.self_accepted ? NULL : link_find(&key);
	if (!common_transport(&c->theirs)) {
		c->mine.status = BRAID_HELLO_NO_TRANSPORT;
	} else if (link && link->dialler && !smaller_than_ours(key.process) &&
		   atomic_load(&link->state) != BRAID_LINK_WAITING) {
		c->mine.status = BRAID_HELLO_CROSSED;
	} else {
		braid_os->random(&c->mine.ident, sizeof(c->mine.ident));
		c->mine.window = (uint32_t)braid_pool_promise((size_t)braid_param.window);
	}
}

/* The accepting end's proof is in: make the link, or give the socket to the one that waits. */
static int accepted(struct braid_conn *c)
{
	struct braid_link_key key;
	struct braid_link *link;
	int err;

	if (c->theirs.kind == BRAID_HELLO_LANE)
		return link_take_conn(c->link, c, c->theirs.lane);
	key_of_hello(c, &key);
	link = key.self_accepted ? NULL : link_find(&key);
	if (link && atomic_load(&link->state) == BRAID_LINK_UP)
		link = NULL;
	if (link) {
		if (link->conn) {
			struct braid_conn *ours = link->conn;

			braid_pool_unpromise(ours->mine.window);
			conn_close(ours);
		}
		return link_up(link, c);
	}
	link = braid_link_new(&key);
	if (!link)
		return -ENOMEM;
	err = link_up(link, c);
	if (err) {
		braid_link_free(link);
		return err;
	}
	braid_list_add_tail(&svc.links, &link->node);
	return 0;
}

/* --- dialling ------------------------------------------------------------------------------ */

static socklen_t target_addr(const struct braid_link *link, struct sockaddr_storage *sa, char *text,
			     size_t text_len)
{
	const struct braid_handle *h = &link->target;
	char ip[INET6_ADDRSTRLEN] = "?";

	memset(sa, 0, sizeof(*sa));
	if (h->has4 && link->key.dev->net.addr.sa.sa_family == AF_INET) {
		struct sockaddr_in *in = (struct sockaddr_in *)sa;

		in->sin_family = AF_INET;
		in->sin_port = htons(h->port);
		memcpy(&in->sin_addr, h->addr4, sizeof(h->addr4));
		inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip));
		snprintf(text, text_len, "%s:%u", ip, h->port);
		return sizeof(*in);
	}
	if (h->has6 && link->key.dev->net.addr.sa.sa_family == AF_INET6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)sa;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(h->port);
		memcpy(&in6->sin6_addr, h->addr6, sizeof(h->addr6));
		if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			in6->sin6_scope_id = link->key.dev->net.ifindex;
		inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip));
		snprintf(text, text_len, "[%s]:%u", ip, h->port);
		return sizeof(*in6);
	}
	snprintf(text, text_len, "an address of the other IP version");
	return 0;
}

static socklen_t peer_addr(const struct braid_link *link, struct sockaddr_storage *sa)
{
	char text[64];

	return target_addr(link, sa, text, sizeof(text));
}

/* A socket on its way to the peer, from the device's own address: a descriptor or -errno. */
static int dial_socket(struct braid_link *link)
{
	struct sockaddr_storage to, from = { 0 };
	socklen_t len = peer_addr(link, &to);
	int fd, err, one = 1;

	if (!len)
		return -EAFNOSUPPORT;
	fd = braid_os->socket(to.ss_family);
	if (fd < 0)
		return -errno;
	memcpy(&from, &link->key.dev->net.addr, sizeof(link->key.dev->net.addr));
	if (from.ss_family == AF_INET)
		braid_os->setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	braid_os->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (!braid_os->bind(fd, (struct sockaddr *)&from, len) &&
	    (!braid_os->connect(fd, (struct sockaddr *)&to, len) || errno == EINPROGRESS))
		return fd;
	err = -errno;
	braid_os->close(fd);
	return err;
}

static int dial_start(struct braid_link *link, enum braid_hello_kind kind, uint64_t now)
{
	struct braid_conn *c = calloc(1, sizeof(*c));
	struct sockaddr_storage sa;
	int fd;

	if (!c)
		return -ENOMEM;
	fd = dial_socket(link);
	if (fd < 0) {
		free(c);
		return fd;
	}
	braid_conn_init(c, fd, true);
	c->link = link;
	c->dev = link->key.dev;
	c->deadline_ns = now + (uint64_t)braid_param.handshake_timeout * SEC;
	if (kind == BRAID_HELLO_LINK && c->deadline_ns > link->dial_until_ns)
		c->deadline_ns = link->dial_until_ns;
	target_addr(link, &sa, c->addr, sizeof(c->addr));
	c->mine.kind = (uint8_t)kind;
	c->mine.dev = (uint16_t)link->key.dev->index;
	c->mine.peer_dev = link->key.peer_dev;
	c->mine.traffic_class = link->key.traffic_class;
	c->mine.lanes_max = lanes_limit();
	fill_transports(&c->mine);
	if (kind == BRAID_HELLO_LINK) {
		c->mine.ident = link->target.listen_id;
		c->mine.window = (uint32_t)braid_pool_promise((size_t)braid_param.window);
		memcpy(c->key, link->target.token, sizeof(c->key));
	} else {
		c->mine.ident = link->id;
		c->mine.lane = (uint8_t)link->nlanes;
		memcpy(c->key, link->session, sizeof(c->key));
	}
	braid_list_add_tail(&svc.conns, &c->node);
	link->conn = c;
	if (watch(EPOLL_CTL_ADD, fd, EPOLLOUT, c, TAG_CONN)) {
		conn_close(c);
		return -ENOMEM;
	}
	return 0;
}

static const char *refusal(const struct braid_conn *c)
{
	switch (c->theirs.status) {
	case BRAID_HELLO_NO_LISTEN:
		return "it no longer listens for this connection; did that rank abort?";
	case BRAID_HELLO_NO_TRANSPORT:
		return "it has no transport in common with us; compare BRAID_TRANSPORTS on both "
		       "hosts";
	default:
		return "it refused";
	}
}

static void dial_failed_for_good(struct braid_link *link, const struct braid_conn *c, int err)
{
	const char *addr = c ? c->addr : "the peer";

	if (err == -EPROTONOSUPPORT)
		braid_link_fail(link, err,
				"%s speaks Braid's wire versions %u to %u, this library %u to "
				"%u: install the same Braid release on both hosts",
				addr, c ? c->theirs.least : 0, c ? c->theirs.most : 0,
				BRAID_WIRE_LEAST, BRAID_WIRE_MOST);
	else if (err == -EPROTO)
		braid_link_fail(link, -EPROTONOSUPPORT,
				"what answers at %s is not Braid (this library "
				"speaks wire version %u): another program took the port, or the "
				"peer runs "
				"another NCCL net plugin",
				addr, BRAID_WIRE_MOST);
	else if (err == -EACCES)
		braid_link_fail(link, -EACCES,
				"%s does not know this connection's token: it is not the "
				"process that made the handle",
				addr);
	else if (err == -EREMOTEIO)
		braid_link_fail(link, err, "%s answered, but %s", addr,
				c ? refusal(c) : "it refused");
	else if (err == -ETIMEDOUT)
		braid_link_fail(link, -EREMOTEIO,
				"no answer within %lld s (BRAID_CONNECT_TIMEOUT): is "
				"there a firewall between the hosts, or is this the wrong "
				"interface "
				"(NCCL_SOCKET_IFNAME)?",
				(long long)braid_param.connect_timeout);
	else if (err == -EAFNOSUPPORT)
		braid_link_fail(link, -EPROTONOSUPPORT,
				"the two ends have no IP version in common; set "
				"NCCL_SOCKET_FAMILY on both hosts");
	else if (err == -ECONNREFUSED)
		braid_link_fail(link, -EREMOTEIO,
				"nobody listens there any more: the peer's process has "
				"ended; look for the first error in that rank's log");
	else
		braid_link_fail(link, err, "can't connect: %s%s", strerror(-err),
				err == -EMFILE ? ". Raise the limit: ulimit -n" : "");
}

/* A dial of a new link did not come through: try again, wait for theirs, or give up. */
static void link_dial_failed(struct braid_link *link, struct braid_conn *c, int err, uint64_t now)
{
	bool crossed = err == -EREMOTEIO && c && c->theirs.status == BRAID_HELLO_CROSSED;

	if (atomic_load(&link->state) == BRAID_LINK_UP)
		return;
	if (crossed) {			/* theirs is on its way; ask again if it does not come */
		atomic_store(&link->state, BRAID_LINK_WAITING);
		link->dial_at_ns = now + REDIAL_MAX_MS * MS;
		return;
	}
	if (err == -ECONNREFUSED && !link->refused_until_ns)
		link->refused_until_ns = now + REFUSED_S * SEC;
	if (err == -EPROTONOSUPPORT || err == -EPROTO || err == -EACCES || err == -EREMOTEIO ||
	    err == -EAFNOSUPPORT || now >= link->dial_until_ns ||
	    (err == -ECONNREFUSED && now >= link->refused_until_ns)) {
		dial_failed_for_good(link, c, now >= link->dial_until_ns ? -ETIMEDOUT : err);
		return;
	}
	if ((err == -EMFILE || err == -ENFILE) && braid_log_gate_open(&svc.gate_fds, now))
		braid_warn("out of file descriptors while connecting; trying on. Raise ulimit -n");
	link->dial_at_ns = now + REDIAL_MS * MS;
}

static void dial_link(struct braid_link *link, uint64_t now)
{
	int err;

	atomic_store(&link->state, BRAID_LINK_DIALING);
	link->dial_at_ns = 0;
	err = dial_start(link, BRAID_HELLO_LINK, now);
	if (err)
		link_dial_failed(link, NULL, err, now);
}

static void conn_event(struct braid_conn *c, uint64_t now)
{
	struct braid_link *link = c->link;
	uint32_t events = 0;
	int err = braid_conn_step(c, &events);

	if (err == -EAGAIN) {
		watch(EPOLL_CTL_MOD, c->fd, events, c, TAG_CONN);
		return;
	}
	if (!err && !c->dialler) {
		err = accepted(c);
		braid_pool_unpromise(c->mine.window);
		conn_close(c);
		return;
	}
	if (!err && c->mine.kind == BRAID_HELLO_LANE)
		err = link_take_conn(link, c, c->mine.lane);
	else if (!err)
		err = link_up(link, c);
	if (c->dialler && c->mine.kind == BRAID_HELLO_LINK && err)
		link_dial_failed(link, c, err, now);
	if (c->dialler && c->mine.kind == BRAID_HELLO_LANE)
		braid_grow_dialled(link, err, now);
	if (!c->dialler && (err == -EPROTO || err == -EACCES))
		svc.strangers++;
	if (!c->dialler && err == -EPROTONOSUPPORT && braid_log_gate_open(&svc.gate_version, now))
		braid_warn("device %s: %s speaks Braid's wire versions %u to %u, this library %u "
			   "to %u: "
			   "refused. Install the same Braid release on both hosts",
			   c->dev->net.name, c->addr, c->theirs.least, c->theirs.most,
			   BRAID_WIRE_LEAST, BRAID_WIRE_MOST);
	braid_pool_unpromise(c->mine.window);
	conn_close(c);
}

/* --- accepting ----------------------------------------------------------------------------- */

static void addr_text(const struct sockaddr_storage *sa, char *text, size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (sa->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip));
		snprintf(text, len, "%s:%u", ip, ntohs(in->sin_port));
	} else {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip));
		snprintf(text, len, "[%s]:%u", ip, ntohs(in6->sin6_port));
	}
}

/* Room for one more: the oldest makes it, of those that have shown nothing if there is one. */
static void drop_oldest_half_open(void)
{
	struct braid_conn *c, *victim = NULL;

	braid_list_for(c, &svc.conns, node) {
		if (c->dialler)
			continue;
		if (!victim || !c->known)
			victim = c;
		if (!c->known)
			break;
	}
	if (!victim)
		return;
	svc.dropped++;
	braid_pool_unpromise(victim->mine.window);
	conn_close(victim);
}

static void port_event(struct port *p, uint64_t now)
{
	/* A bounded bite, so that a flood does not keep the thread here. */
	for (int i = 0; i < 128; i++) {
		struct sockaddr_storage sa = { 0 };
		socklen_t len = sizeof(sa);
		int fd = braid_os->accept(p->fd, (struct sockaddr *)&sa, &len), one = 1;
		struct braid_conn *c;

		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			       errno == ENOBUFS)) {
			if (svc.half_open) {	/* strangers may hold what the peer needs */
				drop_oldest_half_open();
				continue;
			}
			if (braid_log_gate_open(&svc.gate_fds, now))
				braid_warn("device %s: can't accept a peer: %s; trying on. Raise "
					   "ulimit -n",
					   p->dev->net.name, strerror(errno));
			p->paused_until_ns = now + 100 * MS;
			watch(EPOLL_CTL_MOD, p->fd, 0, p, TAG_PORT);
			return;
		}
		if (fd < 0)
			return;
		c = calloc(1, sizeof(*c));
		if (!c) {
			braid_os->close(fd);
			return;
		}
		if (svc.half_open >= (unsigned)braid_param.half_open)
			drop_oldest_half_open();
		braid_os->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		braid_conn_init(c, fd, false);
		c->dev = p->dev;
		c->deadline_ns = now + (uint64_t)braid_param.handshake_timeout * SEC;
		addr_text(&sa, c->addr, sizeof(c->addr));
		braid_list_add_tail(&svc.conns, &c->node);
		svc.half_open++;
		if (watch(EPOLL_CTL_ADD, fd, EPOLLIN, c, TAG_CONN))
			conn_close(c);
		else
			conn_event(c, now);
	}
}

/* --- links, as time goes by ---------------------------------------------------------------- */

/*
 * Nobody has called for a tick: say what was left unsaid, and watch the sockets.  A call that
 * slips in between shows in `touched` at the next tick at the latest, so the link is looked at
 * once more before the thread may sleep (settled).
 */
static void link_watch(struct braid_link *link)
{
	braid_link_move(link);
	braid_link_tidy(link);
	atomic_store(&link->watched, true);
	link->settled = false;
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		watch(i < link->in_epoll ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, lane->fd,
		      EPOLLIN | EPOLLRDHUP | EPOLLONESHOT | (lane->blocked ? EPOLLOUT : 0u), lane,
		      TAG_LANE);
	}
	link->in_epoll = link->nlanes;
}

/* Somebody calls again.  Even a disarmed entry costs every packet a look by the kernel. */
static void link_unwatch(struct braid_link *link)
{
	atomic_store(&link->watched, false);
	for (unsigned i = 0; i < link->in_epoll; i++)
		unwatch(link->lane[i]->fd);
	link->in_epoll = 0;
}

/* Something arrived on a watched link: move it, unless somebody has begun to call on it. */
static void link_event(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;

	atomic_store(&lane->readable, true);
	atomic_store(&link->stalled, true);	/* look at all lanes, expected or not */
	if (atomic_load(&link->state) != BRAID_LINK_UP)
		return;
	if (atomic_load(&link->touched) == link->seen && atomic_load(&link->watched))
		link_watch(link);
	else
		link_unwatch(link);
}

static void link_tick(struct braid_link *link)
{
	unsigned long touched = atomic_load(&link->touched);

	if (touched != link->seen) {
		link->seen = touched;
		link_unwatch(link);
		braid_link_tidy(link);
	} else if (!atomic_load(&link->watched)) {
		link_watch(link);
	} else {
		link->settled = true;
	}
}

static void comms_bury(struct braid_link *link)
{
	struct braid_comm *c, *tmp;

	braid_lock_wait(&link->lock);
	braid_list_for_safe(c, tmp, &link->comms, node) {
		bool waiting;

		if (c->closed) {
			braid_comm_free(c);
			continue;
		}
		/* Never accepted: nobody holds it. */
		braid_lock_wait(&svc.listen_lock);
		waiting = !braid_list_empty(&c->listen_node);
		if (waiting) {
			c->listen->nready--;
			braid_list_del(&c->listen_node);
		}
		braid_unlock(&svc.listen_lock);
		if (waiting)
			braid_comm_free(c);
	}
	braid_unlock(&link->lock);
}

static void link_close_lanes(struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		braid_lock_wait(&lane->io);
		lane->tr->lane_close(lane);
		braid_unlock(&lane->io);
	}
}

static void link_say_close(struct braid_link *link)
{
	struct braid_hdr h = { .type = BRAID_F_CLOSE };

	braid_lock_wait(&link->lock);
	if (!braid_link_attach(link) && !link->peer_gone) {
		braid_link_tell(link);
		braid_link_ctl(link, &h, NULL);
		braid_link_flush(link);
	}
	braid_unlock(&link->lock);
}

/* Handshakes of lanes that came too late. */
static void conns_drop(const struct braid_link *link)
{
	struct braid_conn *c, *tmp;

	braid_list_for_safe(c, tmp, &svc.conns, node) {
		if (c->link == link) {
			braid_pool_unpromise(c->mine.window);
			conn_close(c);
		}
	}
}

/* A link that has just been dialled to us carries its first comm soon. */
static uint64_t idle_limit(const struct braid_link *link)
{
	uint64_t limit = (uint64_t)braid_param.link_idle * SEC;

	return link->dialler || link->used || limit > 2 * SEC ? limit : 2 * SEC;
}

/* True if the link is gone and freed.  svc.lock is held. */
static bool link_reap(struct braid_link *link, uint64_t now)
{
	int state = atomic_load(&link->state);

	if (state == BRAID_LINK_DEAD) {
		link_unwatch(link);
		link_close_lanes(link);
		comms_bury(link);
		if (link->ncomms || atomic_load(&link->pins))
			return false;
		conns_drop(link);
		braid_list_del(&link->node);
		braid_link_free(link);
		return true;
	}
	if (link->ncomms || atomic_load(&link->pins) || state != BRAID_LINK_UP) {
		link->idle_since_ns = 0;
		return false;
	}
	if (!link->idle_since_ns)
		link->idle_since_ns = now;
	if (now - link->idle_since_ns > 50 * MS && link->attached) {
		braid_lock_wait(&link->lock);
		if (!link->ncomms)
			braid_link_detach(link);
		braid_unlock(&link->lock);
	}
	if (now - link->idle_since_ns >= idle_limit(link) || link->peer_gone) {
		link_say_close(link);
		braid_link_fail(link, -ENOTCONN, "idle link closed");
	}
	return false;
}

/* --- the thread ---------------------------------------------------------------------------- */

static void conns_expire(uint64_t now)
{
	struct braid_conn *c, *tmp;

	braid_list_for_safe(c, tmp, &svc.conns, node) {
		struct braid_link *link = c->link;

		if (now < c->deadline_ns)
			continue;
		if (!c->dialler)
			svc.dropped++;
		else if (c->mine.kind == BRAID_HELLO_LANE)
			braid_grow_dialled(link, -ETIMEDOUT, now);
		else
			link_dial_failed(link, c, -ETIMEDOUT, now);
		braid_pool_unpromise(c->mine.window);
		conn_close(c);
	}
}

/* True if some still wait for descriptors. */
static bool ports_resume(uint64_t now)
{
	bool waiting = false;
	struct port *p;

	braid_list_for(p, &svc.ports, node) {
		if (!p->paused_until_ns)
			continue;
		if (now < p->paused_until_ns) {
			waiting = true;
			continue;
		}
		p->paused_until_ns = 0;
		watch(EPOLL_CTL_MOD, p->fd, EPOLLIN, p, TAG_PORT);
	}
	return waiting;
}

static void tell_strangers(uint64_t now)
{
	if (svc.strangers + svc.dropped == 0 || !braid_log_gate_open(&svc.gate_strangers, now))
		return;
	braid_info("refused %llu connections of strangers, dropped %llu that proved nothing in "
		   "time",
		   (unsigned long long)svc.strangers, (unsigned long long)svc.dropped);
	svc.strangers = svc.dropped = 0;
}

/* Look at everything once: returns the milliseconds until there is something to do again. */
static int service_look(uint64_t now)
{
	struct braid_link *link, *tmp;
	int wait_ms = -1;
	bool paused;

	conns_expire(now);
	paused = ports_resume(now);
	tell_strangers(now);
	braid_list_for_safe(link, tmp, &svc.links, node) {
		int state = atomic_load(&link->state);

		if (link_reap(link, now)) {
			wait_ms = TICK_MS;
			continue;
		}
		if ((state == BRAID_LINK_DIALING || state == BRAID_LINK_WAITING) && !link->conn &&
		    now >= link->dial_at_ns)
			dial_link(link, now);
		if (state == BRAID_LINK_UP && link->dialler && !link->conn &&
		    braid_grow_wants_dial(link)) {
			if (dial_start(link, BRAID_HELLO_LANE, now))
				braid_grow_dialled(link, -ENOMEM, now);
		}
		if (state == BRAID_LINK_UP)
			braid_grow_tick(link, now);
		if (state != BRAID_LINK_UP || !atomic_load(&link->watched) || !link->settled)
			wait_ms = TICK_MS;
		else if (!link->ncomms && wait_ms < 0)
			wait_ms = 100;
	}
	if ((paused || !braid_list_empty(&svc.conns)) && wait_ms < 0)
		wait_ms = 100;
	return wait_ms;
}

static bool nothing_left(uint64_t now)
{
	if (svc.nlistens || !braid_list_empty(&svc.links) || atomic_load(&svc.dialling)) {
		svc.idle_since_ns = 0;
		return false;
	}
	if (!svc.idle_since_ns)
		svc.idle_since_ns = now;
	return now - svc.idle_since_ns >= (uint64_t)braid_param.link_idle * SEC;
}

static void close_all(void)
{
	struct braid_link *link, *tmp;
	uint64_t until = braid_os->now_ns() + STOP_MS * MS;
	bool busy = true;

	braid_list_for(link, &svc.links, node) {
		if (atomic_load(&link->state) == BRAID_LINK_UP)
			link_say_close(link);
	}
	/* Let the goodbyes and what goes before them reach the peers, within bounds. */
	while (busy && braid_os->now_ns() < until) {
		struct epoll_event ev[1];

		busy = false;
		braid_list_for(link, &svc.links, node) {
			if (atomic_load(&link->state) != BRAID_LINK_UP)
				continue;
			braid_link_move(link);
			braid_link_tidy(link);
			busy |= !link->peer_gone && !braid_txq_idle(&braid_link_home(link)->tx);
		}
		if (busy)
			braid_os->epoll_wait(svc.ep, ev, 1, 1);
	}
	braid_list_for_safe(link, tmp, &svc.links, node) {
		braid_link_fail(link, -ENOTCONN, "the last context was finalized");
		link_reap(link, 0);
	}
	while (!braid_list_empty(&svc.conns))
		conn_close(braid_list_entry(svc.conns.next, struct braid_conn, node));
	while (!braid_list_empty(&svc.ports)) {
		struct port *p = braid_list_entry(svc.ports.next, struct port, node);

		braid_list_del(&p->node);
		braid_os->close(p->fd);
		free(p);
	}
	for (unsigned i = 0; i < svc.ndials; i++)
		free(svc.dials[i]);
	free(svc.dials);
	svc.dials = NULL;
	svc.ndials = 0;
	close_fds();
	braid_pool_trim();
}

static void handle_event(const struct epoll_event *ev, uint64_t now)
{
	void *obj = (void *)(uintptr_t)(ev->data.u64 & ~(uint64_t)TAG_MASK);

	switch ((enum tag)(ev->data.u64 & TAG_MASK)) {
	case TAG_WAKE:
		braid_os->unwake(svc.efd);
		break;
	case TAG_PORT:
		port_event(obj, now);
		break;
	case TAG_CONN:
		conn_event(obj, now);
		break;
	default:
		break;
	}
}

static bool is_lane(const struct epoll_event *ev)
{
	return (ev->data.u64 & TAG_MASK) == TAG_LANE;
}

static void links_tick(void)
{
	struct braid_link *link;

	braid_list_for(link, &svc.links, node) {
		if (atomic_load(&link->state) == BRAID_LINK_UP)
			link_tick(link);
	}
}

/* Once round: false when there is nothing left to look after. */
static bool service_step(int *wait_ms)
{
	struct epoll_event ev[1];
	uint64_t now;
	bool go_on, look;
	int n;

	/*
	 * One event at a time: handling one may free what another is about.  Lanes are freed by
	 * this thread only, so that they can be moved without svc.lock.
	 */
	n = braid_os->epoll_wait(svc.ep, ev, 1, *wait_ms);
	if (n > 0 && is_lane(ev)) {
		struct braid_lane *lane =
			(void *)(uintptr_t)(ev->data.u64 & ~(uint64_t)TAG_MASK);

		link_event(lane);
	}
	now = braid_os->now_ns();
	look = n <= 0 || now - svc.looked_ns >= TICK_MS * MS;	/* also while events pour in */
	pthread_mutex_lock(&svc.lock);
	if (n > 0 && !is_lane(ev))
		handle_event(ev, now);
	if (look)
		links_tick();		/* first: service_look() says how long to sleep after it */
	*wait_ms = 0;
	if (look) {
		int ms = service_look(now);

		svc.looked_ns = now;
		*wait_ms = n > 0 ? 0 : ms;
	}
	go_on = !svc.stop && !nothing_left(now);
	if (go_on && *wait_ms < 0 && svc.idle_since_ns)
		*wait_ms = 100;
	pthread_mutex_unlock(&svc.lock);
	return go_on;
}

/* Whether to end is decided with the lock held until it has: nobody may come in between. */
static void *service_thread(void *arg)
{
	int wait_ms = 0;

	(void)arg;
	for (;;) {
		if (service_step(&wait_ms))
			continue;
		pthread_mutex_lock(&svc.lock);
		if (svc.stop || nothing_left(braid_os->now_ns()))
			break;
		pthread_mutex_unlock(&svc.lock);
		wait_ms = 0;
	}
	close_all();
	if (!svc.stop)
		pthread_detach(svc.thread);
	svc.running = false;
	pthread_mutex_unlock(&svc.lock);
	return NULL;
}

/* --- connect ------------------------------------------------------------------------------- */

static struct dial *dial_new(void)
{
	struct dial *d = NULL;
	unsigned i;

	for (i = 0; i < svc.ndials && svc.dials[i]->used; i++)
		;
	if (i == svc.ndials) {
		struct dial **more = realloc(svc.dials, (svc.ndials + 1) * sizeof(*more));

		if (!more)
			return NULL;
		svc.dials = more;
		d = calloc(1, sizeof(*d));
		if (!d)
			return NULL;
		svc.dials[svc.ndials++] = d;
	}
	d = svc.dials[i];
	*d = (struct dial){ .used = true, .gen = d->gen + 1 };
	braid_os->random(&d->nonce, sizeof(d->nonce));
	atomic_fetch_add(&svc.dialling, 1);
	return d;
}

static void dial_end(struct dial *d)
{
	if (d->link)
		atomic_fetch_sub(&d->link->pins, 1);
	d->link = NULL;
	d->used = false;
	braid_auth_wipe(&d->to, sizeof(d->to));
	atomic_fetch_sub(&svc.dialling, 1);
}

static int dial_find(const struct braid_handle *h, void *handle, struct dial **ret)
{
	struct braid_handle_state st;
	struct dial *d;

	if (h->state.slot) {
		if (h->state.slot > svc.ndials)
			return -EBADMSG;
		d = svc.dials[h->state.slot - 1];
		if (!d->used || d->gen != h->state.gen || d->nonce != h->state.nonce)
			return -EBADMSG;
		*ret = d;
		return 0;
	}
	if (h->state.gen || h->state.nonce)
		return -EBADMSG;
	d = dial_new();
	if (!d)
		return -ENOMEM;
	for (st.slot = 0; svc.dials[st.slot] != d; st.slot++)
		;
	st.slot++;
	st.gen = d->gen;
	st.nonce = d->nonce;
	braid_handle_put_state(handle, &st);
	d->to = *h;
	d->deadline_ns = braid_os->now_ns() + (uint64_t)braid_param.connect_timeout * SEC;
	*ret = d;
	return 0;
}

/* The link to ride on: one that is there, or a new one that the service thread will dial. */
static int dial_link_for(struct dial *d)
{
	struct braid_link_key key = { 0 };
	struct braid_link *link;

	memcpy(key.process, d->to.process, sizeof(key.process));
	key.dev = d->dev;
	key.peer_dev = d->to.dev;
	key.traffic_class = (int16_t)d->traffic_class;
	link = link_find(&key);
	if (!link) {
		int err = service_start();

		link = err ? NULL : braid_link_new(&key);
		if (!link)
			return err ? err : -ENOMEM;
		link->dialler = true;
		link->target = d->to;
		link->dial_until_ns = d->deadline_ns;
		target_addr(link, &(struct sockaddr_storage){ 0 }, link->peer, sizeof(link->peer));
		braid_list_add_tail(&svc.links, &link->node);
		braid_service_kick();
	}
	atomic_fetch_add(&link->pins, 1);
	d->link = link;
	return 0;
}

static int dial_open(struct dial *d)
{
	struct braid_hdr h = { .type = BRAID_F_OPEN, .len = BRAID_OPEN_SIZE };
	struct braid_link *link = d->link;
	struct braid_open open = { .listen_id = d->to.listen_id };
	uint8_t payload[BRAID_OPEN_SIZE];
	int err = -EAGAIN;

	braid_lock_wait(&link->lock);
	if (!braid_link_attach(link) && braid_txq_room_ctl(&braid_link_home(link)->tx)) {
		d->comm = braid_comm_new(link, link->next_comm, true);
		err = d->comm ? 0 : -ENOMEM;
	}
	if (!err) {
		h.comm = d->comm->id;
		link->next_comm += 2;
		braid_auth_open(d->to.token, link->session, h.comm, open.listen_id, open.mac);
		braid_open_pack(&open, payload);
		braid_link_ctl(link, &h, payload);
		braid_link_flush(link);
	}
	braid_unlock(&link->lock);
	return err;
}

/*
 * The link died before the peer said that it has our comm: nothing was sent on it yet, so another
 * link will do, unless it was ours to dial and the dial itself failed.
 */
static int dial_again(struct dial *d)
{
	int err = atomic_load(&d->link->err);
	/* It was idle and closed just as we came; or it was dialled for a listen that is gone. */
	bool closed = err == -ENOTCONN || d->link->peer_gone ||
		      (!d->link->nlanes && d->link->target.listen_id != d->to.listen_id);
	bool failed = !d->link->nlanes;
	char peer[sizeof(d->link->peer)];

	memcpy(peer, d->link->peer, sizeof(peer));
	if (d->comm)
		braid_comm_close(d->comm);
	d->comm = NULL;
	atomic_fetch_sub(&d->link->pins, 1);
	d->link = NULL;
	if (closed || (!failed && err == -EREMOTEIO && ++d->tries < TRIES_MAX))
		return -EAGAIN;
	if (!failed)		/* a dial that failed has said so */
		braid_warn("device %s, peer %s: %u links in a row were lost before a connection "
			   "was open; look for the first error in that rank's log",
			   d->dev->net.name, peer, d->tries);
	return err;
}

static int dial_step(struct dial *d)
{
	struct braid_link *link;
	bool opened;
	int err, state;

	if (!d->link) {
		err = dial_link_for(d);
		if (err)
			return err;
	}
	link = d->link;
	state = atomic_load(&link->state);
	if (state == BRAID_LINK_DEAD)
		return dial_again(d);
	if (state != BRAID_LINK_UP)
		return -EAGAIN;
	if (!d->comm) {
		err = dial_open(d);
		if (err)
			return err;
	}
	braid_link_progress(link, NULL);
	braid_lock_wait(&link->lock);
	opened = d->comm->opened;
	err = atomic_load(&d->comm->err);
	braid_unlock(&link->lock);
	if (opened)
		return 0;
	if (err == -ECONNREFUSED) {
		braid_warn("device %s, peer %s: it no longer listens for this connection; did that "
			   "rank "
			   "abort?",
			   d->dev->net.name, link->peer);
		return -EREMOTEIO;
	}
	if (braid_os->now_ns() >= d->deadline_ns)
		return braid_error(-EREMOTEIO,
				   "device %s, peer %s: connected, but no answer within "
				   "%lld s (BRAID_CONNECT_TIMEOUT): is that process stopped?",
				   d->dev->net.name, link->peer,
				   (long long)braid_param.connect_timeout);
	return -EAGAIN;
}

int braid_dial(struct braid_dev *dev, int traffic_class, void *handle, struct braid_comm **ret)
{
	struct braid_handle h;
	struct dial *d = NULL;
	int err = braid_handle_unpack(handle, &h);

	*ret = NULL;
	if (err == -EPROTO)
		return braid_error(-EPROTONOSUPPORT,
				   "device %s: the peer's handle is not Braid's: it "
				   "runs another NCCL net plugin; set NCCL_NET_PLUGIN=braid on "
				   "every rank",
				   dev->net.name);
	if (err == -EPROTONOSUPPORT)
		return braid_error(
			err,
			"device %s: the peer speaks Braid's wire versions %u to %u, this "
			"library %u to %u: install the same Braid release on both hosts",
			dev->net.name, h.least, h.most, BRAID_WIRE_LEAST, BRAID_WIRE_MOST);
	if (err)
		return braid_error(-EINVAL, "device %s: the peer's handle was damaged on its way",
				   dev->net.name);
	pthread_mutex_lock(&svc.lock);
	err = dial_find(&h, handle, &d);
	if (!err) {
		d->dev = dev;
		d->traffic_class = traffic_class;
		err = dial_step(d);
		if (!err)
			*ret = d->comm;
		if (err != -EAGAIN) {
			if (err && d->comm)
				braid_comm_close(d->comm);
			dial_end(d);
		}
	}
	pthread_mutex_unlock(&svc.lock);
	braid_auth_wipe(&h, sizeof(h));
	if (err == -EBADMSG && !d)
		return braid_error(-EINVAL,
				   "device %s: the peer's handle was damaged, or used again "
				   "after its connect had ended",
				   dev->net.name);
	return err == -EAGAIN ? 0 : err;
}
