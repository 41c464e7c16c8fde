/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * run.c - the measuring: a session for each way (compare.h), and rounds over all ways in turn.
 *
 * A way is available if two processes load the plugin with its transport alone, and a message
 * arrives.  With other transports allowed, a missing one would be TCP under another name.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/compare/compare.h"

enum { INFLIGHT_BYTES = 64 << 20, STEADY_RUNS = 6, MEBI = 1 << 20 };

struct runner {
	struct cmp_report *rep;
	struct cmp_options *o;
	struct perf_options perf;	/* of the current pattern */
	struct perf_session *sessions;	/* one for each way */
	uint64_t iters[CMP_WAYS_MAX];
	uint64_t start_ns;
	int done, all;			/* measurements */
	int disturbed, unsteady;
	bool tty;
};

static void fail(struct runner *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct runner *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (!r->rep->failed[0])
		vsnprintf(r->rep->failed, sizeof(r->rep->failed), fmt, ap);
	va_end(ap);
}

/* -- sessions ----------------------------------------------------------------------------- */

/* The way whose device raw TCP uses: the plugin's TCP if it is available, or another plugin. */
static const struct cmp_way *way_of_raw(const struct cmp_report *rep)
{
	const struct cmp_way *w;

	for (w = rep->ways; w < rep->ways + rep->nways; w++)
		if (w->there && !w->reference &&
		    (!strcmp(w->way.transport, "tcp") || !w->way.transport[0]))
			return w;
	return NULL;
}

static int way_load(struct perf_session *s, const struct cmp_report *rep, const struct cmp_way *w,
		    struct fabric_about *ret)
{
	const struct cmp_way *like = w->kind == FABRIC_RAW ? way_of_raw(rep) : NULL;
	int rc = 0;

	if (like)
		rc = perf_session_load(s, like->kind, &like->way, ret);
	return rc ? rc : perf_session_load(s, w->kind, &w->way, ret);
}

static int way_open(struct perf_session *s, const struct cmp_report *rep, struct cmp_way *w,
		    const struct cmp_options *o, const struct perf_options *perf, uint64_t bytes)
{
	const char *where[PERF_PROCS_MAX] = { NULL };
	int rc;

	cmp_where(&o->place, perf->procs, where);
	rc = perf_session_open_at(s, &perf->env, perf->procs, perf->pin, where, perf->timeout_s);
	if (!rc)
		rc = perf_session_arena(s, bytes);
	if (!rc)
		rc = way_load(s, rep, w, &w->about);
	return rc ? rc : perf_session_link_all(s, w->kind, perf->pattern, perf->comms);
}

static uint64_t arena_bytes(const struct perf_options *o, uint64_t size)
{
	struct perf_run run = perf_run_of(o, FABRIC_RAW, size, 1);

	return perf_arena_bytes(&run, o->procs);
}

/* -- available ways ----------------------------------------------------------------------- */

static int way_probe(const struct cmp_report *rep, struct cmp_way *w, const struct cmp_options *o)
{
	static const uint64_t sizes[] = { 8, 128 << 10 };
	struct perf_options perf = o->perf;
	struct perf_session s;
	struct perf_row row;
	unsigned i;
	int rc;

	perf.pattern = PERF_PINGPONG;
	perf.procs = 2;
	perf.inflight = 2;
	perf.check = true;
	perf.timeout_s = fmin(perf.timeout_s, 30);
	rc = way_open(&s, rep, w, o, &perf, arena_bytes(&perf, sizes[1]));
	for (i = 0; i < 2 && !rc; i++)
		rc = perf_once(&s, &perf, w->kind, sizes[i], 2, &row);
	w->there = !rc && row.wrong == 0;
	if (!rc && row.wrong)
		snprintf(w->why, sizeof(w->why), "what arrives is not what was sent");
	else if (rc)
		snprintf(w->why, sizeof(w->why), "%.*s", PERF_TEXT - 1,
			 s.err[0] ? s.err : strerror(-rc));
	perf_session_close(&s);
	return rc;
}

/* The base of ratios: the first available way that competes. */
static int base_of(const struct cmp_report *rep)
{
	int i;

	for (i = 0; i < rep->nways; i++)
		if (rep->ways[i].there && !rep->ways[i].reference)
			return i;
	return -1;
}

