/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_values.c - every byte of a collective's result is right. */
#include "tests/nccl/job.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, ROUND = 4 };

static int all_reduce(struct rank *r)
{
	struct bufs b;

	rank_init(r);
	bufs_new(r, &b, MIB);
	for (unsigned i = 0; i < 8; i++) {
		struct trial t = { C_ALL_REDUCE, T_F32, OP_SUM, (size_t)1 << (2 * i), .salt = i };

		OK(trial_run(r, &b, &t));
	}
	rank_finish(r);
	return 0;
}

/* Each collective of each type with each operation, in and out of place, round the roots. */
static int types(struct rank *r)
{
	static const size_t sizes[] = { 1, 333, 5000, 40000 };
	unsigned last = getenv("BRAID_TEST_GPU_CC") ? T_E5M2 : T_BF16, salt = 0;
	struct bufs b;

	rank_init(r);
	bufs_new(r, &b, (size_t)r->nranks * 40000 * 8);
	for (unsigned kind = 0; kind < C_KINDS; kind++) {
		bool reduces = kind == C_ALL_REDUCE || kind == C_REDUCE || kind == C_REDUCE_SCATTER;

		for (unsigned type = 0; type <= (reduces ? last : T_E5M2); type++) {
			for (unsigned op = 0; op <= (reduces ? OP_USER : OP_SUM); op++) {
				struct trial t = { kind, type, op, sizes[salt % 4], (int)salt % r->nranks,
					salt / 4 % 2, salt };

				OK(trial_run(r, &b, &t));
				salt++;
			}
		}
	}
	printf("%u collectives\n", salt);
	rank_finish(r);
	return 0;
}

static int sizes(struct rank *r)
{
	struct bufs b;
	unsigned salt = 0;

	rank_init(r);
	bufs_new(r, &b, 64 * MIB);
	for (size_t size = 4; size <= 64 * MIB; size *= 8) {
		for (unsigned kind = 0; kind < C_KINDS; kind++) {
			bool shares = kind >= C_ALL_GATHER && kind != C_SEND_RECV;
			size_t n = size / 4 / (shares ? (size_t)r->nranks : 1);
			struct trial t = { kind, T_F32, OP_SUM, n ? n : 1, (int)salt % r->nranks, salt % 2,
				salt };

			OK(trial_run(r, &b, &t));
			salt++;
		}
	}
	rank_finish(r);
	return 0;
}

static bool finds_it(struct rank *r, const struct bufs *b, const struct trial *t)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		trial_check(r, b, t);
		_exit(0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

/* Proves that a wrong result is found. */
static int spoil(struct rank *r)
{
	struct bufs b;

	rank_init(r);
	bufs_new(r, &b, MIB);
	for (unsigned kind = 0; kind < C_KINDS; kind++) {
		struct trial t = { kind, kind % T_E4M3, OP_SUM, 20000, .salt = kind };

		for (unsigned i = 0; i < 3; i++) {
			OK(trial_run(r, &b, &t));
			trial_spoil(r, &b, &t, (size_t)7919 * (i + 1) * (kind + 3));
			if (!finds_it(r, &b, &t) && (kind != C_REDUCE || r->rank == t.root))
				fail("rank %d: %s: a wrong bit was not found", r->rank, trial_name(&t));
		}
	}
	rank_finish(r);
	return 0;
}

/* A salt makes the same random sequence of collectives on all ranks. */
static struct trial random_trial(const struct rank *r, unsigned *salt)
{
	unsigned x = *salt = *salt * 1103515245 + 12345, y = *salt = *salt * 1103515245 + 12345;
	struct trial t = { (x >> 16) % C_KINDS, (x >> 20) % T_E4M3, (x >> 24) % OP_USER,
		1 + (y >> 12) % (100000U >> (x >> 28)), (int)(y >> 8) % r->nranks, .salt = x >> 8 & 0xff };

	if (t.n * type_size(t.type) * (size_t)r->nranks > MIB)
		t.n = MIB / 8 / (size_t)r->nranks;
	return t;
}

static unsigned soak_round(struct rank *r, const struct bufs *b, unsigned salt)
{
	struct trial t[ROUND];
	int code;

	for (unsigned i = 0; i < ROUND; i++) {
		t[i] = random_trial(r, &salt);
		trial_fill(r, &b[i], &t[i]);
	}
	for (unsigned i = 0; i < ROUND; i++)
		OK(trial_start(r, &b[i], &t[i]));
	code = stream_done(r, r->stream, r->comm, r->seconds);
	if (code)
		fail("rank %d: %s, %s", r->rank, r->nccl->get_error_string(code), last_error(r));
	for (unsigned i = 0; i < ROUND; i++)
		trial_check(r, &b[i], &t[i]);
	return salt;
}

/* Rank 0 ends the soak.  A file tells a script outside that the soak has begun. */
static int soak(struct rank *r)
{
	const char *env = getenv("BRAID_TEST_NCCL_SOAK_S"), *begun = getenv("BRAID_TEST_NCCL_BEGUN");
	unsigned salt = (unsigned)(env ? 1 + atoi(env) : 1), n = 0;
	double end = now_s() + (env ? atof(env) : 4);
	struct bufs b[ROUND];

	rank_init(r);
	for (unsigned i = 0; i < ROUND; i++)
		bufs_new(r, &b[i], MIB);
	do {
		salt = soak_round(r, b, salt);
		n += ROUND;
		if (begun && n == ROUND && r->rank == 0)
			close(open(begun, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		if (r->rank == 0 && now_s() >= end)
			mark_set(r, 0, 1);
		meet(r);
	} while (!r->board->marks[0]);
	printf("%u collectives\n", n);
	rank_finish(r);
	return 0;
}

const struct nccl_case cases_values[] = {
	{ "spoil", "a wrong bit in a result is found", spoil, .ranks = 2, .seconds = 240 },
	{ "all-reduce", "AllReduce of float32, 4 B to 64 KiB", all_reduce, .ranks = 2, .seconds = 200 },
	{ "types", "all collectives with all types and operations", types, .ranks = 2, .seconds = 200 },
	{ "sizes", "all collectives from 4 B to 64 MiB", sizes, .ranks = 2, .seconds = 200 },
	{ "soak", "a soak of random collectives, four at a time", soak, .ranks = 2, .seconds = 240 },
	{ .name = NULL },
};
