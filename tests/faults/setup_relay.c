/* SPDX-License-Identifier: BSD-3-Clause */
/* setup_relay.c - see setup.h: relays connections, and brings a fault about at one message. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/proto/auth.h"
#include "core/proto/hello.h"
#include "tests/faults/setup.h"

enum { BY_DIALLER, BY_ACCEPTER, WAYS, PIPES = 256, ROOM = 65536, KIND_AT = 12 };

struct stream {				/* the bytes that one end sends */
	unsigned char buf[ROOM];
	size_t have, gone;		/* read; and of these passed on */
	size_t whole;			/* may be passed on: up to the end of a message */
	uint64_t passed;		/* ever */
	uint64_t not_before;		/* kept back until then */
	bool lost;			/* all that comes is */
	bool over;			/* it has ended */
};

struct pipe {
	int fd[WAYS];			/* the dialler's socket, and one to the listener; -1: none */
	bool is_link;			/* a new link's, by its hello */
	uint64_t dial_at;		/* the listener is dialled then; 0: it was */
	struct stream way[WAYS];
};

/* -- which message ---------------------------------------------------------------------------- */

static const struct message {
	enum step step;
	unsigned by;
	bool blob;
	size_t size;			/* 0: what one read brings */
} messages[] = {
	{ AT_HELLO, BY_DIALLER, false, BRAID_HELLO_SIZE },
	{ AT_ANSWER, BY_ACCEPTER, false, BRAID_HELLO_SIZE },
	{ AT_PROOF, BY_DIALLER, false, BRAID_PROOF_SIZE },
	{ AT_ASK, BY_DIALLER, true, BRAID_SETUP_SIZE },
	{ AT_REPLY, BY_ACCEPTER, true, BRAID_SETUP_SIZE },
	{ AT_READY, BY_DIALLER, true, BRAID_SETUP_SIZE },
	{ AT_OPEN, BY_DIALLER, false, 0 },
	{ AT_OPENED, BY_ACCEPTER, false, 0 },
};

/* The message that begins after `passed` bytes of one end; NULL: none that matters. */
static const struct message *message_at(const struct relay *r, unsigned by, uint64_t passed)
{
	uint64_t at = 0;

	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
		const struct message *m = &messages[i];

		if (m->by != by || (m->blob && !r->blobs))
			continue;
		if (at == passed)
			return m;
		at += m->size;
		if (!m->size)
			return NULL;
	}
	return NULL;
}

/* -- the fault -------------------------------------------------------------------------------- */

static void cut(struct pipe *p, bool by_reset)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	for (int i = 0; i < WAYS; i++) {
		if (p->fd[i] < 0)
			continue;
		if (by_reset)
			setsockopt(p->fd[i], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(p->fd[i]);
		p->fd[i] = -1;
	}
}

/* Is it the fault's turn, at this step of this connection? */
static bool is_due(struct relay *r, const struct pipe *p, enum step step)
{
	bool again = r->what == LOST_ALWAYS || r->what == RESET_ALWAYS;

	if (step != r->step || r->what == NO_FAULT || (r->struck_ns && !again))
		return false;
	if (step != AT_TCP && !p->is_link)
		return false;
	if (!r->struck_ns)
		r->struck_ns = now_ns();
	return true;
}

/* A whole message of that size lies at the head of way `by`; false: it is not to be passed on. */
static bool pass(struct relay *r, struct pipe *p, unsigned by, const struct message *m, size_t size)
{
	struct stream *w = &p->way[by];

	if (!is_due(r, p, m->step))
		return true;
	switch (r->what) {
	case LOST:
	case LOST_ALWAYS:
		w->lost = true;
		return false;
	case LATE:
	case TOO_LATE:
		w->not_before = now_ns() + (r->what == LATE ? r->late_ns : r->too_late_ns);
		return true;
	case DOUBLED:
		if (w->have + size <= ROOM) {
			memmove(w->buf + w->gone + 2 * size, w->buf + w->gone + size,
				w->have - w->gone - size);
			memcpy(w->buf + w->gone + size, w->buf + w->gone, size);
			w->have += size;
			w->whole += size;
		}
		return true;
	case RESET:
	case RESET_ALWAYS:
		cut(p, true);
		return false;
	default:
		r->strike(r->arg);
		return true;
	}
}

/* -- moving ----------------------------------------------------------------------------------- */

