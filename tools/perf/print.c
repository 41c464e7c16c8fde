/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * print.c - rows as a table for a person, as JSON or as CSV: the same numbers in all.
 *
 * CSV and JSON have a row for each round.  The table has medians over the rounds.  A ratio is the
 * median of each round's ratio, for plugin and raw TCP of one round ran under the same conditions.
 * Table and CSV are printed size by size, so that a run that is stopped has shown what it has.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/perf.h"
#include "tools/text.h"

int perf_row_add(struct perf_report *rep, const struct perf_row *row)
{
	struct perf_row *v = perf_grow(rep->rows, rep->nrows, &rep->room, sizeof(*v));

	if (!v)
		return -ENOMEM;
	rep->rows = v;
	rep->rows[rep->nrows++] = *row;
	return 0;
}

/* -- values of a row ---------------------------------------------------------------------- */

struct column {
	const char *name;		/* in CSV and JSON */
	double (*get)(const struct perf_report *rep, const struct perf_row *r);
	const char *head;		/* in the table */
	int width, digits;
	unsigned shows;			/* mask of enum perf_shows: tables it is in */
};

#define US(field) \
	static double get_##field(const struct perf_report *rep, const struct perf_row *r) \
	{ (void)rep; return r->lat.n ? r->lat.field / 1e3 : NAN; }
#define PLAIN(field) \
	static double get_##field(const struct perf_report *rep, const struct perf_row *r) \
	{ (void)rep; return (double)r->field; }
#define LINKED(name, field, div) \
	static double get_##name(const struct perf_report *rep, const struct perf_row *r) \
	{ (void)rep; return (double)r->linked.field / (div); }

US(min)
US(p50)
US(p90)
US(p99)
US(p999)
US(max)
US(mean)
US(jitter)
PLAIN(gbit_s)
PLAIN(msg_s)
PLAIN(cpu_s_per_gb)
PLAIN(iters)
PLAIN(seconds)
PLAIN(bounce_ns)
PLAIN(cpu_share)
PLAIN(values)
PLAIN(wrong)
LINKED(connect_us, connect_ns, 1e3)
LINKED(accept_us, accept_ns, 1e3)
LINKED(fds_src, fds[0], 1)
LINKED(fds_dst, fds[1], 1)
LINKED(threads_src, threads[0], 1)
LINKED(threads_dst, threads[1], 1)

/* One operation of a collective, as if nothing overlapped. */
static double get_op_us(const struct perf_report *rep, const struct perf_row *r)
{
	(void)rep;
	return r->iters ? r->seconds * 1e6 / (double)r->iters : 0;
}

static double get_alg_gb_s(const struct perf_report *rep, const struct perf_row *r)
{
	(void)rep;
	return r->seconds > 0 ? (double)r->size * (double)r->iters / 1e9 / r->seconds : 0;
}

/* Bytes a process receives, on average: for a ring all-reduce this is nccl-tests' busbw. */
static double get_bus_gb_s(const struct perf_report *rep, const struct perf_row *r)
{
	return r->seconds > 0 ? r->bytes / rep->opt->procs / 1e9 / r->seconds : 0;
}

enum {
	LAT = 1 << PERF_SHOWS_LATENCY, BW = 1 << PERF_SHOWS_BANDWIDTH, RATE = 1 << PERF_SHOWS_RATE,
	COLL = 1 << PERF_SHOWS_COLL, SETUP = 1 << PERF_SHOWS_SETUP,
};

