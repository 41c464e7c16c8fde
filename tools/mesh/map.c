/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map.c - the report as text: a heat map of all pairs, and the verdict under it.
 *
 * A cell's sign says how far it is below the median, so that colour adds nothing that is not there
 * without it.  With few hosts a cell also has the figure; with very many, only the worst hosts have
 * a line.
 */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/mesh/mesh.h"
#include "tools/text.h"

enum { LABEL = 14, WIDTH = 80, WIDTH_MOST = 120, WORST = 20, FIGURE = 32 };

/* -- cells -------------------------------------------------------------------------------- */

static const struct shade {
	double least;			/* share of the median */
	char sign;
	enum colour colour;
} shades[] = {
	{ 0.8, '.', COLOUR_GOOD },
	{ 0.5, ':', COLOUR_HINT },
	{ 0.2, '+', COLOUR_WARN },
	{ 0, '#', COLOUR_BAD },
};

static struct shade shade_of(const struct mesh_report *r, int from, int to)
{
	const struct mesh_cell *c = mesh_cell(r, from, to);
	const struct shade *s = shades;

	if (from == to)
		return (struct shade){ 0, '\\', COLOUR_DIM };
	if (c->state == MESH_OPEN)
		return (struct shade){ 0, '?', COLOUR_DIM };
	if (c->state == MESH_FAILED || r->bytes_s <= 0)
		return (struct shade){ 0, 'X', COLOUR_BAD };
	while (c->bytes_s / r->bytes_s < s->least)
		s++;
	return *s;
}

/* Four columns: a blank or a sign, and the percentage of the median. */
static void cell_print(const struct mesh_report *r, int from, int to, int wide)
{
	struct shade s = shade_of(r, from, to);
	const struct mesh_cell *c = mesh_cell(r, from, to);
	double percent = r->bytes_s > 0 ? 100 * c->bytes_s / r->bytes_s : 0;

	fputs(text_colour(s.colour), stdout);
	if (wide == 4 && c->state == MESH_DONE && from != to)
		printf("%c%3.0f", s.sign, percent > 999 ? 999 : percent);
	else
		printf("%*c", wide, s.sign);
	fputs(text_colour(COLOUR_NONE), stdout);
}

static void label(const struct mesh_report *r, int i)
{
	printf("%3d %-*.*s", i + 1, LABEL - 4, LABEL - 5, r->hosts[i].name);
}

/* The numbers of the receiving hosts; in narrow columns their digits stand one below the other. */
static void numbers(const struct mesh_report *r, int wide)
{
	int i, tens = wide == 4 ? 1 : r->n > 99 ? 100 : r->n > 9 ? 10 : 1;

	for (; tens; tens /= 10) {
		printf("%*s", LABEL, "");
		for (i = 1; i <= r->n; i++) {
			if (wide < 4 && i < tens && tens > 1)
				printf("%*s", wide, "");
			else
				printf("%*d", wide, wide == 4 ? i : i / tens % 10);
		}
		putchar('\n');
	}
}

/* -- the map ------------------------------------------------------------------------------ */

static double line_median(const struct mesh_report *r, int i, bool sends)
{
	double v[MESH_HOSTS_MAX];
	const struct mesh_cell *c;
	int j, n = 0;

	for (j = 0; j < r->n; j++) {
		c = sends ? mesh_cell(r, i, j) : mesh_cell(r, j, i);
		if (j != i && c->state != MESH_OPEN)
			v[n++] = c->state == MESH_DONE ? c->bytes_s : 0;
	}
	return n ? perf_median(v, n) : -1;
}

/* Too many hosts for a map: a line for each of the worst, by the worse of their directions. */
static void worst(const struct mesh_report *r)
{
	double out[MESH_HOSTS_MAX], in[MESH_HOSTS_MAX], low;
	bool used[MESH_HOSTS_MAX] = { false };
	char sends[FIGURE], receives[FIGURE];
	int i, k, at;

	for (i = 0; i < r->n; i++) {
		out[i] = line_median(r, i, true);
		in[i] = line_median(r, i, false);
		used[i] = out[i] < 0;
	}
	printf("The slowest %d of %d hosts, each by its median:\n", WORST, r->n);
	for (k = 0; k < WORST; k++) {
		for (i = 0, at = -1, low = 0; i < r->n; i++) {
			double x = out[i] < in[i] ? out[i] : in[i];

			if (!used[i] && (at < 0 || x < low)) {
				at = i;
				low = x;
			}
		}
		if (at < 0)
			break;
		used[at] = true;
		mesh_speed_text(out[at], sends, sizeof(sends));
		mesh_speed_text(in[at], receives, sizeof(receives));
		printf("  %-30.60s sends %12s   receives %12s\n", r->hosts[at].name, sends,
		       receives);
	}
}

