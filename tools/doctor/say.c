/* SPDX-License-Identifier: BSD-3-Clause */
/* say.c - how a check reports: sentences with a level, lines that mend, facts for --nodes. */
#include "config.h"

#include <stdarg.h>

#include "tools/doctor/doctor_int.h"

void doctor_ok(struct doctor *d, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	says_add(&d->says, LEVEL_OK, fmt, ap);
	va_end(ap);
}

void doctor_skip(struct doctor *d, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	says_add(&d->says, LEVEL_SKIP, fmt, ap);
	va_end(ap);
}

void doctor_find(struct doctor *d, enum level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	says_add(&d->says, level, fmt, ap);
	va_end(ap);
}

void doctor_mend(struct doctor *d, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	says_mend(&d->says, fmt, ap);
	va_end(ap);
}

void doctor_fact(struct doctor *d, const char *key, const char *fmt, ...)
{
	char text[SAYS_LINE];
	va_list ap;

	va_start(ap, fmt);
	says_line(text, fmt, ap);
	va_end(ap);
	json_object_set_new(d->facts, key, json_string(text));
}
