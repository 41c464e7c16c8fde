/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_scale.c - one process with thousands of links, on the virtual clock.
 *
 * The process at place 0 is the hub.  The two others play its peers, half of them each: they run
 * with BRAID_SHARE=0, so each connection that they make has a link of its own.  All connect at
 * once, and send.  Then they rest for as long as the caller says; 1 % of the connections are cut
 * each second, first while the links rest, then while messages are under way.  At the end all links
 * are up again, each message has arrived once and unchanged, and the hub has no more descriptors
 * and no more memory than before.
 *
 * What the hub does meanwhile is counted: the rounds of its service thread, and how often it looked
 * at a link.  Both must follow from what is due, not from how many links there are.
 */
#include "tests/sim/sim.h"
#include "tests/sim/sim_net.h"

#include <stdlib.h>
#include <string.h>

enum {
	HUB, CROWDS = SIM_PROCS - 1,
	SIZE = 3000, FLAP_PART = 100, FLAP_S = 20,
	PASS_US = 200,			/* between two passes over all connections */
	SPREAD_S = 4, SPREAD_PASS_US = 10000,	/* the last messages before a rest */
	SETTLE_S = 60,			/* for all to rest, or to be up again */
	LIMIT_S = 600,			/* beyond the time at rest: for all else together */
	SLACK = 16,			/* descriptors that are not those of links */
	SLACK_BYTES = 1024,		/* that a link at rest may hold more than before it flapped */
};

enum order { WAIT, CONNECT, SEND, END };

struct pair {				/* a connection */
	_Alignas(16) uint8_t handle[BRAID_HANDLE_SIZE];
	struct braid_listen *listen;
	struct braid_comm *send, *recv;
	struct braid_req *sreq, *rreq;
	bool sent, received;
	uint64_t send_at;
	char out[SIZE], in[SIZE];
};

static struct {
	unsigned n, idle_s, round, pass_us;
	struct pair *pair;
	struct crowd {
		struct sim_co *co;
		enum order order;
		unsigned first, upto;
	} crowd[CROWDS];
	unsigned cuts;
	struct sim_scale *ret;
} s;

static void must(int err, const char *what)
{
	if (err)
		sim_fail("%s says %s", what, strerror(-err));
}

static uint64_t salt_of(unsigned i)
{
	return ((uint64_t)s.round << 32) + i * (uint64_t)SIZE;
}

/* --- a crowd ------------------------------------------------------------------------------- */

static bool connect_one(struct sim_proc *p, struct pair *c)
{
	if (!c->send)
		must(p->node->connect(p->dev, -1, c->handle, NULL, &c->send), "connect");
	return c->send;
}

static bool send_one(struct sim_proc *p, struct pair *c)
{
	int size;

	if (!c->sreq && sim.now >= c->send_at) {
		sim_fill(c->out, SIZE, salt_of((unsigned)(c - s.pair)));
		must(p->node->isend(c->send, c->out, SIZE, 0, NULL, &c->sreq), "isend");
	}
	if (c->sreq && !c->sent)
		must(p->node->test(c->sreq, &c->sent, &size), "test");
	return c->sent;
}

static bool recv_one(struct sim_proc *p, struct pair *c)
{
	void *to = c->in;
	size_t room = SIZE;
	int tag = 0, size = 0;
	struct braid_mr *mr = NULL;

	if (!c->rreq)
		must(p->node->irecv(c->recv, 1, &to, &room, &tag, &mr, &c->rreq), "irecv");
	if (!c->rreq || c->received)
		return c->received;
	must(p->node->test(c->rreq, &c->received, &size), "test");
	if (c->received && (size != SIZE ||
			    sim_compare(c->in, SIZE, salt_of((unsigned)(c - s.pair))) != SIZE))
		sim_fail("message %u of link %u is wrong", s.round, (unsigned)(c - s.pair));
	return c->received;
}

static bool accept_one(struct sim_proc *p, struct pair *c)
{
	if (!c->recv)
		c->recv = p->node->accept(c->listen);
	return c->recv;
}

