/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm_thread.c - event channels of the fake librdmacm, each with a thread that handles its sockets.
 *
 * It accepts connections, reads messages, notices ends and timeouts, and makes events of them.
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
#include <unistd.h>

static void on_accept(struct cm_id *listener)
{
	int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct cm_id *id;

	if (fd < 0)
		return;
	id = cm_id_new(listener->chan, listener->ibv.context, listener->ibv.ps);
	if (!id) {
		close(fd);
		return;
	}
	id->fd = fd;
	id->listener = listener;
	id->state = CM_EMBRYO;
	cm_watch(id);
}

/* The id's listener, or NULL if that was destroyed meanwhile. */
static struct cm_id *listener_of(const struct cm_id *id)
{
	for (struct cm_id *l = cm_ids; l; l = l->next)
		if (l == id->listener && l->state == CM_LISTEN)
			return l;
	return NULL;
}

static void on_request(struct cm_id *id)
{
	struct cm_id *listener = listener_of(id);
	uint32_t port = listener ? fake_find_ip(fake_host(), &id->remote.dst) : PORT_NONE;
	uint32_t late = port == PORT_NONE ? 0 : atomic_load(&cm_port_of(port)->request_ms);

	if (late && !id->due_ns) {
		id->due_ns = cm_clock_ns() + late * UINT64_C(1000000);
		return;
	}
	if (port != PORT_NONE && cm_kind_of(port) != cm_kind_of(id->remote.port))
		port = PORT_NONE;
	if (port == PORT_NONE || cm_take_device(id, port)) {
		cm_id_free(id);
		return;
	}
	epoll_ctl(id->chan->epfd, EPOLL_CTL_DEL, id->fd, NULL);	/* until it is accepted */
	id->src = id->remote.dst;
	id->sport = id->remote.dport;
	id->dst = id->remote.src;
	id->dport = id->remote.sport;
	id->dst_port = id->remote.port;
	cm_set_addrs(id);
	id->state = CM_REQUESTED;
	cm_push(id, listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &id->remote);
}

static void refused(struct cm_id *id)
{
	id->state = CM_GONE;
	cm_close_fd(id);
	pthread_cond_broadcast(&cm_answered);
}

