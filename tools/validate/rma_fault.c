/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_fault.c - ranks that die, operations outside a window, and messages at the same time. */
#include <string.h>

#include "tools/validate/ranks.h"

/* After an error NCCL closes all, whatever the calls return. */
static void abandon(struct group *g, struct window *w, struct window *words)
{
	struct rank *r = g->r;

	at(r, "closing after an error");
	rma_dereg(r->rma, g->coll, words->mh);
	rma_dereg(r->rma, g->coll, w->mh);
	rma_context_end(r->rma, g->ctx);
	rma_close_coll(r->rma, g->coll);
}

/* -- death -------------------------------------------------------------------------------- */

enum { DYING = 1 << 20 };

/* A rank that will be killed: it tells the others that it is ready. */
static _Noreturn void await_death(struct group *g)
{
	atomic_store(note_of_all(0), 1);
	for (uint64_t end = deadline_ms(drive_hang_ms); now_us() < end; nap_ms(1))
		tick(g);
	FAIL("nobody has killed this rank");
}

static void killed_under_puts(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window w = window_new(g, 2 * DYING), words = words_new(g, 1);
	struct put p = { .src = &w, .dst = &w, .dst_off = DYING, .size = DYING, .rank = 1,
			 .words = &words };
	ncclResult_t res = ncclSuccess;
	uint64_t began, end;
	void *req;

	if (r->rank == 1)
		await_death(g);
	put_run(g, &p);
	WAIT_FOR(atomic_load(note_of_all(0)));
	rank_kill(r, 1);
	began = now_us();
	end = deadline_ms(drive_hang_ms);
	at(r, "puts to a rank that was killed");
	while (res == ncclSuccess) {	/* some may be done before the kill is known */
		res = put_try(g, &p, &req);
		if (res == ncclSuccess)
			res = req_settle(g, req);
		wait_tick(end, __FILE__, __LINE__, "an error");
	}
	rank_saw("an error (%s) after %.1f ms", net_result_name(res),
		 (double)(now_us() - began) / 1000);
	abandon(g, &w, &words);
}

static void killed(struct validate *v)
{
	ranks_run(v, 2, killed_under_puts);
}

/* Rank 0 has only signals to wait for: it learns of the death by rmaProgress or queryLastError. */
static void killed_while_waiting(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window w = window_new(g, 8), words = words_new(g, 1);
	ncclResult_t res = ncclSuccess;
	uint64_t began, end;
	bool told = false;

	if (!r->rma->has_progress && !r->rma->has_last_error)
		rank_skip("it has neither rmaProgress nor queryLastError");
	if (r->rank == 1) {
		PUT(g, .rank = 0, .words = &words);
		await_death(g);
	}
	word_wait(g, &words, 0, 1);
	WAIT_FOR(atomic_load(note_of_all(0)));
	rank_kill(r, 1);
	began = now_us();
	end = deadline_ms(drive_hang_ms);
	at(r, "waiting for a signal of a rank that was killed");
	while (res == ncclSuccess && !told) {
		res = rma_progress(r->rma, g->ctx);
		OK(rma_last_error(r->rma, g->ctx, &told));
		wait_tick(end, __FILE__, __LINE__, "an error");
	}
	rank_saw("told after %.1f ms", (double)(now_us() - began) / 1000);
	abandon(g, &w, &words);
}

static void waiter(struct validate *v)
{
	ranks_run(v, 2, killed_while_waiting);
}

/* -- outside a window --------------------------------------------------------------------- */

static ncclResult_t settle_get(struct group *g, const struct window *from,
			       const struct window *to)
{
	void *req = NULL;
	ncclResult_t res;

	if (!g->r->rma->has_get)
		rank_skip("it has no iget: --only rma-members judges that");
	res = rma_iget(g->r->rma, g->ctx, 0, 950, from->mh, 51, 2000, to->mh, 1, 0, &req);
	return res == ncclSuccess && req ? req_settle(g, req) : res;
}

