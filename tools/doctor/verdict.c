/* SPDX-License-Identifier: BSD-3-Clause */
/* verdict.c - how a check reports: sentences with a level, lines that mend, facts for --nodes. */
#include "config.h"

#include <stdarg.h>

#include "tools/doctor/doctor_int.h"

void doctor_ok(struct doctor *d, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	findings_add(&d->findings, LEVEL_OK, fmt, ap);
	va_end(ap);
}

void doctor_skip(struct doctor *d, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	findings_add(&d->findings, LEVEL_SKIP, fmt, ap);
	va_end(ap);
}

void doctor_find(struct doctor *d, enum level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	findings_add(&d->findings, level, fmt, ap);
	va_end(ap);
}

void doctor_mend(struct doctor *d, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	findings_mend(&d->findings, fmt, ap);
	va_end(ap);
}

void doctor_fact(struct doctor *d, const char *key, const char *fmt, ...)
{
	char text[FINDING_LINE];
	va_list ap;

	va_start(ap, fmt);
	finding_line(text, fmt, ap);
	va_end(ap);
	json_object_set_new(d->facts, key, json_string(text));
}
