/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_model.c - drivers that call as NCCL's proxy threads do, and the model of messages.
 *
 * A comm's messages are chosen when it is made: tag, size, content.  The sender posts them in order.
 * The receiver's order may differ between tags, in groups of up to eight.  For each tag the k-th
 * receive must get the k-th message, so the model knows which one, and compares it byte by byte as
 * soon as the receive is done.
 *
 * Forbidden accesses show in memory: a send's buffer is overwritten as soon as the send is done, and
 * a receive's too, which is checked once more when the comm is over.
 *
 * No call may wait.  An error is correct only if the plan gave a reason: the other process was
 * killed, the outage outlasts the peer timeout, the other end was closed early, or some process was
 * short of memory.
 */
#include "tests/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MESSAGES_MAX = 48, BLOCK = 8,	/* receives are posted in another order within a block */
	GUARD = 32, UNTOUCHED = 0xee, GONE = 0x55,
	DRIVERS = 2, PAUSE_MAX = 5000000,
	ALONE_MS = 3000,		/* for accept(), if the peer has sent all and closed */
};

struct message {
	int32_t tag;
	uint64_t size, room, salt;
	char *out, *in;
	struct braid_req *req;		/* of the send */
	bool sent, received;
};

struct group {				/* one irecv */
	unsigned n;
	struct message *msg[BRAID_RECVS_MAX];
	struct braid_req *req;
	bool done;
};

enum side_state { SIDE_WAIT, SIDE_OPEN, SIDE_RUN, SIDE_CLOSED, SIDE_FAILED, SIDE_KILLED };

struct side {
	enum side_state state;
	struct braid_comm *c;
	unsigned next, done, flying, depth;	/* posted, done; the difference; its bound */
	bool lifo;				/* tests its requests in reverse order */
	int err;
};

struct comm {
	struct braid_list node;
	unsigned index, proc[2], life[2];
	uint64_t start_ns;
	uint8_t handle[BRAID_HANDLE_SIZE], mine[BRAID_HANDLE_SIZE];
	struct braid_listen *listen;
	bool listening;
	uint64_t doomed_at;		/* when the comm had a reason to fail */
	uint64_t killed_at;		/* when one of its processes was killed */
	uint64_t leave_at, leave_ns;	/* when one side closes early; after which time */
	unsigned leaver;
	struct side side[2];		/* sender, receiver */
	unsigned nmsgs, ngroups;
	struct message msg[MESSAGES_MAX];
	struct group group[MESSAGES_MAX];
};

static struct braid_list comms;
static unsigned ncomms;
bool sim_model_finish;
uint64_t sim_model_moved;

static const char *const state_names[] = { "wait", "open", "run", "closed", "failed", "killed" };

/* --- content ------------------------------------------------------------------------------- */

static uint64_t word_of(uint64_t salt, uint64_t i)
{
	return (salt + i) * 0x9e3779b97f4a7c15u;
}

void sim_fill(char *to, uint64_t size, uint64_t salt)
{
	for (uint64_t i = 0; i < size; i += 8) {
		uint64_t w = word_of(salt, i);

		memcpy(to + i, &w, size - i < 8 ? size - i : 8);
	}
}

uint64_t sim_compare(const char *with, uint64_t size, uint64_t salt)
{
	uint64_t i = 0, w, is;

	for (; i + 8 <= size; i += 8) {
		memcpy(&is, with + i, 8);
		if (is != word_of(salt, i))
			return i;
	}
	w = word_of(salt, i);
	return memcmp(with + i, &w, size - i) ? i : size;
}

bool sim_all_are(const char *p, uint64_t n, int byte)
{
	return !n || (*p == (char)byte && !memcmp(p, p + 1, n - 1));
}

/* --- making a comm ------------------------------------------------------------------------- */

