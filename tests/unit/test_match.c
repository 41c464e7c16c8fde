/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_match.c - what comm.h promises about matching, for any order of events.
 *
 * A seed makes two link ends over a null transport whose wires hold what is pushed, a few comms
 * of both directions, messages of all sizes with few tags, receives in groups, in another order
 * than the messages; then everything happens in random order: sends and receives are posted,
 * requests tested, frames delivered from any lane in any direction, whole or in pieces, lanes
 * taken into use and out of it, the service thread comes by or does not.  The judge is a queue
 * for each tag: the k-th message with tag T is in the k-th receive entry with tag T, whole and
 * nowhere else, and in the end everything is complete.  Buffers are scribbled on and freed as
 * soon as test() says done, so that late reads and writes show.
 *
 * The second property: a comm that leaves in the middle of it costs the others nothing.
 *
 * BRAID_TEST_SEED=n runs that seed alone; BRAID_TEST_SEEDS=n the first n.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "core/base/pool.h"
#include "tests/lib/pair.h"
#include "tests/lib/req.h"

enum {
	FLOWS_MAX = 4,
	MSGS_MAX = 700,
	STUCK = 200,			/* rounds in which nothing moved: it never will */
};

struct msg {
	int tag;
	size_t size;
	char *buf;
	struct braid_req *req;
	bool done;
};

struct entry {
	int tag;
	unsigned msg;			/* that must come here */
	size_t room;
	char *buf;
};

struct group {				/* one receive request */
	unsigned first, n;
	struct braid_req *req;
	bool done;
};

struct flow {
	struct braid_comm *send, *recv;
	unsigned from;			/* the end that sends */
	unsigned n, ngroups;
	unsigned sent, posted;		/* messages, groups */
	unsigned sent_done, posted_done;
	bool send_left, recv_left;	/* closed or failed before its time */
	bool left;			/* one of the two */
	struct msg msg[MSGS_MAX];
	struct entry entry[MSGS_MAX];
	struct group group[MSGS_MAX];
};

static struct world {
	struct null_rnd rnd;
	struct null_pair pair;
	unsigned nflows, lanes;
	bool tidy;			/* the service thread comes by */
	struct flow flow[FLOWS_MAX];
	char why[256];
} w;

static uint64_t below(uint64_t n)
{
	return null_below(&w.rnd, n);
}

static bool one_in(uint64_t n)
{
	return !below(n);
}

__attribute__((format(printf, 1, 2)))
static bool wrong(const char *fmt, ...)
{
	va_list ap;

	if (w.why[0])
		return false;
	va_start(ap, fmt);
	vsnprintf(w.why, sizeof(w.why), fmt, ap);
	va_end(ap);
	return false;
}

/* --- the plan ------------------------------------------------------------------------------ */

static char pattern(unsigned flow, unsigned msg, size_t i)
{
	return (char)(flow * 131 + msg * 29 + i * 7 + (i >> 8) * 13);
}

static size_t random_size(void)
{
	switch (below(12)) {
	case 0:
		return 0;
	case 1:
		return 8192 + below(3) - 1;	/* about the largest size that is copied */
	case 2:
		return 8192 + below(57344);	/* eager, not copied */
	case 3:
		return 65536 + below(3) - 1;
	case 4:
		return 65536 + below(100000);
	default:
		return below(below(4) ? 200 : 9000);
	}
}

/* Receives in the messages' order, but for swaps over at most `reach` places. */
static void plan_entries(struct flow *f, unsigned reach)
{
	unsigned next[8] = { 0 };

	for (unsigned i = 0; i < f->n; i++)
		f->entry[i].tag = f->msg[i].tag;
	for (unsigned i = 0; reach && i + 1 < f->n; i++) {
		unsigned span = f->n - i < reach ? f->n - i : reach;
		unsigned j = i + (unsigned)below(span);
		int tag = f->entry[i].tag;

		f->entry[i].tag = f->entry[j].tag;
		f->entry[j].tag = tag;
	}
	for (unsigned i = 0; i < f->n; i++) {
		unsigned *m = &next[f->entry[i].tag];

		while (f->msg[*m].tag != f->entry[i].tag)
			++*m;
		f->entry[i].msg = (*m)++;
		f->entry[i].room = f->msg[f->entry[i].msg].size + (one_in(3) ? below(200) : 0);
	}
}

