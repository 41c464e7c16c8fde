/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * print.c - a report for a person, in 80 columns, and as CSV.
 *
 * A line's ratio says how many times as good as the base its way is, whatever the figure.  The sign
 * after the ratio, and the colour, say whether the ratio's interval has 1 in it.
 */
#include <stdio.h>

#include "tools/compare/compare.h"
#include "tools/text.h"

struct column {
	enum cmp_value what;
	const char *head;
	int width;
	unsigned shows;			/* mask of enum perf_shows */
};

enum { LAT = 1 << PERF_SHOWS_LATENCY, COLL = 1 << PERF_SHOWS_COLL,
	BW = 1 << PERF_SHOWS_BANDWIDTH | 1 << PERF_SHOWS_RATE };

static const struct column columns[] = {
	{CMP_P50, "p50", 8, LAT},	  {CMP_P90, "p90", 8, LAT},
	{CMP_P99, "p99", 8, LAT},	  {CMP_P999, "p99.9", 8, LAT},
	{CMP_MAX, "max", 8, LAT},	  {CMP_JITTER, "jitter", 7, LAT},
	{CMP_GBIT, "Gbit/s", 11, BW},	  {CMP_MSG, "msg/s", 12, BW},
	{CMP_OP_US, "time us", 11, COLL}, {CMP_ALG, "alg GB/s", 11, COLL},
	{CMP_BUS, "bus GB/s", 11, COLL},  {CMP_CPU, "CPU s/GB", 11, BW | COLL},
};

enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* About three digits at any magnitude: enough for a reader to compare. */
static void number(double x, int width)
{
	if (x == 0)
		printf("%*s", width, "-");
	else if (x < 0.01)
		printf("%*.4f", width, x);
	else
		printf("%*.*f", width, x < 1 ? 3 : x < 100 ? 2 : x < 1000 ? 1 : 0, x);
}

static void ratio(const struct cmp_report *rep, enum perf_pattern pattern, int way, uint64_t size)
{
	static const char *const signs[] = { "-", "=", "+" };
	static const enum colour colours[] = { COLOUR_BAD, COLOUR_NONE, COLOUR_GOOD };
	const char *on, *off;
	char mid[8], lo[8], hi[8];
	struct cmp_ratio r;
	int verdict;

	if (way == rep->base || !cmp_ratio_of(rep, pattern, way, rep->base, size, &r))
		return;
	verdict = cmp_ratio_verdict(&r);
	cmp_ratio_text(r.mid, mid, sizeof(mid));
	cmp_ratio_text(r.lo, lo, sizeof(lo));
	cmp_ratio_text(r.hi, hi, sizeof(hi));
	on = verdict ? text_colour(colours[verdict + 1]) : "";
	off = verdict ? text_colour(COLOUR_NONE) : "";
	printf(" %s%4s [%4s..%4s]%s%s", on, mid, lo, hi,
	       r.n < CMP_SURE_ROUNDS ? "" : signs[verdict + 1], off);
}

static void line(const struct cmp_report *rep, enum perf_pattern pattern, int way, uint64_t size)
{
	char room[24];
	unsigned i;
	double x;

	printf("%5s %-8.8s", perf_size_name(size, room), rep->ways[way].name);
	for (i = 0; i < COLUMNS; i++) {
		if (!(columns[i].shows & 1u << perf_kinds[pattern].shows))
			continue;
		cmp_value_of(rep, pattern, way, size, columns[i].what, &x);
		number(x, columns[i].width);
	}
	ratio(rep, pattern, way, size);
	putchar('\n');
}

static void head(const struct cmp_report *rep, enum perf_pattern pattern)
{
	char text[PERF_TEXT];
	unsigned i;

	snprintf(text, sizeof(text), "%s: %s; %d processes%s", perf_kinds[pattern].name,
		 perf_kinds[pattern].help, rep->procs[pattern],
		 perf_kinds[pattern].shows == PERF_SHOWS_LATENCY ?
		 "; half a round trip in microseconds" : "");
	putchar('\n');
	text_wrap(text, 0, 0);
	printf("%5s %-8s", "size", "over");
	for (i = 0; i < COLUMNS; i++)
		if (columns[i].shows & 1u << perf_kinds[pattern].shows)
			printf("%*s", columns[i].width, columns[i].head);
	if (rep->base >= 0)
		printf("  x %s", rep->ways[rep->base].name);
	putchar('\n');
}

static void table(const struct cmp_report *rep, enum perf_pattern pattern)
{
	uint64_t sizes[PERF_SIZES_MAX];
	int i, w, n = cmp_sizes(rep, pattern, sizes);
	double unused;

	if (n == 0)
		return;
	head(rep, pattern);
	for (i = 0; i < n; i++)
		for (w = 0; w < rep->nways; w++)
			if (cmp_value_of(rep, pattern, w, sizes[i], CMP_P50, &unused))
				line(rep, pattern, w, sizes[i]);
}

