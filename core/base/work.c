/* SPDX-License-Identifier: BSD-3-Clause */
/* work.c - see work.h. */
#include "core/base/work.h"

#include <pthread.h>
#include <time.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/units.h"

enum {
	LONG_MS = 900,			/* a call that takes longer will not return soon */
	SLOW_MS = 30000,		/* the same for a call that is known to be slow */
};

static atomic_uint running, slow_running;
static struct braid_log_gate gate_stuck;

static void let_go(struct braid_work *w)
{
	if (atomic_fetch_sub(&w->holders, 1) == 1)
		w->free(w);
}

static void count(bool slow, int n)
{
	atomic_fetch_add(slow ? &slow_running : &running, (unsigned)n);
}

static void *thread(void *arg)
{
	struct braid_work *w = arg;

	bool slow = w->slow;

	w->run(w);
	atomic_store(&w->done, true);
	let_go(w);
	count(slow, -1);
	return NULL;
}

int braid_work_start(struct braid_work *w, const char *what, void (*run)(struct braid_work *w),
		     void (*release)(struct braid_work *w))
{
	pthread_t id;
	int err;

	w->what = what;
	w->run = run;
	w->free = release;
	w->begun_ns = braid_os->now_ns();
	atomic_store(&w->done, false);
	atomic_store(&w->holders, 2);
	count(w->slow, 1);
	err = braid_os->thread_start(&id, thread, w, "braid-work");
	if (err)
		count(w->slow, -1);
	else
		pthread_detach(id);
	return err;
}

void braid_work_next(struct braid_work *w)
{
	atomic_store(&w->begun_ns, braid_os->now_ns());
}

void braid_work_leave(struct braid_work *w)
{
	uint64_t now = braid_os->now_ns(), ns = now - w->begun_ns;

	if (!braid_work_done(w) && ns >= (w->slow ? SLOW_MS : LONG_MS) * MS &&
	    braid_log_gate_open(&gate_stuck, now))
		braid_warn("%s has not come back from the kernel for %.1f s; its thread is left "
			   "behind, %u in all; the process's exit may have to wait for the kernel "
			   "[stuck-in-kernel]",
			   w->what, (double)ns / 1e9,
			   atomic_load(&running) + atomic_load(&slow_running));
	let_go(w);
}

void braid_work_end(void)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	uint64_t until = braid_os->now_ns() + LONG_MS * MS;

	while (atomic_load(&running) + atomic_load(&slow_running) && braid_os->now_ns() < until)
		nanosleep(&nap, NULL);
	if (atomic_load(&running))
		braid_warn("%u threads are still inside calls of the kernel and are left behind; "
			   "the process's exit may have to wait for them "
			   "[stuck-in-kernel]", atomic_load(&running));
}
