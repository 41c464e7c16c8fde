/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * report.h - the state of all links as JSON, and text that grows.
 *
 * The JSON is one object; BRAID_REPORT_VERSION counts up when a member changes its meaning or goes.
 * docs/user/observability.md has the members.
 */
#ifndef BRAID_WATCH_REPORT_H
#define BRAID_WATCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/units.h"

enum { BRAID_REPORT_VERSION = 1 };

/* How long to wait for locks, for all links together: half of what a dump may take. */
#define BRAID_REPORT_LOCK_NS (300 * MS)

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

#endif
