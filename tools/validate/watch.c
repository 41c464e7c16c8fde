/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.c - what checks measure in their own process: descriptors, threads, time off the CPU. */
#include <stdio.h>
#include <time.h>

#include "tools/validate/far.h"

uint64_t chance(struct validate *v, uint64_t below)
{
	v->seed += 0x9e3779b97f4a7c15;
	return mix(v->seed) % below;
}

struct counts counts_now(void)
{
	return (struct counts){ count_fds(), count_threads() };
}

void check_growth(struct validate *v, struct counts a, struct counts b, int rounds)
{
	if (b.fds > a.fds + 4)
		FAIL("%u descriptors became %u in %d rounds", a.fds, b.fds, rounds);
	if (b.threads > a.threads + 4)
		FAIL("%u threads became %u in %d rounds", a.threads, b.threads, rounds);
	saw(v, "%d rounds: %u descriptors, %u threads", rounds, b.fds, b.threads);
}

static uint64_t clock_us(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* How long this thread has waited for a CPU. */
static uint64_t queued_us(void)
{
	unsigned long long ran, queued = 0;
	FILE *f = fopen("/proc/thread-self/schedstat", "re");

	if (f && fscanf(f, "%llu %llu", &ran, &queued) != 2)
		queued = 0;
	if (f)
		fclose(f);
	return queued / 1000;
}

void watch_begin(struct watch *w)
{
	w->queued = queued_us();
	w->cpu = clock_us(CLOCK_THREAD_CPUTIME_ID);
	w->wall = clock_us(CLOCK_MONOTONIC);
}

double watch_blocked_us(const struct watch *w)
{
	double wall = (double)(clock_us(CLOCK_MONOTONIC) - w->wall);
	double cpu = (double)(clock_us(CLOCK_THREAD_CPUTIME_ID) - w->cpu);

	return wall < 1000 ? 0 : wall - cpu - (double)(queued_us() - w->queued);
}
