/* SPDX-License-Identifier: BSD-3-Clause */
/* diff_read.h - the figures of a report, as series of samples. */
#ifndef BRAID_TOOLS_DIFF_READ_H
#define BRAID_TOOLS_DIFF_READ_H

#include <jansson.h>
#include <stdbool.h>

enum { SAMPLES_MOST = 1000 };

struct series {				/* a figure of a report */
	char name[160];
	const char *unit;
	bool more;			/* more is better */
	double v[SAMPLES_MOST];
	unsigned n;
	double starved_v[SAMPLES_MOST];	/* left out: other programs had the CPU */
	unsigned starved;
};

struct sheet {				/* a report */
	const char *path;
	json_t *json;
	bool perf;
	struct series *v;
	unsigned n;
};

/* Read a report: 0, or 2 after a line that says why it can't be used. */
int sheet_open(struct sheet *s, const char *path);
/* Has it both the plugin and raw TCP? */
bool sheet_has_raw(const struct sheet *s);
/* Fill s->v; `beside`: the plugin's figures as ratios to raw TCP of the same round. */
void sheet_fill(struct sheet *s, bool beside);
void sheet_close(struct sheet *s);

#endif