/* Calls one() for each connection, again and again, until it has been true for each. */
static void until_all(unsigned first, unsigned upto, bool (*one)(struct sim_proc *, struct pair *))
{
	bool all;

	do {
		all = true;
		for (unsigned i = first; i < upto && !sim.failure[0]; i++)
			all &= one(sim_proc(), &s.pair[i]);
		sim_sleep(s.pass_us * US);
	} while (!all);
}

static void begin(struct sim_proc *p)
{
	must(p->node->service_init(), "init");
	p->node->service_get();
}

static void *crowd_main(void *arg)
{
	struct sim_proc *p = arg;
	struct crowd *c = &s.crowd[p->index - 1];
	bool over = false;

	c->co = sim_self();
	begin(p);
	while (!over) {
		while (c->order == WAIT)
			sim_park(UINT64_MAX);
		over = c->order == END;
		if (!over)
			until_all(c->first, c->upto, c->order == CONNECT ? connect_one : send_one);
		c->order = WAIT;
	}
	for (unsigned i = c->first; i < c->upto; i++)
		p->node->close(s.pair[i].send);
	p->node->service_put();
	sim_proc_exit(p);
	return NULL;
}

static void order(enum order what)
{
	for (unsigned i = 0; i < CROWDS; i++) {
		s.crowd[i].order = what;
		if (s.crowd[i].co)
			sim_wake(s.crowd[i].co);
	}
}

static void until_done(void)
{
	for (unsigned i = 0; i < CROWDS; i++) {
		while (s.crowd[i].order != WAIT)
			sim_sleep(PASS_US * US);
	}
}

/* --- the hub ------------------------------------------------------------------------------- */

struct counts {
	uint64_t at, rounds, looks;
	unsigned files;
	uint64_t allocated, resident;
};

static struct counts now(const struct sim_proc *p)
{
	struct counts c = { .at = sim.now, .rounds = p->rounds, .looks = p->looks,
			    .files = sim_net_open_files(p) };

	sim_proc_memory(p, &c.allocated, &c.resident);
	return c;
}

static struct sim_work work(const struct counts *a, const struct counts *b)
{
	double seconds = (double)(b->at - a->at) / (double)SEC;

	return (struct sim_work){
		.rounds = (double)(b->rounds - a->rounds) / seconds,
		.looks = (double)(b->looks - a->looks) / seconds / s.n,
	};
}

static void cut_some(void)
{
	static const enum sim_cut how[] = { SIM_CUT_ABORT, SIM_CUT_RESET, SIM_CUT_HALF };

	for (unsigned i = 0; i < (s.n + FLAP_PART - 1) / FLAP_PART; i++)
		sim_net_cut(sim_next(&sim.plan), how[s.cuts++ % 3]);
}

static void connect_all(struct sim_proc *p)
{
	for (unsigned i = 0; i < s.n; i++)
		must(p->node->listen(p->dev, s.pair[i].handle, &s.pair[i].listen), "listen");
	order(CONNECT);
	until_all(0, s.n, accept_one);
	until_done();
	for (unsigned i = 0; i < s.n; i++)
		p->node->close_listen(s.pair[i].listen);
}

/* How a message goes over each connection. */
enum how {
	AT_ONCE,
	SPREAD,				/* over some seconds, so that the links rest out of step */
	CUT,				/* some are cut while it is under way */
};

static void exchange(enum how how)
{
	s.pass_us = how == SPREAD ? SPREAD_PASS_US : PASS_US;
	for (unsigned i = 0; i < s.n; i++) {
		struct pair *c = &s.pair[i];

		c->sreq = c->rreq = NULL;
		c->sent = c->received = false;
		c->send_at = how == SPREAD ? sim.now + sim_below(&sim.plan, SPREAD_S * SEC) : 0;
	}
	s.round++;
	order(SEND);
	if (how == CUT) {
		sim_sleep(US);		/* now they are sent */
		cut_some();
	}
	until_all(0, s.n, recv_one);
	until_done();
}

static void all_are_up(void)
{
	for (unsigned i = 0; sim_net_connections() != s.n && i < SETTLE_S; i++)
		sim_sleep(SEC);
	if (sim_net_connections() != s.n)
		sim_fail("%u of %u links are up %u s after the last cut", sim_net_connections(), s.n,
			 SETTLE_S);
	sim_sleep(SETTLE_S * SEC);
}

