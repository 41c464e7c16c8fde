/* SPDX-License-Identifier: BSD-3-Clause */
/* findings.h - what a check of braid doctor or validate reports: sentences, each with its level. */
#ifndef BRAID_TOOLS_FINDINGS_H
#define BRAID_TOOLS_FINDINGS_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>

/* A check's level is the highest of its sentences. */
enum level { LEVEL_SKIP, LEVEL_OK, LEVEL_NOTE, LEVEL_WARN, LEVEL_FAIL, LEVELS };
const char *level_name(enum level level);		/* "skip" */
enum level level_of(const char *name);			/* LEVELS: no level has that name */

enum { FINDING_LINE = 1024 };

struct findings {
	json_t *list;			/* of {level, text, mend} */
	enum level level;
};

void findings_clear(struct findings *s);	/* empties it, and frees the old content */
void findings_add(struct findings *s, enum level level, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));
/* Attach, to the sentence added last, the command that fixes the problem. */
void findings_mend(struct findings *s, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));
/* Format one line of FINDING_LINE bytes, without escapes. */
void finding_line(char *ret, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* How many checks of an array have each level. */
json_t *findings_count(const json_t *checks);
/* Does a comma list name this check, or its group, which is the word before the dash? */
bool findings_named(const char *list, const char *id);

#endif