static void plan_flow(struct flow *f, bool many, bool small)
{
	unsigned tags = 1 + (unsigned)below(4), group = 1 + (unsigned)below(8);

	f->n = many ? 300 + (unsigned)below(400) : 1 + (unsigned)below(40);
	for (unsigned i = 0; i < f->n; i++) {
		f->msg[i].tag = (int)below(tags);
		f->msg[i].size = many || small ? below(64) : random_size();
		if (many && one_in(40))
			f->msg[i].size = random_size();
	}
	plan_entries(f, (unsigned)(one_in(3) ? 0 : below(40)));
	for (unsigned i = 0; i < f->n; f->ngroups++) {
		struct group *g = &f->group[f->ngroups];

		g->first = i;
		g->n = 1 + (unsigned)below(group);
		if (g->n > f->n - i)
			g->n = f->n - i;
		i += g->n;
	}
}

/* As after four billion messages and frames, so that all counts wrap on the way. */
static void grow_old(void)
{
	uint32_t lseq = (uint32_t)-(int)below(60);

	for (unsigned i = 0; i < 2 * w.lanes; i++) {
		struct braid_txq *q = &w.pair.end[i & 1]->lane[i / 2]->tx;
		struct braid_lane *peer = w.pair.end[!(i & 1)]->lane[i / 2];

		q->f_head = q->f_sent = q->f_acked = q->f_peer_acked = lseq;
		peer->rx_frames = peer->rx_acked = lseq;
	}
	for (unsigned i = 0; i < w.nflows; i++) {
		struct flow *f = &w.flow[i];

		f->send->next_seq = f->send->first = f->send->oldest_await = f->recv->rx_seq =
			(uint32_t)-(int)below(30);
		f->recv->next_rseq = f->recv->first = f->recv->oldest_rseq = (uint32_t)-(int)below(30);
	}
}

static void plan(uint64_t seed)
{
	static const int64_t eagers[] = { 0, 100, 8192, 65536 };
	static const size_t limits[] = { 0, 0, 100, 5000, 100000 };
	static const size_t bites[] = { 0, 0, 1, 60, 3000 };
	struct null_config config = { .held = true };

	memset(&w, 0, sizeof(w));
	w.rnd.s = (seed + 1) * 0x9e3779b97f4a7c15ull;
	for (int i = 0; i < 8; i++)
		null_rnd(&w.rnd);
	config.lanes = w.lanes = one_in(2) ? 1 : 1 + (unsigned)below(4);
	config.window = one_in(4) ? 0 : one_in(2) ? below(60000) : 524288;
	config.limit = limits[below(5)];
	config.bite = bites[below(5)];
	if (config.bite == 1 && !one_in(10))
		config.bite = 48;
	w.tidy = one_in(2);
	braid_param.eager = eagers[below(4)];
	braid_param.chunk = 4096 << below(5);
	null_pair_init(&w.pair, &config);
	w.nflows = 1 + (unsigned)below(FLOWS_MAX);
	for (unsigned i = 0; i < w.nflows; i++) {
		struct flow *f = &w.flow[i];

		plan_flow(f, one_in(12) && !config.bite && !config.limit, one_in(3) || config.bite);
		f->from = (unsigned)below(2);
		null_comms(&w.pair, f->from, &f->send, &f->recv);
	}
	for (unsigned i = 0; i < 2 * w.lanes && one_in(2); i++)
		w.pair.end[i & 1]->lane[i / 2]->flight_max = 1 + (size_t)below(100000);
	if (one_in(3))
		grow_old();
}

/* --- what happens -------------------------------------------------------------------------- */