/* Rank 1 has a window of 1000 bytes, and rank 0 uses more of it. */
static void outside(struct rank *r, bool get)
{
	struct group *g = group_new(r, 1);
	struct window w = memory_new(r->rank ? 1000 : 4000), words;
	ncclResult_t res = ncclSuccess;
	void *req;

	window_reg(g, &w, 0);
	words = words_new(g, 1);
	if (r->rank == 0) {
		at(r, get ? "a get that is not in the window" : "a put that is not in the window");
		if (get)
			res = settle_get(g, &w, &w);
		else
			res = put_try(g, &(struct put){ .src = &w, .dst = &w, .dst_off = 993,
							.size = 8, .rank = 1 }, &req);
		if (!get && res == ncclSuccess && req)
			res = req_settle(g, req);
		if (res == ncclSuccess)
			FAIL("it ended with success, and the window has 1000 bytes");
		rank_saw("%s", net_result_name(res));
	}
	quietly_together(r);
	for (size_t i = 0; r->rank == 1 && i < w.size; i++)
		if (w.data[i] != 0xee)
			FAIL("byte %zu of the window was written", i);
	abandon(g, &w, &words);
	memory_free(&w);
}

static void put_outside(struct rank *r)
{
	outside(r, false);
}

static void range(struct validate *v)
{
	ranks_run(v, 2, put_outside);
}

static void get_outside(struct rank *r)
{
	outside(r, true);
}

static void get_range(struct validate *v)
{
	ranks_run(v, 2, get_outside);
}

/* -- messages at the same time ------------------------------------------------------------ */

static struct net *net_beside(struct rank *r, void **comm)
{
	char err[512];
	struct net *net = net_load(r->v->w->plugin, 0, err, sizeof(err));
	uint8_t *handle = handle_of_all(0);
	uint64_t end = deadline_ms(drive_hang_ms);
	void *listen = NULL;

	if (!net)
		rank_skip("it has no net table");
	at(r, "a comm for messages");
	OK(net_init(net, 42, NCCL_NET_TRAFFIC_CLASS_UNDEF, net_log, NULL));
	if (r->rank == 1)
		OK(net_listen(net, r->dev, handle, &listen));
	quietly_together(r);
	*comm = NULL;
	while (!(r->rank ? accept_step(net, listen, comm) : connect_step(net, handle, comm)))
		wait_tick(end, __FILE__, __LINE__, "a comm");
	if (listen)
		OK(net_close_listen(net, listen));
	return net;
}

/* Messages from rank 0 to rank 1, one after the other, while puts go both ways. */
static void messages_and_puts(struct rank *r)
{
	enum { N = 30, SIZE = 100000 };
	struct group *g = group_new(r, 1);
	uint64_t end = deadline_ms(drive_hang_ms);
	bool is_recv = r->rank == 1;
	unsigned n = 0;
	struct net *net;
	struct flow *f;
	struct buf b;
	struct op op;
	void *comm;

	net = net_beside(r, &comm);
	b = buf_new(net, comm, SIZE, 0);
	f = FLOW(g, .peer = 1 - r->rank, .rounds = 20);
	at(r, "messages and puts");
	for (bool all = false, idle = true; !all || n < N;) {
		if (idle && n < N) {
			if (!is_recv)
				fill(b.data, SIZE, n);
			op = is_recv ? op_recv(net, comm, &b, SIZE, 0) :
				       op_send(net, comm, &b, SIZE, 0);
			idle = false;
		}
		if (!idle && ops_step(&op, 1)) {
			RES(ncclSuccess, op.res);
			if (is_recv)
				filled(b.data, SIZE, n);
			idle = true;
			n++;
		}
		all = flow_step(f);
		wait_tick(end, __FILE__, __LINE__, "messages and puts");
	}
	together(r);
	flow_free(f);
	groups_close(r);
	buf_free(net, &b);
	OK(is_recv ? net_close_recv(net, comm) : net_close_send(net, comm));
	OK(net_finalize(net));
	net_unload(net);
}

static void beside(struct validate *v)
{
	ranks_run(v, 2, messages_and_puts);
}

#define SILENT "Jobs hang when a rank dies: report it"

const struct vcheck validate_rma_fault[] = {
	{ "rma-range", "A put outside its window is an error, and writes nothing there",
	  "A mistake of one rank spoils memory of another, or hangs: report it", range, V_HERE, 0 },
	{ "rma-get-range", "A get outside its window is an error",
	  "A mistake of one rank gives it memory of another, or hangs: report it", get_range,
	  V_HERE, 0 },
	{ "rma-beside-net", "Puts and messages at the same time",
	  "NCCL has both in one process: report it", beside, V_HERE | V_SOAK, 0 },
	{ "rma-kill-put", "A put to a rank that is killed is an error, soon", SILENT, killed,
	  V_HERE | V_FAULT, 0 },
	{ "rma-kill-wait", "A rank that waits for a killed one gets an error soon", SILENT, waiter,
	  V_HERE | V_FAULT, 0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
