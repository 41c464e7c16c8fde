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
 * Bytes of MSG_ZEROCOPY are read as late as they can be, when they arrive: what the process has
 * changed by then is what arrives.  The kernel lets go of them once they are acknowledged or dropped,
 * and its error queue says so.
 *
 * A closed socket goes on sending what is left.  What arrives for a closed socket, or for none, is
 * answered by a reset.  When a process is killed, all its sockets are closed.
 */
#include "tests/sim/sim_net.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RTO_MAX_MS = 120000, SYN_MS = 1000 };

struct sim_weather sim_weather;
struct braid_list sim_conns, sim_listeners;
uint16_t last_port[SIM_PROCS];
static unsigned next_port;
static struct {
	uint64_t black_until, slow_until, slow_ns;
	enum sim_bar barred;
} paths[SIM_PROCS][SIM_PROCS][SIM_RAILS];
static unsigned moves[SIM_PROCS][SIM_RAILS];	/* how often that address has changed */

/* --- paths --------------------------------------------------------------------------------- */

struct end *peer_of(const struct end *e)
{
	return &e->conn->end[e == &e->conn->end[0]];
}

static unsigned place_of(const struct end *e)
{
	return e->conn->proc[e == &e->conn->end[1]];
}

bool is_current(const union braid_netdev_addr *a, unsigned proc)
{
	union braid_netdev_addr now;

	sim_net_addr(proc, rail_of(a), &now);
	return a->in.sin_addr.s_addr == now.in.sin_addr.s_addr;
}

/* Does a segment that is sent now arrive? */
static bool path_up(const struct end *from)
{
	const struct conn *c = from->conn;

	return !c->silent && is_current(&c->from, c->proc[0]) && is_current(&c->to, c->proc[1]) &&
	       sim.now >= paths[place_of(from)][place_of(peer_of(from))][from->conn->rail].black_until;
}

