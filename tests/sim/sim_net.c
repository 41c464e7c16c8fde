/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_net.c - the kernels of the simulated processes, and the network between them.
 *
 * TCP only as far as its users can see it.  A connection has two ends.  The bytes that one end sends
 * are in one ring until the other end's process has read them; byte counts say how far they are:
 *
 *	  read ------- arrived ------- sent ------- wrote
 *	   by the peer's  at the peer's   left        taken from
 *	   process        kernel          our kernel  our process
 *
 * and `acked`, what our kernel knows of `arrived`.  A segment is an event that moves `arrived`, an
 * acknowledgement one that moves `acked`.  Both are delayed, and lost in a blackhole.  Then the
 * sender retransmits from `acked` after 200 ms, then 400, ... (TCP_RTO_MAX_MS at most); it gives up
 * after TCP_USER_TIMEOUT, which in Linux also runs while a window stays closed.  The end of a
 * stream counts as one more byte.
 *
 * A closed socket goes on sending what is left.  What arrives for a closed socket, or for none, is
 * answered by a reset.  When a process is killed, all its sockets are closed.
 */
#include "tests/sim/sim.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

enum { RTO_MIN_MS = 200, RTO_MAX_MS = 120000, SYN_MS = 1000, BACKLOG_MAX = 1024, PORTS = 3000,
       SABOTAGE = 1000 /* bytes of a piece that is worth it */ };

enum kind { FILE_TCP, FILE_LISTEN, FILE_EPOLL, FILE_EVENT };

struct end {			/* of a connection */
	struct conn *conn;
	struct sim_file *file;	/* NULL: closed, or not accepted yet */
	bool up;		/* connected, as far as this end knows */
	bool dead;		/* reset, or never connected */
	bool closed;		/* by its process */
	int err;

	/* what it sends */
	char *ring;		/* NULL: it will not be read */
	uint64_t wrote, sent, arrived, read, acked;
	uint64_t edge, told;	/* the window's end: as known here, as last sent by the peer */
	bool fin;
	uint64_t leaves, lands;	/* when the last segment has left, has arrived */
	uint64_t rto_at, since;	/* since when data is unacknowledged */
	bool rto_set;
	unsigned backoff, probes, retransmits;
	uint64_t heard;		/* when the last acknowledgement came */
};

struct conn {
	struct braid_list node;
	struct end end[2];	/* 0 has dialled */
	unsigned proc[2], rail;
	union braid_netdev_addr to, from;
	uint64_t latency;
	unsigned syns;
	bool silent;		/* a middlebox has forgotten it */
	bool queued;		/* for accept() */
};

struct sim_file {
	enum kind kind;
	struct sim_proc *proc;
	int fd;
	/* in an epoll set */
	struct sim_file *ep;
	struct epoll_event ev;
	bool armed;
	struct braid_list ep_node;
	/* FILE_TCP */
	union braid_netdev_addr bound;
	struct end *end;
	unsigned user_timeout_ms, rto_max_ms;
	/* FILE_LISTEN */
	struct braid_list listen_node;
	struct conn *queue[BACKLOG_MAX];
	unsigned nqueue, backlog;
	/* FILE_EPOLL */
	struct braid_list watched;
	struct sim_co *waiter;
	/* FILE_EVENT */
	uint64_t count;
};

static struct sim_weather weather;
static struct braid_list conns;
static struct braid_list listeners;
static unsigned next_port;
static uint16_t last_port[SIM_PROCS];	/* of the last listener at that place */
static struct {
	uint64_t black_until, slow_until, slow_ns;
} paths[SIM_PROCS][SIM_PROCS][SIM_RAILS];

/* --- paths --------------------------------------------------------------------------------- */

static struct end *peer_of(const struct end *e)
{
	return &e->conn->end[e == &e->conn->end[0]];
}

static unsigned place_of(const struct end *e)
{
	return e->conn->proc[e == &e->conn->end[1]];
}

/* Does a segment that is sent now arrive? */
static bool path_up(const struct end *from)
{
	return !from->conn->silent &&
	       sim.now >= paths[place_of(from)][place_of(peer_of(from))][from->conn->rail].black_until;
}

