/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * raw.c - the reference: the same messages over plain TCP with nothing in between.
 *
 * One message is one send() of its bytes, and one recv() where they are all there: no header, for
 * both ends know every size.  Sockets are non-blocking, polled, with TCP_NODELAY and the kernel's
 * own buffer sizes.  The comms of both directions between two ranks share one socket (a socket per
 * direction costs an ACK per message), so a ping-pong runs over one socket and n comms one way are
 * n sockets.  A send is done when the kernel has taken its bytes: "k in flight" is no more than
 * send() as fast as the socket accepts, from k buffers in turn.
 *
 * With fabric_env.asks each message has a header of its own, and waits for an answer before its
 * bytes follow, as a sender must that does not know whether the receiver is ready.  One message at
 * a time may be under way between two ranks then.
 *
 * Each rank has one listening socket.  A dialler's first bytes name the comm and prove that
 * it knows the session's key and the handle's token.  The answer proves the same, and is read
 * before memory is registered, so no data goes to an address where the peer is not.
 */
#include "tools/tcp.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "tools/perf/ctl.h"
#include "tools/perf/fabric.h"
#include "tools/perf/key.h"

enum { QUEUE = 64, HELLO_MS = 200, DIAL_MS = 5000 };
enum { HEADER = 8, ANSWER = 4, STEPS = 2 };

struct wire {				/* a socket between this process and one peer */
	struct wire *next;
	int fd;
	int peer, idx;
	unsigned users;			/* comms on it: at most one each way */
	bool asked;			/* a header was sent, and its answer is still to come */
	bool awaited;			/* dialled: the answer below is still to come */
	uint8_t answer[PERF_KEY];
};

struct raw_req {
	struct raw_comm *comm;
	char *data;
	size_t size, moved;
	unsigned step;			/* of asking; STEPS: over, or not done */
	char note[8];			/* the header or the answer */
};

struct raw_comm {			/* one direction; requests complete in order */
	struct wire *wire;
	bool is_send;
	bool asks;
	uint64_t posted, done;
	struct raw_req queue[QUEUE];
};

struct raw_handle {
	uint8_t token[16];
	union tcp_addr addr __attribute__((aligned(8)));
};

struct hello {
	uint8_t mac[PERF_KEY];
	int32_t idx;
	int32_t zero[3];
};

struct raw_fabric {
	struct fabric super;
	int listen_fd;
	bool asks;
	union tcp_addr addr;
	uint8_t key[PERF_KEY];		/* the session's; zeros within one host */
	uint8_t token[16];		/* of the listen under way */
	struct wire *wires;
};

static struct raw_fabric *raw_of(struct fabric *fab)
{
	return (struct raw_fabric *)fab;
}

static int fail(struct fabric *fab, int err, const char *what)
{
	snprintf(fab->err, sizeof(fab->err), "raw TCP: %s: %s", what, strerror(-err));
	return err;
}

/* Use the plugin's device if it is an interface, so that both use the same network. */
static int addr_choose(const struct fabric_env *env, union tcp_addr *ret, char *dev)
{
	memset(ret, 0, sizeof(*ret));
	if (env->dev && tcp_addr_of_if(env->dev, ret) == 0) {
		snprintf(dev, FABRIC_NAME, "%s", env->dev);
		if (ret->sa.sa_family == AF_INET)
			ret->in.sin_port = 0;
		else
			ret->in6.sin6_port = 0;
		return 0;
	}
	snprintf(dev, FABRIC_NAME, "%s", env->addr ? env->addr : "127.0.0.1");
	ret->in.sin_family = AF_INET;
	ret->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (env->addr) {
		char text[FABRIC_NAME + 8], err[200];

		snprintf(text, sizeof(text), strchr(env->addr, ':') ? "[%s]:0" : "%s:0", env->addr);
		return tcp_addr_parse(text, false, ret, err, sizeof(err));
	}
	return 0;
}

static int raw_open(const struct fabric_env *env, struct fabric **ret_fab, char *err)
{
	struct raw_fabric *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	r->super.ops = &fabric_raw;
	r->asks = env->asks;
	snprintf(r->super.about.name, FABRIC_NAME, "raw TCP%s", r->asks ? ", asked" : "");
	rc = addr_choose(env, &r->addr, r->super.about.dev);
	if (env->key)
		memcpy(r->key, env->key->bytes, sizeof(r->key));
	r->listen_fd = rc ? rc : tcp_listen(&r->addr);
	if (r->listen_fd < 0) {
		snprintf(err, FABRIC_ERR, "raw TCP: listen on %s: %s", r->super.about.dev,
			 strerror(-r->listen_fd));
		rc = r->listen_fd;
		free(r);
		return rc;
	}
	*ret_fab = &r->super;
	return 0;
}

