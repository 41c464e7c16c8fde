/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * null.c - what a small message costs apart from the network: isend, irecv and two tests, both
 * ends in one thread, over the null transport that hands frames across at once.
 *
 * Usage: null [SECONDS [put]].  For bursts of 1, 8 and 32 messages it prints the median, the least
 * and the 90th percentile of the nanoseconds per message, over samples of some thousand messages
 * each.  The goal is 100 ns for both ends together.  With `put` a message is a put with a signal
 * and its test; its target makes a call after each burst.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/rma/rma.h"
#include "core/setup/coll_int.h"
#include "tests/lib/pair.h"
#include "tests/lib/req.h"

enum { SIZE = 8, BATCH = 4096, SAMPLES_MAX = 100000 };

static struct null_pair pair;
static struct braid_comm *cs, *cr;

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "null: %s\n", what);
	exit(1);
}

static bool tests(struct braid_req *req)
{
	bool done;

	if (req_test(req, &done, NULL))
		die("a request failed");
	return done;
}

static void wait_for(struct braid_req *req)
{
	for (int i = 0; !tests(req); i++) {
		if (i > 1000)
			die("a request was not done");
	}
}

/* n at a time: receives posted, sends posted, all tested. */
static void messages(unsigned n)
{
	static char from[SIZE], to[32][SIZE];
	struct braid_req *s[32], *r[32];
	size_t size = SIZE;
	int tag = 0;

	for (unsigned i = 0; i < n; i++) {
		void *data = to[i];

		if (braid_comm_irecv(cr, 1, &data, &size, &tag, NULL, &r[i]) || !r[i])
			die("irecv");
	}
	for (unsigned i = 0; i < n; i++) {
		if (braid_comm_isend(cs, from, SIZE, tag, NULL, &s[i]))
			die("isend");
		if (!s[i]) {		/* no room: the waiting receiver must report its matches */
			tests(r[n - 1]);
			i--;
		}
	}
	for (unsigned i = 0; i < n; i++)
		wait_for(s[i]);
	for (unsigned i = 0; i < n; i++)
		wait_for(r[i]);
}

/* --- puts with signals: rank 0 puts, rank 1 is the target ---------------------------------- */

static struct braid_coll coll[2];
static struct braid_coll_peer target;
static _Atomic(struct braid_coll_peer *) peers[2] = { NULL, &target };
static struct braid_mr mr[2];
static struct braid_rma_window bytes[2], words[2];
static _Atomic uint64_t word[2];

static void open_window(unsigned rank, struct braid_rma_window *w, void *data, size_t size)
{
	w->data = data;
	w->size = size;
	w->mr = &mr[rank];
	mr[rank].dev = &pair.dev[rank];
	if (braid_rma_window_open(&coll[rank].rma, w))
		die("a window");
}

static void make_rank(unsigned rank, struct braid_comm *c)
{
	static char data[2][32 * SIZE];
	struct braid_coll *co = &coll[rank];

	braid_rma_start(&co->rma, &pair.dev[rank]);
	co->rma.nranks = 2;
	co->rma.rank = rank;
	co->peer = peers;
	braid_lock_wait(&c->link->lock);
	if (braid_rma_channel_new(&co->rma, c))
		die("a channel");
	if (!rank)
		braid_rma_adopt(c->channel, 1);
	braid_unlock(&c->link->lock);
	open_window(rank, &bytes[rank], data[rank], sizeof(data[rank]));
	open_window(rank, &words[rank], &word[rank], sizeof(word[rank]));
}

static void make_ranks(void)
{
	make_rank(0, cs);
	make_rank(1, cr);
	atomic_store(&target.ch, cs->channel);
	null_settle(&pair);			/* rank 0 knows the windows */
}

static void end_put(struct braid_rma_op *op)
{
	int res;

	while (!(res = braid_coll_test(&coll[0], op))) {	/* the target must acknowledge */
		if (braid_coll_progress(&coll[1]))
			die("progress");
	}
	if (res < 0)
		die("a put failed");
}

/* n at a time: puts posted, all tested, and the word seen. */
static void puts_n(unsigned n)
{
	struct braid_rma_op *op[32];
	uint64_t before = word[1];

	for (unsigned i = 0; i < n; i++) {
		const struct braid_put p = {
			.rank = 1, .src = &bytes[0], .src_off = i * SIZE, .dst = &bytes[0],
			.dst_off = i * SIZE, .size = SIZE, .word = &words[0], .value = 1,
			.strong = true, .more = i + 1 < n,
		};

		if (braid_coll_put(&coll[0], &p, &op[i]))
			die("a put");
	}
	for (unsigned i = 0; i < n; i++)
		end_put(op[i]);
	if (braid_coll_progress(&coll[1]) || word[1] != before + n)
		die("a signal is missing");
}

/* --- measuring ------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void measure(void (*burst)(unsigned n), unsigned n, double seconds)
{
	static double ns[SAMPLES_MAX];
	double end = now_ns() + seconds * 1e9;
	unsigned samples = 0;

	while (samples < SAMPLES_MAX && (samples < 10 || now_ns() < end)) {
		double start = now_ns();

		for (unsigned i = 0; i < BATCH / n; i++)
			burst(n);
		ns[samples++] = (now_ns() - start) / BATCH;
	}
	qsort(ns, samples, sizeof(ns[0]), by_value);
	printf("bursts of %2u: median %6.1f ns a message, least %6.1f, 90 %% below %6.1f "
	       "(%u samples of %d)\n", n, ns[samples / 2], ns[0], ns[samples * 9 / 10], samples,
	       BATCH);
}

int main(int argc, char **argv)
{
	const struct null_config config = { .window = 512 << 10 };
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	void (*burst)(unsigned n) = argc > 2 ? puts_n : messages;

	null_pair_init(&pair, &config);
	null_comms(&pair, 0, &cs, &cr);
	if (argc > 2)
		make_ranks();
	measure(burst, 1, seconds / 10);		/* warm up */
	measure(burst, 1, seconds);
	measure(burst, 8, seconds);
	measure(burst, 32, seconds);
	null_pair_fini(&pair);
	return 0;
}
