/* SPDX-License-Identifier: BSD-3-Clause */
/* says.h - what a check of braid doctor or braid validate says: sentences, each with its level. */
#ifndef BRAID_TOOLS_SAYS_H
#define BRAID_TOOLS_SAYS_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>

/* A check's is the highest of what it says. */
enum level { LEVEL_SKIP, LEVEL_OK, LEVEL_NOTE, LEVEL_WARN, LEVEL_FAIL, LEVELS };
const char *level_name(enum level level);		/* "skip" */
enum level level_of(const char *name);			/* LEVELS: no such */

enum { SAYS_LINE = 1024 };

struct says {
	json_t *list;			/* of {level, text, mend} */
	enum level level;
};

void says_new(struct says *s);		/* nothing yet; what was there is freed */
void says_add(struct says *s, enum level level, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));
/* The line that mends what was said last. */
void says_mend(struct says *s, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* One line of SAYS_LINE bytes, without escapes. */
void says_line(char *ret, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* Of an array of checks: how many of each level. */
json_t *says_counts(const json_t *checks);
/* Is this check in a comma list, or its group, which is the word before the dash? */
bool says_named(const char *list, const char *id);

#endif
