/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_bench.c - a measurement, not a test: AllReduce over Braid and over NCCL's own Socket transport,
 * by two communicators in the same processes, in turn.  Prints both times, and the ratio of Braid's to
 * Socket's: the median and the quartiles over all rounds.
 */
#include "tests/nccl/job.h"

#include <stdio.h>
#include <stdlib.h>

enum { MIB = 1 << 20, ROUNDS = 25, MANY = 20 };

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Milliseconds of one collective. */
static double one(struct rank *r, void *comm, const struct bufs *b, size_t bytes, unsigned times)
{
	double from;

	meet(r);
	from = now_s();
	for (unsigned i = 0; i < times; i++)
		OK(r->nccl->all_reduce(b->send, b->recv, bytes / 4, T_F32, OP_SUM, comm, r->stream));
	gpu_stream_wait(r->stream);
	return (now_s() - from) * 1e3 / times;
}

static void row(struct rank *r, void *const comms[2], const struct bufs *b, size_t bytes)
{
	double times[2][ROUNDS], ratios[ROUNDS];
	unsigned many = bytes <= 65536 ? MANY : 1;

	for (int c = 0; c < 2; c++)
		one(r, comms[c], b, bytes, many);
	for (unsigned i = 0; i < ROUNDS; i++) {
		for (unsigned c = 0; c < 2; c++) {
			unsigned which = (i + c) % 2;

			times[which][i] = one(r, comms[which], b, bytes, many);
		}
		ratios[i] = times[0][i] / times[1][i];
	}
	qsort(times[0], ROUNDS, sizeof(double), by_value);
	qsort(times[1], ROUNDS, sizeof(double), by_value);
	qsort(ratios, ROUNDS, sizeof(double), by_value);
	if (r->rank == 0)
		printf("| %8zu | %9.3f | %9.3f | %5.2f (%.2f to %.2f) |\n", bytes, times[0][ROUNDS / 2],
			times[1][ROUNDS / 2], ratios[ROUNDS / 2], ratios[ROUNDS / 4], ratios[ROUNDS * 3 / 4]);
}

static int bench(struct rank *r)
{
	static const char *const nets[] = { "Braid", "Socket" };
	double times[2];
	void *comms[2];
	struct bufs b;

	bufs_new(r, &b, 64 * MIB);
	if (gpu_stream_new(&r->stream))
		fail("no stream");
	for (unsigned i = 0; i < 2; i++) {
		setenv("NCCL_NET", nets[i], 1);
		meet(r);
		times[i] = now_s();
		rank_init_id(r, &comms[i], i, r->rank, r->nranks);
		times[i] = now_s() - times[i];
	}
	if (r->rank == 0) {
		printf("| bytes | Braid, ms | Socket, ms | ratio (quartiles) |\n"
			"| ---: | ---: | ---: | ---: |\n");
		printf("| init | %.0f | %.0f | %.2f |\n", times[0] * 1e3, times[1] * 1e3, times[0] / times[1]);
	}
	for (size_t bytes = 16; bytes <= 64 * MIB; bytes *= 4)
		row(r, comms, &b, bytes);
	meet(r);
	for (unsigned i = 0; i < 2; i++)
		OK(r->nccl->comm_destroy(comms[i]));
	return 0;
}

const struct nccl_case cases_bench[] = {
	{ "bench", "AllReduce over Braid and over NCCL's Socket", bench, .ranks = 2, .seconds = 280 },
	{ .name = NULL },
};
