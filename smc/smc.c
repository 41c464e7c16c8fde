/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * smc.c - SMC: the stream engine over a socket of AF_SMC, which is RDMA or shared memory
 * underneath, or has fallen back to TCP.
 *
 * How a stream is set up, over the authenticated socket of the handshake:
 *
 *	accepter	listens on an SMC socket of its own; sends its port and a nonce
 *	dialler		connects there and sends the nonce; asks the kernel if it is SMC or TCP
 *	accepter	takes the connection that sends the nonce, and closes others
 *
 * connect() and close() of such a socket have been seen to block in the kernel for minutes, without
 * being interruptible.  So each runs in a thread of its own (core/base/work.h), which is left alone
 * if it does not return in time.
 *
 * SMC hides faults, and the kernel's heartbeat takes half a minute.  So lane->fd stays the
 * handshake's socket, which is closed when the peer's process ends.  A fallback to TCP is a failure
 * here: the TCP transport has sockets of its own, which report more.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/proto/auth.h"
#include "core/link/lane_io.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/transport.h"
#include "core/base/work.h"
#include "smc/diag.h"
#include "socket/stream.h"

#ifndef AF_SMC
#define AF_SMC 43
#endif

enum {
	SMCPROTO_SMC, SMCPROTO_SMC6,	/* of AF_SMC: over IPv4, over IPv6 */
	IPPROTO_SMC = 256,		/* of AF_INET and AF_INET6: Linux 6.11 */
	NONCE = BRAID_MAC_SIZE,
	GUESTS = 4,			/* connections that have not sent the nonce yet */
	REST_S = 300,			/* no SMC to a peer for so long after a failure */
	REMEMBERED = 64,
	STUCK = 30,			/* checks without progress, a tenth of a second apart */
};

#define SEC 1000000000ull

/* A connect() of the dialler's.  Its thread owns all of it until that has returned. */
struct dial {
	struct braid_work work;
	int fd, err;
	struct sockaddr_storage from, to;
	socklen_t len;
	uint8_t nonce[NONCE];
	struct braid_smc_mode mode;
};

struct guest {
	int fd;
	unsigned got;
	uint8_t nonce[NONCE];
};

struct smc_conn {
	int fd;				/* the stream; -1: not connected yet */
	struct braid_smc_mode mode;
	struct dial *dial;
	int listen_fd;			/* of the accepter */
	struct guest guest[GUESTS];
	uint8_t nonce[NONCE];
	unsigned idle_polls;
	struct braid_look look;		/* the service thread's */
};

static bool inet;			/* the kernel has IPPROTO_SMC */

static struct smc_conn *conn_of(const struct braid_lane *lane)
{
	return lane->priv;
}

static int smc_socket(int family)
{
	int fd = inet ? braid_os->socket(family, IPPROTO_SMC) :
			braid_os->socket(AF_SMC, family == AF_INET6 ? SMCPROTO_SMC6 : SMCPROTO_SMC);

	return fd < 0 ? -errno : fd;
}

/* --- close() may wait ---------------------------------------------------------------------- */

struct end {
	struct braid_work work;
	int fd;
};

static void end_run(struct braid_work *work)
{
	braid_os->close(braid_container(work, struct end, work)->fd);
}

static void end_free(struct braid_work *work)
{
	free(braid_container(work, struct end, work));
}

static void close_later(int fd)
{
	struct end *e;

	if (fd < 0)
		return;
	e = calloc(1, sizeof(*e));
	if (!e) {
		braid_os->close(fd);	/* no memory for a thread: it may block here */
		return;
	}
	e->fd = fd;
	if (!braid_work_start(&e->work, "close() of an SMC socket", end_run, end_free)) {
		braid_work_leave(&e->work);
		return;
	}
	free(e);
	braid_os->close(fd);
}

/* --- peers with which it failed ------------------------------------------------------------ */

/* The service thread's. */
static struct {
	struct braid_addr peer;
	const struct braid_dev *dev;
	uint64_t until_ns;
} remembered[REMEMBERED];
static unsigned last_remembered;

static struct braid_addr ip_of(const struct sockaddr *sa)
{
	struct braid_addr a = { .port = 0 };

