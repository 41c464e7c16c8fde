/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rma_fault.c - one-sided traffic while lanes are lost, ranks die, and windows are closed under
 * it.
 */
#include "tests/abi/onesided.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { FAIL_MS = 1000 };		/* as test_death has it */

#define COUNT(a) ((unsigned)(sizeof(a) / sizeof((a)[0])))

/* -- lanes -------------------------------------------------------------------------------- */

static struct abi *chance;
static unsigned one_in, cut;		/* each time one in so many sockets; how many so far */

static bool cut_some(int fd)
{
	if (rnd_below(chance, one_in))
		return false;
	if (cut++ % 2)
		connect(fd, &(struct sockaddr){ .sa_family = AF_UNSPEC }, sizeof(struct sockaddr));
	else
		shutdown(fd, SHUT_RDWR);
	return true;
}

/* Flows on two contexts and gets of one window, while rank 0 cuts sockets. */
static void cut_rank(struct rank *r)
{
	enum { ROUNDS = 250, GOT = 100000 };
	struct group *g = group_new(r, 2);
	unsigned peer = 1 - r->rank, gets = 0;
	struct window from = memory_new(GOT), to;
	uint64_t end = deadline_ms(60000), next = now_us() + 3000;
	struct flow *f[2];
	bool all = false;
	void *get = NULL;

	fill(from.data, GOT, r->rank);
	window_reg(g, &from, 0);
	to = window_new(g, GOT);
	f[0] = flow_new(g, 0, peer, ROUNDS, 1);
	f[1] = flow_new(g, 1, peer, ROUNDS, 2);
	chance = r->t;
	while (!all || get) {
		all = flow_step(f[0]);
		all = flow_step(f[1]) && all;
		if (get && req_done(g, get)) {
			filled(to.data, GOT, peer);
			blank(to.data, GOT);
			get = NULL;
			gets++;
		}
		if (!get && !all)
			get = get_post(g, 0, peer, &from, 0, GOT, &to, 0);
		if (r->rank == 0 && one_in && now_us() >= next) {
			count_streams(cut_some);
			next = now_us() + 1000 + rnd_below(r->t, 20000);
		}
		wait_tick(end, __FILE__, __LINE__, "all rounds");
	}
	if (r->rank == 0 && one_in) {
		printf("%u sockets were shut in %u rounds and %u gets\n", cut, 2 * ROUNDS, gets);
		TRUE(cut > 5);
	}
	together(r);
	flow_free(f[1]);
	flow_free(f[0]);
	window_free(g, &to);
	window_free(g, &from);
	groups_close(r);
}

static void lose(struct abi *t, const char *lanes, unsigned n)
{
	streams_are_ours();
	if (over_rdma())
		skip_because("sockets carry no data here");
	setenv("BRAID_LANES", lanes, 1);
	one_in = n;
	ranks_run(t, 2, cut_rank);
}

static void only_lane(struct abi *t)
{
	lose(t, "1", 1);
}

static void some_lanes(struct abi *t)
{
	lose(t, "4", 3);
}

static void all_lanes(struct abi *t)
{
	lose(t, "4", 1);
}

static void four_lanes(struct abi *t)
{
	setenv("BRAID_LANES", "4", 1);
	ranks_run(t, 2, cut_rank);
}

static void checksums(struct abi *t)
{
	setenv("BRAID_CHECKSUM", "on", 1);
	setenv("BRAID_LANES", "2", 1);
	ranks_run(t, 2, cut_rank);
}

static void encrypted(struct abi *t)
{
	if (over_rdma())
		skip_because("encryption is TCP's");
	setenv("BRAID_ENCRYPT", "require", 1);
	setenv("BRAID_LANES", "2", 1);
	ranks_run(t, 2, cut_rank);
}

static void encrypted_cut(struct abi *t)
{
	setenv("BRAID_ENCRYPT", "require", 1);
	lose(t, "2", 2);
}

/* -- operations that make no sense ---------------------------------------------------------- */

