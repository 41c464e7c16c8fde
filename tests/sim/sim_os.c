/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_os.c - struct braid_os for the simulated processes: each system call, over sim_net.c.
 *
 * Sends and receives are cut short or interrupted as the weather says.
 */
#include "tests/sim/sim_net.h"

#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

enum {
	SABOTAGE = 1000,		/* change a byte only if more bytes are left to send */
	DUE_MAX = 64,			/* of so many ready files one is chosen */
	NO_ROOM = 50,			/* per mille of calls with MSG_ZEROCOPY */
};

static int fail(int err)
{
	errno = err;
	return -1;
}

static uint64_t os_now(void)
{
	return sim.now;
}

static int os_random(void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		uint64_t v = sim_next(&sim_proc()->rng);
		size_t n = len < sizeof(v) ? len : sizeof(v);

		memcpy(p, &v, n);
		p += n;
		len -= n;
	}
	return 0;
}

static int os_socket(int family, int protocol)
{
	struct sim_file *f = family == AF_INET && protocol == IPPROTO_TCP ? file_new(FILE_TCP) : NULL;

	return f ? f->fd : -1;
}

static int os_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
	struct sim_file *f = file_of(fd);

	if (!f)
		return fail(EBADF);
	memcpy(&f->bound, sa, len < sizeof(f->bound) ? len : sizeof(f->bound));
	return is_current(&f->bound, f->proc->index) ? 0 : fail(EADDRNOTAVAIL);
}

static int os_watch_addrs(void)
{
	struct sim_file *f = file_new(FILE_ADDRS);

	return f ? f->fd : -1;
}

struct if_list {			/* an entry of our list of interfaces */
	struct ifaddrs e;
	union braid_netdev_addr addr, mask;
};

static int os_getifaddrs(struct ifaddrs **ret)
{
	const struct sim_proc *p = sim_proc();

	*ret = NULL;
	for (unsigned rail = 0; rail < SIM_RAILS; rail++) {
		struct if_list *l = calloc(1, sizeof(*l));

		if (!l)
			abort();
		sim_net_addr(p->index, rail, &l->addr);
		l->mask.in.sin_family = AF_INET;
		l->mask.in.sin_addr.s_addr = htonl(0xffff0000u);
		l->e = (struct ifaddrs){ .ifa_next = *ret, .ifa_addr = &l->addr.sa,
					 .ifa_netmask = &l->mask.sa };
		l->e.ifa_name = (char *)(uintptr_t)p->rail[rail].net.interface;
		*ret = &l->e;
	}
	return 0;
}

static void os_freeifaddrs(struct ifaddrs *list)
{
	while (list) {
		struct ifaddrs *next = list->ifa_next;

		free(list);
		list = next;
	}
}

/* May the new listener get the port that an earlier one had, as with real kernels? */
static bool port_again(unsigned place)
{
	struct sim_file *l;

	braid_list_for(l, &sim_listeners, listen_node) {
		if (l->bound.in.sin_port == last_port[place])
			return false;
	}
	return last_port[place] && sim_chance(&sim.net, 300);
}

static int os_listen(int fd, int backlog)
{
	struct sim_file *f = file_of(fd);
	unsigned place = sim_proc()->index;

	if (!f)
		return fail(EBADF);
	f->kind = FILE_LISTEN;
	f->backlog = (unsigned)backlog < BACKLOG_MAX ? (unsigned)backlog : BACKLOG_MAX;
	f->queue = calloc(f->backlog, sizeof(f->queue[0]));
	if (!f->queue)
		abort();
	if (!f->bound.in.sin_port)
		f->bound.in.sin_port = port_again(place) ? last_port[place] : port_new(place);
	last_port[place] = f->bound.in.sin_port;
	braid_list_add_tail(&sim_listeners, &f->listen_node);
	return 0;
}