uint64_t sim_choose_size(struct sim_rng *r)
{
	enum { LARGE = 64 << 10 };
	static const uint64_t edges[] = { 0, 1, 128, 8192, 16384, 32768, 65536, 131072 };

	switch (sim_below(r, 16)) {
	case 0 ... 5:
		return sim.large ? LARGE + sim_below(r, LARGE) : sim_between(r, 0, 4096);
	case 6 ... 9:
		return edges[sim_below(r, 8)] + sim_below(r, 3);
	case 10 ... 13:
		return sim_between(r, 0, 128 << 10);
	case 14:
		return sim_between(r, 0, 1 << 20);
	default:
		return sim_chance(r, 200) ? sim_between(r, 1 << 20, 4 << 20) : 0;
	}
}

static char *buffer(uint64_t size)
{
	char *p = malloc(size + GUARD);

	if (!p)
		abort();
	return p;
}

static void choose_messages(struct comm *c)
{
	struct sim_rng *r = &sim.plan;
	unsigned ntags = 1 + (unsigned)sim_below(r, 4);

	c->nmsgs = 1 + (unsigned)sim_between(r, 0, MESSAGES_MAX - 1);
	for (unsigned i = 0; i < c->nmsgs; i++) {
		struct message *m = &c->msg[i];

		m->tag = (int32_t)sim_below(r, ntags) * 7;
		m->size = sim_choose_size(r);
		m->room = m->size + (sim_chance(r, 300) ? sim_below(r, 1000) : 0);
		m->salt = sim_next(r);
		m->out = buffer(m->size);
		m->in = buffer(m->room);
		sim_fill(m->out, m->size, m->salt);
		memset(m->in + m->size, UNTOUCHED, m->room - m->size + GUARD);
	}
}

/* The order of the receives, which messages they will get, and how they are grouped. */
static void choose_receives(struct comm *c, unsigned block)
{
	struct sim_rng *r = &sim.plan;
	unsigned order[MESSAGES_MAX], most = 1 + (unsigned)sim_below(r, BRAID_RECVS_MAX);
	bool taken[MESSAGES_MAX] = { false };

	for (unsigned i = 0; i < c->nmsgs; i++)
		order[i] = i;
	for (unsigned i = 0; i < c->nmsgs; i++) {
		unsigned end = (i / block + 1) * block, j, t;

		j = i + (unsigned)sim_below(r, (end < c->nmsgs ? end : c->nmsgs) - i);
		t = order[i];
		order[i] = order[j];
		order[j] = t;
	}
	for (unsigned i = 0; i < c->nmsgs; ) {
		struct group *g = &c->group[c->ngroups++];
		unsigned n = 1 + (unsigned)sim_below(r, most);

		while (i < c->nmsgs && g->n < n) {
			unsigned m = 0;

			while (taken[m] || c->msg[m].tag != c->msg[order[i]].tag)
				m++;
			taken[m] = true;
			g->msg[g->n++] = &c->msg[m];
			i++;
		}
	}
}

void sim_comm_add(unsigned from, unsigned to, uint64_t start_ns)
{
	struct comm *c = calloc(1, sizeof(*c));
	struct sim_rng *r = &sim.plan;
	unsigned block;

	if (!c)
		abort();
	c->index = ncomms++;
	c->proc[0] = from;
	c->proc[1] = to;
	c->life[0] = sim.proc[from].life;
	c->life[1] = sim.proc[to].life;
	c->start_ns = start_ns;
	block = sim_chance(r, 500) ? BLOCK : 1;
	choose_messages(c);
	choose_receives(c, block);
	for (int i = 0; i < 2; i++) {
		c->side[i].depth = block + (unsigned)sim_between(r, 0, 24);
		c->side[i].lifo = sim_chance(r, 200);
	}
	if (sim_chance(r, sim.large ? 400 : 60)) {
		c->leave_ns = sim_between(r, 1, 20 * MS);
		c->leave_at = start_ns + c->leave_ns;
		c->leaver = (unsigned)sim_below(r, 2);
	}
	braid_list_add_tail(&comms, &c->node);
	sim_event("comm", from, to, c->nmsgs);
}

/* --- judging ------------------------------------------------------------------------------- */

uint64_t sim_told_ns(void)
{
	return (sim.cut ? 800 : 200) * MS;
}

bool sim_remote_error(int err)
{
	return err == -EREMOTEIO || err == -ECONNREFUSED || err == -ECONNRESET ||
	       err == -ENOTCONN || err == -EPIPE || err == -ETIMEDOUT;
}