static bool send_next(struct flow *f)
{
	unsigned i = f->sent;
	struct msg *m = &f->msg[i];
	int err;

	if (i == f->n || f->send_left)
		return false;
	if (!m->buf) {
		m->buf = malloc(m->size ? m->size : 1);
		for (size_t k = 0; k < m->size; k++)
			m->buf[k] = pattern((unsigned)(f - w.flow), i, k);
	}
	err = braid_comm_isend(f->send, m->size ? m->buf : NULL, m->size, m->tag, NULL, &m->req);
	if (err) {
		if (!f->left)
			return wrong("isend said %d", err);
		f->send_left = true;
		return false;
	}
	if (!m->req)
		return false;
	f->sent++;
	return true;
}

static bool post_next(struct flow *f)
{
	struct group *g = &f->group[f->posted];
	void *data[BRAID_RECVS_MAX];
	size_t sizes[BRAID_RECVS_MAX];
	int tags[BRAID_RECVS_MAX], err;

	if (f->posted == f->ngroups || f->recv_left)
		return false;
	for (unsigned i = 0; i < g->n; i++) {
		struct entry *e = &f->entry[g->first + i];

		if (!e->buf) {
			e->buf = malloc(e->room ? e->room : 1);
			memset(e->buf, 0xee, e->room);
		}
		data[i] = e->room ? e->buf : NULL;
		sizes[i] = e->room;
		tags[i] = e->tag;
	}
	err = braid_comm_irecv(f->recv, g->n, data, sizes, tags, NULL, &g->req);
	if (err) {
		if (!f->left)
			return wrong("irecv said %d", err);
		f->recv_left = true;
		return false;
	}
	if (!g->req)
		return false;
	f->posted++;
	return true;
}

static void gone(char **buf)
{
	free(*buf);
	*buf = NULL;
}

static bool test_send(struct flow *f, unsigned i)
{
	struct msg *m = &f->msg[i];
	bool done;
	int err, size = 0;

	if (i >= f->sent || m->done || f->send_left)
		return false;
	err = req_test(m->req, &done, &size);
	if (err) {
		if (!f->left)
			return wrong("test of a send said %d", err);
		f->send_left = true;
		return false;
	}
	if (!done)
		return false;
	if ((size_t)size != m->size)
		return wrong("send %u of %zu bytes says %d", i, m->size, size);
	m->done = true;
	f->sent_done++;
	memset(m->buf, 0xdd, m->size);
	gone(&m->buf);
	return true;
}

static bool check_entry(struct flow *f, unsigned i, uint64_t size)
{
	struct entry *e = &f->entry[i];
	const struct msg *m = &f->msg[e->msg];

	if (size != m->size)
		return wrong("entry %u (tag %d) got %zu bytes, message %u has %zu", i, e->tag,
			     (size_t)size, e->msg, m->size);
	for (size_t k = 0; k < e->room; k++) {
		char want = k < size ? pattern((unsigned)(f - w.flow), e->msg, k) : (char)0xee;

		if (e->buf[k] != want)
			return wrong("entry %u (tag %d), message %u of %zu bytes: byte %zu is "
				     "%02x, not %02x", i, e->tag, e->msg, m->size, k,
				     (uint8_t)e->buf[k], (uint8_t)want);
	}
	gone(&e->buf);
	return true;
}

static bool test_group(struct flow *f, unsigned i)
{
	struct group *g = &f->group[i];
	int sizes[BRAID_RECVS_MAX], err;
	bool done;

	if (i >= f->posted || g->done || f->recv_left)
		return false;
	err = req_test(g->req, &done, sizes);
	if (err) {
		if (!f->left)
			return wrong("test of a receive said %d", err);
		f->recv_left = true;
		return false;
	}
	if (!done)
		return false;
	g->done = true;
	f->posted_done++;
	for (unsigned k = 0; k < g->n; k++) {
		if (!check_entry(f, g->first + k, (uint64_t)sizes[k]))
			return false;
	}
	return true;
}

static bool deliver(unsigned end, unsigned lane, size_t n)
{
	int moved = n == SIZE_MAX ? null_deliver(&w.pair, end, lane) :
				    null_deliver_some(&w.pair, end, lane, n);
	struct braid_hdr h;

	if (moved >= 0)
		return moved;
	null_peek(&w.pair, end, lane, &h);
	return wrong("end %u called a %s frame (comm %u, seq %u, tag %d, rseq %u, len %u) broken: "
		     "%d", !end, braid_frame_name(h.type), h.comm, h.seq, h.tag, h.rseq, h.len,
		     moved);
}