static int os_accept(int fd, struct sockaddr *sa, socklen_t *len)
{
	struct sim_file *l = file_of(fd), *f;
	struct conn *c;

	if (!l)
		return fail(EBADF);
	if (!l->nqueue)
		return fail(EAGAIN);
	f = file_new(FILE_TCP);
	if (!f)
		return -1;
	c = l->queue[0];
	memmove(l->queue, l->queue + 1, --l->nqueue * sizeof(l->queue[0]));
	c->queued = false;
	f->end = &c->end[1];
	f->end->file = f;
	f->bound = c->to;
	memcpy(sa, &c->from, sizeof(c->from.in));
	*len = sizeof(c->from.in);
	sim_event("accept", f->proc->index, f->fd, 0);
	return f->fd;
}

static int os_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	struct sim_file *f = file_of(fd);
	struct conn *c;

	(void)len;
	if (!f)
		return fail(EBADF);
	if (sa->sa_family == AF_UNSPEC) {
		end_abort(f->end);
		return 0;
	}
	sim.dials++;
	c = calloc(1, sizeof(*c));
	if (!c)
		abort();
	memcpy(&c->to, sa, sizeof(c->to.in));
	c->from = f->bound;
	c->from.in.sin_port = port_new(f->proc->index);
	c->proc[0] = f->proc->index;
	c->proc[1] = port_place(c->to.in.sin_port);
	c->rail = rail_of(&c->to);
	c->latency = sim_between(&sim.net, 5 * US, sim_weather.latency_ns);
	for (int i = 0; i < 2; i++) {
		c->end[i].conn = c;
		braid_list_init(&c->end[i].lent);
		c->end[i].edge = c->end[i].told = sim_weather.rcvbuf;
		c->end[i].heard = sim.now;
		c->end[i].ring = malloc(sim_weather.sndbuf + sim_weather.rcvbuf);
		if (!c->end[i].ring)
			abort();
	}
	braid_list_add_tail(&sim_conns, &c->node);
	f->end = &c->end[0];
	f->end->file = f;
	sim_event("connect", c->proc[0], c->proc[1], ntohs(c->to.in.sin_port));
	syn_send(c, 0, 0);
	return fail(EINPROGRESS);
}

static int os_getsockname(int fd, struct sockaddr *sa, socklen_t *len)
{
	struct sim_file *f = file_of(fd);

	if (!f)
		return fail(EBADF);
	memcpy(sa, &f->bound, sizeof(f->bound.in));
	*len = sizeof(f->bound.in);
	return 0;
}

static int os_getpeername(int fd, struct sockaddr *sa, socklen_t *len)
{
	struct sim_file *f = file_of(fd);

	if (!f)
		return fail(EBADF);
	if (!f->end || f->end->dead)
		return fail(ENOTCONN);
	memcpy(sa, f->end == f->end->conn->end ? &f->end->conn->to : &f->end->conn->from,
	       sizeof(struct sockaddr_in));
	*len = sizeof(struct sockaddr_in);
	return 0;
}

static int os_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	struct sim_file *f = file_of(fd);
	int v = 0;

	if (!f)
		return fail(EBADF);
	memcpy(&v, val, len < sizeof(v) ? len : sizeof(v));
	if (level == IPPROTO_TCP && name == TCP_USER_TIMEOUT)
		f->user_timeout_ms = (unsigned)v;
	if (level == IPPROTO_TCP && name == TCP_RTO_MAX_MS)
		f->rto_max_ms = (unsigned)v;
	if (level == SOL_SOCKET && name == SO_ZEROCOPY)
		f->zerocopy = v;
	return 0;
}

static void tcp_info(const struct end *e, struct tcp_info *ti)
{
	memset(ti, 0, sizeof(*ti));
	if (!e)
		return;
	ti->tcpi_state = e->dead ? TCP_CLOSE : e->up ? TCP_ESTABLISHED : TCP_SYN_SENT;
	ti->tcpi_unacked = (uint32_t)(e->acked < e->sent ? (e->sent - e->acked + 1447) / 1448 : 0);
	ti->tcpi_retransmits = (uint8_t)(e->retransmits < 255 ? e->retransmits : 255);
	ti->tcpi_backoff = (uint8_t)e->backoff;
	ti->tcpi_probes = (uint8_t)(e->probes < 255 ? e->probes : 255);
	ti->tcpi_last_ack_recv = (uint32_t)((sim.now - e->heard) / MS);
	ti->tcpi_rto = (uint32_t)(RTO_MIN_MS * 1000) << (e->backoff < 8 ? e->backoff : 8);
}