static const struct column columns[] = {
	{ "min_us", get_min, "min", 9, 2, LAT },
	{ "p50_us", get_p50, "p50", 9, 2, LAT },
	{ "p90_us", get_p90, "p90", 9, 2, LAT },
	{ "p99_us", get_p99, "p99", 9, 2, LAT },
	{ "p99.9_us", get_p999, "p99.9", 9, 2, LAT },
	{ "max_us", get_max, "max", 10, 2, LAT },
	{ "mean_us", get_mean, NULL, 0, 0, 0 },
	{ "jitter_us", get_jitter, NULL, 0, 0, 0 },
	{ "op_us", get_op_us, "time us", 11, 1, COLL },
	{ "alg_gb_s", get_alg_gb_s, "alg GB/s", 10, 3, COLL },
	{ "bus_gb_s", get_bus_gb_s, "bus GB/s", 10, 3, COLL },
	{ "gbit_s", get_gbit_s, "Gbit/s", 9, 2, BW | RATE },
	{ "msg_s", get_msg_s, "msg/s", 12, 0, BW | RATE },
	{ "cpu_s_per_gb", get_cpu_s_per_gb, "CPU s/GB", 10, 3, BW | COLL },
	{ "iters", get_iters, "comm", 8, 0, SETUP },
	{ "seconds", get_seconds, NULL, 0, 0, 0 },
	{ "bounce_ns", get_bounce_ns, NULL, 0, 0, 0 },
	{ "cpu_share", get_cpu_share, NULL, 0, 0, 0 },
	{ "values", get_values, NULL, 0, 0, 0 },
	{ "wrong", get_wrong, NULL, 0, 0, 0 },
	{ "connect_us", get_connect_us, "connect us", 12, 1, SETUP },
	{ "accept_us", get_accept_us, "accept us", 12, 1, SETUP },
	{ "fds_src", get_fds_src, "fds", 7, 0, SETUP },
	{ "fds_dst", get_fds_dst, "fds", 7, 0, SETUP },
	{ "threads_src", get_threads_src, "threads", 9, 0, SETUP },
	{ "threads_dst", get_threads_dst, "threads", 9, 0, SETUP },
};

enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* The figure a ratio compares, and whether more is better. */
static const struct {
	double (*get)(const struct perf_report *rep, const struct perf_row *r);
	const char *head, *better;
	int width, digits;
} main_values[] = {
	[PERF_SHOWS_LATENCY] = { get_p50, "p50", "less", 9, 2 },
	[PERF_SHOWS_BANDWIDTH] = { get_gbit_s, "Gbit/s", "more", 11, 2 },
	[PERF_SHOWS_RATE] = { get_msg_s, "msg/s", "more", 12, 0 },
	[PERF_SHOWS_COLL] = { get_op_us, "us", "less", 11, 1 },
	[PERF_SHOWS_SETUP] = { get_connect_us, "", "less", 0, 0 },
};

static enum perf_shows shows(const struct perf_report *rep)
{
	return perf_kinds[rep->opt->pattern].shows;
}

static enum fabric_kind first_kind(const struct perf_report *rep)
{
	return perf_first(rep->opt);
}

/* -- medians over rounds ------------------------------------------------------------------ */

/* The median of get() over the rows of that fabric and size. */
static double median_of(const struct perf_report *rep, const struct perf_row *like,
			double (*get)(const struct perf_report *rep, const struct perf_row *r))
{
	double v[1000];
	const struct perf_row *r;
	int n = 0;

	for (r = rep->rows; r < rep->rows + rep->nrows; r++)
		if (r->kind == like->kind && r->size == like->size && n < 1000)
			v[n++] = get(rep, r);
	return perf_median(v, n);
}

/* The ratio to raw TCP, or of puts to messages, in each round; v has room for 1000. */
static int ratios(const struct perf_report *rep, uint64_t size, double *v)
{
	const struct perf_row *first, *base;
	int round, n = 0;
	double x;

	for (round = 0; round < rep->opt->rounds; round++) {
		first = perf_row_find(rep, first_kind(rep), size, round);
		base = perf_row_find(rep, perf_base(rep->opt), size, round);
		x = base ? main_values[shows(rep)].get(rep, base) : 0;
		if (first && x > 0)
			v[n++] = main_values[shows(rep)].get(rep, first) / x;
	}
	return n;
}

/* -- the table ---------------------------------------------------------------------------- */

