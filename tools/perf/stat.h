/* SPDX-License-Identifier: BSD-3-Clause */
/* stat.h - samples and percentiles, time, processors. */
#ifndef BRAID_TOOLS_PERF_STAT_H
#define BRAID_TOOLS_PERF_STAT_H

#include <stddef.h>
#include <stdint.h>

/* Percentiles that a report draws the spread of latencies with. */
enum { PERF_CDF = 23 };
extern const double perf_cdf_at[PERF_CDF];

struct perf_latency {			/* nanoseconds; n 0: none taken */
	uint64_t n;
	double min, p50, p90, p99, p999, max, mean;
	double jitter;			/* the average difference between neighbours */
	double cdf[PERF_CDF];		/* at perf_cdf_at[] */
};

struct perf_samples {
	uint32_t *v;			/* nanoseconds, cut at 4 s */
	uint32_t n, every, skip;	/* one in `every` is taken; when full, half are dropped */
	uint32_t min, max, last;
	uint64_t seen, sum, steps;	/* steps: the sum of differences between neighbours */
};

int perf_samples_init(struct perf_samples *s);
void perf_samples_fini(struct perf_samples *s);
void perf_samples_add(struct perf_samples *s, uint64_t ns);
/* From several threads' samples, each divided by `div`; sorts them. */
void perf_latency_of(struct perf_samples *s, unsigned n, unsigned div, struct perf_latency *ret);

/* An array of n with room for one more; NULL: no memory, and the old array is unchanged. */
void *perf_grow(void *v, int n, int *room, size_t each);
double perf_median(double *v, int n);	/* sorts v */

struct perf_segments {			/* of TCP, by all of this host's connections */
	uint64_t sent, resent;		/* resent ones are among sent ones */
};
void perf_segments(struct perf_segments *ret);	/* so far; zeros: not known */

uint64_t perf_now_ns(void);
uint64_t perf_cpu_ns(void);		/* used by this process so far */
int perf_cpu_nth(int n);		/* the n-th we may run on, modulo their number; or -1 */
int perf_cpus(void);
uint64_t perf_memory_free(void);	/* without swapping; 0: not known */
void perf_cpu_pin(int cpu);
/* Nanoseconds a cache line takes from CPU a to b, or 0 if that can't be measured. */
double perf_bounce_ns(int a, int b);

#endif
