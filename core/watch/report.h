/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * report.h - the state of all links as text for programs: JSON, or OpenMetrics.
 *
 * The JSON is one object; BRAID_REPORT_VERSION counts up when a member changes its meaning or goes.
 * docs/user/observability.md has the members, and the names of the metrics.
 */
#ifndef BRAID_WATCH_REPORT_H
#define BRAID_WATCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

enum { BRAID_REPORT_VERSION = 1 };

struct braid_text {			/* grows; bad: out of memory, so the text is cut */
	char *p;
	size_t len, room;
	bool bad;
};
void braid_text_add(struct braid_text *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void braid_text_string(struct braid_text *t, const char *s);	/* quoted, for JSON and metrics */
void braid_text_free(struct braid_text *t);

/* The state of this process.  all: with each message and the flight recorder.  0 or -ENOMEM. */
int braid_report_json(struct braid_text *t, bool all);
int braid_report_metrics(struct braid_text *t);
/* Read the job and the rank from the environment, for labels; before there is another thread. */
void braid_report_job(void);

#endif