int cmp_probe(struct cmp_report *rep, struct cmp_options *o)
{
	struct cmp_way *w;
	bool tty = isatty(STDERR_FILENO);
	int there = 0;

	for (w = rep->ways; w < rep->ways + rep->nways && !*o->stop; w++) {
		if (tty)
			fprintf(stderr, "\r\033[Kis there %.40s?", w->name);
		if (!w->tool)
			way_probe(rep, w, o);
		there += w->there && !w->reference;
	}
	if (tty)
		fputs("\r\033[K", stderr);
	if (rep->base < 0 || !rep->ways[rep->base].there)
		rep->base = base_of(rep);
	return there ? 0 : -ENODEV;
}

/* -- progress ----------------------------------------------------------------------------- */

static void left_text(const struct runner *r, char *room, size_t n)
{
	double each = (double)(perf_now_ns() - r->start_ns) / 1e9 / fmax(r->done, 1);
	int left = (int)(each * (r->all - r->done) + 0.5);

	if (r->done < 3)
		*room = 0;
	else if (left >= 60)
		snprintf(room, n, "; %d min %d s left", left / 60, left % 60);
	else
		snprintf(room, n, "; %d s left", left);
}

/* Progress, in one line of a terminal; `row` is the last round's, or NULL. */
static void progress(const struct runner *r, const struct cmp_way *w, uint64_t size, int round,
		     const struct cmp_row *row)
{
	static const char *const units[] = { "us", "Gbit/s", "Gbit/s", "us" };
	enum perf_shows shows = perf_kinds[r->perf.pattern].shows;
	char name[24], left[40], now[40] = "", text[200];

	if (!r->tty)
		return;
	left_text(r, left, sizeof(left));
	if (row)
		snprintf(now, sizeof(now), ": %.4g %s",
			 row->v[shows == PERF_SHOWS_LATENCY ? CMP_P50 :
				shows == PERF_SHOWS_COLL ? CMP_OP_US : CMP_GBIT], units[shows]);
	snprintf(text, sizeof(text), "%s %s over %s, round %d of %d%s%s",
		 perf_kinds[r->perf.pattern].name, perf_size_name(size, name), w->name, round + 1,
		 r->rep->rounds, now, left);
	fprintf(stderr, "\r\033[K%.79s", text);
}

static void progress_end(const struct runner *r)
{
	if (r->tty)
		fputs("\r\033[K", stderr);
}

/* -- one measurement ---------------------------------------------------------------------- */

static void values_of(const struct perf_row *row, int procs, double *v)
{
	double bytes = (double)row->size * (double)row->iters, s = row->seconds;

	v[CMP_P50] = row->lat.p50 / 1e3;
	v[CMP_P90] = row->lat.p90 / 1e3;
	v[CMP_P99] = row->lat.p99 / 1e3;
	v[CMP_P999] = row->lat.p999 / 1e3;
	v[CMP_MAX] = row->lat.max / 1e3;
	v[CMP_JITTER] = row->lat.jitter / 1e3;
	v[CMP_OP_US] = row->iters ? s * 1e6 / (double)row->iters : 0;
	v[CMP_ALG] = s > 0 ? bytes / 1e9 / s : 0;
	v[CMP_BUS] = s > 0 ? row->bytes / procs / 1e9 / s : 0;
	v[CMP_GBIT] = row->gbit_s;
	v[CMP_MSG] = row->msg_s;
	v[CMP_CPU] = row->cpu_s_per_gb;
	v[CMP_ITERS] = (double)row->iters;
	v[CMP_SECONDS] = s;
	v[CMP_CPU_SHARE] = row->cpu_share;
	v[CMP_CHECKED] = (double)row->values;
	v[CMP_WRONG] = (double)row->wrong;
}

/* Warm a way up before its first round, until a run is no faster than the one before. */
static int warm(struct runner *r, int way, uint64_t size)
{
	struct perf_session *s = &r->sessions[way];
	enum fabric_kind kind = r->rep->ways[way].kind;
	struct perf_row row;
	double each, before = INFINITY;
	uint64_t n;
	int i, rc = perf_warm_up(s, &r->perf, kind, size, &r->iters[way]);

	for (i = 0; i < STEADY_RUNS && !rc; i++) {
		n = r->iters[way] / 4 + 1;
		rc = perf_once(s, &r->perf, kind, size, n, &row);
		if (rc)
			return rc;
		each = fmax(row.seconds / (double)n, 1e-9);
		r->iters[way] = perf_pace(&r->perf, &row);
		if (each > 0.95 * before)
			return 0;
		before = each;
	}
	r->unsteady += !rc;
	return rc;
}