static const char *side_name(const struct comm *c, const struct side *s)
{
	return s == &c->side[0] ? "sender" : "receiver";
}

static void side_over(struct comm *c, struct side *s, enum side_state state)
{
	if (s->c)
		sim.proc[c->proc[s == &c->side[1]]].node->close(s->c);
	s->c = NULL;
	s->state = state;
	sim_model_moved = sim.now;
	sim_event("over", c->index, s == &c->side[1], state);
}

static void side_fails(struct comm *c, struct side *s, int err, const char *what)
{
	s->err = err;
	if (err == -ENOMEM && sim.short_of_memory)
		;
	else if (!c->doomed_at && !sim.short_of_memory)
		sim_fail("comm %u, %s: %s says %s without a reason", c->index, side_name(c, s), what,
			 strerror(-err));
	else if (!sim_remote_error(err))
		sim_fail("comm %u, %s: %s says %s, not that the peer is gone", c->index,
			 side_name(c, s), what, strerror(-err));
	if (c->killed_at && !sim.lossy && !sim.short_of_memory && s->state == SIDE_RUN &&
	    sim.now > c->killed_at + sim_told_ns())
		sim_fail("comm %u, %s: told %llu ms after the peer's end", c->index, side_name(c, s),
			 (unsigned long long)((sim.now - c->killed_at) / MS));
	side_over(c, s, SIDE_FAILED);
	if (!c->doomed_at)
		c->doomed_at = sim.now;
}

static void judge_message(struct comm *c, struct message *m, uint64_t size)
{
	uint64_t same = size == m->size ? sim_compare(m->in, m->size, m->salt) : 0;
	unsigned i = (unsigned)(m - c->msg);

	if (m->received)
		sim_fail("comm %u, message %u: received twice", c->index, i);
	else if (size != m->size)
		sim_fail("comm %u, message %u (tag %d): %llu bytes, not %llu", c->index, i, m->tag,
			 (unsigned long long)size, (unsigned long long)m->size);
	else if (same != size)
		sim_fail("comm %u, message %u (tag %d, %llu bytes): wrong from byte %llu on", c->index,
			 i, m->tag, (unsigned long long)size, (unsigned long long)same);
	else if (!sim_all_are(m->in + m->size, m->room - m->size + GUARD, UNTOUCHED))
		sim_fail("comm %u, message %u: written beyond its end", c->index, i);
	m->received = true;
	memset(m->in, UNTOUCHED, m->size);
	sim_model_moved = sim.now;
	sim_event("got", c->index, i, size);
}

/* Finds writes after a receive was done, or after its comm was closed. */
static void judge_memory(const struct comm *c)
{
	for (unsigned i = 0; i < c->nmsgs; i++) {
		if (c->msg[i].received && !sim_all_are(c->msg[i].in, c->msg[i].size, UNTOUCHED))
			sim_fail("comm %u, message %u: written after its receive was over", c->index, i);
	}
}

/* --- a sender ------------------------------------------------------------------------------ */

static bool send_connect(struct comm *c, struct side *s)
{
	struct sim_proc *p = sim_proc();
	int err;

	if (sim.now < c->start_ns || !c->listening)
		return false;
	if (s->state == SIDE_WAIT)
		memcpy(c->mine, c->handle, sizeof(c->mine));
	s->state = SIDE_OPEN;
	err = p->node->connect(p->dev, -1, c->mine, NULL, &s->c);
	if (err)
		side_fails(c, s, err, "connect");
	else if (s->c)
		s->state = SIDE_RUN;
	return err || s->c;
}

static bool send_post(struct comm *c, struct side *s)
{
	static struct braid_mr known;	/* registered, with no NIC */
	struct message *m = &c->msg[s->next];
	int err;

	if (s->next == c->nmsgs || s->next - s->done >= s->depth)
		return false;
	err = sim_proc()->node->isend(s->c, m->size ? m->out : NULL, m->size, m->tag, &known, &m->req);
	if (err)
		side_fails(c, s, err, "isend");
	else if (m->req)
		s->next++;
	return err || m->req;
}