static int os_getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
	struct sim_file *f = file_of(fd);

	if (!f)
		return fail(EBADF);
	memset(val, 0, *len);
	if (level == SOL_SOCKET && name == SO_ERROR) {
		int err = f->end ? f->end->err : 0;

		if (f->end)
			f->end->err = 0;
		memcpy(val, &err, sizeof(err));
	} else if (level == IPPROTO_TCP && name == TCP_INFO) {
		struct tcp_info ti;

		tcp_info(f->end, &ti);
		memcpy(val, &ti, *len < sizeof(ti) ? *len : sizeof(ti));
	} else if (level == IPPROTO_TCP && name == TCP_CONGESTION) {
		strncpy(val, "cubic", *len);
	} else {
		return fail(ENOPROTOOPT);
	}
	return 0;
}

/* The start of every send and receive: the socket's end, or NULL and errno. */
static struct end *io_begin(int fd)
{
	struct sim_file *f;
	struct end *e;

	sim_preempt();
	f = file_of(fd);
	e = f ? f->end : NULL;
	if (f && f->kind == FILE_ADDRS) {
		f->count = 0;		/* what has changed is not in the messages here */
		errno = EAGAIN;
		return NULL;
	}
	if (!f)
		errno = EBADF;
	else if (!e)
		errno = ENOTCONN;
	else if (sim_weather.eintr && sim_chance(&sim.net, sim_weather.eintr))
		errno = EINTR;
	else
		return e;
	return NULL;
}

static size_t cut_short(size_t n)
{
	if (n > 1 && sim_weather.partial && sim_chance(&sim.net, sim_weather.partial))
		return (size_t)sim_between(&sim.net, 1, n - 1);
	return n;
}

/* Bytes that are to be changed on their way are copied, as the process's own must not change. */
static bool may_lend(const struct end *e)
{
	return !e->flip_at && !sim.sabotage && e->ring;
}

static ssize_t os_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct end *e = io_begin(fd);
	size_t cap = sim_weather.sndbuf + sim_weather.rcvbuf, n = 0, room, done = 0;
	bool lends = e && flags & MSG_ZEROCOPY && e->file->zerocopy;

	if (!e)
		return -1;
	if (e->err) {
		errno = e->err;
		e->err = 0;
		return -1;
	}
	if (e->dead || e->fin)
		return fail(EPIPE);
	for (size_t i = 0; i < msg->msg_iovlen; i++)
		n += msg->msg_iov[i].iov_len;
	room = e->up ? sendable(e) : 0;
	if (n > room)
		n = room;
	if (!n)
		return fail(EAGAIN);
	if (lends && sim_chance(&sim.net, NO_ROOM))
		return fail(ENOBUFS);
	n = cut_short(n);
	if (e->acked == limit(e))
		e->since = sim.now;
	if (lends)
		end_lend(e, may_lend(e) ? msg->msg_iov->iov_base : NULL, n);
	for (size_t i = 0; done < n; i++) {
		const char *from = msg->msg_iov[i].iov_base;
		size_t left = msg->msg_iov[i].iov_len;

		while (left && done < n) {
			size_t at = (size_t)(e->wrote % cap), piece = left < n - done ? left : n - done;

			if (piece > cap - at)
				piece = cap - at;
			if (e->ring)
				memcpy(e->ring + at, from, piece);
			if (e->ring && e->flip_at && e->flip_at - e->wrote < piece) {
				size_t flip = at + (size_t)(e->flip_at - e->wrote);

				e->ring[flip] ^= (char)(1 << sim_below(&sim.net, 8));
				e->flip_at = 0;
				sim.flipped++;
				sim_event("flip", e->wrote, flip, 0);
			}
			if (e->ring && sim.sabotage && left > SABOTAGE) {
				e->ring[at + piece / 2] ^= 1;
				sim.sabotage = false;
				sim.cut |= sim.encrypted;
			}
			e->wrote += piece;
			done += piece;
			from += piece;
			left -= piece;
		}
	}
	sim_event("send", sim_proc()->index, fd, n);
	tcp_output(e);
	return (ssize_t)n;
}