static uint64_t path_ns(const struct end *from)
{
	unsigned a = place_of(from), b = place_of(peer_of(from)), r = from->conn->rail;
	uint64_t ns = from->conn->latency;

	if (weather.jitter_ns)
		ns += sim_between(&sim.net, 0, weather.jitter_ns);
	if (sim.now < paths[a][b][r].slow_until)
		ns += paths[a][b][r].slow_ns;
	return ns;
}

void sim_net_blackhole(unsigned from, unsigned to, unsigned rail, uint64_t until)
{
	sim_event("blackhole", from, to, rail);
	if (until > paths[from][to][rail].black_until)
		paths[from][to][rail].black_until = until;
}

void sim_net_delay(unsigned from, unsigned to, unsigned rail, uint64_t more_ns, uint64_t until)
{
	sim_event("delay", from, to, more_ns);
	paths[from][to][rail].slow_until = until;
	paths[from][to][rail].slow_ns = more_ns;
}

/* --- readiness ----------------------------------------------------------------------------- */

static uint64_t limit(const struct end *e)
{
	return e->wrote + e->fin;
}

/* Bytes that can be read at e. */
static size_t readable(const struct end *e)
{
	const struct end *p = peer_of(e);

	return (size_t)((p->arrived < p->wrote ? p->arrived : p->wrote) - p->read);
}

static bool at_end(const struct end *e)
{
	const struct end *p = peer_of(e);

	return p->fin && p->arrived > p->wrote;
}

static size_t sendable(const struct end *e)
{
	uint64_t held = e->wrote - (e->acked < e->wrote ? e->acked : e->wrote);

	return held < weather.sndbuf ? (size_t)(weather.sndbuf - held) : 0;
}

static uint32_t tcp_ready(const struct end *e)
{
	uint32_t is = 0;

	if (!e)
		return EPOLLOUT | EPOLLHUP;
	if (e->dead)
		return EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | (e->err ? (uint32_t)EPOLLERR : 0);
	if (!e->up)
		return 0;
	if (readable(e) || at_end(e))
		is |= EPOLLIN;
	if (at_end(e))
		is |= EPOLLRDHUP;
	if (sendable(e) * 3 >= weather.sndbuf)
		is |= EPOLLOUT;
	return is;
}

static uint32_t file_ready(const struct sim_file *f)
{
	uint32_t is = f->kind == FILE_TCP ? tcp_ready(f->end) :
		      f->kind == FILE_LISTEN ? (f->nqueue ? EPOLLIN : 0u) :
		      f->count ? EPOLLIN : 0u;

	return f->armed ? is & (f->ev.events | EPOLLERR | EPOLLHUP) : 0;
}

static void file_wake(struct sim_file *f)
{
	if (f && f->ep && f->ep->waiter && file_ready(f))
		sim_wake(f->ep->waiter);
}

/* --- TCP: segments, acknowledgements, timers ----------------------------------------------- */

static void tcp_output(struct end *e);
static void rto_arm(struct end *e);

/* Ends this end at once. */
static void end_dies(struct end *e, int err)
{
	if (e->dead)
		return;
	sim_event("dies", e->conn->proc[0] * 16 + e->conn->proc[1], e == e->conn->end, err);
	e->dead = true;
	e->err = err;
	e->sent = e->wrote;	/* the rest is never sent */
	file_wake(e->file);
}

static void rst_event(void *arg, uint64_t err, uint64_t unused)
{
	struct end *e = arg;

	(void)unused;
	end_dies(e, (int)err);
}

/* Sends a reset to the other end, if the path is up. */
static void send_rst(struct end *e)
{
	struct end *p = peer_of(e);

	if (path_up(e) && !p->dead)
		sim_at(sim.now + path_ns(e), rst_event, p, p->up ? ECONNRESET : ECONNREFUSED, 0);
}

static void ack_event(void *arg, uint64_t arrived, uint64_t edge)
{
	struct end *e = arg;

	if (e->dead)
		return;
	e->heard = sim.now;
	e->backoff = e->probes = e->retransmits = 0;
	if (arrived > e->acked) {
		e->acked = arrived;
		e->since = sim.now;
	}
	if (edge > e->edge) {
		e->edge = edge;
		e->since = sim.now;
	}
	e->rto_at = sim.now + RTO_MIN_MS * MS;
	tcp_output(e);
	file_wake(e->file);
}