	if (sa->sa_family == AF_INET6)
		memcpy(a.ip, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
	else
		memcpy(a.ip, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	return a;
}

static void remember(const struct braid_setup *s)
{
	unsigned i = last_remembered++ % REMEMBERED;

	remembered[i].peer = ip_of(s->to);
	remembered[i].dev = s->dev;
	remembered[i].until_ns = braid_os->now_ns() + REST_S * SEC;
}

static bool is_remembered(const struct braid_setup *s)
{
	struct braid_addr peer = ip_of(s->to);
	uint64_t now = braid_os->now_ns();

	for (unsigned i = 0; i < REMEMBERED; i++) {
		if (remembered[i].dev == s->dev && now < remembered[i].until_ns &&
		    !memcmp(&remembered[i].peer, &peer, sizeof(peer)))
			return true;
	}
	return false;
}

/* --- dialling ------------------------------------------------------------------------------ */

static int dial_step(struct dial *d)
{
	ssize_t n;

	if (braid_os->bind(d->fd, (struct sockaddr *)&d->from, d->len) ||
	    fcntl(d->fd, F_SETFL, 0) ||
	    braid_os->connect(d->fd, (struct sockaddr *)&d->to, d->len))
		return -errno;
	/* Before the kernel is asked, so that the peer sees a fallback to TCP as well. */
	n = braid_os->send(d->fd, d->nonce, NONCE, MSG_NOSIGNAL);
	if (n != NONCE)
		return n < 0 ? -errno : -EIO;
	if (fcntl(d->fd, F_SETFL, O_NONBLOCK))
		return -errno;
	return braid_smc_diag(d->fd, &d->mode);
}

static void dial_run(struct braid_work *work)
{
	struct dial *d = braid_container(work, struct dial, work);

	d->err = dial_step(d);
}

static void dial_free(struct braid_work *work)
{
	struct dial *d = braid_container(work, struct dial, work);

	close_later(d->fd);
	free(d);
}

static void set_int(int fd, int level, int name, int64_t value)
{
	int v = (int)value;

	braid_os->setsockopt(fd, level, name, &v, sizeof(v));	/* it works without, too */
}

/* Before connect(), in which the kernel allocates the buffers. */
static void set_options(int fd)
{
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (braid_param.sndbuf)
		set_int(fd, SOL_SOCKET, SO_SNDBUF, braid_param.sndbuf);
	if (braid_param.rcvbuf)
		set_int(fd, SOL_SOCKET, SO_RCVBUF, braid_param.rcvbuf);
}

static void set_port(struct sockaddr_storage *sa, uint16_t port)
{
	if (sa->ss_family == AF_INET6)
		((struct sockaddr_in6 *)sa)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)sa)->sin_port = htons(port);
}

static socklen_t own_address(const struct braid_dev *dev, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &dev->net.addr, sizeof(dev->net.addr));
	set_port(ret, 0);
	return ret->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
					    sizeof(struct sockaddr_in);
}

/* A connect() that has not returned after a quarter of a second counts as a failure. */
static void dial_drop(struct braid_setup *s, struct smc_conn *w)
{
	if (!w->dial)
		return;
	if (!braid_work_done(&w->dial->work) &&
	    braid_os->now_ns() - w->dial->work.begun_ns > SEC / 4)
		remember(s);
	braid_work_leave(&w->dial->work);
	w->dial = NULL;
}

static int smc_setup_peer(struct braid_setup *s, const uint8_t *theirs)
{
	struct smc_conn *w = s->priv;
	struct dial *d = calloc(1, sizeof(*d));
	uint16_t port = (uint16_t)(theirs[0] | theirs[1] << 8);
	int err;

	if (!d)
		return -ENOMEM;
	d->len = own_address(s->dev, &d->from);
	memcpy(&d->to, s->to, d->len);
	set_port(&d->to, port);
	memcpy(d->nonce, theirs + 2, NONCE);
	d->fd = port && d->to.ss_family == d->from.ss_family ? smc_socket(d->to.ss_family) :
								-EBADMSG;
	err = d->fd < 0 ? d->fd : 0;
	if (!err) {
		set_options(d->fd);
		err = braid_work_start(&d->work, "connect() of an SMC socket", dial_run, dial_free);
	}
	if (err) {
		close_later(d->fd);
		free(d);
		return err;
	}
	w->dial = d;
	snprintf(s->why, sizeof(s->why), "connect() does not come back from the kernel");
	return 0;
}

/* connect() has returned: takes the stream, or the reason of the failure. */
static int dialled(struct braid_setup *s, struct smc_conn *w)
{
	struct dial *d = w->dial;
	int err = d->err;

	s->why[0] = '\0';
	if (!err && d->mode.kind == BRAID_SMC_TCP) {
		braid_smc_why(&d->mode, s->why, sizeof(s->why));
		err = -ENOPROTOOPT;
	}
	if (err) {
		s->failed = "connect";
		remember(s);
		return err;
	}
	w->mode = d->mode;
	w->fd = d->fd;
	d->fd = -1;
	dial_drop(s, w);
	return 0;
}

/* --- accepting ----------------------------------------------------------------------------- */