static uint64_t path_ns(const struct end *from)
{
	unsigned a = place_of(from), b = place_of(peer_of(from)), r = from->conn->rail;
	uint64_t ns = from->conn->latency;

	if (sim_weather.jitter_ns)
		ns += sim_between(&sim.net, 0, sim_weather.jitter_ns);
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

void sim_net_bar(unsigned from, unsigned to, unsigned rail, enum sim_bar how)
{
	sim_event("bar", from, to, rail);
	paths[from][to][rail].barred = how;
}

void sim_net_delay(unsigned from, unsigned to, unsigned rail, uint64_t more_ns, uint64_t until)
{
	sim_event("delay", from, to, more_ns);
	paths[from][to][rail].slow_until = until;
	paths[from][to][rail].slow_ns = more_ns;
}

/* --- readiness ----------------------------------------------------------------------------- */

uint64_t limit(const struct end *e)
{
	return e->wrote + e->fin;
}

/* Bytes that can be read at e. */
size_t readable(const struct end *e)
{
	const struct end *p = peer_of(e);

	return (size_t)((p->arrived < p->wrote ? p->arrived : p->wrote) - p->read);
}

bool at_end(const struct end *e)
{
	const struct end *p = peer_of(e);

	return p->fin && p->arrived > p->wrote;
}

size_t sendable(const struct end *e)
{
	uint64_t held = e->wrote - (e->acked < e->wrote ? e->acked : e->wrote);

	return held < sim_weather.sndbuf ? (size_t)(sim_weather.sndbuf - held) : 0;
}

static uint32_t tcp_ready(const struct end *e)
{
	uint32_t is = 0;

	if (!e)
		return EPOLLOUT | EPOLLHUP;
	if (e->known != e->let_go)
		is |= EPOLLERR;
	if (e->dead)
		return is | EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | (e->err ? (uint32_t)EPOLLERR : 0);
	if (!e->up)
		return is;
	if (readable(e) || at_end(e))
		is |= EPOLLIN;
	if (at_end(e))
		is |= EPOLLRDHUP;
	if (sendable(e) * 3 >= sim_weather.sndbuf)
		is |= EPOLLOUT;
	return is;
}

uint32_t file_ready(const struct sim_file *f)
{
	uint32_t is = f->kind == FILE_TCP ? tcp_ready(f->end) :
		      f->kind == FILE_LISTEN ? (f->nqueue ? EPOLLIN : 0u) :
		      f->count ? EPOLLIN : 0u;

	return f->armed ? is & (f->ev.events | EPOLLERR | EPOLLHUP) : 0;
}

void file_wake(struct sim_file *f)
{
	if (!f || !f->ep || !file_ready(f))
		return;
	if (braid_list_empty(&f->ready_node))
		braid_list_add_tail(&f->ep->ready, &f->ready_node);
	if (f->ep->waiter)
		sim_wake(f->ep->waiter);
}

/* --- MSG_ZEROCOPY -------------------------------------------------------------------------- */

void end_lend(struct end *e, const char *at, size_t n)
{
	struct lent *l = malloc(sizeof(*l));

	if (!l)
		abort();
	*l = (struct lent){ .from = e->wrote, .upto = e->wrote + n, .at = at };
	braid_list_add_tail(&e->lent, &l->node);
	e->calls++;
	sim.lent += at != NULL;
}

/* Read what has not arrived, up to that byte. */
static void lent_read(struct end *e, uint64_t upto)
{
	size_t cap = sim_weather.sndbuf + sim_weather.rcvbuf;
	struct lent *l;

	braid_list_for(l, &e->lent, node) {
		uint64_t from = e->arrived > l->from ? e->arrived : l->from;
		uint64_t end = l->upto < upto ? l->upto : upto;

		for (uint64_t i = from; l->at && e->ring && i < end; i++)
			e->ring[i % cap] = l->at[i - l->from];
	}
}

static void lent_keep(struct end *e)
{
	struct lent *l;

	lent_read(e, UINT64_MAX);
	braid_list_for(l, &e->lent, node)
		l->at = NULL;
}

static void lent_end(struct end *e, uint64_t upto)
{
	struct lent *l, *tmp;

	braid_list_for_safe(l, tmp, &e->lent, node) {
		if (l->upto > upto)
			break;
		braid_list_del(&l->node);
		free(l);
		e->let_go++;
	}
}

/* --- TCP: segments, acknowledgements, timers ----------------------------------------------- */

static void rto_arm(struct end *e);

/* Ends this end at once. */
static void end_dies(struct end *e, int err)
{
	if (e->dead)
		return;
	sim_event("dies", e->conn->proc[0] * 16 + e->conn->proc[1], e == e->conn->end, err);
	e->dead = true;
	e->err = err;
	lent_read(e, e->sent);	/* what is under way has left before */
	e->sent = e->wrote;	/* the rest is never sent */
	lent_end(e, UINT64_MAX);
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
		lent_end(e, arrived);
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
void send_ack(struct end *e)
{
	struct end *p = peer_of(e);

	p->told = p->read + sim_weather.rcvbuf;
	if (path_up(e))
		sim_at(sim.now + path_ns(e), ack_event, p, p->arrived, p->told);
}

static void queue_for_accept(struct conn *c);

/* Bytes [from, upto) that e has sent arrive at its peer's kernel. */
static void segment_event(void *arg, uint64_t from, uint64_t upto)
{
	struct end *e = arg, *p = peer_of(e);
	uint64_t room = e->read + sim_weather.rcvbuf + e->fin;

	if (p->dead || p->closed) {
		end_dies(p, ECONNRESET);
		send_rst(p);
		return;
	}
	if (!p->up)
		return;
	if (!p->file && !p->conn->queued)
		queue_for_accept(p->conn);
	if (from <= e->arrived && upto > e->arrived) {	/* else a segment before it was lost */
		lent_read(e, upto);
		e->arrived = upto < room ? upto : room;
	}
	send_ack(p);
	file_wake(p->file);
}

/* Sends what the windows allow. */
void tcp_output(struct end *e)
{
	while (!e->dead && e->up && e->sent < limit(e) && e->sent < e->edge + e->fin) {
		uint64_t n = limit(e) - e->sent, most = e->edge + e->fin - e->sent;
		uint64_t when;

		if (n > most)
			n = most;
		most = sim_between(&sim.net, 1, sim_weather.segment);
		if (n > most)
			n = most;
		if (e->acked == e->sent)
			e->since = sim.now;
		when = e->leaves > sim.now ? e->leaves : sim.now;
		e->leaves = when + (uint64_t)((double)n * sim_weather.ns_per_byte);
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

	braid_list_for(l, &sim_listeners, listen_node) {
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
		braid_list_for(l, &sim_listeners, listen_node) {
			if (l->bound.in.sin_port == c->to.in.sin_port && l->nqueue < l->backlog)
				c->end[1].up = true;
		}
	}
	if (!c->end[1].up || c->end[1].dead)
		send_rst(&c->end[1]);
	else if (path_up(&c->end[1]))
		sim_at(sim.now + path_ns(&c->end[1]), synack_event, c, 0, 0);
}

void syn_send(void *arg, uint64_t a, uint64_t b)
{
	struct conn *c = arg;
	enum sim_bar bar = paths[c->proc[0]][c->proc[1]][c->rail].barred;

	(void)a, (void)b;
	if (c->end[0].up || c->end[0].dead)
		return;
	if (c->syns > 6) {
		end_dies(&c->end[0], ETIMEDOUT);
		return;
	}
	if (path_up(&c->end[0]) && bar == SIM_BAR_NONE)
		sim_at(sim.now + path_ns(&c->end[0]), syn_event, c, 0, 0);
	else if (path_up(&c->end[0]) && bar == SIM_BAR_REFUSE)
		sim_at(sim.now + 2 * path_ns(&c->end[0]), rst_event, &c->end[0], ECONNREFUSED, 0);
	sim_at(sim.now + (SYN_MS * MS << c->syns++), syn_send, c, 0, 0);
}

void end_abort(struct end *e)
{
	sim_event("abort", e->conn->proc[0] * 16 + e->conn->proc[1], e == e->conn->end, 0);
	send_rst(e);
	end_dies(e, ECONNRESET);
	sim.cut = true;
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

uint16_t port_new(unsigned place)
{
	unsigned n = next_port++ % ((PORTS_END - PORTS) / SIM_PROCS);

	return htons((uint16_t)(PORTS + SIM_PROCS * n + place));
}

/* A port number names its place, even after that process has ended. */
unsigned port_place(uint16_t port)
{
	return (unsigned)(ntohs(port) - PORTS) % SIM_PROCS;
}

/* --- files --------------------------------------------------------------------------------- */

struct sim_file *file_new(enum kind kind)
{
	struct sim_proc *p = sim_proc();
	struct sim_file *f;
	int fd = p->free_file;

	while (fd < SIM_FILES && p->file[fd])
		fd++;
	if (fd == SIM_FILES) {
		errno = EMFILE;
		return NULL;
	}
	p->free_file = fd + 1;
	if (fd >= p->files)
		p->files = fd + 1;
	f = calloc(1, sizeof(*f));
	if (!f)
		abort();
	f->kind = kind;
	f->proc = p;
	f->fd = fd;
	braid_list_init(&f->ep_node);
	braid_list_init(&f->ready_node);
	braid_list_init(&f->ready);
	braid_list_init(&f->listen_node);
	braid_list_init(&f->watched);
	p->file[fd] = f;
	sim_event("open", p->index, fd, kind);
	return f;
}

struct sim_file *file_of(int fd)
{
	struct sim_proc *p = sim_proc();
	struct sim_file *f = fd >= 0 && fd < p->files ? p->file[fd] : NULL;

	if (!f)
		sim_fail("process %u.%u uses descriptor %d, which is not open", p->index, p->life, fd);
	return f;
}

void unwatch(struct sim_file *f)
{
	braid_list_del(&f->ep_node);
	braid_list_del(&f->ready_node);
	f->ep = NULL;
	f->armed = false;
}

void file_close(struct sim_file *f)
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
	if (f->fd < f->proc->free_file)
		f->proc->free_file = f->fd;
	free(f->queue);
	free(f);
}

unsigned sim_net_open_files(const struct sim_proc *p)
{
	unsigned n = 0;

	for (int fd = 0; fd < p->files; fd++)
		n += p->file[fd] != NULL;
	return n;
}

void sim_net_close_all(struct sim_proc *p)
{
	for (int fd = 0; fd < p->files; fd++) {
		struct sim_file *f = p->file[fd];

		if (f && f->end)	/* pages of a process that has ended do not change */
			lent_keep(f->end);
		if (f)
			file_close(f);
	}
}

void sim_net_begin(const struct sim_weather *w)
{
	sim_weather = *w;
	next_port = 0;
	memset(last_port, 0, sizeof(last_port));
	memset(paths, 0, sizeof(paths));
	memset(moves, 0, sizeof(moves));
	braid_list_init(&sim_conns);
	braid_list_init(&sim_listeners);
}

void sim_net_end(void)
{
	struct conn *c, *tmp;

	braid_list_for_safe(c, tmp, &sim_conns, node) {
		lent_end(&c->end[0], UINT64_MAX);
		lent_end(&c->end[1], UINT64_MAX);
		free(c->end[0].ring);
		free(c->end[1].ring);
		free(c);
	}
}

/* 10.RAIL.MOVES.PLACE */
void sim_net_addr(unsigned proc, unsigned rail, union braid_netdev_addr *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->in.sin_family = AF_INET;
	ret->in.sin_addr.s_addr =
		htonl(0x0a000001u + (rail << 16) + (moves[proc][rail] << 8) +
		      (sim_weather.same_host ? 0 : proc));
}

void sim_net_move(unsigned proc, unsigned rail)
{
	struct sim_proc *p = &sim.proc[proc];

	sim_event("move", proc, rail, ++moves[proc][rail]);
	for (int fd = 0; fd < p->files; fd++) {
		struct sim_file *f = p->file[fd];

		if (f && f->kind == FILE_ADDRS) {
			f->count++;
			file_wake(f);
		}
	}
}

unsigned rail_of(const union braid_netdev_addr *a)
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

	braid_list_for(c, &sim_conns, node)
		n += alive(c);
	return n;
}

/* One of the living connections, or NULL if there are none. */
static struct conn *any_conn(uint64_t which)
{
	unsigned n = sim_net_connections();
	struct conn *c;

	if (!n)
		return NULL;
	n = (unsigned)(which % n);
	braid_list_for(c, &sim_conns, node) {
		if (alive(c) && !n--)
			break;
	}
	return c;
}

void sim_net_flip(uint64_t which, uint64_t ahead)
{
	struct conn *c = any_conn(which);
	unsigned side = (unsigned)(which >> 32) & 1;
	/* One that has asked for a dial may become a lane, by a second handshake. */
	uint64_t shaken = 2 * BRAID_HELLO_SIZE + BRAID_PROOF_SIZE;
	struct end *e;

	if (!c)
		return;
	e = &c->end[side];
	e->flip_at = (e->wrote > shaken ? e->wrote : shaken) + ahead;
}

bool sim_net_cut(uint64_t which, enum sim_cut how)
{
	struct conn *c = any_conn(which);
	unsigned side = (unsigned)(which >> 32) & 1;

	if (!c)
		return false;
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