static void title(const struct cmp_report *rep)
{
	const struct cmp_way *w;
	char text[PERF_TEXT + CMP_NAME + 8];

	text_wrap(rep->ends, 0, 0);
	for (w = rep->ways; w < rep->ways + rep->nways; w++) {
		printf("  %-8.8s  ", w->name);
		if (!w->there)
			snprintf(text, sizeof(text), "not available: %s", w->why);
		else if (w->about.abi)
			snprintf(text, sizeof(text), "%s (ABI v%d) on %s", w->about.name,
				 (int)w->about.abi, w->about.dev);
		else
			snprintf(text, sizeof(text), "%s on %s, a reference", w->about.name,
				 w->about.dev);
		fputs(w->there ? "" : text_colour(COLOUR_DIM), stdout);
		text_wrap(text, 12, 12);
		fputs(w->there ? "" : text_colour(COLOUR_NONE), stdout);
	}
}

static void print_note(const char *text, enum colour colour)
{
	printf("%snote:%s", text_colour(colour), text_colour(COLOUR_NONE));
	text_wrap(text, 6, 5);
}

/* Report the cells whose rounds differ by more than half: the machine was busy. */
static void print_spread(const struct cmp_report *rep)
{
	const struct cmp_row *r, *q;
	int cells = 0, noisy = 0;
	double least, most, x;
	char text[PERF_TEXT];

	for (r = rep->rows; r < rep->rows + rep->nrows; r++) {
		if (r->round != 0)
			continue;
		least = most = cmp_merit(r);
		for (q = r; q < rep->rows + rep->nrows; q++) {
			if (q->pattern != r->pattern || q->way != r->way || q->size != r->size)
				continue;
			x = cmp_merit(q);
			least = x < least ? x : least;
			most = x > most ? x : most;
		}
		cells++;
		noisy += most > 1.5 * least;
	}
	snprintf(text, sizeof(text),
		 "in %d of %d lines the rounds differ by more than half: other programs or a "
		 "changing CPU frequency were in the way",
		 noisy, cells);
	if (noisy)
		print_note(text, COLOUR_WARN);
}

static void print_checked(const struct cmp_report *rep)
{
	const struct cmp_row *r;
	double values = 0, wrong = 0;

	for (r = rep->rows; r < rep->rows + rep->nrows; r++) {
		values += r->v[CMP_CHECKED];
		wrong += r->v[CMP_WRONG];
	}
	if (values > 0)
		printf("%schecked: %.0f values, %.0f wrong; checking takes time%s\n",
		       text_colour(wrong > 0 ? COLOUR_BAD : COLOUR_GOOD), values, wrong,
		       text_colour(COLOUR_NONE));
}

static void ending(const struct cmp_report *rep)
{
	char text[CMP_SUMMARY];
	int i;

	printf("\nMedians of %d round%s.\n", rep->rounds, rep->rounds == 1 ? "" : "s");
	if (rep->base >= 0)
		printf("x %s: times as good [95 %% interval]; + better, - worse, = neither\n",
		       rep->ways[rep->base].name);
	if (rep->rounds < CMP_SURE_ROUNDS)
		print_note("with fewer than 5 rounds nothing is sure", COLOUR_HINT);
	print_spread(rep);
	for (i = 0; i < rep->nnotes; i++)
		print_note(rep->notes[i], COLOUR_HINT);
	print_checked(rep);
	if (rep->interrupted)
		print_note("interrupted: this is what was measured until then", COLOUR_WARN);
	if (rep->failed[0])
		print_note(rep->failed, COLOUR_BAD);
	putchar('\n');
	for (i = 0; i < PERF_PATTERNS; i++) {
		cmp_summary(rep, (enum perf_pattern)i, text);
		if (*text)
			text_wrap(text, 0, 0);
	}
}

void cmp_print(const struct cmp_report *rep)
{
	int i;

	title(rep);
	for (i = 0; i < PERF_PATTERNS; i++)
		if (rep->procs[i])
			table(rep, (enum perf_pattern)i);
	if (rep->nrows)
		ending(rep);
}

void cmp_print_csv(const struct cmp_report *rep, FILE *to)
{
	const struct cmp_row *r;
	int i;

	fprintf(to, "pattern,over,size,round");
	for (i = 0; i < CMP_VALUES; i++)
		fprintf(to, ",%s", cmp_value_names[i]);
	fputc('\n', to);
	for (r = rep->rows; r < rep->rows + rep->nrows; r++) {
		fprintf(to, "%s,%s,%llu,%d", perf_kinds[r->pattern].name, rep->ways[r->way].name,
			(unsigned long long)r->size, r->round);
		for (i = 0; i < CMP_VALUES; i++)
			if (cmp_is_measured(r, (enum cmp_value)i))
				fprintf(to, ",%.9g", r->v[i]);
			else
				fputc(',', to);
		fputc('\n', to);
	}
}