static void title(const struct perf_report *rep)
{
	const struct perf_options *o = rep->opt;
	const struct fabric_about *a = &rep->about[first_kind(rep)];

	printf("%s", a->name);
	if (a->abi)
		printf(" (ABI v%d)", a->abi);
	printf(" on %s", a->dev);
	if (a->speed_mbps && o->remote)	/* within a host no speed of a NIC is a bound */
		printf(" at %g Gbit/s", a->speed_mbps / 1e3);
	printf(", %d processes", o->procs);
	if (o->remote)
		printf(", half of them at %s\n", o->remote);
	else
		printf("%s; nothing leaves this host\n", o->pin ? ", one per CPU" : "");
	printf("%s: %s", perf_kinds[o->pattern].name, perf_kinds[o->pattern].help);
	if (shows(rep) != PERF_SHOWS_SETUP)
		printf("; %d comm%s, %d thread%s, %d in flight", o->comms, o->comms == 1 ? "" : "s",
		       o->threads, o->threads == 1 ? "" : "s", o->inflight);
	printf("%s\n", shows(rep) == PERF_SHOWS_LATENCY ? "\nhalf round trip in microseconds" : "");
	if (rep->nrows && rep->rows[rep->nrows - 1].round)	/* which may have been stopped */
		printf("medians of %d rounds\n", rep->rows[rep->nrows - 1].round + 1);
}

/* Beside the range of a ratio, 80 columns have no room for all. */
static bool is_in_table(const struct perf_report *rep, const struct column *c, bool both)
{
	bool spare = c->get == get_min || c->get == get_p90;

	return c->shows & 1u << shows(rep) &&
	       !(spare && both && rep->opt->rounds > 1 && text_columns() < 94);
}

static const char *base_word(const struct perf_report *rep)
{
	return perf_base(rep->opt) == FABRIC_RAW ? "raw" : "msg";
}

static void head(const struct perf_report *rep, bool both)
{
	unsigned i;

	printf("%8s", shows(rep) == PERF_SHOWS_SETUP ? "" : "size");
	for (i = 0; i < COLUMNS; i++)
		if (is_in_table(rep, &columns[i], both))
			printf("%*s", columns[i].width, columns[i].head);
	if (both)
		printf("%*s %s%7s", main_values[shows(rep)].width -
		       (int)strlen(main_values[shows(rep)].head) - 1, base_word(rep),
		       main_values[shows(rep)].head, "ratio");
	putchar('\n');
}

static void line_ratio(const struct perf_report *rep, uint64_t size)
{
	const struct perf_row like = { .kind = perf_base(rep->opt), .size = size };
	double v[1000];
	int n = ratios(rep, size, v);
	double mid = perf_median(v, n);

	if (!n)				/* stopped before that was measured */
		return;
	printf("%*.*f%7.2f", main_values[shows(rep)].width, main_values[shows(rep)].digits,
	       median_of(rep, &like, main_values[shows(rep)].get), mid);
	if (n > 1)
		printf(" [%.2f-%.2f]", v[0], v[n - 1]);
}

static void line(const struct perf_report *rep, const struct perf_row *r, bool both)
{
	bool setup = shows(rep) == PERF_SHOWS_SETUP;
	char room[24];
	unsigned i;

	printf("%8s", setup ? "" : perf_size_name(r->size, room));
	for (i = 0; i < COLUMNS; i++)
		if (is_in_table(rep, &columns[i], both))
			printf("%*.*f", columns[i].width, columns[i].digits,
			       setup ? columns[i].get(rep, r) : median_of(rep, r, columns[i].get));
	if (both)
		line_ratio(rep, r->size);
	putchar('\n');
}