/* Acknowledges what has arrived at e, and sends the new window. */
static void send_ack(struct end *e)
{
	struct end *p = peer_of(e);

	p->told = p->read + weather.rcvbuf;
	if (path_up(e))
		sim_at(sim.now + path_ns(e), ack_event, p, p->arrived, p->told);
}

static void queue_for_accept(struct conn *c);

/* Bytes [from, upto) that e has sent arrive at its peer's kernel. */
static void segment_event(void *arg, uint64_t from, uint64_t upto)
{
	struct end *e = arg, *p = peer_of(e);
	uint64_t room = e->read + weather.rcvbuf + e->fin;

	if (p->dead || p->closed) {
		end_dies(p, ECONNRESET);
		send_rst(p);
		return;
	}
	if (!p->up)
		return;
	if (!p->file && !p->conn->queued)
		queue_for_accept(p->conn);
	if (from <= e->arrived && upto > e->arrived)	/* else a segment before it was lost */
		e->arrived = upto < room ? upto : room;
	send_ack(p);
	file_wake(p->file);
}

/* Sends what the windows allow. */
static void tcp_output(struct end *e)
{
	while (!e->dead && e->up && e->sent < limit(e) && e->sent < e->edge + e->fin) {
		uint64_t n = limit(e) - e->sent, most = e->edge + e->fin - e->sent;
		uint64_t when;

		if (n > most)
			n = most;
		most = sim_between(&sim.net, 1, weather.segment);
		if (n > most)
			n = most;
		if (e->acked == e->sent)
			e->since = sim.now;
		when = e->leaves > sim.now ? e->leaves : sim.now;
		e->leaves = when + (uint64_t)((double)n * weather.ns_per_byte);
		if (path_up(e)) {
			when = e->leaves + path_ns(e);
			if (when <= e->lands)
				when = e->lands + 1;	/* segments keep their order */
			e->lands = when;
			sim_at(when, segment_event, e, e->sent, e->sent + n);
		}
		e->sent += n;
	}
	rto_arm(e);
}

static bool waits_for_ack(const struct end *e)
{
	return !e->dead && e->up && e->acked < limit(e);
}

static void rto_event(void *arg, uint64_t a, uint64_t b)
{
	struct end *e = arg;
	uint64_t rto, most = RTO_MAX_MS * MS, patience = 0;

	(void)a, (void)b;
	if (e->file && e->file->rto_max_ms)
		most = e->file->rto_max_ms * MS;
	if (e->file)
		patience = e->file->user_timeout_ms * MS;
	e->rto_set = false;
	if (!waits_for_ack(e))
		return;
	if (sim.now < e->rto_at) {
		rto_arm(e);
		return;
	}
	if (patience && sim.now - e->since >= patience) {
		end_dies(e, ETIMEDOUT);
		return;
	}
	rto = (uint64_t)RTO_MIN_MS * MS << (e->backoff < 16 ? e->backoff++ : 16);
	e->rto_at = sim.now + (rto < most ? rto : most);
	if (patience && e->rto_at > e->since + patience)
		e->rto_at = e->since + patience;
	if (e->acked < e->sent) {
		e->retransmits++;
		e->sent = e->acked;
		tcp_output(e);
	} else {		/* the window is closed: probe */
		e->probes++;
		if (path_up(e))
			sim_at(sim.now + path_ns(e), segment_event, e, e->sent, e->sent);
	}
	rto_arm(e);
}

static void rto_arm(struct end *e)
{
	if (e->rto_set || !waits_for_ack(e))
		return;
	if (e->rto_at < sim.now)
		e->rto_at = sim.now + RTO_MIN_MS * MS;
	e->rto_set = true;
	sim_at(e->rto_at, rto_event, e, 0, 0);
}

/* --- TCP: connections come up -------------------------------------------------------------- */

static void queue_for_accept(struct conn *c)
{
	struct sim_file *l;

	braid_list_for(l, &listeners, listen_node) {
		if (l->bound.in.sin_port != c->to.in.sin_port || l->nqueue == l->backlog)
			continue;
		c->queued = true;
		l->queue[l->nqueue++] = c;
		file_wake(l);
		return;
	}
	end_dies(&c->end[1], ECONNRESET);	/* the listener is gone */
	send_rst(&c->end[1]);
}