static void raw_close(struct fabric *fab)
{
	struct raw_fabric *r = raw_of(fab);
	struct wire *w;

	while ((w = r->wires) != NULL) {
		r->wires = w->next;
		close(w->fd);
		free(w);
	}
	close(r->listen_fd);
	free(r);
}

static int raw_fab_listen(struct fabric *fab, void *handle, void **ret_listen)
{
	struct raw_fabric *r = raw_of(fab);
	struct raw_handle h = { .addr.sa.sa_family = AF_UNSPEC };

	_Static_assert(offsetof(struct raw_handle, addr) + sizeof(struct sockaddr_in6) <=
		       FABRIC_HANDLE, "a handle has room for either address");
	if (getrandom(r->token, sizeof(r->token), 0) != sizeof(r->token))
		return fail(fab, -EIO, "getrandom");
	memcpy(h.token, r->token, sizeof(h.token));
	h.addr = r->addr;
	memcpy(handle, &h, FABRIC_HANDLE);
	*ret_listen = r;
	return 0;
}

static struct wire *wire_find(struct raw_fabric *r, int peer, int idx)
{
	struct wire *w;

	for (w = r->wires; w; w = w->next)
		if (w->peer == peer && w->idx == idx)
			return w;
	return NULL;
}

static struct wire *wire_add(struct raw_fabric *r, int fd, int peer, int idx)
{
	struct wire *w = calloc(1, sizeof(*w));

	if (!w) {
		close(fd);
		return NULL;
	}
	w->fd = fd;
	w->peer = peer;
	w->idx = idx;
	w->next = r->wires;
	r->wires = w;
	return w;
}

static int comm_new(const struct raw_fabric *r, struct wire *w, bool is_send, void **ret_comm)
{
	struct raw_comm *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->wire = w;
	c->is_send = is_send;
	c->asks = r->asks;
	w->users++;
	*ret_comm = c;
	return 0;
}

static void proof(const struct raw_fabric *r, const uint8_t *token, int idx, bool dials,
		  uint8_t ret[PERF_KEY])
{
	int32_t which = idx;

	perf_mac(r->key, dials ? "braid raw dial" : "braid raw accept", token, sizeof(r->token),
		 &which, sizeof(which), ret);
}

/*
 * Use the socket of the other direction if there is one; else dial, which waits for the kernel
 * only.
 */
static int raw_fab_connect(struct fabric *fab, int peer, int idx, void *handle, void **ret_comm)
{
	struct raw_fabric *r = raw_of(fab);
	struct wire *w = wire_find(r, peer, idx);
	struct raw_handle h;
	struct hello hello = { .idx = idx };
	int fd;

	if (w)
		return comm_new(r, w, true, ret_comm);
	memset(&h, 0, sizeof(h));
	memcpy(&h, handle, FABRIC_HANDLE);
	fd = tcp_dial(&h.addr, DIAL_MS);
	if (fd < 0)
		return fail(fab, fd, "connect");
	proof(r, h.token, idx, true, hello.mac);
	if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
		close(fd);
		return fail(fab, -EPIPE, "hello");
	}
	w = wire_add(r, fd, peer, idx);
	if (!w)
		return -ENOMEM;
	proof(r, h.token, idx, false, w->answer);
	w->awaited = true;
	return comm_new(r, w, true, ret_comm);
}

/* The peer's hello is in the first segment; a silent stranger costs us 200 ms at most. */
static bool hello_is_good(struct raw_fabric *r, int fd, int idx)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint8_t mac[PERF_KEY];
	struct hello h;

	if (poll(&p, 1, HELLO_MS) != 1 || recv(fd, &h, sizeof(h), MSG_DONTWAIT) != sizeof(h))
		return false;
	proof(r, r->token, idx, true, mac);
	if (h.idx != idx || !perf_mac_equal(h.mac, mac))
		return false;
	proof(r, r->token, idx, false, mac);
	return send(fd, mac, sizeof(mac), MSG_NOSIGNAL) == sizeof(mac);
}

static int raw_fab_accept(struct fabric *fab, int peer, int idx, void *listen, void **ret_comm)
{
	struct raw_fabric *r = raw_of(fab);
	struct wire *w = wire_find(r, peer, idx);
	struct pollfd p = { .fd = r->listen_fd, .events = POLLIN };
	int fd;

	(void)listen;
	if (w)
		return comm_new(r, w, false, ret_comm);
	if (poll(&p, 1, 0) != 1)
		return 0;
	fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return fail(fab, -errno, "accept");
	if (tcp_tune(fd) != 0 || !hello_is_good(r, fd, idx)) {
		close(fd);
		return 0;
	}
	w = wire_add(r, fd, peer, idx);
	return w ? comm_new(r, w, false, ret_comm) : -ENOMEM;
}

