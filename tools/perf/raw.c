/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * raw.c - the reference: the same messages over plain TCP with nothing in between.
 *
 * One message is one send() of its bytes, and one recv() where they all are there: no header, for
 * both ends know every size.  Sockets are non-blocking, polled, with TCP_NODELAY and the kernel's
 * own buffer sizes.  The comms of both directions between two ranks share one socket (a socket a
 * direction costs an ACK per message), so a ping-pong runs over one socket and n comms one way are
 * n sockets.  A send is done when the kernel has taken its bytes: "k in flight" is nothing more
 * than send() as fast as the socket accepts, from k buffers in turn.
 *
 * Each rank has one listening socket.  A dialler's first bytes say which comm it is for and prove
 * that it knows the session's key and the handle's token, and so does the answer.  That is read
 * before memory is registered: nothing is sent to an address where the peer is not.
 */
#include "tools/perf/raw.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "tools/perf/fabric.h"
#include "tools/perf/perf.h"

enum { QUEUE = 64, HELLO_MS = 200, DIAL_MS = 5000 };

struct wire {				/* a socket between us and one peer */
	struct wire *next;
	int fd;
	int peer, idx;
	unsigned users;			/* comms on it: at most one each way */
	bool awaited;			/* dialled: the answer below is still to come */
	uint8_t answer[PERF_KEY];
};

struct raw_req {
	struct raw_comm *comm;
	char *data;
	size_t size, moved;
};

struct raw_comm {			/* one direction; requests complete in order */
	struct wire *wire;
	bool is_send;
	uint64_t posted, done;
	struct raw_req queue[QUEUE];
};

struct raw_handle {
	uint8_t token[16];
	union raw_addr addr __attribute__((aligned(8)));
};

struct hello {
	uint8_t mac[PERF_KEY];
	int32_t idx;
	int32_t zero[3];
};

struct raw_fabric {
	struct fabric super;
	int listen_fd;
	union raw_addr addr;
	uint8_t key[PERF_KEY];		/* of the session; within one host zeros */
	uint8_t token[16];		/* of the listen under way */
	struct wire *wires;
};

/* -- sockets ------------------------------------------------------------------------------ */

socklen_t raw_addr_len(const union raw_addr *a)
{
	return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
}

int raw_tune(int fd)
{
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0 ||
	    fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
		return -errno;
	return 0;
}

static bool is_any6(const union raw_addr *a)
{
	return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
}

int raw_listen(union raw_addr *a)
{
	socklen_t len = sizeof(*a);
	int fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1, none = 0, err;

	if (fd < 0 && errno == EAFNOSUPPORT && is_any6(a)) {	/* a kernel without IPv6 */
		a->in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = a->in6.sin6_port };
		return raw_listen(a);
	}
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
	    (is_any6(a) && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof(none)) != 0) ||
	    bind(fd, &a->sa, raw_addr_len(a)) != 0 || listen(fd, 128) != 0 ||
	    getsockname(fd, &a->sa, &len) != 0) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

static int dial_wait(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err = 0, n;

	n = poll(&p, 1, timeout_ms);
	if (n <= 0)
		return n < 0 ? -errno : -ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
		return -errno;
	return -err;
}

int raw_dial(const union raw_addr *a, int timeout_ms)
{
	int fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (fd < 0)
		return -errno;
	err = connect(fd, &a->sa, raw_addr_len(a)) == 0 ? 0 : -errno;
	if (err == -EINPROGRESS)
		err = dial_wait(fd, timeout_ms);
	if (!err)
		err = raw_tune(fd);
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

void raw_addr_text(const union raw_addr *a, char *room, size_t n)
{
	room[0] = 0;
	if (a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr)) {
		inet_ntop(AF_INET, &a->in6.sin6_addr.s6_addr[12], room, (socklen_t)n);
		return;
	}
	if (a->sa.sa_family == AF_INET)
		inet_ntop(AF_INET, &a->in.sin_addr, room, (socklen_t)n);
	else
		inet_ntop(AF_INET6, &a->in6.sin6_addr, room, (socklen_t)n);
}

void raw_addr_local(int fd, char *room, size_t n)
{
	union raw_addr a;
	socklen_t len = sizeof(a);

	room[0] = 0;
	if (getsockname(fd, &a.sa, &len) == 0)
		raw_addr_text(&a, room, n);
}

int raw_addr_of_if(const char *ifname, union raw_addr *ret)
{
	struct ifaddrs *all, *i;
	int err = -ENODEV;

	if (getifaddrs(&all) != 0)
		return -errno;
	for (i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || strcmp(i->ifa_name, ifname) != 0)
			continue;
		if (i->ifa_addr->sa_family == AF_INET) {
			memcpy(&ret->in, i->ifa_addr, sizeof(ret->in));
			err = 0;
			break;
		}
		if (i->ifa_addr->sa_family == AF_INET6 && err) {
			memcpy(&ret->in6, i->ifa_addr, sizeof(ret->in6));
			err = 0;
		}
	}
	freeifaddrs(all);
	return err;
}