static void out_of_range(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window w = memory_new(r->rank == 1 ? 1000 : 100000), words;

	window_reg(g, &w, 0);
	words = words_new(g, 1 + (r->rank != 1));
	if (r->rank == 0) {
		struct put bad[] = {
			{ .src = &w, .dst = &w, .dst_off = 993, .size = 8, .rank = 1 },
			{ .src = &w, .dst = &w, .dst_off = 1001, .size = 1, .rank = 1 },
			{ .src = &w, .dst = &w, .dst_off = (uint64_t)-4, .size = 8, .rank = 1 },
			{ .src = &w, .dst = &w, .size = 100000, .rank = 1 },
			{ .words = &words, .word = 1, .rank = 1 },
			{ .src = &w, .dst = &w, .size = 8, .words = &words, .word = 1, .rank = 1 },
			/* Here: */
			{ .src = &w, .src_off = 99999, .dst = &w, .size = 2, .rank = 1 },
			{ .src = &w, .src_off = (uint64_t)-1, .dst = &w, .size = 2, .rank = 1 },
			{ .src = &w, .dst = &w, .dst_off = 99999, .size = 2, .rank = 0 },
			{ .words = &words, .word = 2, .rank = 0 },
			{ .src = &w, .dst = &w, .size = 2, .rank = 3 },
		};

		warns_expected();
		for (unsigned i = 0; i < COUNT(bad); i++) {
			void *req = NULL;
			ncclResult_t res = put_try(g, &bad[i], &req);

			if (res == ncclSuccess)
				res = req_settle(g, req);
			if (res == ncclSuccess)
				FAIL("put %u has no error", i);
		}
	}
	/* Other operations go on, those of this rank to the same target, too. */
	if (r->rank != 1) {
		fill(w.data, 1000, 4);
		PUT(g, .src = &w, .dst = &w, .size = 1000, .rank = 1, .words = &words);
	} else {
		word_wait(g, &words, 0, 2);
		EQ(2, word(&words, 0));
		filled(w.data, 1000, 4);
	}
	together(r);
	window_free(g, &words);
	window_free(g, &w);
	groups_close(r);
}

static void senseless(struct abi *t)
{
	ranks_run_each(t, 3, out_of_range);
}

static void get_out_of_range(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window w = memory_new(r->rank == 1 ? 1000 : 100000);

	fill(w.data, 1000, r->rank);
	window_reg(g, &w, 0);
	if (r->rank == 0) {
		warns_expected();
		TRUE(req_settle(g, get_post(g, 0, 1, &w, 900, 101, &w, 5000)) != ncclSuccess);
		req_wait(g, get_post(g, 0, 1, &w, 0, 1000, &w, 5000));
		filled(w.data + 5000, 1000, 1);
	}
	together(r);
	window_free(g, &w);
	groups_close(r);
}

static void senseless_get(struct abi *t)
{
	ranks_run(t, 2, get_out_of_range);
}

/* -- death -------------------------------------------------------------------------------- */

enum { DYING = 1 << 20 };

/* Until this rank is killed, or all has failed. */
static void put_for_ever(struct group *g, struct window *w, struct window *words, unsigned to)
{
	for (;;) {
		void *req = NULL;
		struct put p = { .src = w, .dst = w, .size = DYING, .dst_off = DYING, .rank = to,
				 .words = words };

		if (put_try(g, &p, &req) != ncclSuccess || req_settle(g, req) != ncclSuccess)
			return;
		rma_progress(g->r->rma, g->ctx);
	}
}

static void told_at(const char *what, uint64_t from)
{
	printf("%s: told after %llu us\n", what, (unsigned long long)(now_us() - from));
}

static void killed_under_puts(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window w = window_new(g, 2 * DYING), words = words_new(g, 1);
	void *req[8];
	ncclResult_t res = ncclSuccess;
	uint64_t from, limit;
	int done = 0;

	if (r->rank == 1)
		put_for_ever(g, &w, &words, 0);
	warns_expected();
	for (unsigned i = 0; i < 50; i++)
		PUT(g, .src = &w, .dst = &w, .size = DYING, .rank = 1, .words = &words);
	for (unsigned i = 0; i < COUNT(req); i++)
		req[i] = POST(g, .src = &w, .dst = &w, .size = DYING, .rank = 1, .words = &words);
	g->may_fail = true;
	rank_kill(r, 1);
	from = now_us();
	limit = deadline_ms(FAIL_MS);
	for (unsigned i = 0; res == ncclSuccess; i = (i + 1) % COUNT(req), done = 0) {
		while (res == ncclSuccess && !done) {
			res = rma_test(r->rma, g->coll, req[i], &done);
			wait_tick(limit, __FILE__, __LINE__, "the death of the peer");
		}
		if (res == ncclSuccess)	/* it was done before the kill */
			res = put_try(g, &(struct put){ .src = &w, .dst = &w, .size = DYING, .rank = 1 },
				      &req[i]);
	}
	told_at("killed under puts", from);
	RES(ncclRemoteError, res);
	TRUE(rma_progress(r->rma, g->ctx) != ncclSuccess);
	TRUE(put_try(g, &(struct put){ .src = &w, .dst = &w, .size = 8, .rank = 1 }, &req[0]) != ncclSuccess ||
	     req_settle(g, req[0]) != ncclSuccess);
	window_free(g, &words);
	window_free(g, &w);
	group_close(g);
}