static int measure_tool(struct cmp_way *w, struct cmp_row *row)
{
	char err[PERF_TEXT] = "";
	int rc = cmp_tool_measure(w, row->pattern, row->size, row->v, err);

	if (rc) {
		w->there = false;
		snprintf(w->why, sizeof(w->why), "%s", err);
	}
	if (row->v[CMP_OP_US] > 0)
		row->v[CMP_ALG] = (double)row->size / 1e3 / row->v[CMP_OP_US];
	return rc;
}

static int measure(struct runner *r, int way, uint64_t size, int round)
{
	struct cmp_way *w = &r->rep->ways[way];
	struct cmp_row row = { .pattern = r->perf.pattern, .way = way, .round = round,
			       .size = size };
	struct perf_row got;
	int rc;

	progress(r, w, size, round, NULL);
	if (w->tool) {
		if (measure_tool(w, &row) == 0)
			cmp_row_add(r->rep, &row);
		return 0;
	}
	rc = round == 0 ? warm(r, way, size) :
			  perf_warm_up(&r->sessions[way], &r->perf, w->kind, size, &r->iters[way]);
	if (!rc)
		rc = perf_measure(&r->sessions[way], &r->perf, w->kind, size, &r->iters[way],
				  &got);
	if (rc) {
		fail(r, "%s: %s", w->name, r->sessions[way].err);
		return rc;
	}
	values_of(&got, r->perf.procs, row.v);
	r->disturbed += r->perf.pin && got.cpu_share < 0.9;
	progress(r, w, size, round, &row);
	return cmp_row_add(r->rep, &row);
}

/* -- rounds ------------------------------------------------------------------------------- */

static bool is_measured(const struct runner *r, int way, uint64_t size)
{
	const struct cmp_way *w = &r->rep->ways[way];

	if (!w->there)
		return false;
	return !w->tool || cmp_tool_fits(w->tool, r->perf.pattern, size);
}

/* A collective needs at least one float. */
static bool fits(const struct perf_options *o, uint64_t size)
{
	return perf_kinds[o->pattern].shows != PERF_SHOWS_COLL || size >= sizeof(float);
}

/* Each round starts at the next way, so that no way is always the first or the last of a round. */
static int size_run(struct runner *r, uint64_t size)
{
	int inflight = r->perf.inflight, round, i, way, rc = 0, n = r->rep->nways;

	memset(r->iters, 0, sizeof(r->iters));
	while (r->perf.inflight > 1 && (uint64_t)r->perf.inflight * size > INFLIGHT_BYTES)
		r->perf.inflight /= 2;
	for (round = 0; round < r->rep->rounds && !rc; round++)
		for (i = 0; i < n && !rc && !*r->o->stop; i++) {
			way = (i + round) % n;
			if (!is_measured(r, way, size))
				continue;
			rc = measure(r, way, size, round);
			r->done++;
		}
	r->perf.inflight = inflight;
	return rc;
}

/* The buffer bytes for a message size; fewer large messages are in flight, as in size_run(). */
static uint64_t arena_most(const struct perf_options *o, uint64_t size)
{
	struct perf_options one = *o;

	while (one.inflight > 1 && (uint64_t)one.inflight * size > INFLIGHT_BYTES)
		one.inflight /= 2;
	return arena_bytes(&one, size);
}

/* Leave out sizes whose buffers, of all processes together, would take half of what is free. */
static uint64_t sizes_cut(struct runner *r)
{
	uint64_t most = 0, x, free = perf_memory_free(), ways = 0;
	struct perf_options *o = &r->perf;
	char room[24];
	int i, n = 0;

	for (i = 0; i < r->rep->nways; i++)
		ways += r->rep->ways[i].there && !r->rep->ways[i].tool;
	for (i = 0; i < o->nsizes; i++) {
		if (!fits(o, o->sizes[i]))
			continue;
		x = arena_most(o, o->sizes[i]);
		if (free && x * ways * (uint64_t)o->procs > free / 2) {
			cmp_note(r->rep, "%s: %s is left out, it would take %llu of %llu MiB that "
				 "are free", perf_kinds[o->pattern].name,
				 perf_size_name(o->sizes[i], room),
				 (unsigned long long)(x * ways * (uint64_t)o->procs / MEBI),
				 (unsigned long long)(free / MEBI));
			continue;
		}
		o->sizes[n++] = o->sizes[i];
		most = x > most ? x : most;
	}
	o->nsizes = n;
	return most;
}

