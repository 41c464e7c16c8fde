/* SPDX-License-Identifier: BSD-3-Clause */
/* later.c - see later.h. */
#include "core/mem/later.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/dev.h"
#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/base/work.h"
#include "core/base/wakeup.h"

enum {
	SLOW_MS = 20,			/* after so long, jobs behind a job get own threads */
	HANGS_MS = 1000,		/* after so long in a command, a NIC counts as hanging */
	WARN_MS = 5000,			/* after so long in a command, one WARN */
	WAIT_MS = 75000,		/* for a NIC to stop; drivers give up after a minute */
	NAP_NS = 50000, NAP_MAX_NS = 1000000,
};

/* How many jobs of each queue may run at a time. */
static const unsigned most[BRAID_JOB_KINDS] = {
	[BRAID_STOP] = BRAID_JOBS_MAX, [BRAID_STOP_CHECK] = BRAID_JOBS_MAX, [BRAID_MAKE] = 1,
	[BRAID_END] = 4,
};

/* --- the queue ----------------------------------------------------------------------------- */

struct thread {
	struct braid_work work;
	struct braid_later *queue;
	struct braid_running *at;
};

/* Take the next job, and note in *at that it runs; NULL: none is left, and *at is free. */
static struct braid_job *next_job(struct braid_later *q, struct braid_running *at)
{
	struct braid_job *job;

	braid_lock_wait(&q->lock);
	job = q->first;
	if (job) {
		q->first = job->next;
		*at = (struct braid_running){ job->seq, braid_os->now_ns(), job->what };
	} else {
		*at = (struct braid_running){ 0 };
		q->running--;
	}
	braid_unlock(&q->lock);
	return job;
}

/* How many of the first jobs are over, up to the first that is not.  With the lock held. */
static uint64_t done_by_now(const struct braid_later *q)
{
	uint64_t done = q->first ? q->first->seq - 1 : atomic_load(&q->begun);

	braid_assert_locked(&q->lock);
	for (unsigned i = 0; i < BRAID_JOBS_MAX; i++) {
		if (q->at[i].seq && q->at[i].seq <= done)
			done = q->at[i].seq - 1;
	}
	return done;
}

static void is_over(struct braid_later *q, struct braid_running *at)
{
	braid_lock_wait(&q->lock);
	at->seq = 0;
	atomic_store(&q->done, done_by_now(q));
	at->seq = UINT64_MAX;		/* the entry is taken, but runs no job */
	braid_unlock(&q->lock);
	braid_wake_service();
}

static void drain(struct braid_later *q, struct braid_running *at)
{
	struct braid_job *job;

	while ((job = next_job(q, at))) {
		job->run(job);
		is_over(q, at);
	}
}

static void thread_run(struct braid_work *work)
{
	struct thread *t = braid_container(work, struct thread, work);

	drain(t->queue, t->at);
}

static void thread_free(struct braid_work *work)
{
	free(braid_container(work, struct thread, work));
}

static bool start(struct braid_later *q, struct braid_running *at)
{
	struct thread *t = calloc(1, sizeof(*t));

	if (!t)
		return false;
	t->queue = q;
	t->at = at;
	if (braid_work_start(&t->work, "a command to a NIC", thread_run, thread_free)) {
		free(t);
		return false;
	}
	braid_work_leave(&t->work);
	return true;
}

/* Take an entry for one more thread; NULL: none is free.  With the lock held. */
static struct braid_running *free_place(struct braid_later *q)
{
	braid_assert_locked(&q->lock);
	for (unsigned i = 0; i < BRAID_JOBS_MAX; i++) {
		if (!q->at[i].seq) {
			q->at[i].seq = UINT64_MAX;
			q->running++;
			return &q->at[i];
		}
	}
	return NULL;
}

void braid_later(struct braid_dev *dev, enum braid_job_kind kind, struct braid_job *job)
{
	struct braid_later *q = &dev->later[kind];
	struct braid_running *at;

	job->next = NULL;
	braid_lock_wait(&q->lock);
	job->seq = atomic_fetch_add(&q->begun, 1) + 1;
	if (q->first)
		q->last->next = job;
	else
		q->first = job;
	q->last = job;
	at = q->running ? NULL : free_place(q);
	braid_unlock(&q->lock);
	if (at && !start(q, at))
		drain(q, at);
}

bool braid_later_busy(const struct braid_dev *dev, enum braid_job_kind kind)
{
	const struct braid_later *q = &dev->later[kind];

	return atomic_load(&q->done) != atomic_load(&q->begun);
}

/* --- NICs that hang ------------------------------------------------------------------------ */

/* The job that has run longest; `commands`: count only commands.  since_ns 0: none runs. */
static struct braid_running oldest(struct braid_later *q, bool commands)
{
	struct braid_running ret = { 0 };

	braid_lock_wait(&q->lock);
	for (unsigned i = 0; i < BRAID_JOBS_MAX; i++) {
		const struct braid_running *at = &q->at[i];

		if (at->seq && at->seq != UINT64_MAX && (at->what || !commands) &&
		    (!ret.since_ns || at->since_ns < ret.since_ns))
			ret = *at;
	}
	braid_unlock(&q->lock);
	return ret;
}

static uint64_t age(const struct braid_running *r, uint64_t now)
{
	return r->since_ns && now > r->since_ns ? now - r->since_ns : 0;
}

bool braid_later_hangs(struct braid_dev *dev, enum braid_job_kind kind, uint64_t now)
{
	struct braid_running r = oldest(&dev->later[kind], true);

	return age(&r, now) >= HANGS_MS * MS;
}

