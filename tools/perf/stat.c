/* SPDX-License-Identifier: BSD-3-Clause */
/* stat.c - samples and percentiles, clocks, processors, and the distance between two of them. */
#include "tools/perf/stat.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { SAMPLES = 1 << 20, BOUNCES = 20000, BATCHES = 40 };

const double perf_cdf_at[PERF_CDF] = { 0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75,
	80, 85, 90, 95, 99, 99.9, 100 };

uint64_t perf_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t timeval_ns(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
}

uint64_t perf_cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return timeval_ns(u.ru_utime) + timeval_ns(u.ru_stime);
}

/* -- samples ------------------------------------------------------------------------------ */

int perf_samples_init(struct perf_samples *s)
{
	*s = (struct perf_samples){ .every = 1, .min = UINT32_MAX };
	s->v = malloc(SAMPLES * sizeof(*s->v));
	if (!s->v)
		return -ENOMEM;
	memset(s->v, 0, SAMPLES * sizeof(*s->v));	/* page faults now, not later */
	return 0;
}

void perf_samples_fini(struct perf_samples *s)
{
	free(s->v);
	s->v = NULL;
}

static void thin_out(struct perf_samples *s)
{
	uint32_t i;

	for (i = 0; i < s->n / 2; i++)
		s->v[i] = s->v[2 * i];
	s->n /= 2;
	s->every *= 2;
}

void perf_samples_add(struct perf_samples *s, uint64_t ns)
{
	uint32_t x = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;

	if (s->seen > 0)
		s->steps += x > s->last ? x - s->last : s->last - x;
	s->last = x;
	s->seen++;
	s->sum += ns;
	if (x < s->min)
		s->min = x;
	if (x > s->max)
		s->max = x;
	if (s->skip > 0) {
		s->skip--;
		return;
	}
	if (s->n == SAMPLES)
		thin_out(s);
	s->skip = s->every - 1;
	s->v[s->n++] = x;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Nearest rank. */
static double percentile(const uint32_t *v, size_t n, double p)
{
	size_t k = (size_t)ceil(p / 100 * (double)n);

	return v[k > 0 ? k - 1 : 0];
}

void perf_latency_of(struct perf_samples *s, unsigned n, unsigned div, struct perf_latency *ret)
{
	struct perf_latency l = { .min = UINT32_MAX };
	size_t all = 0, at = 0;
	uint32_t *v;
	unsigned i;

	memset(ret, 0, sizeof(*ret));
	for (i = 0; i < n; i++)
		all += s[i].n;
	v = all ? malloc(all * sizeof(*v)) : NULL;
	if (!v)
		return;
	for (i = 0; i < n; i++) {
		memcpy(v + at, s[i].v, s[i].n * sizeof(*v));
		at += s[i].n;
		l.n += s[i].seen;
		l.mean += (double)s[i].sum / div;
		l.jitter += (double)s[i].steps / div;
		l.min = fmin(l.min, (double)s[i].min / div);
		l.max = fmax(l.max, (double)s[i].max / div);
	}
	qsort(v, all, sizeof(*v), by_value);
	l.mean /= (double)l.n;
	l.jitter /= (double)l.n;
	l.p50 = percentile(v, all, 50) / div;
	l.p90 = percentile(v, all, 90) / div;
	l.p99 = percentile(v, all, 99) / div;
	l.p999 = percentile(v, all, 99.9) / div;
	for (i = 0; i < PERF_CDF; i++)
		l.cdf[i] = percentile(v, all, perf_cdf_at[i]) / div;
	free(v);
	*ret = l;
}

static int by_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

void *perf_grow(void *v, int n, int *room, size_t each)
{
	int more = 2 * *room + 64;

	if (n < *room)
		return v;
	v = realloc(v, (size_t)more * each);
	if (v)
		*room = more;
	return v;
}

double perf_median(double *v, int n)
{
	if (n == 0)
		return 0;
	qsort(v, (size_t)n, sizeof(*v), by_double);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* -- processors --------------------------------------------------------------------------- */

int perf_cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

int perf_cpu_nth(int n)
{
	cpu_set_t set;
	int cpu, left;

	if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) == 0)
		return -1;
	left = n % CPU_COUNT(&set);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &set) && left-- == 0)
			return cpu;
	return -1;
}

void perf_cpu_pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

struct ball {				/* one cache line, written by two threads in turn */
	_Atomic uint32_t at __attribute__((aligned(128)));
	int cpu __attribute__((aligned(128)));
};

static void *bounce_back(void *arg)
{
	struct ball *b = arg;
	uint32_t i;

	perf_cpu_pin(b->cpu);
	for (i = 1; i <= 2 * BOUNCES; i += 2) {
		while (atomic_load_explicit(&b->at, memory_order_acquire) != i)
			;
		atomic_store_explicit(&b->at, i + 1, memory_order_release);
	}
	return NULL;
}

static double bounces(struct ball *b, uint32_t from, uint32_t n)
{
	uint64_t start = perf_now_ns();
	uint32_t i;

	for (i = 2 * from + 1; i <= 2 * (from + n); i += 2) {
		atomic_store_explicit(&b->at, i, memory_order_release);
		while (atomic_load_explicit(&b->at, memory_order_acquire) != i + 1)
			;
	}
	return (double)(perf_now_ns() - start) / (2.0 * n);
}

/* The shortest of many batches: the others were interrupted, or the other thread did not run. */
static double bounce(struct ball *b)
{
	double ns = INFINITY;
	uint32_t i;

	for (i = 0; i < BATCHES; i++)
		ns = fmin(ns, bounces(b, i * (BOUNCES / BATCHES), BOUNCES / BATCHES));
	return ns;
}

double perf_bounce_ns(int a, int b)
{
	struct ball ball = { .cpu = b };
	cpu_set_t before;
	pthread_t t;
	double ns = 0;

	if (a < 0 || b < 0 || a == b || sched_getaffinity(0, sizeof(before), &before) != 0)
		return 0;
	perf_cpu_pin(a);
	if (pthread_create(&t, NULL, bounce_back, &ball) == 0) {
		ns = bounce(&ball);
		pthread_join(t, NULL);
	}
	sched_setaffinity(0, sizeof(before), &before);
	return ns;
}

/* The lines "Tcp:" of /proc/net/snmp: first names, then numbers, in the same order. */
static void segments_read(FILE *f, struct perf_segments *ret)
{
	char names[600], numbers[600], *n = NULL, *v = NULL, *name, *value;

	while (fgets(names, sizeof(names), f))
		if (strncmp(names, "Tcp:", 4) == 0)
			break;
	if (!fgets(numbers, sizeof(numbers), f))
		return;
	name = strtok_r(names, " \n", &n);
	value = strtok_r(numbers, " \n", &v);
	for (; name && value; name = strtok_r(NULL, " \n", &n), value = strtok_r(NULL, " \n", &v)) {
		if (strcmp(name, "OutSegs") == 0)
			ret->sent = strtoull(value, NULL, 10);
		else if (strcmp(name, "RetransSegs") == 0)
			ret->resent = strtoull(value, NULL, 10);
	}
}

/* OutSegs is without those sent again. */
void perf_segments(struct perf_segments *ret)
{
	FILE *f = fopen("/proc/net/snmp", "re");

	*ret = (struct perf_segments){ .sent = 0 };
	if (!f)
		return;
	segments_read(f, ret);
	ret->sent += ret->resent;
	fclose(f);
}

uint64_t perf_memory_free(void)
{
	unsigned long long kb = 0;
	char text[200];
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(text, sizeof(text), f))
		if (sscanf(text, "MemAvailable: %llu", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb << 10;
}