/* Cut "[V6]:PORT" or "HOST:PORT" or "PORT" in two, in place. */
static char *port_cut(char *text, char **ret_host)
{
	char *colon = strrchr(text, ':');
	char *end;

	*ret_host = NULL;
	if (!colon)
		return text;
	*colon = 0;
	*ret_host = text;
	if (*text == '[' && (end = strchr(text, ']')) != NULL && end[1] == 0) {
		*end = 0;
		*ret_host = text + 1;
	}
	return colon + 1;
}

int raw_addr_parse(const char *text, bool host_needed, union raw_addr *ret, char *err, size_t n)
{
	struct addrinfo hint = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	struct addrinfo *found;
	char room[300], *host, *port, *end;
	long p;
	int rc;

	if (snprintf(room, sizeof(room), "%s", text) >= (int)sizeof(room))
		room[0] = 0;
	port = port_cut(room, &host);
	p = strtol(port, &end, 10);
	if (*port == 0 || *end || p < 0 || p > 65535 ||
	    (host_needed && (!host || !*host || p == 0))) {
		snprintf(err, n, "'%.100s' is not %s:PORT with a port from %d to 65535", text,
			 host_needed ? "HOST" : "[ADDR]", host_needed ? 1 : 0);
		return -EINVAL;
	}
	rc = getaddrinfo(host && *host ? host : "::", port, &hint, &found);
	if (rc != 0) {
		snprintf(err, n, "%s: %s", host, gai_strerror(rc));
		return -EHOSTUNREACH;
	}
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return 0;
}

/* -- the fabric --------------------------------------------------------------------------- */

static struct raw_fabric *raw_of(struct fabric *fab)
{
	return (struct raw_fabric *)fab;
}

static int fail(struct fabric *fab, int err, const char *what)
{
	snprintf(fab->err, sizeof(fab->err), "raw TCP: %s: %s", what, strerror(-err));
	return err;
}

/* The plugin's device where that is an interface, so that both take the same way. */
static int addr_choose(const struct fabric_env *env, union raw_addr *ret, char *dev)
{
	memset(ret, 0, sizeof(*ret));
	if (env->dev && raw_addr_of_if(env->dev, ret) == 0) {
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
		return raw_addr_parse(text, false, ret, err, sizeof(err));
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
	snprintf(r->super.about.name, FABRIC_NAME, "raw TCP");
	rc = addr_choose(env, &r->addr, r->super.about.dev);
	if (env->key)
		memcpy(r->key, env->key->bytes, sizeof(r->key));
	r->listen_fd = rc ? rc : raw_listen(&r->addr);
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

static int comm_new(struct wire *w, bool is_send, void **ret_comm)
{
	struct raw_comm *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->wire = w;
	c->is_send = is_send;
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

/* The other direction's socket if there is one; else dial, which waits for the kernel only. */
static int raw_fab_connect(struct fabric *fab, int peer, int idx, void *handle, void **ret_comm)
{
	struct raw_fabric *r = raw_of(fab);
	struct wire *w = wire_find(r, peer, idx);
	struct raw_handle h;
	struct hello hello = { .idx = idx };
	int fd;

	if (w)
		return comm_new(w, true, ret_comm);
	memset(&h, 0, sizeof(h));
	memcpy(&h, handle, FABRIC_HANDLE);
	fd = raw_dial(&h.addr, DIAL_MS);
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
	return comm_new(w, true, ret_comm);
}

/* Its hello is in the first segment; a stranger's silence costs us 200 ms at most. */
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
		return comm_new(w, false, ret_comm);
	if (poll(&p, 1, 0) != 1)
		return 0;
	fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return fail(fab, -errno, "accept");
	if (raw_tune(fd) != 0 || !hello_is_good(r, fd, idx)) {
		close(fd);
		return 0;
	}
	w = wire_add(r, fd, peer, idx);
	return w ? comm_new(w, false, ret_comm) : -ENOMEM;
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

/* 1: the oldest request is done; 0: not now; or -errno. */
static int head_move(struct raw_comm *c)
{
	struct raw_req *q = &c->queue[c->done % QUEUE];
	ssize_t n;

	while (q->moved < q->size) {
		if (c->is_send)
			n = send(c->wire->fd, q->data + q->moved, q->size - q->moved, MSG_NOSIGNAL);
		else
			n = recv(c->wire->fd, q->data + q->moved, q->size - q->moved, 0);
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (n == 0)
			return -ECONNRESET;
		q->moved += (size_t)n;
	}
	c->done++;
	return 1;
}

static int post(struct raw_comm *c, void *data, size_t size, struct raw_req **ret_req)
{
	struct raw_req *q = &c->queue[c->posted % QUEUE];

	*ret_req = NULL;
	if (c->posted - c->done == QUEUE)
		return 0;
	*q = (struct raw_req){ .comm = c, .data = data, .size = size };
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

/* Requests are asked for in order, oldest first, so one still in the queue is its head. */
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