/* Does one random thing; true if something moved. */
static bool act(unsigned bias)
{
	struct flow *f = &w.flow[below(w.nflows)];
	unsigned kind = (unsigned)below(10);

	/* For a while one end, or the wire, may be quicker than the rest. */
	if (kind < 4 && bias)
		kind = bias;
	switch (kind) {
	case 0:
	case 1:
		return send_next(f);
	case 2:
		return post_next(f);
	case 3:
	case 4:
	case 5:
		return deliver((unsigned)below(2), (unsigned)below(w.lanes), SIZE_MAX);
	case 6:
		return deliver((unsigned)below(2), (unsigned)below(w.lanes), below(3000));
	case 7:
		return f->sent && test_send(f, (unsigned)below(f->sent));
	case 8:
		return f->posted && test_group(f, (unsigned)below(f->posted));
	default:
		if (w.tidy && one_in(4))
			braid_link_try_flush_control(w.pair.end[below(2)]);
		else if (one_in(20))
			w.pair.end[below(2)]->lanes.active = 1 + (unsigned)below(w.lanes);
		return false;
	}
}

static bool flow_complete(const struct flow *f)
{
	return (f->left || f->sent_done == f->n) && (f->left || f->posted_done == f->ngroups);
}

static bool complete(void)
{
	for (unsigned i = 0; i < w.nflows; i++) {
		if (!flow_complete(&w.flow[i]))
			return false;
	}
	return true;
}

/* Both ends do all that they can; true if something moved. */
static bool everything(void)
{
	bool moved = false;

	for (unsigned i = 0; i < w.nflows; i++) {
		struct flow *f = &w.flow[i];

		moved |= send_next(f);
		moved |= post_next(f);
		for (unsigned k = 0; k < f->sent; k++)
			moved |= test_send(f, k);
		for (unsigned k = 0; k < f->posted; k++)
			moved |= test_group(f, k);
	}
	for (unsigned i = 0; i < 2 * w.lanes; i++)
		moved |= deliver(i & 1, i / 2, SIZE_MAX);
	return moved;
}

static void mix(unsigned actions)
{
	unsigned bias = 0;

	for (unsigned i = 0; i < actions && !w.why[0]; i++) {
		if (i % 64 == 0)
			bias = (unsigned)below(4);
		act(bias);
	}
}

/* Is a request of this end not done, so that its caller calls test()? */
static bool is_called(unsigned end)
{
	for (unsigned i = 0; i < w.nflows; i++) {
		const struct flow *f = &w.flow[i];

		if (f->from == end ? !f->send_left && f->sent_done != f->sent :
				     !f->recv_left && f->posted_done != f->posted)
			return true;
	}
	return false;
}

/*
 * Runs until all is done.  The service thread helps only at an end that no caller calls any more: an
 * end whose callers call must send, when idle, all that its peer waits for.
 */
static void finish(void)
{
	unsigned still = 0;

	while (!complete() && !w.why[0] && still < STUCK) {
		still = everything() ? 0 : still + 1;
		for (unsigned i = 0; i < 2 && still > STUCK / 4; i++) {
			if (!is_called(i))
				braid_link_try_flush_control(w.pair.end[i]);
		}
	}
	for (unsigned i = 0; i < w.nflows && still == STUCK; i++) {
		const struct flow *f = &w.flow[i];

		if (!flow_complete(f))
			wrong("stuck: comm %u has sent %u, done %u of %u; posted %u, done %u of %u",
			      f->send->id, f->sent, f->sent_done, f->n, f->posted, f->posted_done,
			      f->ngroups);
	}
	if (still == STUCK && getenv("BRAID_TEST_SEED"))
		null_dump(&w.pair);
}

