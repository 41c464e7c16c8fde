/* SPDX-License-Identifier: BSD-3-Clause */
/* job_rank.c - functions for the bodies of cases: see job.h. */
#include "tests/nccl/job.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void fail_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "%s:%d: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(1);
}

void skip(const char *why)
{
	fflush(stdout);
	fprintf(stderr, "skip: %s\n", why);
	_exit(77);
}

double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void sleep_ms(unsigned ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

const char *last_error(struct rank *r)
{
	const char *text = r->comm ? r->nccl->get_last_error(r->comm) : r->nccl->get_last_error(NULL);

	return text && *text ? text : "no last error";
}

/* -- meetings --------------------------------------------------------------------------------------- */

static unsigned seen(const unsigned *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static void until(struct rank *r, const unsigned *at, unsigned value, const char *what)
{
	double end = now_s() + r->seconds;

	while (seen(at) < value) {
		if (now_s() > end)
			fail("rank %d waited %u s for %s", r->rank, r->seconds, what);
		sleep_ms(1);
	}
}

void meet(struct rank *r)
{
	unsigned *at = &r->board->arrived[r->meetings++ % 64];
	unsigned full = (unsigned)r->nranks * ((r->meetings - 1) / 64 + 1);

	__atomic_fetch_add(at, 1, __ATOMIC_ACQ_REL);
	until(r, at, full, "the others");
}

void mark_set(struct rank *r, unsigned mark, unsigned value)
{
	__atomic_store_n(&r->board->marks[mark], value, __ATOMIC_RELEASE);
}

void mark_wait_for(struct rank *r, unsigned mark, unsigned value)
{
	until(r, &r->board->marks[mark], value, "a mark");
}

/* -- communicators ---------------------------------------------------------------------------------- */

void rank_init_id(struct rank *r, void **ret, unsigned id, int rank, int nranks)
{
	struct board *b = r->board;

	if (rank == 0) {
		OK(r->nccl->get_unique_id(&b->ids[id]));
		__atomic_store_n(&b->has_id[id], 1, __ATOMIC_RELEASE);
	}
	until(r, &b->has_id[id], 1, "the id");
	OK(r->nccl->comm_init_rank(ret, nranks, b->ids[id], rank));
}

void rank_init(struct rank *r)
{
	rank_init_id(r, &r->comm, 0, r->rank, r->nranks);
	if (gpu_stream_new(&r->stream))
		fail("no stream");
}

void rank_check_log(struct rank *r, unsigned warns)
{
	/* The WARN about a rank without CPU time is right on a busy host, so it does not count. */
	unsigned n = log_count(r, "NCCL WARN") - log_count(r, "it gets no CPU (pid ");

	if (n > warns)
		fail("rank %d: %u lines of WARN, not %u", r->rank, n, warns);
	if (gpu_unsupported)
		fail("rank %d: NCCL called %s, which is not supported", r->rank, gpu_unsupported);
}

void rank_finish(struct rank *r)
{
	const char *warns = getenv("BRAID_TEST_NCCL_WARNS"), *says = getenv("BRAID_TEST_NCCL_SAYS");

	meet(r);
	OK(r->nccl->comm_destroy(r->comm));
	gpu_stream_free(r->stream);
	rank_check_log(r, warns ? (unsigned)atoi(warns) : 0);
	if (says && !log_count(r, says))
		fail("rank %d: no line has '%s'", r->rank, says);
}

int stream_done(struct rank *r, struct gpu_stream *s, void *comm, double seconds)
{
	static int (*query)(struct gpu_stream *);
	double end = now_s() + seconds;
	int code = 0;

	if (!query)
		*(void **)&query = gpu_stream_entry("cudaStreamQuery");
	for (unsigned i = 0; query(s) != GPU_OK; i++) {
		OK(r->nccl->comm_get_async_error(comm, &code));
		if (code)
			return code;
		if (now_s() > end)
			fail("rank %d: the stream is not done after %.0f s", r->rank, seconds);
		if (i > 20)
			usleep(i > 2000 ? 1000 : 100);
		else
			usleep(10);
	}
	OK(r->nccl->comm_get_async_error(comm, &code));
	return code;
}

/* -- what a process uses ---------------------------------------------------------------------------- */

static long entries(const char *path)
{
	DIR *dir = opendir(path);
	long n = -2;			/* . and .. */

	if (!dir)
		return 0;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

struct usage usage_now(void)
{
	struct usage u = { entries("/proc/self/fd"), entries("/proc/self/task"), 0 };
	FILE *f = fopen("/proc/self/statm", "r");
	long all, resident;

	if (f) {
		if (fscanf(f, "%ld %ld", &all, &resident) == 2)
			u.kib = resident * (sysconf(_SC_PAGESIZE) / 1024);
		fclose(f);
	}
	return u;
}

unsigned log_count(struct rank *r, const char *what)
{
	FILE *f = fopen(r->log, "r");
	char line[1024];
	unsigned n = 0;

	fflush(stdout);
	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, what) != NULL;
	if (f)
		fclose(f);
	return n;
}