static void report_hang(const struct braid_dev *dev, struct braid_later *q,
			const struct braid_running *r, uint64_t now)
{
	if (q->warned)
		return;
	q->warned = true;
	braid_event(BRAID_EVENT_NIC_HANGS, 0, BRAID_FLIGHT_NONE, (int64_t)(age(r, now) / MS),
		    (int64_t)(atomic_load(&q->begun) - atomic_load(&q->done)));
	braid_warn("device %s: its NIC has not answered a command (%s) for %.1f s; %llu are not "
		   "done. Its lanes are carried otherwise meanwhile. Its driver may say more: "
		   "dmesg [nic-hangs]", dev->net.name, r->what, (double)age(r, now) / 1e9,
		   (unsigned long long)(atomic_load(&q->begun) - atomic_load(&q->done)));
}

/* Start threads for the jobs that wait behind slow ones. */
static void start_more(struct braid_later *q, unsigned max)
{
	struct braid_running *at;
	unsigned waiting = 0;

	braid_lock_wait(&q->lock);
	for (const struct braid_job *job = q->first; job && waiting < max; job = job->next)
		waiting++;
	braid_unlock(&q->lock);
	while (waiting--) {
		braid_lock_wait(&q->lock);
		at = q->running < max ? free_place(q) : NULL;
		braid_unlock(&q->lock);
		if (!at)
			return;
		if (start(q, at))
			continue;
		braid_lock_wait(&q->lock);
		at->seq = 0;
		q->running--;
		braid_unlock(&q->lock);
		return;
	}
}

int braid_later_check(struct braid_dev *dev, uint64_t now)
{
	int ms = -1;

	for (unsigned i = 0; i < BRAID_JOB_KINDS; i++) {
		struct braid_later *q = &dev->later[i];
		struct braid_running r;

		if (!braid_later_busy(dev, (enum braid_job_kind)i)) {
			q->warned = false;
			continue;
		}
		r = oldest(q, false);
		if (age(&r, now) >= SLOW_MS * MS)
			start_more(q, most[i]);
		r = oldest(q, true);
		if (age(&r, now) < HANGS_MS * MS)
			q->warned = false;
		else if (age(&r, now) >= WARN_MS * MS)
			report_hang(dev, q, &r, now);
		ms = SLOW_MS;
	}
	return ms;
}

void braid_later_text(struct braid_dev *dev, char *ret, size_t len)
{
	uint64_t now = braid_os->now_ns();

	*ret = '\0';
	for (unsigned i = 0; i < BRAID_JOB_KINDS; i++) {
		struct braid_running r = oldest(&dev->later[i], true);

		if (age(&r, now) < HANGS_MS * MS)
			continue;
		snprintf(ret, len, ", its NIC has not answered a command for %.0f s (%s)",
			 (double)age(&r, now) / 1e9, r.what);
		return;
	}
}

/* --- memory that NICs let go of ------------------------------------------------------------ */

void braid_stop_begin(struct braid_dev *dev, struct braid_stop *stop)
{
	struct braid_stopping *s = &dev->stopping;

	stop->next = NULL;
	atomic_store(&stop->over, false);
	braid_lock_wait(&s->lock);
	stop->seq = atomic_fetch_add(&s->begun, 1) + 1;
	if (s->first)
		s->last->next = stop;
	else
		s->first = stop;
	s->last = stop;
	braid_unlock(&s->lock);
}

static void remove_stop(struct braid_stopping *s, struct braid_stop *stop)
{
	struct braid_stop *before = NULL;

	for (struct braid_stop *k = s->first; k != stop; k = k->next)
		before = k;
	if (before)
		before->next = stop->next;
	else
		s->first = stop->next;
	if (s->last == stop)
		s->last = before;
}

void braid_stop_end(struct braid_dev *dev, struct braid_stop *stop)
{
	struct braid_stopping *s = &dev->stopping;

	braid_lock_wait(&s->lock);
	if (!atomic_exchange(&stop->over, true))
		remove_stop(s, stop);
	atomic_store(&s->done, s->first ? s->first->seq - 1 : atomic_load(&s->begun));
	braid_unlock(&s->lock);
	braid_wake_service();
}

void braid_stops_mark(const struct braid_dev *dev, struct braid_stops *ret)
{
	for (unsigned i = 0; i < dev->nmembers; i++)
		ret->of[i] = atomic_load(&dev->member[i]->stopping.begun);
}

void braid_stops_mark_one(const struct braid_dev *dev, unsigned member, struct braid_stops *ret)
{
	*ret = (struct braid_stops){ 0 };
	ret->of[member] = atomic_load(&dev->member[member]->stopping.begun);
}

bool braid_stops_past(const struct braid_dev *dev, const struct braid_stops *s)
{
	for (unsigned i = 0; i < dev->nmembers; i++) {
		if (atomic_load(&dev->member[i]->stopping.done) < s->of[i])
			return false;
	}
	return true;
}

int braid_stops_wait(const struct braid_dev *dev)
{
	uint64_t nap = NAP_NS, until;
	struct braid_stops s;

	braid_stops_mark(dev, &s);
	if (braid_stops_past(dev, &s))
		return 0;
	until = braid_os->now_ns() + WAIT_MS * MS;
	while (!braid_stops_past(dev, &s)) {
		if (braid_os->now_ns() >= until) {
			braid_warn("device %s: its NIC has not stopped within %d s, and may still "
				   "use memory that is to be taken back: that stays registered "
				   "[nic-keeps-memory]", dev->net.name, WAIT_MS / 1000);
			return -ETIMEDOUT;
		}
		braid_os->nap(nap);
		if (nap < NAP_MAX_NS)
			nap *= 2;
	}
	return 0;
}