static bool send_test(struct comm *c, struct side *s, struct message *m)
{
	int err, size = 0;
	bool done;

	if (!m->req || m->sent)
		return false;
	err = sim_proc()->node->test(m->req, &done, &size);
	if (err) {
		side_fails(c, s, err, "test");
		return true;
	}
	if (!done)
		return false;
	if ((size_t)size != m->size)
		sim_fail("comm %u: a send of %llu bytes says %d", c->index,
			 (unsigned long long)m->size, size);
	m->sent = true;
	memset(m->out, GONE, m->size);
	s->done++;
	sim_event("sent", c->index, m - c->msg, size);
	return true;
}

static bool send_step(struct comm *c, struct side *s)
{
	bool moved = false;

	if (s->state == SIDE_WAIT || s->state == SIDE_OPEN)
		return send_connect(c, s);
	while (s->state == SIDE_RUN && send_post(c, s))
		moved = true;
	for (unsigned i = 0; i < s->next && s->state == SIDE_RUN; i++)
		moved |= send_test(c, s, &c->msg[s->lifo ? s->next - 1 - i : i]);
	if (s->state == SIDE_RUN && s->done == c->nmsgs)
		side_over(c, s, SIDE_CLOSED);
	return moved;
}

/* --- a receiver ---------------------------------------------------------------------------- */

static void recv_stop_listening(struct comm *c)
{
	if (c->listen)
		sim_proc()->node->close_listen(c->listen);
	c->listen = NULL;
}

static bool recv_accept(struct comm *c, struct side *s)
{
	struct sim_proc *p = sim_proc();

	if (s->state == SIDE_WAIT) {
		int err = p->node->listen(p->dev, c->handle, &c->listen);

		if (err == -ENOMEM && sim.short_of_memory)
			return false;
		if (err)
			sim_fail("comm %u: listen says %s", c->index, strerror(-err));
		s->state = SIDE_OPEN;
		c->listening = true;
		return true;
	}
	s->c = p->node->accept(c->listen);
	if (!s->c)
		return false;
	recv_stop_listening(c);
	s->state = SIDE_RUN;
	return true;
}

static bool recv_post(struct comm *c, struct side *s)
{
	struct group *g = &c->group[s->next];
	void *data[BRAID_RECVS_MAX];
	size_t sizes[BRAID_RECVS_MAX];
	int tags[BRAID_RECVS_MAX], err;

	if (s->next == c->ngroups || s->next - s->done >= s->depth)
		return false;
	for (unsigned i = 0; i < g->n; i++) {
		data[i] = g->msg[i]->room ? g->msg[i]->in : NULL;
		sizes[i] = g->msg[i]->room;
		tags[i] = g->msg[i]->tag;
	}
	err = sim_proc()->node->irecv(s->c, g->n, data, sizes, tags, NULL, &g->req);
	if (err)
		side_fails(c, s, err, "irecv");
	else if (g->req)
		s->next++;
	return err || g->req;
}

static bool recv_test(struct comm *c, struct side *s, struct group *g)
{
	int sizes[BRAID_RECVS_MAX] = { 0 }, err;
	bool done;

	if (!g->req || g->done)
		return false;
	err = sim_proc()->node->test(g->req, &done, sizes);
	if (err) {
		side_fails(c, s, err, "test");
		return true;
	}
	if (!done)
		return false;
	g->done = true;
	s->done++;
	for (unsigned i = 0; i < g->n; i++)
		judge_message(c, g->msg[i], (uint64_t)sizes[i]);
	return true;
}

static bool recv_step(struct comm *c, struct side *s)
{
	bool moved = false;

	if (s->state == SIDE_WAIT || s->state == SIDE_OPEN)
		return recv_accept(c, s);
	while (s->state == SIDE_RUN && recv_post(c, s))
		moved = true;
	for (unsigned i = 0; i < s->next && s->state == SIDE_RUN; i++)
		moved |= recv_test(c, s, &c->group[s->lifo ? s->next - 1 - i : i]);
	if (s->state == SIDE_RUN && s->done == c->ngroups)
		side_over(c, s, SIDE_CLOSED);
	return moved;
}