static void verdict(const struct perf_report *rep)
{
	uint64_t values = 0, wrong = 0;
	int i, moved = 0, disturbed = 0;

	for (i = 0; i < rep->nrows; i++) {
		values += rep->rows[i].values;
		wrong += rep->rows[i].wrong;
		moved += rep->rows[i].regime_moved;
		disturbed +=
			rep->opt->pin && rep->rows[i].seconds > 0 && rep->rows[i].cpu_share < 0.9;
	}
	if (values)
		printf("checked: %llu values, %llu wrong; checking takes time\n",
		       (unsigned long long)values, (unsigned long long)wrong);
	if (moved)
		printf("note: in %d of %d measurements the distance of the two CPUs changed\n",
		       moved, rep->nrows);
	if (disturbed)
		printf("note: in %d of %d measurements other programs took the CPU\n", disturbed,
		       rep->nrows);
}

/* Show only some rows of many comms set up one after another. */
static bool is_shown(const struct perf_report *rep, const struct perf_row *r)
{
	return r->iters <= 8 || !(r->iters & (r->iters - 1)) ||
	       r->iters == (uint64_t)rep->opt->comms;
}

static void setup_verdict(const struct perf_report *rep, enum fabric_kind kind)
{
	double *v = calloc((size_t)rep->nrows + 1, sizeof(*v));
	const struct perf_row *r, *one = NULL, *last = NULL;
	int n = 0;

	for (r = rep->rows; r < rep->rows + rep->nrows; r++) {
		if (r->kind != kind)
			continue;
		if (!one)
			one = r;
		else if (v)
			v[n++] = get_connect_us(rep, r);
		last = r;
	}
	if (n)
		printf("the others: connect %.1f us (median), %.2f of the first one's time; "
		       "descriptors %+.0f and %+.0f\n", perf_median(v, n),
		       perf_median(v, n) / get_connect_us(rep, one),
		       get_fds_src(rep, last) - get_fds_src(rep, one),
		       get_fds_dst(rep, last) - get_fds_dst(rep, one));
	printf("closed in %.0f us\n", (double)rep->close_ns[kind] / 1e3);
	free(v);
}

static bool has_both(const struct perf_report *rep)
{
	return perf_base(rep->opt) != FABRIC_KINDS;
}

static void table_more(const struct perf_report *rep)
{
	const struct perf_row *r;

	if (!rep->printed) {
		title(rep);
		head(rep, has_both(rep));
	}
	for (r = rep->rows + rep->printed; r < rep->rows + rep->nrows; r++)
		if (r->kind == first_kind(rep) && r->round == 0)
			line(rep, r, has_both(rep));
}

static void table_end(const struct perf_report *rep)
{
	if (has_both(rep))
		printf("ratio: %s over %s, %s is better\n", rep->about[first_kind(rep)].name,
		       perf_base(rep->opt) == FABRIC_RAW ? "raw TCP" : "isend and irecv",
		       main_values[shows(rep)].better);
	verdict(rep);
}

static void print_setup(const struct perf_report *rep)
{
	enum fabric_kind kind = first_kind(rep);
	const struct perf_row *r;

	title(rep);
	head(rep, false);
	for (r = rep->rows; r < rep->rows + rep->nrows; r++) {
		if (r->kind != kind) {
			setup_verdict(rep, kind);
			printf("now %s\n", rep->about[r->kind].name);
		}
		kind = r->kind;
		if (r->round == 0 && is_shown(rep, r))
			line(rep, r, false);
	}
	setup_verdict(rep, kind);
	verdict(rep);
}

/* -- for programs ------------------------------------------------------------------------- */

/* Was this column measured?  A latency is not where none was taken, nor set-up with a pattern. */
static bool is_measured(const struct perf_report *rep, const struct perf_row *r,
			const struct column *c)
{
	bool setup = shows(rep) == PERF_SHOWS_SETUP;

	return !isnan(c->get(rep, r)) && (c->shows != SETUP || setup || c->get == get_iters) &&
	       (!setup || c->shows == SETUP);
}

static void csv_value(const struct perf_report *rep, const struct perf_row *r,
		      const struct column *c)
{
	if (is_measured(rep, r, c))
		printf(",%.9g", c->get(rep, r));
	else
		putchar(',');
}