static int sessions_open(struct runner *r, uint64_t bytes)
{
	struct cmp_way *w;
	int i, rc;

	for (i = 0; i < r->rep->nways; i++) {
		w = &r->rep->ways[i];
		if (!w->there || w->tool)
			continue;
		rc = way_open(&r->sessions[i], r->rep, w, r->o, &r->perf, bytes);
		if (rc) {
			fail(r, "%s: %s", w->name, r->sessions[i].err);
			return rc;
		}
	}
	return 0;
}

static void sessions_close(struct runner *r)
{
	int i;

	for (i = 0; i < r->rep->nways; i++)
		if (r->sessions[i].nprocs)
			perf_session_close(&r->sessions[i]);
}

static void perf_for(struct runner *r, enum perf_pattern pattern)
{
	const struct perf_kind *kind = &perf_kinds[pattern];
	int launched = r->o->place.nprocs;

	r->perf = r->o->perf;
	r->perf.pattern = pattern;
	r->perf.procs = kind->procs_most == 2 ? 2 : launched ? launched : r->o->perf.procs;
	r->perf.inflight = kind->inflight;
}

static int pattern_run(struct runner *r, enum perf_pattern pattern)
{
	uint64_t bytes;
	int i, rc;

	perf_for(r, pattern);
	bytes = sizes_cut(r);
	if (bytes == 0)
		return 0;
	r->rep->procs[pattern] = r->perf.procs;
	rc = sessions_open(r, bytes);
	for (i = 0; i < r->perf.nsizes && !rc && !*r->o->stop; i++)
		rc = size_run(r, r->perf.sizes[i]);
	sessions_close(r);
	return rc;
}

/* -- disturbances ------------------------------------------------------------------------- */

static void governor_note(struct cmp_report *rep)
{
	FILE *f = fopen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "r");
	char name[40] = "";

	if (!f)
		return;
	if (fscanf(f, "%39s", name) == 1 && strcmp(name, "performance"))
		cmp_note(rep, "the CPU frequency governor is %s: performance is steadier", name);
	fclose(f);
}

static bool has(const struct cmp_report *rep, const char *transport)
{
	const struct cmp_way *w;

	for (w = rep->ways; w < rep->ways + rep->nways; w++)
		if (w->there && !strcmp(w->way.transport, transport))
			return true;
	return false;
}

static void notes(struct runner *r)
{
	int i, most = 0;

	for (i = 0; i < PERF_PATTERNS; i++)
		most = r->rep->procs[i] > most ? r->rep->procs[i] : most;
	if (!r->o->place.nprocs && !r->o->place.remote && most > perf_cpus())
		cmp_note(r->rep, "%d processes on %d CPUs take turns: of collectives that is "
			 "measured too", most, perf_cpus());
	if (!r->o->place.nprocs && !r->o->place.remote && has(r->rep, "ucx"))
		cmp_note(r->rep, "within a host UCX may use shared memory, which there is not "
			 "between hosts; UCX_TLS says what it may");
	if (r->disturbed)
		cmp_note(r->rep, "in %d of %d measurements other programs took the CPU",
			 r->disturbed, r->done);
	if (r->unsteady)
		cmp_note(r->rep, "in %d of %d lines the warm-up ended while runs still became "
			 "faster", r->unsteady, r->done / r->rep->rounds);
	if (r->rep->procs[PERF_PINGPONG])
		cmp_note(r->rep, "ping-pong sends the next message when the last is back, so a "
			 "pause counts once, however many would have waited (coordinated "
			 "omission)");
	governor_note(r->rep);
}

void cmp_measure(struct cmp_report *rep, struct cmp_options *o)
{
	struct runner r = { .rep = rep, .o = o, .start_ns = perf_now_ns(),
			    .tty = isatty(STDERR_FILENO) };
	int i, w, rc = 0;

	r.sessions = calloc(CMP_WAYS_MAX, sizeof(*r.sessions));
	if (!r.sessions) {
		fail(&r, "no memory");
		return;
	}
	for (w = 0; w < rep->nways; w++)
		r.all += rep->ways[w].there * o->npatterns * o->perf.nsizes * rep->rounds;
	for (i = 0; i < o->npatterns && !rc && !*o->stop; i++)
		rc = pattern_run(&r, o->patterns[i]);
	progress_end(&r);
	if (rc)
		fail(&r, "%s", strerror(-rc));
	rep->interrupted = *o->stop != 0;
	notes(&r);
	free(r.sessions);
}