/* --- drivers ------------------------------------------------------------------------------- */

static bool is_over(const struct side *s)
{
	return s->state >= SIDE_CLOSED;
}

/* The link of an accepted comm may fail for want of memory before accept() returns the comm. */
static bool is_alone(const struct comm *c, unsigned i)
{
	return sim.short_of_memory && i && c->side[1].state == SIDE_OPEN && is_over(&c->side[0]) &&
	       sim.now > sim_model_moved + ALONE_MS * MS;
}

/* One side closes with requests outstanding: from then on its memory must not be touched. */
static void leave(struct comm *c, struct side *s)
{
	c->doomed_at = sim.now;
	sim_event("leave", c->index, c->leaver, 0);
	side_over(c, s, SIDE_CLOSED);
	for (unsigned i = 0; i < c->nmsgs; i++) {
		struct message *m = &c->msg[i];

		if (c->leaver) {
			memset(m->in, UNTOUCHED, m->size);
			m->received = true;
		} else {
			memset(m->out, GONE, m->size);
		}
	}
}

static bool side_step(struct comm *c, unsigned i)
{
	struct side *s = &c->side[i];
	uint64_t begin = sim.now;
	bool moved;

	if (is_over(s))
		return false;
	if (sim.large && c->leave_at && !s->next)	/* not before something is under way */
		c->leave_at = sim.now + c->leave_ns;
	if (c->leave_at && sim.now >= c->leave_at && i == c->leaver && s->state == SIDE_RUN) {
		leave(c, s);
		return true;
	}
	/* The other end will never connect or accept. */
	if ((c->doomed_at && (s->state == SIDE_WAIT || (i && s->state == SIDE_OPEN))) ||
	    is_alone(c, i)) {
		if (i)
			recv_stop_listening(c);
		side_over(c, s, SIDE_FAILED);
		return true;
	}
	moved = i ? recv_step(c, s) : send_step(c, s);
	/* Only system calls and other threads take time; no call may wait for more than that. */
	if (sim.now - begin > SIM_CALLS_MS * MS && !sim.lossy)
		sim_fail("comm %u, %s: a round of calls took %llu ms", c->index, side_name(c, s),
			 (unsigned long long)((sim.now - begin) / MS));
	return moved;
}

struct driver {
	struct sim_proc *proc;
	unsigned index;
};

static struct {
	struct driver driver[DRIVERS];
	unsigned ndrivers, running;
	uint64_t pace_ns;		/* longest pause between calls */
	struct sim_co *main;
} places[SIM_PROCS];

static void *drive(void *arg)
{
	struct driver *d = arg;
	struct sim_proc *p = d->proc;
	uint64_t pause = US;

	while (!sim_model_finish) {
		bool moved = false;
		struct comm *c;

		braid_list_for(c, &comms, node) {
			for (unsigned i = 0; i < 2; i++) {
				if (c->proc[i] == p->index && c->life[i] == p->life &&
				    (c->index + i) % places[p->index].ndrivers == d->index)
					moved |= side_step(c, i);
			}
		}
		moved |= sim_rma_step(p, d->index, places[p->index].ndrivers);
		/* In vain: pause longer, up to pace_ns at once, beyond that only slowly. */
		if (moved)
			pause = US;
		else
			pause += pause < places[p->index].pace_ns ? pause : pause / 64;
		if (pause > (sim.outage_s ? SEC : PAUSE_MAX))
			pause = sim.outage_s ? SEC : PAUSE_MAX;
		sim_sleep(sim_below(&sim.sched, pause) + 1);
	}
	if (!--places[p->index].running)
		sim_wake(places[p->index].main);
	return NULL;
}

