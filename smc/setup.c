/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * setup.c - how a stream over SMC is set up, over the authenticated socket of the handshake:
 *
 *	accepter	listens on an SMC socket of its own; sends its port and a nonce
 *	dialler		connects there and sends the nonce; asks the kernel: SMC or TCP?
 *	accepter	takes the connection that sends the nonce, and closes others
 *
 * If only the accepter can reach the other end (core/setup/reverse.h), the dialler listens and
 * sends its port first, and the accepter, whose message then has no port, connects.
 *
 * connect() of such a socket has been seen to block in the kernel for minutes, without being
 * interruptible.  So it runs in a thread of its own (core/base/work.h), for which nothing waits if
 * the call does not return in time.  After a failure, SMC is not tried with that peer for a while.
 *
 * A fallback to TCP is a failure here: the TCP transport has sockets of its own, which report more.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/ports.h"
#include "core/base/units.h"
#include "core/base/work.h"
#include "core/proto/auth.h"
#include "smc/conn.h"

enum { REMEMBERED = 64 };

/* A connect() under way.  Its thread owns all members until the call has returned. */
struct smc_dial {
	struct braid_work work;
	int fd, err;
	struct sockaddr_storage from, to;
	socklen_t len;
	uint8_t nonce[BRAID_SMC_NONCE];
	struct braid_smc_mode mode;
};

/* --- peers with which SMC failed ----------------------------------------------------------- */

/* The ring of such peers; only the service thread uses it. */
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
	remembered[i].until_ns = braid_os->now_ns() + BRAID_SMC_REST_S * SEC;
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

/* Bind to some port at that address, and listen there if wanted. */
static int bind_some(struct sockaddr *at, socklen_t len, int fd, bool listens)
{
	struct braid_ports walk;
	int err = -EADDRINUSE;
	uint16_t port;

	braid_ports_begin(&walk);
	while (err == -EADDRINUSE && braid_ports_next(&walk, &port)) {
		err = braid_ports_bind(fd, at, len, port);
		if (!err && listens && braid_os->listen(fd, BRAID_SMC_PENDING))
			return -errno;
	}
	return err;
}

static int dial_step(struct smc_dial *d)
{
	int err = bind_some((struct sockaddr *)&d->from, d->len, d->fd, false);
	ssize_t n;

	if (err)
		return err;
	if (fcntl(d->fd, F_SETFL, 0) ||
	    braid_os->connect(d->fd, (struct sockaddr *)&d->to, d->len))
		return -errno;
	/* Send before the kernel is asked, so that the peer, too, can find out about a fallback. */
	n = braid_os->send(d->fd, d->nonce, BRAID_SMC_NONCE, MSG_NOSIGNAL);
	if (n != BRAID_SMC_NONCE)
		return n < 0 ? -errno : -EIO;
	if (fcntl(d->fd, F_SETFL, O_NONBLOCK))
		return -errno;
	return braid_smc_diag(d->fd, &d->mode);
}

static void dial_run(struct braid_work *work)
{
	struct smc_dial *d = braid_container(work, struct smc_dial, work);

	d->err = dial_step(d);
}

static void dial_free(struct braid_work *work)
{
	struct smc_dial *d = braid_container(work, struct smc_dial, work);

	braid_smc_close(d->fd);
	free(d);
}

static void set_int(int fd, int level, int name, int64_t value)
{
	int v = (int)value;

	braid_os->setsockopt(fd, level, name, &v, sizeof(v));	/* optional: SMC works without */
}

/* To be called before connect(), in which the kernel allocates the buffers. */
static void set_options(int fd)
{
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (braid_param.sndbuf)
		set_int(fd, SOL_SOCKET, SO_SNDBUF, braid_param.sndbuf);
	if (braid_param.rcvbuf)
		set_int(fd, SOL_SOCKET, SO_RCVBUF, braid_param.rcvbuf);
}

static socklen_t own_address(const struct braid_dev *dev, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &dev->net.addr, sizeof(dev->net.addr));
	braid_ports_set((struct sockaddr *)ret, 0);
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

/* The port at which the peer listens; 0: it connects. */
static uint16_t port_of(const uint8_t *theirs)
{
	return (uint16_t)(theirs[0] | theirs[1] << 8);
}

static int start_dialling(struct braid_setup *s, struct smc_conn *w, const uint8_t *theirs)
{
	struct smc_dial *d = calloc(1, sizeof(*d));
	uint16_t port = port_of(theirs);
	int err;

	if (!d)
		return -ENOMEM;
	d->len = own_address(s->dev, &d->from);
	memcpy(&d->to, s->to, d->len);
	braid_ports_set((struct sockaddr *)&d->to, port);
	memcpy(d->nonce, s->has_ticket ? s->ticket : theirs + 2, BRAID_SMC_NONCE);
	d->fd = port && d->to.ss_family == d->from.ss_family ? braid_smc_socket(d->to.ss_family) :
								-EBADMSG;
	err = d->fd < 0 ? d->fd : 0;
	if (!err) {
		set_options(d->fd);
		err = braid_work_start(&d->work, "connect() of an SMC socket", dial_run, dial_free);
	}
	if (err) {
		braid_smc_close(d->fd);
		free(d);
		return err;
	}
	w->dial = d;
	snprintf(s->why, sizeof(s->why), "connect() does not come back from the kernel");
	return 0;
}

static int refuse_fallback(struct braid_setup *s, const struct smc_conn *w)
{
	if (w->mode.kind != BRAID_SMC_TCP)
		return 0;
	braid_smc_why(&w->mode, s->why, sizeof(s->why));
	return -ENOPROTOOPT;
}