static int start_listening(const struct braid_dev *dev, struct smc_conn *w, uint8_t *mine)
{
	struct sockaddr_storage at;
	socklen_t len = own_address(dev, &at);
	uint16_t port;

	w->listen_fd = smc_socket(at.ss_family);
	if (w->listen_fd < 0)
		return w->listen_fd;
	set_options(w->listen_fd);	/* accepted sockets inherit them */
	if (braid_os->bind(w->listen_fd, (struct sockaddr *)&at, len) ||
	    braid_os->listen(w->listen_fd, GUESTS) ||
	    braid_os->getsockname(w->listen_fd, (struct sockaddr *)&at, &len))
		return -errno;
	port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port :
						((struct sockaddr_in *)&at)->sin_port);
	braid_os->random(w->nonce, NONCE);
	mine[0] = (uint8_t)port;
	mine[1] = (uint8_t)(port >> 8);
	memcpy(mine + 2, w->nonce, NONCE);
	return 0;
}

static void guest_close(struct guest *g)
{
	close_later(g->fd);
	g->fd = -1;
	g->got = 0;
}

/* Each new connection replaces the oldest, so that strangers can't keep the peer out. */
static void let_in(struct smc_conn *w)
{
	int fd;

	while ((fd = braid_os->accept(w->listen_fd, NULL, NULL)) >= 0) {
		guest_close(&w->guest[0]);
		memmove(w->guest, w->guest + 1, sizeof(w->guest) - sizeof(w->guest[0]));
		w->guest[GUESTS - 1] = (struct guest){ .fd = fd };
	}
}

static void doors_close(struct smc_conn *w)
{
	for (unsigned i = 0; i < GUESTS; i++)
		guest_close(&w->guest[i]);
	close_later(w->listen_fd);
	w->listen_fd = -1;
}

/* Reads the nonce.  True: it is complete and right, so this is the peer. */
static bool listen_to(struct smc_conn *w, struct guest *g)
{
	ssize_t n = braid_os->recv(g->fd, g->nonce + g->got, NONCE - g->got, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n > 0)
		g->got += (unsigned)n;
	if (n > 0 && g->got < NONCE)
		return false;
	if (n > 0 && braid_auth_equal(g->nonce, w->nonce))
		return true;
	guest_close(g);
	return false;
}

static int accepted(struct braid_setup *s, struct smc_conn *w)
{
	let_in(w);
	for (unsigned i = 0; i < GUESTS && w->fd < 0; i++) {
		if (w->guest[i].fd >= 0 && listen_to(w, &w->guest[i])) {
			w->fd = w->guest[i].fd;
			w->guest[i].fd = -1;
		}
	}
	if (w->fd < 0)
		return -EAGAIN;
	doors_close(w);
	/* The dialler rejects a fallback, but sends only an errno: so find the reason here. */
	if (!braid_smc_diag(w->fd, &w->mode) && w->mode.kind == BRAID_SMC_TCP)
		braid_smc_why(&w->mode, s->why, sizeof(s->why));
	return 0;
}

/* --- set-up -------------------------------------------------------------------------------- */

static void conn_free(struct smc_conn *w)
{
	if (!w)
		return;
	doors_close(w);
	close_later(w->fd);
	free(w);
}

static void smc_setup_drop(struct braid_setup *s)
{
	struct smc_conn *w = s->priv;

	if (w)
		dial_drop(s, w);
	conn_free(w);
	s->priv = NULL;
}

static int smc_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine)
{
	struct smc_conn *w;
	int err;

	if (!theirs && is_remembered(s))
		return -EALREADY;
	w = s->priv = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->fd = w->listen_fd = -1;
	for (unsigned i = 0; i < GUESTS; i++)
		w->guest[i].fd = -1;
	memset(mine, 0, BRAID_BLOB_SIZE);
	err = theirs ? start_listening(s->dev, w, mine) : 0;
	if (err)
		smc_setup_drop(s);
	return err;
}

static int smc_setup_ready(struct braid_setup *s)
{
	struct smc_conn *w = s->priv;

	if (w->fd >= 0)
		return 0;
	if (!s->dialler)
		return accepted(s, w);
	return braid_work_done(&w->dial->work) ? dialled(s, w) : -EAGAIN;
}

/* --- lanes --------------------------------------------------------------------------------- */

static const char *kind_text(const struct braid_smc_mode *mode)
{
	return !mode->found ? "SMC, of a kind that the kernel does not tell" :
	       mode->kind == BRAID_SMC_R ? "SMC-R" : mode->kind == BRAID_SMC_D ? "SMC-D" : "TCP";
}