static void third_event(void *arg, uint64_t a, uint64_t b)
{
	struct conn *c = arg;

	(void)a, (void)b;
	if (!c->end[1].dead && !c->end[1].file && !c->queued)
		queue_for_accept(c);
}

static void synack_event(void *arg, uint64_t a, uint64_t b)
{
	struct conn *c = arg;

	(void)a, (void)b;
	if (c->end[0].dead || !c->end[0].file) {
		send_rst(&c->end[0]);
		return;
	}
	if (c->end[0].up)
		return;
	sim_event("connected", c->proc[0], c->proc[1], ntohs(c->to.in.sin_port));
	c->end[0].up = true;
	if (path_up(&c->end[0]))
		sim_at(sim.now + path_ns(&c->end[0]), third_event, c, 0, 0);
	tcp_output(&c->end[0]);
	file_wake(c->end[0].file);
}

static void syn_event(void *arg, uint64_t a, uint64_t b)
{
	struct conn *c = arg;
	struct sim_file *l;

	(void)a, (void)b;
	if (!c->end[1].up && !c->end[1].dead) {
		braid_list_for(l, &listeners, listen_node) {
			if (l->bound.in.sin_port == c->to.in.sin_port && l->nqueue < l->backlog)
				c->end[1].up = true;
		}
	}
	if (!c->end[1].up || c->end[1].dead)
		send_rst(&c->end[1]);
	else if (path_up(&c->end[1]))
		sim_at(sim.now + path_ns(&c->end[1]), synack_event, c, 0, 0);
}

static void syn_send(void *arg, uint64_t a, uint64_t b)
{
	struct conn *c = arg;

	(void)a, (void)b;
	if (c->end[0].up || c->end[0].dead)
		return;
	if (c->syns > 6) {
		end_dies(&c->end[0], ETIMEDOUT);
		return;
	}
	if (path_up(&c->end[0]))
		sim_at(sim.now + path_ns(&c->end[0]), syn_event, c, 0, 0);
	sim_at(sim.now + (SYN_MS * MS << c->syns++), syn_send, c, 0, 0);
}

/* A process closes its end. */
static void end_close(struct end *e)
{
	struct end *p = peer_of(e);

	e->file = NULL;
	e->closed = true;
	if (!e->dead && (!e->up || readable(e))) {
		if (e->up)
			send_rst(e);
		end_dies(e, ECONNRESET);
	} else if (!e->dead) {
		e->fin = true;
		tcp_output(e);
	}
	free(p->ring);		/* what arrives from now on is not read */
	p->ring = NULL;
}

/* A port number names its place, even after that process has ended. */
static uint16_t port_new(unsigned place)
{
	return htons((uint16_t)(PORTS + SIM_PROCS * next_port++ + place));
}

static unsigned port_place(uint16_t port)
{
	return (unsigned)(ntohs(port) - PORTS) % SIM_PROCS;
}

/* --- files --------------------------------------------------------------------------------- */

static struct sim_file *file_new(enum kind kind)
{
	struct sim_proc *p = sim_proc();
	struct sim_file *f;
	int fd = 3;

	while (fd < SIM_FILES && p->file[fd])
		fd++;
	if (fd == SIM_FILES) {
		errno = EMFILE;
		return NULL;
	}
	f = calloc(1, sizeof(*f));
	if (!f)
		abort();
	f->kind = kind;
	f->proc = p;
	f->fd = fd;
	braid_list_init(&f->ep_node);
	braid_list_init(&f->listen_node);
	braid_list_init(&f->watched);
	p->file[fd] = f;
	sim_event("open", p->index, fd, kind);
	return f;
}

static struct sim_file *file_of(int fd)
{
	struct sim_proc *p = sim_proc();
	struct sim_file *f = fd >= 0 && fd < SIM_FILES ? p->file[fd] : NULL;

	if (!f)
		sim_fail("process %u.%u uses descriptor %d, which is not open", p->index, p->life, fd);
	return f;
}

static void unwatch(struct sim_file *f)
{
	braid_list_del(&f->ep_node);
	f->ep = NULL;
	f->armed = false;
}