static void csv_more(const struct perf_report *rep)
{
	const struct perf_row *r;
	unsigned i;

	if (!rep->printed) {
		printf("pattern,fabric,round,size");
		for (i = 0; i < COLUMNS; i++)
			printf(",%s", columns[i].name);
		puts(",regime_moved");
	}
	for (r = rep->rows + rep->printed; r < rep->rows + rep->nrows; r++) {
		printf("%s,%s,%d,%llu", perf_kinds[rep->opt->pattern].name,
		       rep->opt->env.fabrics[r->kind]->name, r->round, (unsigned long long)r->size);
		for (i = 0; i < COLUMNS; i++)
			csv_value(rep, r, &columns[i]);
		printf(",%d\n", r->regime_moved);
	}
}

static json_t *about_json(const struct fabric_about *a)
{
	return json_pack("{s:s, s:s, s:i, s:i}", "name", a->name, "device", a->dev, "abi",
			 (int)a->abi, "speed_mbps", (int)a->speed_mbps);
}

static json_t *cdf_json(const struct perf_latency *l)
{
	json_t *list = json_array();

	for (int i = 0; i < PERF_CDF; i++)
		json_array_append_new(list, json_real(l->cdf[i] / 1e3));
	return list;
}

static json_t *row_json(const struct perf_report *rep, const struct perf_row *r)
{
	json_t *o = json_pack("{s:s, s:i, s:I, s:b}", "fabric",
			      rep->opt->env.fabrics[r->kind]->name, "round", r->round, "size",
			      (json_int_t)r->size, "regime_moved", r->regime_moved);
	unsigned i;

	for (i = 0; i < COLUMNS; i++)
		json_object_set_new(o, columns[i].name, is_measured(rep, r, &columns[i]) ?
				    json_real(columns[i].get(rep, r)) : json_null());
	if (r->lat.n)
		json_object_set_new(o, "cdf_us", cdf_json(&r->lat));
	return o;
}

static json_t *rows_json(const struct perf_report *rep)
{
	const struct perf_options *opt = rep->opt;
	json_t *fabrics = json_object(), *rows = json_array(), *o;
	enum fabric_kind kind;
	int i;

	for (kind = 0; kind < FABRIC_KINDS; kind++)
		if (rep->have[kind])
			json_object_set_new(fabrics, opt->env.fabrics[kind]->name,
					    about_json(&rep->about[kind]));
	for (i = 0; i < rep->nrows; i++)
		json_array_append_new(rows, row_json(rep, &rep->rows[i]));
	o = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:b, s:b, s:o, s:o}", "schema",
		      "braid-perf-1", "pattern", perf_kinds[opt->pattern].name, "procs", opt->procs,
		      "comms", opt->comms, "threads", opt->threads, "inflight", opt->inflight,
		      "pinned", opt->pin, "checked", opt->check, "fabrics", fabrics, "rows", rows);
	report_stamp(o);
	return o;
}

/* Is the table, or the list of rows, what standard output is for? */
static bool has_table(const struct perf_report *rep)
{
	return !rep->opt->json && !report_is_stdout(&rep->opt->page);
}

void perf_print_more(struct perf_report *rep)
{
	if (!has_table(rep) || (shows(rep) == PERF_SHOWS_SETUP && !rep->opt->csv))
		return;
	(rep->opt->csv ? csv_more : table_more)(rep);
	rep->printed = rep->nrows;
}

int perf_print_end(const char *prog, struct perf_report *rep)
{
	const struct perf_options *opt = rep->opt;
	const char *json = opt->json ? "-" : NULL;
	json_t *doc;
	int rc;

	perf_print_more(rep);
	if (has_table(rep) && !opt->csv)
		(shows(rep) == PERF_SHOWS_SETUP ? print_setup : table_end)(rep);
	if (!report_is_wanted(&opt->page, json))
		return 0;
	doc = rows_json(rep);
	rc = report_write(prog, &opt->page, json, doc);
	json_decref(doc);
	return rc;
}