void mesh_print_map(const struct mesh_report *r, int width)
{
	int room = (width > WIDTH_MOST ? WIDTH_MOST : width) - LABEL, i, j, wide;
	char median[FIGURE];

	mesh_speed_text(r->bytes_s, median, sizeof(median));
	wide = 4 * r->n <= room ? 4 : 2 * r->n <= room ? 2 : 1;
	if (r->n > room) {
		worst(r);
		return;
	}
	printf("Lines send, columns receive, %sin percent of the median (%s):\n"
	       ". 80 or more, : 50 or more, + 20 or more, # less; X failed, ? not measured.\n\n",
	       wide == 4 ? "" : "as signs ", median);
	numbers(r, wide);
	for (i = 0; i < r->n; i++) {
		label(r, i);
		for (j = 0; j < r->n; j++)
			cell_print(r, i, j, wide);
		putchar('\n');
	}
}

/* -- the rest ----------------------------------------------------------------------------- */

static int terminal_width(void)
{
	struct winsize w;

	if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 40)
		return w.ws_col;
	return WIDTH;
}

static void verdict(const struct mesh_report *r)
{
	int i;

	for (i = 0; i < r->nfound; i++) {
		printf("%s!%s ", text_colour(COLOUR_BAD), text_colour(COLOUR_NONE));
		text_wrap(r->found[i].text, 2, 2);
		printf("  look at: ");
		text_wrap(r->found[i].next, 11, 11);
	}
	if (r->more)
		printf("and %d more.\n", r->more);
	if (r->nfound == 0)
		printf("Nothing is odd%s.\n", r->stopped ? " in what was measured" : "");
}

/* Where a quarter of the pairs had no CPU of their own, the figures are not the network's alone. */
static void starved(const struct mesh_report *r)
{
	char text[240];
	int i, n = 0, bad = 0;

	for (i = 0; i < r->n * r->n; i++) {
		n += r->cells[i].state == MESH_DONE;
		bad += r->cells[i].state == MESH_DONE && r->cells[i].cpu < MESH_CPU;
	}
	if (4 * bad <= n)
		return;
	snprintf(text, sizeof(text), "In %d of %d measurements a process had less than %.1f of a "
		 "CPU, so that they say more of the CPUs than of the network: try --parallel 1.",
		 bad, n, MESH_CPU);
	text_wrap(text, 0, 0);
}

/* What was measured, from the least to the greatest figure. */
static void summary(const struct mesh_report *r)
{
	char low[FIGURE], mid[FIGURE], high[FIGURE], late[FIGURE];
	double least = 0, most = 0;
	int i, n = 0;

	for (i = 0; i < r->n * r->n; i++) {
		if (r->cells[i].state != MESH_DONE)
			continue;
		least = n++ && r->cells[i].bytes_s > least ? least : r->cells[i].bytes_s;
		most = r->cells[i].bytes_s > most ? r->cells[i].bytes_s : most;
	}
	if (n == 0)
		return;
	mesh_speed_text(least, low, sizeof(low));
	mesh_speed_text(r->bytes_s, mid, sizeof(mid));
	mesh_speed_text(most, high, sizeof(high));
	mesh_time_text(r->latency_s, late, sizeof(late));
	printf("Median %s (from %s to %s); half a round trip %s.\n", mid, low, high, late);
}

void mesh_print(const struct mesh_report *r)
{
	char size[24];

	printf("%d hosts, %d of %d pairs, %s, messages of %s; %d rounds, %.0f s\n", r->n, r->done,
	       r->pairs, r->over[0] ? r->over : "nothing measured",
	       perf_size_name(r->size, size), r->rounds, r->took_s);
	if (r->bytes_s > 0)
		mesh_print_map(r, terminal_width());
	putchar('\n');
	summary(r);
	starved(r);
	verdict(r);
}