/* A message of the error queue: one range of calls whose memory the kernel reads no more. */
static ssize_t notified(struct end *e, struct msghdr *msg)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	struct sock_extended_err is = {
		.ee_origin = SO_EE_ORIGIN_ZEROCOPY, .ee_info = e->known, .ee_data = e->let_go - 1,
	};

	if (e->known == e->let_go)
		return fail(EAGAIN);
	e->known = e->let_go;
	c->cmsg_level = SOL_IP;
	c->cmsg_type = IP_RECVERR;
	c->cmsg_len = CMSG_LEN(sizeof(is));
	memcpy(CMSG_DATA(c), &is, sizeof(is));
	msg->msg_controllen = CMSG_SPACE(sizeof(is));
	return 0;
}

static ssize_t os_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct end *e = io_begin(fd), *p;
	size_t cap = sim_weather.sndbuf + sim_weather.rcvbuf, n = 0, left, done = 0;

	if (!e)
		return -1;
	if (flags & MSG_ERRQUEUE)
		return notified(e, msg);
	p = peer_of(e);
	for (size_t i = 0; i < msg->msg_iovlen; i++)
		n += msg->msg_iov[i].iov_len;
	left = readable(e);
	if (n > left)
		n = left;
	if (!n && e->err) {
		errno = e->err;
		e->err = 0;
		return -1;
	}
	if (!n && (e->dead || at_end(e)))
		return 0;
	if (!n)
		return fail(EAGAIN);
	n = cut_short(n);
	for (size_t i = 0; done < n; i++) {
		char *to = msg->msg_iov[i].iov_base;

		left = msg->msg_iov[i].iov_len;
		while (left && done < n) {
			size_t at = (size_t)(p->read % cap), piece = left < n - done ? left : n - done;

			if (piece > cap - at)
				piece = cap - at;
			memcpy(to, p->ring + at, piece);
			p->read += piece;
			done += piece;
			to += piece;
			left -= piece;
		}
	}
	if (!e->dead && p->read + sim_weather.rcvbuf / 2 > p->told)
		send_ack(e);	/* the window has opened enough for an update */
	sim_event("recv", sim_proc()->index, fd, n);
	return (ssize_t)n;
}

static ssize_t os_send(int fd, const void *buf, size_t len, int flags)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return os_sendmsg(fd, &msg, flags);
}

static ssize_t os_recv(int fd, void *buf, size_t len, int flags)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return os_recvmsg(fd, &msg, flags);
}

static int os_close(int fd)
{
	struct sim_file *f = file_of(fd);

	if (!f)
		return fail(EBADF);
	sim_event("close", f->proc->index, fd, 0);
	file_close(f);
	return 0;
}

static int os_epoll_create(void)
{
	struct sim_file *f = file_new(FILE_EPOLL);

	return f ? f->fd : -1;
}

static int os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	struct sim_file *e = file_of(ep), *f = file_of(fd);

	if (!e || !f)
		return fail(EBADF);
	if (op == EPOLL_CTL_ADD ? f->ep != NULL : f->ep != e)
		return fail(op == EPOLL_CTL_ADD ? EEXIST : ENOENT);
	if (op == EPOLL_CTL_DEL) {
		unwatch(f);
		return 0;
	}
	if (op == EPOLL_CTL_ADD)
		braid_list_add_tail(&e->watched, &f->ep_node);
	f->ep = e;
	f->ev = *ev;
	f->armed = true;
	file_wake(f);
	return 0;
}