static void rest_and_flap(struct sim_proc *p)
{
	struct counts begun, rested, flapped;

	all_are_up();
	begun = now(p);
	sim_sleep(s.idle_s * SEC);
	rested = now(p);
	for (unsigned i = 0; i < FLAP_S; i++) {
		cut_some();
		sim_sleep(SEC);
	}
	flapped = now(p);
	s.ret->descriptors = (double)rested.files / s.n;
	s.ret->allocated = (double)rested.allocated / s.n;
	s.ret->resident = (double)rested.resident / s.n;
	s.ret->idle = work(&begun, &rested);
	s.ret->flaps = work(&rested, &flapped);
	s.ret->flaps.looks_a_flap = (s.ret->flaps.looks - s.ret->idle.looks) * s.n * FLAP_S / s.cuts;
	exchange(CUT);
	all_are_up();
	exchange(SPREAD);
	all_are_up();
	flapped = now(p);
	if (flapped.files > s.n + SLACK || flapped.files > rested.files)
		sim_fail("%u descriptors for %u links, %u before they flapped", flapped.files, s.n,
			 rested.files);
	if (flapped.allocated > rested.allocated + s.n * (uint64_t)SLACK_BYTES)
		sim_fail("%llu bytes for %u links, %llu before they flapped",
			 (unsigned long long)flapped.allocated, s.n,
			 (unsigned long long)rested.allocated);
}

static void *hub_main(void *arg)
{
	struct sim_proc *p = arg;

	begin(p);
	connect_all(p);
	exchange(AT_ONCE);
	exchange(SPREAD);
	rest_and_flap(p);
	order(END);
	for (unsigned i = 0; i < s.n; i++)
		p->node->close(s.pair[i].recv);
	until_done();
	p->node->service_put();
	sim_proc_exit(p);
	for (unsigned i = 0; i < CROWDS; i++) {
		while (sim.proc[i + 1].alive)
			sim_sleep(PASS_US * US);
	}
	sim.over = true;
	return NULL;
}

/* --- a run --------------------------------------------------------------------------------- */

static void too_late(void *arg, uint64_t a, uint64_t b)
{
	(void)arg, (void)a, (void)b;
	sim_fail("%u links do not come to an end: message %u", s.n, s.round);
}

static void places_start(void)
{
	for (unsigned i = 0; i < SIM_PROCS; i++) {
		sim_place_start(i, NULL, 1, i == HUB ? hub_main : crowd_main);
		sim.proc[i].node->param->stat = 0;	/* it would start a thread of the real system */
		sim.proc[i].node->param->share = i == HUB;
	}
}

int sim_scale(struct sim_scale *r)
{
	static const struct sim_weather weather = {
		.latency_ns = 50 * US, .jitter_ns = 5 * US, .ns_per_byte = 0.8,
		.sndbuf = 16 << 10, .rcvbuf = 16 << 10, .segment = 1448,
	};

	memset(&s, 0, sizeof(s));
	s.n = r->links;
	s.idle_s = r->idle_s;
	s.ret = r;
	s.pass_us = PASS_US;
	s.pair = calloc(s.n, sizeof(*s.pair));
	if (!s.pair)
		abort();
	for (unsigned i = 0; i < CROWDS; i++) {
		s.crowd[i].first = s.n * i / CROWDS;
		s.crowd[i].upto = s.n * (i + 1) / CROWDS;
	}
	sim_world_begin(s.n);
	sim.nprocs = SIM_PROCS;
	sim.preempt = 0;
	sim.lossy = sim.cut = sim.short_of_memory = sim.rma = sim.encrypted = false;
	sim.moved = sim.left = false;
	sim.flipped = 0;
	sim_net_begin(&weather);
	sim_model_begin();
	places_start();
	sim_at(sim.now + (s.idle_s + LIMIT_S) * SEC, too_late, NULL, 0, 0);
	sim_run();
	sim_world_end();
	sim_net_end();
	sim_model_end();
	free(s.pair);
	return sim.failure[0] ? -1 : 0;
}
