/* SPDX-License-Identifier: BSD-3-Clause */
/* witness.c - see witness.h. */
#include "tests/faults/witness.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/queued.h"

enum { TAGS = 3 };

static struct end *logs_to;		/* for the logger, which is given no context */
static uint64_t logs_since;
static bool logs_printed;

/* -- log lines ---------------------------------------------------------------------------- */

void witness_starts(struct end *e, uint64_t since_ns)
{
	logs_to = e;
	logs_since = since_ns;
}

void witness_prints(void)
{
	logs_printed = true;
}

void witness_keeps(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct end *e = logs_to;
	char text[512];
	va_list ap;
	uint32_t at;
	int n;

	(void)flags;
	(void)file;
	(void)line;
	if (level != NCCL_LOG_WARN && level != NCCL_LOG_INFO)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&lock);
	at = e->log_len;
	n = snprintf(e->log + at, sizeof(e->log) - at, "%9.3f %s %s\n",
		     (double)(now_ns() - logs_since) / 1e9, level == NCCL_LOG_WARN ? "WARN" : "INFO",
		     text);
	if (n > 0 && (size_t)n < sizeof(e->log) - at)
		e->log_len = at + (uint32_t)n;
	if (level == NCCL_LOG_WARN) {
		memcpy(e->warn, text, sizeof(e->warn));
		e->warn_ns = now_ns();
		e->warns++;
	}
	pthread_mutex_unlock(&lock);
	if (logs_printed)
		dprintf(STDOUT_FILENO, "%s\n", text);
}

/* -- how long calls take ------------------------------------------------------------------ */

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

struct lap lap_start(struct end *e, enum call call)
{
	struct lap lap = { 0 };

	if (call > CALL_IRECV)
		lap.queued = queued_ns();
	lap.wall = now_ns();
	e->call_ns = lap.wall;
	e->call = (int)call;
	lap.cpu = cpu_ns();
	return lap;
}

void lap_end(struct end *e, enum call call, const struct lap *lap)
{
	uint64_t cpu = cpu_ns() - lap->cpu, wall = now_ns() - lap->wall, queued = 0;

	e->call = CALL_NONE;
	if (call > CALL_IRECV)
		queued = queued_ns() - lap->queued;
	spread_add(&e->timing[call].cpu, cpu);
	spread_add(&e->timing[call].wall, wall > queued ? wall - queued : 0);
}

/* -- messages ----------------------------------------------------------------------------- */

uint64_t message_key(const struct stage *st, unsigned act, unsigned f, uint64_t k)
{
	return mix(mix(st->seed + act, f), k);
}

/* Any size up to the largest: small ones as often as large ones, and often one at a boundary. */
size_t message_size(const struct stage *st, uint64_t key)
{
	static const unsigned odd[] = { 0, 1, 7, 8, 63, 4095, 4096, 8191, 8192, 8193, 65535, 65536, 65537 };
	size_t most = st->max_size, size;
	unsigned bits = 1;

	if (st->whole)
		return most;
	if (key % 5 == 0)
		size = odd[key / 5 % (sizeof(odd) / sizeof(odd[0]))];
	else {
		while (bits < 40 && most >> bits)
			bits++;
		size = (key >> 8) & (((size_t)1 << (1 + key % bits)) - 1);
	}
	return size <= most ? size : most;
}

int message_tag(uint64_t key)
{
	return (int)(key >> 40) % TAGS;
}

void message_fill(uint8_t *p, size_t size, uint64_t key)
{
	uint64_t word = key;

	for (; size >= 8; size -= 8, p += 8, word += 0x9e3779b97f4a7c15)
		memcpy(p, &word, 8);
	memcpy(p, &word, size);
}

size_t message_differs(const uint8_t *p, size_t size, uint64_t key)
{
	uint64_t word = key, got;
	size_t i = 0;

	for (; i + 8 <= size; i += 8, word += 0x9e3779b97f4a7c15) {
		memcpy(&got, p + i, 8);
		if (got != word)
			break;
	}
	for (size_t j = 0; i < size; i++, j++) {
		if (j == 8) {
			j = 0;
			word += 0x9e3779b97f4a7c15;
		}
		if (p[i] != (uint8_t)(word >> 8 * j))
			break;
	}
	return i;
}
