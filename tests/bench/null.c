/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * null.c - what a small message costs apart from the network: isend, irecv and two tests, both
 * ends in one thread, over the null transport that hands frames across at once.
 *
 * Usage: null [SECONDS].  For bursts of 1, 8 and 32 messages it prints the median, the least and
 * the 90th percentile of the nanoseconds per message, over samples of some thousand messages
 * each.  The goal is 100 ns for both ends together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* n messages at a time: receives posted, sends posted, all tested. */
static void burst(unsigned n)
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

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void measure(unsigned n, double seconds)
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

	null_pair_init(&pair, &config);
	null_comms(&pair, 0, &cs, &cr);
	measure(1, seconds / 10);		/* warm up */
	measure(1, seconds);
	measure(8, seconds);
	measure(32, seconds);
	null_pair_fini(&pair);
	return 0;
}