static void death_of_target(struct abi *t)
{
	ranks_run_each(t, 2, killed_under_puts);
}

/* Rank 0 waits for a signal; `calls`: it has put to rank 1, else only rank 1 has put here. */
static void killed_while_waiting(struct rank *r, bool calls)
{
	struct group *g = group_new(r, 1);
	struct window words = words_new(g, 2);
	ncclResult_t res = ncclSuccess;
	uint64_t from, limit;
	bool failed = false;

	if (r->rank == (calls ? 0 : 1))
		PUT(g, .rank = !r->rank, .words = &words);
	else
		word_wait(g, &words, 0, 1);
	if (r->rank == 1) {
		atomic_store(note(0), 1);
		for (;;)
			tick(r);
	}
	WAIT_FOR(atomic_load(note(0)) || (tick(r), false));
	warns_expected();
	g->may_fail = true;
	rank_kill(r, 1);
	from = now_us();
	limit = deadline_ms(FAIL_MS);
	while (res == ncclSuccess && !failed) {
		res = rma_progress(r->rma, g->ctx);
		OK(rma_last_error(r->rma, g->ctx, &failed));
		TRUE(!word(&words, 1));
		wait_tick(limit, __FILE__, __LINE__, "the death of the peer");
	}
	told_at("killed while its signal was waited for", from);
	window_free(g, &words);
	group_close(g);
}

static void waiting_sender(struct rank *r)
{
	killed_while_waiting(r, true);
}

static void waiting_receiver(struct rank *r)
{
	killed_while_waiting(r, false);
}

static void death_seen_by_sender(struct abi *t)
{
	ranks_run(t, 2, waiting_sender);
}

static void death_seen_by_receiver(struct abi *t)
{
	ranks_run(t, 2, waiting_receiver);
}

/* -- windows that are closed ---------------------------------------------------------------- */

enum { CLOSING = 4 << 20, PUTS = 6 };

/* Rank 1 closes the window that rank 0 puts to, at some moment, and then has it for itself. */
static void closed_in_flight(struct rank *r)
{
	warns_expected();
	for (unsigned round = 0; round < 12; round++) {
		struct group *g = group_new(r, 1);
		struct window w = window_new(g, CLOSING), words = words_new(g, 1);
		void *req[PUTS];

		g->may_fail = true;
		if (r->rank == 0) {
			unsigned failed = 0;

			for (unsigned i = 0; i < PUTS; i++) {
				struct put p = { .src = &w, .dst = &w, .size = CLOSING, .rank = 1,
						 .words = i % 2 ? &words : NULL };

				failed += put_try(g, &p, &req[i]) != ncclSuccess ||
					  req_settle(g, req[i]) != ncclSuccess;
			}
			if (getenv("BRAID_TEST_TALK"))
				printf("round %u: %u of %u puts failed\n", round, failed, PUTS);
		} else {
			uint64_t moment = now_us() + 300 * round, end = deadline_ms(drive_hang_ms);
			uint64_t until;

			memset(w.data, 1, w.size);
			while (now_us() < moment || w.data[round * 1000] == 1) {
				rma_progress(r->rma, g->ctx);
				wait_tick(end, __FILE__, __LINE__, "the first bytes");
			}
			OK(rma_dereg(r->rma, g->coll, w.mh));
			fill(w.data, w.size, round);
			for (until = now_us() + 100000; now_us() < until;)
				rma_progress(r->rma, g->ctx);
			filled(w.data, w.size, round);
		}
		quietly_together(r);
		window_free(g, &words);
		if (r->rank == 0)
			window_dereg(g, &w);
		group_close(g);
		memory_free(&w);
	}
}

static void closed_target(struct abi *t)
{
	ranks_run(t, 2, closed_in_flight);
}