static int smc_open(struct braid_lane *lane)
{
	const struct smc_conn *w = conn_of(lane);

	((struct braid_stream *)lane)->fd = w->fd;
	lane->event_fd = w->fd;
	braid_info("device %s, peer %s: lane %u is %s%s%s", lane->link->key.dev->net.name,
		   lane->link->peer, lane->index, kind_text(&w->mode),
		   w->mode.ib[0] ? " over " : "", w->mode.ib);
	return 0;
}

/* The socket first: a peer whose stream then fails checks it, and knows that we closed both. */
static void smc_close(struct braid_lane *lane)
{
	if (lane->fd >= 0)
		braid_os->close(lane->fd);
	lane->fd = -1;
	lane->event_fd = -1;
	braid_stream_close(lane);
	conn_free(conn_of(lane));
	lane->priv = NULL;
}

/* A stream that fails while the peer's process lives failed by itself. */
static int verdict(const struct braid_lane *lane, int err)
{
	if (err == -EAGAIN || lane->rx_broken || err == -ENOMEM)
		return err;
	if (braid_lane_look_at_fd(lane))
		return -ENOTCONN;
	return err == -ECONNRESET || err == -ECANCELED ? -EIO : err;
}

static int smc_push(struct braid_lane *lane)
{
	int err = braid_stream_push(lane);

	return err ? verdict(lane, err) : 0;
}

static int stream_poll(struct braid_lane *lane)
{
	int n = braid_stream_poll(lane);

	if (n < 0)
		return verdict(lane, n);
	if (n)
		conn_of(lane)->idle_polls = 0;
	return n;
}

static int smc_poll(struct braid_lane *lane)
{
	int n = stream_poll(lane);

	return n || !braid_lane_look_due(lane, &conn_of(lane)->idle_polls) ?
		       n : braid_lane_last_words(lane, stream_poll);
}

static int smc_health(struct braid_lane *lane, struct braid_health *ret)
{
	int err;

	ret->unacked = true;
	if (!braid_trylock(&lane->link->lock))
		return 0;		/* it is being moved */
	ret->unacked = lane->tx.f_sent != lane->tx.f_peer_acked;
	err = braid_lane_stuck(lane, &conn_of(lane)->look, STUCK) ? -ETIMEDOUT : 0;
	braid_unlock(&lane->link->lock);
	return err;
}

static void smc_describe(struct braid_lane *lane, struct braid_wire_state *ret)
{
	const struct smc_conn *w = conn_of(lane);

	snprintf(ret->text, sizeof(ret->text), "%s%s%s", kind_text(&w->mode),
		 w->mode.ib[0] ? " over " : "", w->mode.ib);
}

/* --- which devices ------------------------------------------------------------------------- */

/* Checks the kernel only: whether an interface can do SMC shows when a lane connects. */
static int smc_probe(struct braid_dev *table, unsigned *count, unsigned max, char *why, size_t len)
{
	static char here;
	struct braid_smc_mode mode;
	int fd, err;

	(void)max;
	inet = true;
	fd = smc_socket(AF_INET);
	if (fd < 0) {
		inet = false;
		fd = smc_socket(AF_INET);
	}
	if (fd < 0) {
		snprintf(why, len, "the kernel has no AF_SMC (%s): modprobe smc", strerror(-fd));
		return 0;
	}
	err = braid_smc_diag(fd, &mode);
	close_later(fd);
	if (err && err != -ENOENT) {
		snprintf(why, len, "the kernel does not tell SMC from a fallback to TCP (%s): "
			 "modprobe smc_diag", strerror(-err));
		return 0;
	}
	for (unsigned i = 0; i < *count; i++)
		table[i].port[BRAID_TRANSPORT_SMC] = &here;
	return 0;
}

const struct braid_transport braid_smc = {
	.name = "smc",
	.id = BRAID_TRANSPORT_SMC,
	.lane_size = sizeof(struct braid_stream),
	.probe = smc_probe,
	.usable = braid_always,
	.event_fd = braid_no_event_fd,
	.events = braid_no_events,
	.reg = braid_no_reg,
	.dereg = braid_no_dereg,
	.blob = true,
	.slow = true,
	.rest_s = REST_S,
	.setup = smc_setup,
	.setup_peer = smc_setup_peer,
	.setup_ready = smc_setup_ready,
	.setup_drop = smc_setup_drop,
	.lane_open = smc_open,
	.lane_attach = braid_stream_attach,
	.lane_detach = braid_stream_detach,
	.lane_close = smc_close,
	.lane_fence = braid_no_lane,
	.arm = braid_no_arm,
	.push = smc_push,
	.poll = smc_poll,
	.health = smc_health,
	.describe = smc_describe,
};