static int dial(const struct relay *r)
{
	struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(r->to),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd >= 0 && connect(fd, (struct sockaddr *)&in, sizeof(in))) {
		close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void take_connection(struct relay *r)
{
	int fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), one = 1;
	struct pipe *p = NULL;

	if (fd < 0)
		return;
	for (unsigned i = 0; i < PIPES && !p; i++) {
		if (r->pipes[i].fd[0] < 0 && r->pipes[i].fd[1] < 0)
			p = &r->pipes[i];
	}
	if (!p) {
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	*p = (struct pipe){ .fd = { fd, -1 }, .dial_at = now_ns() };
	if (!is_due(r, p, AT_TCP))
		return;
	if (r->what == LOST || r->what == LOST_ALWAYS)
		p->dial_at = UINT64_MAX;
	else if (r->what == LATE || r->what == TOO_LATE)
		p->dial_at += r->what == LATE ? r->late_ns : r->too_late_ns;
	else if (!of_process(r->what))
		cut(p, true);
	else
		r->strike(r->arg);
	if (r->listener < 0)
		cut(p, true);
}

/* Reads what comes, up to the room that there is; false: that end is over. */
static void read_way(struct pipe *p, unsigned by)
{
	struct stream *w = &p->way[by];
	ssize_t n;

	if (w->gone == w->have)
		w->gone = w->have = w->whole = 0;
	if (w->over || w->have == ROOM)
		return;
	n = recv(p->fd[by], w->buf + w->have, (ROOM - w->have) / 2 + 1, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		w->over = true;
	else if (!w->lost)
		w->have += (size_t)n;
}

/* Finds out how far whole messages reach, and what becomes of them. */
static void weigh(struct relay *r, struct pipe *p, unsigned by)
{
	struct stream *w = &p->way[by];

	while (!w->lost && p->fd[by] >= 0 && w->whole <= w->gone && w->gone < w->have) {
		const struct message *m = message_at(r, by, w->passed);
		size_t size = m && m->size ? m->size : w->have - w->gone;

		if (m && w->have - w->gone < size)
			return;
		if (m && m->step == AT_HELLO)
			p->is_link = w->buf[w->gone + KIND_AT] == BRAID_HELLO_LINK;
		w->whole = w->gone + size;
		w->passed += size;
		if (m && !pass(r, p, by, m, size))
			w->whole = w->gone;
		else if (m)
			return;
	}
}

static void write_way(struct pipe *p, unsigned by)
{
	struct stream *w = &p->way[by];
	int to = p->fd[!by];
	ssize_t n = 0;

	if (to < 0 || now_ns() < w->not_before)
		return;
	if (w->whole > w->gone)
		n = send(to, w->buf + w->gone, w->whole - w->gone, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n > 0)
		w->gone += (size_t)n;
	if (n < 0 && errno != EAGAIN)
		cut(p, true);
	else if (w->over && !w->lost && w->gone == w->have)
		cut(p, false);
	else if (w->over && w->lost)
		shutdown(to, SHUT_WR);		/* even so the end of it shows, as to a NAT's timeout */
}

static void move(struct relay *r, struct pipe *p)
{
	if (p->fd[0] >= 0 && p->fd[1] < 0 && p->dial_at && now_ns() >= p->dial_at) {
		p->dial_at = 0;
		p->fd[1] = dial(r);
		if (p->fd[1] < 0)
			cut(p, true);
	}
	for (unsigned by = 0; by < WAYS; by++) {
		if (p->fd[by] < 0)
			continue;
		read_way(p, by);
		weigh(r, p, by);
		write_way(p, by);
	}
	if (p->fd[1] < 0 && p->way[BY_DIALLER].over)
		cut(p, false);
}

void relay_moves(struct relay *r, unsigned ms)
{
	struct pollfd pfd[1 + WAYS * PIPES];
	uint64_t until = now_ns() + ms * 1000000ULL;
	nfds_t n;

	do {
		n = 1;
		pfd[0] = (struct pollfd){ .fd = r->listener, .events = POLLIN };
		for (unsigned i = 0; i < PIPES; i++) {
			for (unsigned by = 0; by < WAYS; by++) {
				const struct pipe *p = &r->pipes[i];

				if (p->fd[by] >= 0 && !p->way[by].over && p->way[by].have < ROOM)
					pfd[n++] = (struct pollfd){ .fd = p->fd[by], .events = POLLIN };
			}
		}
		poll(pfd, n, 2);
		if (pfd[0].revents)
			take_connection(r);
		for (unsigned i = 0; i < PIPES; i++) {
			if (r->pipes[i].fd[0] >= 0 || r->pipes[i].fd[1] >= 0)
				move(r, &r->pipes[i]);
		}
	} while (now_ns() < until);
}

void relay_hangs_up(struct relay *r)
{
	if (r->listener >= 0)
		close(r->listener);
	r->listener = -1;
	for (unsigned i = 0; i < PIPES; i++) {
		if (r->pipes[i].fd[1] < 0)
			cut(&r->pipes[i], true);
	}
}

/* A second socket keeps the port when the first no longer listens: no other process gets it. */
bool relay_opens(struct relay *r)
{
	struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(in);
	int one = 1;

	r->pipes = calloc(PIPES, sizeof(*r->pipes));
	r->keeper = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	setsockopt(r->keeper, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(r->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (!r->pipes || bind(r->keeper, (struct sockaddr *)&in, sizeof(in)) ||
	    getsockname(r->keeper, (struct sockaddr *)&in, &len) ||
	    bind(r->listener, (struct sockaddr *)&in, sizeof(in)) || listen(r->listener, 64))
		return false;
	r->port = ntohs(in.sin_port);
	for (unsigned i = 0; i < PIPES; i++)
		r->pipes[i].fd[0] = r->pipes[i].fd[1] = -1;
	return true;
}

void relay_ends(struct relay *r)
{
	for (unsigned i = 0; i < PIPES; i++)
		cut(&r->pipes[i], false);
	relay_hangs_up(r);
	close(r->keeper);
	free(r->pipes);
}
