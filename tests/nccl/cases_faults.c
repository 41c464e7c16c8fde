/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_faults.c - faults in a job: ranks that die, stop or are late, and aborts. */
#include "tests/nccl/job.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20 };
enum { MARK_KILL = 1, MARK_ABORTED = 2 };

static struct trial big(unsigned salt)
{
	return (struct trial){ C_ALL_REDUCE, T_F32, OP_SUM, 2 * MIB, .salt = salt };
}

static void begin(struct rank *r, struct bufs *b)
{
	struct trial t = big(1);

	rank_init(r);
	bufs_new(r, b, 8 * MIB);
	OK(trial_run(r, b, &t));
	meet(r);
}

/* A communicator after another one. */
static void again(struct rank *r, const struct bufs *b, unsigned id)
{
	struct trial t = big(7);

	r->comm = NULL;
	rank_init_id(r, &r->comm, id, r->rank, r->nranks);
	OK(trial_run(r, b, &t));
}

/* The last rank dies in a collective.  NCCL reports an error to the others, with Braid's WARN. */
static int kill_rank(struct rank *r)
{
	struct trial t = big(2);
	struct bufs b;
	double from;
	int code = 0;

	begin(r, &b);
	if (r->rank == r->nranks - 1) {
		trial_fill(r, &b, &t);
		OK(trial_start(r, &b, &t));
		kill(getpid(), SIGKILL);
	}
	from = now_s();
	while (!code) {
		trial_fill(r, &b, &t);
		code = trial_start(r, &b, &t);
		code = code ? code : stream_done(r, r->stream, r->comm, 20);
	}
	printf("rank %d: %d after %.0f ms: %s\n", r->rank, code, (now_s() - from) * 1e3, last_error(r));
	if (code != NCCL_REMOTE)
		fail("rank %d: error %d, not ncclRemoteError", r->rank, code);
	if (!strstr(last_error(r), "braid"))
		fail("rank %d: NCCL's last error is not Braid's: %s", r->rank, last_error(r));
	OK(r->nccl->comm_abort(r->comm));
	rank_check_log(r, 4);
	return 0;
}

/* All ranks but the last wait in a collective that the last never joins; then all abort. */
static int abort_all(struct rank *r)
{
	struct trial t = big(2);
	struct bufs b;

	begin(r, &b);
	if (r->rank != r->nranks - 1) {
		trial_fill(r, &b, &t);
		OK(trial_start(r, &b, &t));
		sleep_ms(200);
	}
	meet(r);
	OK(r->nccl->comm_abort(r->comm));
	rank_check_log(r, 1);
	gpu_stream_wait(r->stream);
	again(r, &b, 1);
	meet(r);
	OK(r->nccl->comm_destroy(r->comm));
	rank_check_log(r, 1);
	return 0;
}

/* Aborts one of two communicators that use the same links. */
static int abort_one(struct rank *r)
{
	struct trial t = big(2), after = big(3);
	struct gpu_stream *other;
	struct bufs b, b2;
	void *kept, *aborted;

	begin(r, &b);
	bufs_new(r, &b2, 8 * MIB);
	kept = r->comm;
	again(r, &b2, 1);
	aborted = r->comm;
	if (gpu_stream_new(&other))
		fail("no stream");
	if (r->rank != r->nranks - 1) {
		trial_fill(r, &b2, &t);
		OK(r->nccl->all_reduce(b2.send, b2.recv, t.n, T_F32, OP_SUM, aborted, other));
		sleep_ms(200);
	}
	meet(r);
	OK(r->nccl->comm_abort(aborted));
	r->comm = kept;
	for (unsigned i = 0; i < 20; i++, after.salt++)
		OK(trial_run(r, &b, &after));
	gpu_stream_free(other);
	meet(r);
	OK(r->nccl->comm_destroy(kept));
	rank_check_log(r, 1);
	return 0;
}

/* Rank 0 stops the last one for a while, as a debugger would. */
static void *stop_other(void *arg)
{
	struct rank *r = arg;
	pid_t pid = r->board->pids[r->nranks - 1];
	const char *env = getenv("BRAID_TEST_NCCL_STOP_S");

	sleep_ms(200);
	kill(pid, SIGSTOP);
	sleep_ms(1000 * (unsigned)(env ? atoi(env) : 8));
	kill(pid, SIGCONT);
	mark_set(r, MARK_KILL, 1);
	return NULL;
}

static int stop(struct rank *r)
{
	struct trial t = big(2);
	struct bufs b;
	pthread_t thread;
	bool last = false;

	begin(r, &b);
	if (r->rank == 0 && pthread_create(&thread, NULL, stop_other, r))
		fail("no thread");
	for (; !last; t.salt++) {
		OK(trial_run(r, &b, &t));
		if (r->rank == 0)
			mark_set(r, MARK_ABORTED, r->board->marks[MARK_KILL]);
		meet(r);
		last = r->board->marks[MARK_ABORTED];
		meet(r);
	}
	if (r->rank == 0)
		pthread_join(thread, NULL);
	meet(r);
	OK(r->nccl->comm_destroy(r->comm));
	rank_check_log(r, 2);
	return 0;
}

const struct nccl_case cases_faults[] = {
	{ "kill", "a rank is killed: ncclRemoteError, and Braid says why", kill_rank, .ranks = 2,
		.seconds = 240, .loses_rank = true },
	{ "abort", "all abort in the middle, one WARN at most, and a new communicator works", abort_all,
		.ranks = 2, .seconds = 240 },
	{ "abort-one", "one of two communicators is aborted, the other goes on", abort_one, .ranks = 2,
		.seconds = 240 },
	{ "stop", "a rank is stopped for 8 s, and goes on", stop, .ranks = 2, .seconds = 200 },
	{ .name = NULL },
};