static void close_flow(struct flow *f)
{
	bool send_first = one_in(2);

	if (f->left)
		return;
	braid_comm_close(send_first ? f->send : f->recv);
	for (unsigned i = (unsigned)below(20); i; i--)
		deliver((unsigned)below(2), (unsigned)below(w.lanes), below(3000));
	braid_comm_close(send_first ? f->recv : f->send);
}

static void free_buffers(void)
{
	for (unsigned i = 0; i < w.nflows; i++) {
		for (unsigned k = 0; k < w.flow[i].n; k++) {
			free(w.flow[i].msg[k].buf);
			free(w.flow[i].entry[k].buf);
		}
	}
}

static const char *ended(bool may_warn)
{
	const char *left;

	if (!w.why[0]) {
		for (unsigned i = 0; i < w.nflows; i++)
			close_flow(&w.flow[i]);
		null_settle(&w.pair);
		left = null_not_idle(&w.pair);
		if (left)
			wrong("after all was closed: %s", left);
		if (left && getenv("BRAID_TEST_SEED"))
			null_dump(&w.pair);
	}
	if (warn_count && !may_warn)
		wrong("a warning: %.200s", warn_text);
	null_pair_fini(&w.pair);
	free_buffers();
	return w.why[0] ? w.why : NULL;
}

static const char *one_matching(uint64_t seed)
{
	plan(seed);
	mix((unsigned)below(3000));
	finish();
	return ended(false);
}

/* --- a comm leaves ------------------------------------------------------------------------- */

/* Braid must not touch this memory any more; from here on a sanitizer would see it. */
static void forget(struct flow *f, bool sends)
{
	for (unsigned i = 0; i < f->n; i++) {
		if (sends)
			gone(&f->msg[i].buf);
		else
			gone(&f->entry[i].buf);
	}
}

static void leave(struct flow *f)
{
	bool sender = one_in(2);
	struct braid_comm *c = sender ? f->send : f->recv;

	f->left = true;
	if (one_in(2)) {		/* as NCCL does: deregMr before close */
		braid_comm_cancel(c, NULL);
		forget(f, sender);
		if (sender)
			f->send_left = true;
		else
			f->recv_left = true;
		mix((unsigned)below(200));
	}
	braid_comm_close(c);
	forget(f, sender);
	if (sender)
		f->send_left = true;
	else
		f->recv_left = true;
	mix((unsigned)below(500));
	braid_comm_close(sender ? f->recv : f->send);
	forget(f, !sender);
	f->send_left = f->recv_left = true;
}

static const char *one_leaving(uint64_t seed)
{
	plan(seed);
	mix((unsigned)below(1500));
	if (!w.why[0])
		leave(&w.flow[below(w.nflows)]);
	finish();
	return ended(true);
}

/* --- seeds --------------------------------------------------------------------------------- */

static uint64_t number(const char *name, uint64_t def)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : def;
}

static void run_seeds(const char *(*one)(uint64_t seed), uint64_t n)
{
	const char *sanitizer = getenv("BRAID_TEST_SANITIZER");
	bool alone = getenv("BRAID_TEST_SEED") != NULL;
	uint64_t seed = number("BRAID_TEST_SEED", 0);
	struct braid_params saved = braid_param;
	unsigned failed = 0;

	if (number("BRAID_TEST_SLOW", 1) > 1 || (sanitizer && *sanitizer))
		n /= 5;
	n = alone ? seed + 1 : number("BRAID_TEST_SEEDS", n);
	for (; seed < n && failed < 5; seed++) {
		const char *why = one(seed);

		if (!why)
			continue;
		print_error("seed %llu: %s\n", (unsigned long long)seed, why);
		failed++;
	}
	braid_param = saved;
	braid_pool_trim();
	assert_int_equal(failed, 0);
}

static void every_message_is_in_the_receive_that_the_order_gives_it(void **state)
{
	(void)state;
	run_seeds(one_matching, 1200);
}

static void a_comm_that_leaves_costs_the_others_nothing(void **state)
{
	(void)state;
	run_seeds(one_leaving, 600);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_is_in_the_receive_that_the_order_gives_it),
		cmocka_unit_test(a_comm_that_leaves_costs_the_others_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
