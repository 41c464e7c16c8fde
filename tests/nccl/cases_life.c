/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_life.c - communicators come and go. */
#include "tests/nccl/job.h"

#include <stdio.h>
#include <stdlib.h>

enum { CYCLES = 20, WARM = 8, GROWTH_KIB = 1024 };

static int life(struct rank *r)
{
	rank_init(r);
	meet(r);
	OK(r->nccl->comm_destroy(r->comm));
	rank_check_log(r, 0);
	return 0;
}

static void reduce_on(struct rank *r, void *comm, const struct bufs *b, unsigned salt)
{
	struct trial t = { C_ALL_REDUCE, T_F32, OP_SUM, 20000, .salt = salt };
	void *was = r->comm;

	r->comm = comm;
	OK(trial_run(r, b, &t));
	r->comm = was;
}

/* Each id is used once: rank 0 clears it when all ranks have read it. */
static void new_comm(struct rank *r, void **ret)
{
	meet(r);
	if (r->rank == 0)
		__atomic_store_n(&r->board->has_id[0], 0, __ATOMIC_RELEASE);
	meet(r);
	rank_init_id(r, ret, 0, r->rank, r->nranks);
}

static int cycles(struct rank *r)
{
	struct usage early = { 0 }, late;
	struct bufs b;

	bufs_new(r, &b, 1 << 20);
	if (gpu_stream_new(&r->stream))
		fail("no stream");
	for (unsigned i = 1; i <= CYCLES; i++) {
		void *half;

		new_comm(r, &r->comm);
		reduce_on(r, r->comm, &b, i);
		OK(r->nccl->comm_split(r->comm, 0, -r->rank, &half, NULL));
		reduce_on(r, half, &b, i + 1);
		OK(r->nccl->comm_destroy(half));
		OK(r->nccl->comm_destroy(r->comm));
		r->comm = NULL;
		meet(r);
		late = usage_now();
		printf("cycle %u: %ld descriptors, %ld threads, %ld KiB\n", i, late.descriptors, late.threads,
			late.kib);
		if (i == WARM)
			early = late;
	}
	if (late.descriptors > early.descriptors || late.threads > early.threads ||
	    late.kib > early.kib + GROWTH_KIB)
		fail("rank %d: from cycle %d to %d descriptors went from %ld to %ld, threads from %ld to "
			"%ld, memory from %ld to %ld KiB", r->rank, WARM, CYCLES, early.descriptors,
			late.descriptors, early.threads, late.threads, early.kib, late.kib);
	rank_check_log(r, 0);
	return 0;
}

/* All ranks have a communicator, but one rank starts the collective much later than the others. */
static int late(struct rank *r)
{
	const char *env = getenv("BRAID_TEST_NCCL_LATE_S");
	struct bufs b;

	rank_init(r);
	bufs_new(r, &b, 1 << 20);
	reduce_on(r, r->comm, &b, 1);
	if (r->rank == r->nranks - 1)
		sleep_ms(1000 * (unsigned)(env ? atoi(env) : 22));
	reduce_on(r, r->comm, &b, 2);
	meet(r);
	OK(r->nccl->comm_destroy(r->comm));
	rank_check_log(r, 2);
	if (r->rank == 0 && !log_count(r, "[peer-late]"))
		fail("rank 0 was not told that the other is late");
	return 0;
}

const struct nccl_case cases_life[] = {
	{ "life", "a communicator is made, and destroyed", life, .ranks = 2, .seconds = 90,
		.unknown_too = true },
	{ "cycles", "20 cycles of init, split, destroy leave nothing behind", cycles, .ranks = 2,
		.seconds = 240 },
	{ "late", "a rank comes 22 s late to a collective: that is said, and all goes on", late, .ranks = 2,
		.seconds = 100 },
	{ .name = NULL },
};