/* Fills `ret` with the first files that are ready.  Returns how many. */
static unsigned epoll_due(struct sim_file *e, struct sim_file *ret[DUE_MAX])
{
	unsigned due = 0;
	struct sim_file *f, *tmp;

	braid_list_for_safe(f, tmp, &e->ready, ready_node) {
		if (!file_ready(f))
			braid_list_del(&f->ready_node);
		else
			ret[due++] = f;
		if (due == DUE_MAX)
			break;
	}
	return due;
}

/* Returns one event at most, chosen at random from the first that are due. */
static int os_epoll_wait(int ep, struct epoll_event *ev, int max, int timeout_ms)
{
	struct sim_file *e, *f, *all[DUE_MAX];
	uint64_t until = timeout_ms < 0 ? UINT64_MAX : sim.now + (unsigned)timeout_ms * MS;
	unsigned due;

	assert(max > 0);
	sim_proc()->rounds++;
	sim_sleep(1 + sim_below(&sim.sched, US));	/* a thread that does not wait takes time, too */
	e = file_of(ep);
	if (!e)
		return fail(EBADF);
	due = epoll_due(e, all);
	while (!due && sim.now < until) {
		e->waiter = sim_self();
		sim_park(until);
		e = file_of(ep);
		if (!e)
			return fail(EBADF);
		e->waiter = NULL;
		due = epoll_due(e, all);
	}
	if (!due)
		return 0;
	f = all[sim_below(&sim.net, due)];
	braid_list_del(&f->ready_node);
	braid_list_add_tail(&e->ready, &f->ready_node);
	ev->events = file_ready(f);
	ev->data = f->ev.data;
	if (f->ev.events & EPOLLONESHOT)
		f->armed = false;
	return 1;
}

static int os_eventfd(void)
{
	struct sim_file *f = file_new(FILE_EVENT);

	return f ? f->fd : -1;
}

static int os_wake(int efd)
{
	struct sim_file *f = file_of(efd);

	if (!f)
		return -EBADF;
	f->count++;
	file_wake(f);
	return 0;
}

static void os_unwake(int efd)
{
	struct sim_file *f = file_of(efd);

	if (f)
		f->count = 0;
}

static bool os_cpu(uint64_t *ret_used_ms, uint64_t *ret_queued_ms)
{
	(void)ret_used_ms, (void)ret_queued_ms;
	return false;
}

static void os_discard(void *page, size_t len)
{
	madvise(page, len, MADV_DONTNEED);
}

static void os_thread_near(pthread_t thread, const struct braid_cpus *near)
{
	(void)thread, (void)near;
}

static unsigned os_cpus(void)
{
	return 64;
}

const struct braid_os sim_os = {
	.now_ns = os_now,
	.nap = sim_sleep,
	.random = os_random,
	.socket = os_socket,
	.bind = os_bind,
	.listen = os_listen,
	.accept = os_accept,
	.connect = os_connect,
	.getsockname = os_getsockname,
	.getpeername = os_getpeername,
	.setsockopt = os_setsockopt,
	.getsockopt = os_getsockopt,
	.sendmsg = os_sendmsg,
	.recvmsg = os_recvmsg,
	.send = os_send,
	.recv = os_recv,
	.close = os_close,
	.epoll_create = os_epoll_create,
	.epoll_ctl = os_epoll_ctl,
	.epoll_wait = os_epoll_wait,
	.eventfd = os_eventfd,
	.watch_addrs = os_watch_addrs,
	.getifaddrs = os_getifaddrs,
	.freeifaddrs = os_freeifaddrs,
	.wake = os_wake,
	.unwake = os_unwake,
	.thread_start = sim_thread_start,
	.thread_join = sim_thread_join,
	.thread_near = os_thread_near,
	.cpus = os_cpus,
	.cpu = os_cpu,
	.discard = os_discard,
};