static void file_close(struct sim_file *f)
{
	if (f->ep)
		unwatch(f);
	while (!braid_list_empty(&f->watched))
		unwatch(braid_list_entry(f->watched.next, struct sim_file, ep_node));
	braid_list_del(&f->listen_node);
	for (unsigned i = 0; i < f->nqueue; i++) {
		f->queue[i]->queued = false;
		send_rst(&f->queue[i]->end[1]);
		end_dies(&f->queue[i]->end[1], ECONNRESET);
	}
	if (f->end)
		end_close(f->end);
	f->proc->file[f->fd] = NULL;
	free(f);
}

unsigned sim_net_open_files(const struct sim_proc *p)
{
	unsigned n = 0;

	for (int fd = 0; fd < SIM_FILES; fd++)
		n += p->file[fd] != NULL;
	return n;
}

void sim_net_close_all(struct sim_proc *p)
{
	for (int fd = 0; fd < SIM_FILES; fd++) {
		if (p->file[fd])
			file_close(p->file[fd]);
	}
}

void sim_net_begin(const struct sim_weather *w)
{
	weather = *w;
	next_port = 0;
	memset(last_port, 0, sizeof(last_port));
	memset(paths, 0, sizeof(paths));
	braid_list_init(&conns);
	braid_list_init(&listeners);
}

void sim_net_end(void)
{
	struct conn *c, *tmp;

	braid_list_for_safe(c, tmp, &conns, node) {
		free(c->end[0].ring);
		free(c->end[1].ring);
		free(c);
	}
}

/* 10.RAIL.0.PLACE */
void sim_net_addr(unsigned proc, unsigned rail, union braid_netdev_addr *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->in.sin_family = AF_INET;
	ret->in.sin_addr.s_addr =
		htonl(0x0a000001u + (rail << 16) + (weather.same_host ? 0 : proc));
}

static unsigned rail_of(const union braid_netdev_addr *a)
{
	return ntohl(a->in.sin_addr.s_addr) >> 16 & 0xff;
}

/* --- faults -------------------------------------------------------------------------------- */

static bool alive(const struct conn *c)
{
	return c->end[0].up && !c->end[0].dead && !c->end[1].dead && c->end[0].file &&
	       c->end[1].file && !c->silent;
}

unsigned sim_net_connections(void)
{
	unsigned n = 0;
	struct conn *c;

	braid_list_for(c, &conns, node)
		n += alive(c);
	return n;
}

bool sim_net_cut(uint64_t which, enum sim_cut how)
{
	unsigned n = sim_net_connections(), side = (unsigned)(which >> 32) & 1;
	struct conn *c;

	if (!n)
		return false;
	n = (unsigned)(which % n);
	braid_list_for(c, &conns, node) {
		if (alive(c) && !n--)
			break;
	}
	sim_event("cut", how, side, ntohs(c->to.in.sin_port));
	switch (how) {
	case SIM_CUT_ABORT:
		send_rst(&c->end[side]);
		end_dies(&c->end[side], ECONNABORTED);
		break;
	case SIM_CUT_RESET:
		end_dies(&c->end[0], ECONNRESET);
		end_dies(&c->end[1], ECONNRESET);
		break;
	case SIM_CUT_HALF:
		end_dies(&c->end[side], ECONNRESET);
		break;
	case SIM_CUT_SILENT:
		c->silent = true;
		break;
	}
	return true;
}

/* --- struct braid_os ----------------------------------------------------------------------- */

static int fail(int err)
{
	errno = err;
	return -1;
}

static uint64_t os_now(void)
{
	return sim.now;
}

static void os_random(void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		uint64_t v = sim_next(&sim_proc()->rng);
		size_t n = len < sizeof(v) ? len : sizeof(v);

		memcpy(p, &v, n);
		p += n;
		len -= n;
	}
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
	return 0;
}