static void on_message(struct cm_id *id)
{
	bool iwarp = cm_is_iwarp(id);
	struct msg m;

	switch (id->remote.type) {
	case MSG_REQ:
		if (id->state == CM_EMBRYO)
			on_request(id);
		return;
	case MSG_REJ:
		refused(id);
		cm_push(id, id, RDMA_CM_EVENT_REJECTED, iwarp ? -ECONNREFUSED : 28, &id->remote);
		return;
	case MSG_REP:
		if (id->state != CM_CONNECTING)
			return;
		id->state = CM_CONNECTED;
		pthread_cond_broadcast(&cm_answered);
		if (!id->ibv.qp) {
			cm_push(id, id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &id->remote);
			return;
		}
		if (cm_start_qp(id, false)) {
			id->state = CM_GONE;
			cm_close_fd(id);
			cm_push(id, id, RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, NULL);
			return;
		}
		if (cm_fill(id, &m, MSG_RTU, NULL, 0))
			cm_say(id, &m);
		cm_push(id, id, RDMA_CM_EVENT_ESTABLISHED, 0, &id->remote);
		return;
	case MSG_RTU:
		if (id->state == CM_ACCEPTING) {
			id->state = CM_CONNECTED;
			cm_push(id, id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
		}
		return;
	default:
		return;
	}
}

static void on_end(struct cm_id *id)
{
	switch (id->state) {
	case CM_EMBRYO:
		cm_id_free(id);
		return;
	case CM_CONNECTING:
		refused(id);
		cm_push(id, id, RDMA_CM_EVENT_REJECTED, cm_is_iwarp(id) ? -ECONNRESET : 28, NULL);
		return;
	case CM_ACCEPTING:
	case CM_CONNECTED:
		cm_hang_up(id);
		return;
	default:
		cm_close_fd(id);
	}
}

static void on_ready(uint64_t serial)
{
	struct cm_id *id = cm_ids;
	struct msg m;
	ssize_t n;

	while (id && id->serial != serial)
		id = id->next;
	if (!id || id->fd < 0)
		return;
	if (id->state == CM_LISTEN) {
		on_accept(id);
		return;
	}
	n = recv(id->fd, &m, sizeof(m), 0);
	if (n == sizeof(m)) {
		if (m.type != MSG_RTU)
			id->remote = m;
		else
			id->remote.type = MSG_RTU;
		on_message(id);
	} else if (n >= 0 || errno != EAGAIN) {
		on_end(id);
	}
}

static bool is_due(const struct cm_id *id, const struct cm_chan *c, uint64_t now)
{
	return id->chan == c && id->due_ns && id->due_ns <= now &&
	       (id->state == CM_CONNECTING || id->state == CM_EMBRYO);
}

/* Handles what is due by now; returns the milliseconds until something else is due. */
static int look_at_clock(struct cm_chan *c)
{
	uint64_t now = cm_clock_ns(), next = UINT64_MAX;
	struct cm_id *id = cm_ids;

	while (id) {
		if (is_due(id, c, now)) {
			if (id->state == CM_CONNECTING) {
				refused(id);
				cm_push(id, id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
			} else {
				on_request(id);
			}
			id = cm_ids;		/* the id may have been freed */
			continue;
		}
		if (is_due(id, c, UINT64_MAX) && id->due_ns < next)
			next = id->due_ns;
		id = id->next;
	}
	return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000) + 1;
}

static void *chan_main(void *arg)
{
	struct cm_chan *c = arg;
	struct epoll_event ev[16];
	int wait_ms = -1;

	for (;;) {
		int n = epoll_wait(c->epfd, ev, 16, wait_ms);
		uint64_t what = 0;

		pthread_mutex_lock(&cm_lock);
		for (int i = 0; i < n; i++) {
			if (ev[i].data.u64)
				on_ready(ev[i].data.u64);
			else if (read(c->stopfd, &what, sizeof(what)) < 0 || what >= STOP)
				goto out;
		}
		wait_ms = look_at_clock(c);
		pthread_mutex_unlock(&cm_lock);
	}
out:
	pthread_mutex_unlock(&cm_lock);
	return NULL;
}

/* A forked child starts with new state. */
static void in_child(void)
{
	pthread_mutex_init(&cm_lock, NULL);
	cm_ids = NULL;
	memset(cm_devices, 0, sizeof(cm_devices));
}

static void register_fork(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct epoll_event ev = { .events = EPOLLIN };
	sigset_t all, old;
	struct cm_chan *c;
	int err;

	if (fake_call_fails(__func__))
		return NULL;
	pthread_once(&once, register_fork);
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->last = &c->first;
	c->pid = getpid();
	c->ibv.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	c->epfd = epoll_create1(EPOLL_CLOEXEC);
	c->stopfd = eventfd(0, EFD_CLOEXEC);
	epoll_ctl(c->epfd, EPOLL_CTL_ADD, c->stopfd, &ev);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = c->ibv.fd < 0 || c->epfd < 0 || c->stopfd < 0 ? EMFILE :
		pthread_create(&c->thread, NULL, chan_main, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		return &c->ibv;
	if (c->ibv.fd >= 0)
		close(c->ibv.fd);
	if (c->epfd >= 0)
		close(c->epfd);
	if (c->stopfd >= 0)
		close(c->stopfd);
	free(c);
	errno = err;
	return NULL;
}

EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct cm_chan *c = TO(cm_chan, channel);
	uint64_t stop = STOP;

	if (!cm_is_forked(c)) {
		if (write(c->stopfd, &stop, sizeof(stop)) < 0)
			perror("fake librdmacm: eventfd");
		pthread_join(c->thread, NULL);
		pthread_mutex_lock(&cm_lock);
		for (struct cm_id *id = cm_ids, *next; id; id = next) {	/* connections not offered yet */
			next = id->next;
			if (id->chan == c && id->state == CM_EMBRYO)
				cm_id_free(id);
		}
		pthread_mutex_unlock(&cm_lock);
	}
	while (c->first) {
		struct cm_event *e = c->first;

		c->first = e->next;
		free(e);
	}
	close(c->epfd);
	close(c->stopfd);
	close(c->ibv.fd);
	free(c);
}
