/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pump.c - the loop of NCCL's proxy progress thread: for each comm post one message if a
 * slot is free, else test the oldest one; sched_yield when a whole pass moved nothing (--spin: no).
 *
 * A step costs two indirect calls, for a plugin and for raw TCP alike.
 */
#include "tools/perf/pump.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "tools/perf/ctl.h"

enum { IDLES_A_CHECK = 1024, IDLES_A_CLOCK = 32, CHECK_NS = 200000000 };

static bool may_post(const struct flow *f)
{
	return f->posted - f->done < f->depth && f->posted < f->goal &&
	       (!f->after || f->posted < f->after->done + f->lead);
}

/* 1: posted; 0: the fabric said not now; or -errno. */
static int flow_post(struct flow *f)
{
	unsigned slot = f->posted % PERF_INFLIGHT_MAX;
	struct piece p = f->piece(f, f->posted);
	void *req = NULL;
	int rc;

	if (f->is_send) {
		if (f->sending)
			f->sending(f, f->posted, p);
		rc = f->fab->ops->isend(f->fab, f->comm, p.data, p.size, f->tag, f->mr, &req);
	} else {
		rc = f->fab->ops->irecv(f->fab, f->comm, p.data, p.size, f->tag, f->mr, &req);
	}
	if (rc || !req)
		return rc;
	f->reqs[slot] = req;
	f->pieces[slot] = p;
	if (f->sent)
		f->sent(f, f->posted);
	f->posted++;
	return 1;
}

static int flow_done(struct flow *f, size_t size)
{
	struct piece p = f->pieces[f->done % PERF_INFLIGHT_MAX];

	if (!f->is_send) {
		if (size != p.size) {
			snprintf(f->fab->err, sizeof(f->fab->err),
				 "receive of %zu bytes reported as %zu", p.size, size);
			return -EPROTO;
		}
		if (f->arrived)
			f->arrived(f, f->done, p);
	}
	f->bytes += p.size;
	f->done++;
	return 1;
}

/* 1: the oldest is done; 0: not yet; or -errno. */
static int flow_test(struct flow *f)
{
	bool done = false;
	size_t size = 0;
	int rc = f->fab->ops->test(f->fab, f->reqs[f->done % PERF_INFLIGHT_MAX], &done, &size);

	if (rc || !done)
		return rc;
	return flow_done(f, size);
}

static int flow_step(struct flow *f)
{
	int rc;

	if (may_post(f)) {
		rc = flow_post(f);
		if (rc)
			return rc;
	}
	return f->done < f->posted ? flow_test(f) : 0;
}

static int stalled(struct pump *p)
{
	const struct flow *f = p->flows;

	while (f->done >= f->goal)
		f++;
	snprintf(p->err, sizeof(p->err),
		 "%s: nothing moved for %.0f s: %s rank %d, comm %d, has done %llu of %llu "
		 "messages, "
		 "posted %llu",
		 f->fab->about.name, (double)p->stall_ns / 1e9,
		 f->is_send ? "send to" : "receive from", f->peer, f->idx,
		 (unsigned long long)f->done, (unsigned long long)f->goal,
		 (unsigned long long)f->posted);
	return -ETIMEDOUT;
}

static int check_stalls(struct pump *p)
{
	uint64_t now = perf_now_ns();

	p->checked_ns = now;
	if (atomic_load_explicit(p->stop, memory_order_relaxed))
		return -ECANCELED;
	if (p->moved != p->seen_moved || p->seen_ns == 0) {
		p->seen_moved = p->moved;
		p->seen_ns = now;
	}
	if (now - p->seen_ns > p->stall_ns)
		return stalled(p);
	if (!perf_ctl_ended(p->ctl_fd))
		return 0;
	snprintf(p->err, sizeof(p->err), "the --connect end left during a measurement");
	return -EPIPE;
}

static bool spin;

void pump_spin(bool on)
{
	spin = on;
}

static int idle(struct pump *p)
{
	if (!spin)
		sched_yield();
	if (++p->idles % IDLES_A_CHECK == 0)
		return check_stalls(p);
	/* On a busy host one yield takes 50 ms, so counting yields could exceed any timeout. */
	if (spin || p->idles % IDLES_A_CLOCK || perf_now_ns() - p->checked_ns < CHECK_NS)
		return 0;
	return check_stalls(p);
}

static void full_note(struct pump *p)
{
	const struct flow *f;

	p->full_ns = perf_now_ns();
	for (f = p->flows; f < p->flows + p->n; f++)
		p->full_messages += f->is_send ? 0 : f->done;
}

/* 1: something moved; 0: nothing did; or -errno.  *ret_left: some flow is not at its goal. */
static int pass(struct pump *p, bool *ret_left)
{
	struct flow *f, *end = p->flows + p->n;
	int moved = 0, rc;

	*ret_left = false;
	for (f = p->flows; f < end; f++) {
		if (f->done == f->goal)
			continue;
		rc = flow_step(f);
		if (rc < 0) {
			snprintf(p->err, sizeof(p->err), "%s", f->fab->err);
			return rc;
		}
		moved |= rc;
		if (f->done < f->goal)
			*ret_left = true;
		else if (!f->is_send && p->full_ns == 0)
			full_note(p);
	}
	return moved;
}

int pump_run(struct pump *p)
{
	bool left = true;
	int rc;

	p->seen_ns = 0;
	while (left) {
		rc = pass(p, &left);
		p->moved += rc > 0;
		if (rc == 0 && left)
			rc = idle(p);
		if (rc < 0)
			return rc;
	}
	return 0;
}