/* May the new listener get the port that an earlier one had, as with real kernels? */
static bool port_again(unsigned place)
{
	struct sim_file *l;

	braid_list_for(l, &listeners, listen_node) {
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
	if (!f->bound.in.sin_port)
		f->bound.in.sin_port = port_again(place) ? last_port[place] : port_new(place);
	last_port[place] = f->bound.in.sin_port;
	braid_list_add_tail(&listeners, &f->listen_node);
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
	c = calloc(1, sizeof(*c));
	if (!c)
		abort();
	memcpy(&c->to, sa, sizeof(c->to.in));
	c->from = f->bound;
	c->from.in.sin_port = port_new(f->proc->index);
	c->proc[0] = f->proc->index;
	c->proc[1] = port_place(c->to.in.sin_port);
	c->rail = rail_of(&c->to);
	c->latency = sim_between(&sim.net, 5 * US, weather.latency_ns);
	for (int i = 0; i < 2; i++) {
		c->end[i].conn = c;
		c->end[i].edge = c->end[i].told = weather.rcvbuf;
		c->end[i].heard = sim.now;
		c->end[i].ring = malloc(weather.sndbuf + weather.rcvbuf);
		if (!c->end[i].ring)
			abort();
	}
	braid_list_add_tail(&conns, &c->node);
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
	if (!f)
		errno = EBADF;
	else if (!e)
		errno = ENOTCONN;
	else if (weather.eintr && sim_chance(&sim.net, weather.eintr))
		errno = EINTR;
	else
		return e;
	return NULL;
}

static size_t cut_short(size_t n)
{
	if (n > 1 && weather.partial && sim_chance(&sim.net, weather.partial))
		return (size_t)sim_between(&sim.net, 1, n - 1);
	return n;
}

static ssize_t os_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct end *e = io_begin(fd);
	size_t cap = weather.sndbuf + weather.rcvbuf, n = 0, room, done = 0;

	(void)flags;
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
	n = cut_short(n);
	if (e->acked == limit(e))
		e->since = sim.now;
	for (size_t i = 0; done < n; i++) {
		const char *from = msg->msg_iov[i].iov_base;
		size_t left = msg->msg_iov[i].iov_len;

		while (left && done < n) {
			size_t at = (size_t)(e->wrote % cap), piece = left < n - done ? left : n - done;

			if (piece > cap - at)
				piece = cap - at;
			if (e->ring)
				memcpy(e->ring + at, from, piece);
			if (e->ring && sim.sabotage && left > SABOTAGE) {
				e->ring[at + piece / 2] ^= 1;
				sim.sabotage = false;
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

static ssize_t os_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct end *e = io_begin(fd), *p;
	size_t cap = weather.sndbuf + weather.rcvbuf, n = 0, left, done = 0;

	(void)flags;
	if (!e)
		return -1;
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
	if (!e->dead && p->read + weather.rcvbuf / 2 > p->told)
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

/* Sets *ret to the n-th file that is ready, if so many are.  Returns how many are ready. */
static unsigned epoll_due(struct sim_file *e, unsigned n, struct sim_file **ret)
{
	unsigned due = 0;
	struct sim_file *f;

	braid_list_for(f, &e->watched, ep_node) {
		if (file_ready(f) && due++ == n)
			*ret = f;
	}
	return due;
}

/* Returns one event at most, chosen at random from those that are due. */
static int os_epoll_wait(int ep, struct epoll_event *ev, int max, int timeout_ms)
{
	struct sim_file *e, *f = NULL;
	uint64_t until = timeout_ms < 0 ? UINT64_MAX : sim.now + (unsigned)timeout_ms * MS;
	unsigned due;

	assert(max > 0);
	sim_sleep(1 + sim_below(&sim.sched, US));	/* a thread that does not wait takes time, too */
	e = file_of(ep);
	if (!e)
		return fail(EBADF);
	due = epoll_due(e, UINT32_MAX, &f);
	while (!due && sim.now < until) {
		e->waiter = sim_self();
		sim_park(until);
		e = file_of(ep);
		if (!e)
			return fail(EBADF);
		e->waiter = NULL;
		due = epoll_due(e, UINT32_MAX, &f);
	}
	if (!due)
		return 0;
	epoll_due(e, (unsigned)sim_below(&sim.net, due), &f);
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

const struct braid_os sim_os = {
	.now_ns = os_now,
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
	.wake = os_wake,
	.unwake = os_unwake,
	.thread_start = sim_thread_start,
	.thread_join = sim_thread_join,
};