void *sim_proc_main(void *arg)
{
	struct sim_proc *p = arg;
	int err = p->node->service_init();

	if (err == -ENOMEM && sim.short_of_memory)
		err = p->node->service_init();
	if (err)
		sim_fail("init says %s", strerror(-err));
	p->node->service_get();
	places[p->index].main = sim_self();
	places[p->index].ndrivers = 1 + (unsigned)sim_below(&sim.plan, DRIVERS);
	places[p->index].running = places[p->index].ndrivers;
	places[p->index].pace_ns = sim_between(&sim.plan, 10 * US, 4 * MS);
	for (unsigned i = 0; i < places[p->index].ndrivers; i++) {
		places[p->index].driver[i] = (struct driver){ p, i };
		sim_spawn(p, drive, &places[p->index].driver[i]);
	}
	while (places[p->index].running)
		sim_park(UINT64_MAX);
	p->node->service_put();
	sim_proc_exit(p);
	return NULL;
}

/* --- for the plan -------------------------------------------------------------------------- */

void sim_model_begin(void)
{
	braid_list_init(&comms);
	ncomms = 0;
	sim_model_moved = sim.now;
	sim_model_finish = false;
	sim_rma_begin();
}

void sim_model_end(void)
{
	struct comm *c, *tmp;

	braid_list_for_safe(c, tmp, &comms, node) {
		judge_memory(c);
		for (unsigned i = 0; i < c->nmsgs; i++) {
			free(c->msg[i].in);
			free(c->msg[i].out);
		}
		free(c);
	}
	braid_list_init(&comms);
	sim_rma_end();
}

void sim_comms_killed(unsigned proc)
{
	struct comm *c;

	sim_rma_killed(proc);
	braid_list_for(c, &comms, node) {
		for (unsigned i = 0; i < 2; i++) {
			if (c->proc[i] != proc || c->life[i] != sim.proc[proc].life)
				continue;
			if (!c->doomed_at)
				c->doomed_at = sim.now;
			c->killed_at = sim.now;
			if (!is_over(&c->side[i]))
				c->side[i].state = SIDE_KILLED;
			if (i)
				c->listen = NULL;
		}
	}
}

void sim_comms_doom(unsigned a, unsigned b)
{
	struct comm *c;

	sim_rma_doom(a, b);
	braid_list_for(c, &comms, node) {
		if (!c->doomed_at && ((c->proc[0] == a && c->proc[1] == b) ||
				      (c->proc[0] == b && c->proc[1] == a)))
			c->doomed_at = sim.now;
	}
}

bool sim_comms_moved(unsigned proc)
{
	bool any = false;
	struct comm *c;

	braid_list_for(c, &comms, node) {
		if (c->doomed_at || c->proc[1] != proc || !c->listening ||
		    c->side[0].state >= SIDE_RUN)
			continue;
		c->doomed_at = sim.now;
		any = true;
	}
	return any;
}

bool sim_comms_barred(unsigned a, unsigned b)
{
	bool any = false;
	struct comm *c;

	braid_list_for(c, &comms, node) {
		if (c->doomed_at || c->proc[0] != a || c->proc[1] != b ||
		    c->side[0].state >= SIDE_RUN)
			continue;
		c->doomed_at = sim.now;
		any = true;
	}
	return any;
}

bool sim_comms_doomed(void)
{
	struct comm *c;

	braid_list_for(c, &comms, node) {
		if (c->doomed_at)
			return true;
	}
	return sim_rma_doomed();
}

bool sim_comms_open(void)
{
	const struct comm *c;

	braid_list_for(c, &comms, node) {
		if (c->side[0].state < SIDE_RUN || c->side[1].state < SIDE_RUN)
			return false;
	}
	return true;
}

bool sim_comms_over(void)
{
	struct comm *c;

	braid_list_for(c, &comms, node) {
		if (!is_over(&c->side[0]) || !is_over(&c->side[1]))
			return false;
	}
	return sim_rma_over();
}

void sim_comms_tell(void)
{
	struct comm *c;

	braid_list_for(c, &comms, node)
		fprintf(stderr, "comm %u, %u -> %u: sender %s, %u and %u of %u sends posted and done; "
			"receiver %s, %u and %u of %u groups\n", c->index, c->proc[0], c->proc[1],
			state_names[c->side[0].state], c->side[0].next, c->side[0].done, c->nmsgs,
			state_names[c->side[1].state], c->side[1].next, c->side[1].done, c->ngroups);
	sim_rma_tell();
}