static int raw_reg(struct fabric *fab, void *comm, void *data, size_t size, void **ret_mr)
{
	struct wire *w = ((struct raw_comm *)comm)->wire;
	uint8_t mac[PERF_KEY];

	(void)size;
	*ret_mr = data;
	if (!w->awaited)
		return 0;
	if (perf_ctl_move(w->fd, (char *)mac, sizeof(mac), false, DIAL_MS) != 0 ||
	    !perf_mac_equal(mac, w->answer))
		return fail(fab, -EACCES, "who answers there is not the peer");
	w->awaited = false;
	return 0;
}

static void raw_dereg(struct fabric *fab, void *comm, void *mr)
{
	(void)fab, (void)comm, (void)mr;
}

/* -- moving bytes ------------------------------------------------------------------------- */

/* Send or receive the rest of these bytes: 1, all have moved; 0, not now; or -errno. */
static int move(const struct raw_comm *c, struct raw_req *q, char *data, size_t size, bool sends)
{
	ssize_t n;

	while (q->moved < size) {
		if (sends)
			n = send(c->wire->fd, data + q->moved, size - q->moved, MSG_NOSIGNAL);
		else
			n = recv(c->wire->fd, data + q->moved, size - q->moved, 0);
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (n == 0)
			return -ECONNRESET;
		q->moved += (size_t)n;
	}
	if (data == q->note)
		q->moved = 0;
	return 1;
}

/* 1: the oldest request is done; 0: not now; or -errno. */
static int head_move(struct raw_comm *c)
{
	struct raw_req *q = &c->queue[c->done % QUEUE];
	int rc = 1;

	/* The sender's header goes there, and then the receiver's answer comes back. */
	if (c->asks && !c->is_send && c->wire->asked)
		return 0;		/* what comes next is the answer to our own header */
	for (; q->step < STEPS && rc == 1; q->step += rc == 1) {
		if (c->is_send)
			c->wire->asked = true;
		rc = move(c, q, q->note, q->step ? ANSWER : HEADER, c->is_send == !q->step);
	}
	if (c->is_send && q->step == STEPS)
		c->wire->asked = false;
	if (rc == 1)
		rc = move(c, q, q->data, q->size, c->is_send);
	c->done += rc == 1;
	return rc;
}

static int post(struct raw_comm *c, void *data, size_t size, struct raw_req **ret_req)
{
	struct raw_req *q = &c->queue[c->posted % QUEUE];

	*ret_req = NULL;
	if (c->posted - c->done == QUEUE)
		return 0;
	*q = (struct raw_req){ .comm = c, .data = data, .size = size, .step = c->asks ? 0 : STEPS };
	c->posted++;
	*ret_req = q;
	return 0;
}

static int raw_isend(struct fabric *fab, void *comm, void *data, size_t size, int tag, void *mr,
		     void **ret_req)
{
	struct raw_comm *c = comm;
	struct raw_req *q;
	int rc;

	(void)tag, (void)mr;
	post(c, data, size, &q);
	*ret_req = q;
	if (!q || c->posted - c->done > 1)
		return 0;
	rc = head_move(c);
	return rc < 0 ? fail(fab, rc, "send") : 0;
}

static int raw_irecv(struct fabric *fab, void *comm, void *data, size_t size, int tag, void *mr,
		     void **ret_req)
{
	struct raw_req *q;

	(void)fab, (void)tag, (void)mr;
	post(comm, data, size, &q);
	*ret_req = q;
	return 0;
}

/* Requests are tested in order, oldest first, so a request still in the queue is its head. */
static int raw_test(struct fabric *fab, void *req, bool *ret_done, size_t *ret_size)
{
	struct raw_req *q = req;
	struct raw_comm *c = q->comm;
	bool queued = q == &c->queue[c->done % QUEUE] && c->done < c->posted;
	int rc = queued ? head_move(c) : 1;

	*ret_done = rc == 1;
	if (rc < 0)
		return fail(fab, rc, c->is_send ? "send" : "recv");
	if (*ret_done && !c->is_send)
		*ret_size = q->size;
	return 0;
}

static void raw_close_comm(struct fabric *fab, void *comm)
{
	struct raw_comm *c = comm;
	struct wire **p, *w;

	if (!c)
		return;
	w = c->wire;
	free(c);
	if (--w->users > 0)
		return;
	for (p = &raw_of(fab)->wires; *p != w; p = &(*p)->next)
		assert(*p);
	*p = w->next;
	close(w->fd);
	free(w);
}

static void raw_close_listen(struct fabric *fab, void *listen)
{
	(void)fab, (void)listen;
}

const struct fabric_ops fabric_raw = {
	.name = "raw",
	.open = raw_open,
	.close = raw_close,
	.listen = raw_fab_listen,
	.connect = raw_fab_connect,
	.accept = raw_fab_accept,
	.reg = raw_reg,
	.dereg = raw_dereg,
	.isend = raw_isend,
	.irecv = raw_irecv,
	.test = raw_test,
	.close_send = raw_close_comm,
	.close_recv = raw_close_comm,
	.close_listen = raw_close_listen,
};
