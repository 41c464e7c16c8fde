/* SPDX-License-Identifier: BSD-3-Clause */
/* move.c - messages between this end and the servant, posted and tested at both. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "tools/validate/far.h"

enum { SLOWEST = 32000 };		/* bytes per millisecond, with comparing them */

static void far_post(struct validate *v, const struct conn *conn, const struct msg *m, int n,
		     unsigned how)
{
	struct order o = { .what = FAR_POST, .comm = conn->far, .n = n, .flags = how };

	for (int i = 0; i < n; i++) {
		o.size[i] = m[i].size;
		o.room[i] = m[i].room;
		o.tag[i] = m[i].tag;
		o.skew[i] = m[i].skew;
		o.seed[i] = m[i].seed;
	}
	far_call(v, &o);
}

struct jobs {
	struct job v[REQS_MAX];
	size_t n;
	bool moving;
};

static bool jobs_go(void *arg)
{
	struct jobs *j = arg;

	return jobs_step(j->v, j->n);
}

/* Post all of one end: its receives by groups, its sends one by one. */
static void post_end(struct validate *v, struct jobs *ours, const struct conn *conn, bool here,
		     const struct msg *m, int n, int group, unsigned how)
{
	bool is_recv = here != conn->out;

	for (int i = 0; i < n; i += group) {
		int k = n - i < group ? n - i : group;

		if (!here) {
			far_post(v, conn, m + i, k, how);
			continue;
		}
		job_begin(v, &ours->v[ours->n], conn->comm, is_recv, m + i, k);
		ours->v[ours->n].op.no_sizes = how & MOVE_NO_SIZES;
		ours->v[ours->n].op.optional = is_recv && how & MOVE_OPTIONAL;
		ours->v[ours->n].flush = is_recv && how & MOVE_FLUSH ? 1 : 0;
		ours->n++;
	}
}

static void jobs_for(struct jobs *ours, unsigned ms)
{
	uint64_t end = now_us() + ms * 1000ull;

	while (now_us() < end) {
		jobs_step(ours->v, ours->n);
		sched_yield();
	}
}

const char *move(struct validate *v, struct conn *conn, const struct msg *m, int n, int group,
		 const unsigned *order, unsigned how)
{
	struct order wait = { .what = FAR_WAIT };
	struct msg sent[REQS_MAX], got[REQS_MAX];
	static struct jobs ours;
	static char bad[256];

	TRUE(n >= 1 && n <= REQS_MAX && group >= 1 && group <= RECVS_MAX);
	wait.ms = WAIT_MS;
	for (int i = 0; i < n; i++) {
		sent[i] = m[i];
		wait.ms += m[i].size / SLOWEST;
		if (!sent[i].seed)
			sent[i].seed = chance(v, UINT64_MAX) | 1;
	}
	for (int i = 0; i < n; i++)
		got[i] = sent[order ? order[i] : (unsigned)i];
	step(v, "%d messages of %zu bytes and the like, %s", n, m[0].size,
	     conn->out ? "to the other end" : "from the other end");
	ours.n = 0;
	if (!conn->out)				/* the servant sends at once */
		post_end(v, &ours, conn, true, got, n, group, how);
	if (how & MOVE_SEND_FIRST && conn->out) {
		post_end(v, &ours, conn, true, sent, n, 1, how & ~(unsigned)MOVE_OPTIONAL);
		jobs_for(&ours, 20);
	}
	if (!(how & MOVE_SEND_FIRST) && !conn->out)
		jobs_for(&ours, 1);
	post_end(v, &ours, conn, false, conn->out ? got : sent, n, conn->out ? group : 1,
		 conn->out ? how : how & ~(unsigned)(MOVE_OPTIONAL | MOVE_FLUSH));
	if (!(how & MOVE_SEND_FIRST) && conn->out)
		post_end(v, &ours, conn, true, sent, n, 1, how & ~(unsigned)MOVE_OPTIONAL);
	if (how & MOVE_SEND_FIRST && !conn->out)
		nap_ms(20);
	far_call_stepping(v, &wait, jobs_go, &ours);
	snprintf(bad, sizeof(bad), "%.250s", wait.text);
	for (size_t i = 0; i < ours.n; i++) {
		if (*ours.v[i].bad)
			snprintf(bad, sizeof(bad), "%s", ours.v[i].bad);
		job_end(v, &ours.v[i]);
	}
	if (*bad && (!(how & MOVE_ERROR_OK) || strncmp(bad, "a message", 9) == 0))
		FAIL("%s", bad);		/* wrong data is always an error */
	return bad;
}

void move_one(struct validate *v, size_t size)
{
	struct msg m = { .size = size };

	for (int out = 0; out < 2; out++) {
		struct conn conn = conn_open(v, out);

		move(v, &conn, &m, 1, 1, NULL, 0);
		conn_close(v, &conn);
	}
}