/* Rank 0 closes the window that it puts from: whatever comes of the puts, nothing hangs or crashes. */
static void source_closed(struct rank *r)
{
	warns_expected();
	for (unsigned round = 0; round < 12; round++) {
		struct group *g = group_new(r, 1);
		struct window src = window_new(g, CLOSING), dst = window_new(g, CLOSING);
		void *req[PUTS];

		g->may_fail = true;
		if (r->rank == 0) {
			for (unsigned i = 0; i < PUTS; i++)
				req[i] = POST(g, .src = &src, .dst = &dst, .size = CLOSING, .rank = 1);
			for (uint64_t until = now_us() + 300 * round; now_us() < until;)
				rma_progress(r->rma, g->ctx);
			window_free(g, &src);	/* a crash, if it is read later */
			for (unsigned i = 0; i < PUTS; i++)
				req_settle(g, req[i]);
			atomic_store(note(1), round + 1);
		} else {
			WAIT_FOR(atomic_load(note(1)) > round || (rma_progress(r->rma, g->ctx), false));
			window_free(g, &src);
		}
		quietly_together(r);
		window_free(g, &dst);
		group_close(g);
	}
}

static void closed_source(struct abi *t)
{
	ranks_run(t, 2, source_closed);
}

/* As above, with gets: rank 1 closes what rank 0 gets. */
static void got_closed(struct rank *r)
{
	warns_expected();
	for (unsigned round = 0; round < 12; round++) {
		struct group *g = group_new(r, 1);
		struct window from = window_new(g, CLOSING), to = window_new(g, (size_t)PUTS * CLOSING);
		void *req[PUTS];

		g->may_fail = true;
		if (r->rank == 0) {
			for (size_t i = 0; i < PUTS; i++)
				req[i] = get_post(g, 0, 1, &from, 0, CLOSING, &to, i * CLOSING);
			for (unsigned i = 0; i < PUTS; i++)
				req_settle(g, req[i]);
			atomic_store(note(1), round + 1);
		} else {
			for (uint64_t until = now_us() + 300 * round; now_us() < until;)
				rma_progress(r->rma, g->ctx);
			window_free(g, &from);
			WAIT_FOR(atomic_load(note(1)) > round || (rma_progress(r->rma, g->ctx), false));
		}
		quietly_together(r);
		window_free(g, &to);
		if (r->rank == 0)
			window_free(g, &from);
		group_close(g);
	}
}

static void closed_remote(struct abi *t)
{
	ranks_run(t, 2, got_closed);
}

/* Rank 1 closes all while rank 0 puts to it. */
static void closed_all(struct rank *r)
{
	warns_expected();
	for (unsigned round = 0; round < 12; round++) {
		struct group *g = group_new(r, 1);
		struct window w = window_new(g, CLOSING);
		void *req[PUTS];

		g->may_fail = true;
		if (r->rank == 0) {
			for (unsigned i = 0; i < PUTS; i++) {
				struct put p = { .src = &w, .dst = &w, .size = CLOSING, .rank = 1 };

				if (put_try(g, &p, &req[i]) != ncclSuccess)
					req[i] = NULL;
			}
			for (unsigned i = 0; i < PUTS; i++) {
				if (req[i])
					req_settle(g, req[i]);
			}
		} else {
			for (uint64_t until = now_us() + 300 * round; now_us() < until;)
				rma_progress(r->rma, g->ctx);
		}
		if (r->rank == 1)
			window_free(g, &w);
		group_close(g);
		if (r->rank == 0)
			memory_free(&w);
		quietly_together(r);
	}
}

static void closed_communicator(struct abi *t)
{
	ranks_run(t, 2, closed_all);
}

static const struct abi_case cases[] = {
	CASE("the only lane is lost again and again, and no put or signal", only_lane, ONCE),
	CASE("some of four lanes are lost, and no put or signal", some_lanes, ONCE),
	CASE("all of four lanes are lost, and no put or signal", all_lanes, ONCE),
	CASE("big puts and signals go over four lanes in order", four_lanes, ONCE),
	CASE("puts and signals go over lanes with checksums", checksums, ONCE),
	CASE("puts and signals go over encrypted lanes", encrypted, ONCE),
	CASE("encrypted lanes are lost, and no put or signal", encrypted_cut, ONCE),
	CASE("a put outside of the window is an error, and hurts no other", senseless, ONCE,
	     .warns = "rma-range"),
	CASE("a get outside of the window is an error, and hurts no other", senseless_get, ONCE,
	     .warns = "rma-range"),
	CASE("a target killed under puts is a remote error in a second", death_of_target, ONCE),
	CASE("a rank learns that a peer it has put to was killed", death_seen_by_sender, ONCE),
	CASE("a rank learns that a peer that has put to it was killed", death_seen_by_receiver, ONCE),
	CASE("a window closed under puts is not written afterwards", closed_target, ONCE),
	CASE("a window closed under puts from it is not read afterwards", closed_source, ONCE),
	CASE("a window closed under gets ends them", closed_remote, ONCE),
	CASE("a communicator closed under puts ends them", closed_communicator, ONCE),
};

ABI_MAIN(cases)