/* connect() has returned: takes the stream, or notes the reason of the failure. */
static int dialled(struct braid_setup *s, struct smc_conn *w)
{
	struct smc_dial *d = w->dial;

	s->why[0] = '\0';
	w->mode = d->mode;
	w->err = d->err ? d->err : refuse_fallback(s, w);
	if (w->err) {
		s->failed = "connect";
		remember(s);
	} else {
		w->fd = d->fd;
		d->fd = -1;
	}
	dial_drop(s, w);
	return w->err;
}

/* --- accepting ----------------------------------------------------------------------------- */

static int start_listening(const struct braid_setup *s, struct smc_conn *w, uint8_t *mine)
{
	struct sockaddr_storage at;
	socklen_t len = own_address(s->dev, &at);
	uint16_t port;
	int err;

	w->listen_fd = braid_smc_socket(at.ss_family);
	if (w->listen_fd < 0)
		return w->listen_fd;
	set_options(w->listen_fd);	/* accepted sockets inherit them */
	err = bind_some((struct sockaddr *)&at, len, w->listen_fd, true);
	if (err)
		return err;
	if (braid_os->getsockname(w->listen_fd, (struct sockaddr *)&at, &len))
		return -errno;
	port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port :
						((struct sockaddr_in *)&at)->sin_port);
	mine[0] = (uint8_t)port;
	mine[1] = (uint8_t)(port >> 8);
	if (s->has_ticket) {		/* the peer makes it itself: it never crosses in advance */
		memcpy(w->nonce, s->ticket, BRAID_SMC_NONCE);
		return 0;
	}
	err = braid_os->random(w->nonce, BRAID_SMC_NONCE);
	memcpy(mine + 2, w->nonce, BRAID_SMC_NONCE);
	return err;
}

static void pending_close(struct smc_pending *g)
{
	braid_smc_close(g->fd);
	g->fd = -1;
	g->got = 0;
}

/* Each new connection replaces the oldest, so that strangers can't keep the peer out. */
static void accept_all(struct smc_conn *w)
{
	int fd;

	while ((fd = braid_os->accept(w->listen_fd, NULL, NULL)) >= 0) {
		pending_close(&w->pending[0]);
		memmove(w->pending, w->pending + 1, sizeof(w->pending) - sizeof(w->pending[0]));
		w->pending[BRAID_SMC_PENDING - 1] = (struct smc_pending){ .fd = fd };
	}
}

static void close_sockets(struct smc_conn *w)
{
	for (unsigned i = 0; i < BRAID_SMC_PENDING; i++)
		pending_close(&w->pending[i]);
	braid_smc_close(w->listen_fd);
	w->listen_fd = -1;
}

/* Reads the nonce.  True: it is complete and right, so this is the peer. */
static bool read_nonce(struct smc_conn *w, struct smc_pending *g)
{
	ssize_t n = braid_os->recv(g->fd, g->nonce + g->got, BRAID_SMC_NONCE - g->got,
				   MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n > 0)
		g->got += (unsigned)n;
	if (n > 0 && g->got < BRAID_SMC_NONCE)
		return false;
	if (n > 0 && braid_auth_equal(g->nonce, w->nonce))
		return true;
	pending_close(g);
	return false;
}

static int accepted(struct braid_setup *s, struct smc_conn *w)
{
	int err;

	accept_all(w);
	for (unsigned i = 0; i < BRAID_SMC_PENDING && w->fd < 0; i++) {
		if (w->pending[i].fd >= 0 && read_nonce(w, &w->pending[i])) {
			w->fd = w->pending[i].fd;
			w->pending[i].fd = -1;
		}
	}
	if (w->fd < 0)
		return -EAGAIN;
	close_sockets(w);
	err = braid_smc_diag(w->fd, &w->mode);
	if (!err)
		err = refuse_fallback(s, w);
	/* The dialler rejects a fallback, but sends only an errno: both ends know the reason. */
	if (!err || !s->dialler)
		return 0;
	braid_smc_close(w->fd);
	w->fd = -1;
	s->failed = "accept";
	remember(s);
	return w->err = err;
}

/* --- set-up -------------------------------------------------------------------------------- */

void braid_smc_conn_free(struct smc_conn *w)
{
	if (!w)
		return;
	close_sockets(w);
	braid_smc_close(w->fd);
	free(w);
}

void braid_smc_setup_drop(struct braid_setup *s)
{
	struct smc_conn *w = s->priv;

	if (w)
		dial_drop(s, w);
	braid_smc_conn_free(w);
	s->priv = NULL;
}

int braid_smc_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine)
{
	struct smc_conn *w;
	int err = 0;

	if (!theirs && is_remembered(s))
		return -EALREADY;
	w = s->priv = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->fd = w->listen_fd = -1;
	for (unsigned i = 0; i < BRAID_SMC_PENDING; i++)
		w->pending[i].fd = -1;
	memset(mine, 0, BRAID_BLOB_SIZE);
	if (theirs && port_of(theirs))
		err = start_dialling(s, w, theirs);
	else if (theirs || s->reversed)
		err = start_listening(s, w, mine);
	if (err)
		braid_smc_setup_drop(s);
	return err;
}

int braid_smc_setup_peer(struct braid_setup *s, const uint8_t *theirs)
{
	struct smc_conn *w = s->priv;

	if (s->reversed && !port_of(theirs))
		return 0;
	close_sockets(w);		/* the peer is older, and listens, too */
	return start_dialling(s, w, theirs);
}

int braid_smc_setup_ready(struct braid_setup *s)
{
	struct smc_conn *w = s->priv;

	if (w->fd >= 0)
		return 0;
	if (w->listen_fd >= 0)
		return accepted(s, w);
	if (w->dial && !braid_work_done(&w->dial->work))
		return -EAGAIN;
	return w->dial ? dialled(s, w) : w->err;
}
