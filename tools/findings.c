/* SPDX-License-Identifier: BSD-3-Clause */
/* findings.c - see findings.h. */
#include "tools/findings.h"

#include <stdio.h>
#include <string.h>

#include "tools/text.h"

static const char *const level_names[LEVELS] = { "skip", "ok", "note", "warn", "fail" };

const char *level_name(enum level level)
{
	return level_names[level];
}

enum level level_of(const char *name)
{
	unsigned i;

	for (i = 0; i < LEVELS; i++)
		if (name && strcmp(level_names[i], name) == 0)
			break;
	return (enum level)i;
}

void findings_clear(struct findings *s)
{
	json_decref(s->list);
	*s = (struct findings){ .list = json_array(), .level = LEVEL_SKIP };
}

/* Names that come from the system may contain anything, even terminal escapes. */
void finding_line(char *ret, const char *fmt, va_list ap)
{
	vsnprintf(ret, FINDING_LINE, fmt, ap);
	text_clean(ret, FINDING_LINE, "");
}

void findings_add(struct findings *s, enum level level, const char *fmt, va_list ap)
{
	char text[FINDING_LINE];
	json_t *line;

	finding_line(text, fmt, ap);
	line = json_string(text);
	json_array_append_new(s->list,
			      json_pack("{s:s, s:o}", "level", level_name(level), "text",
					line ? line : json_string("(not UTF-8)")));
	if (level > s->level)
		s->level = level;
}

void findings_mend(struct findings *s, const char *fmt, va_list ap)
{
	json_t *last = json_array_get(s->list, json_array_size(s->list) - 1);
	char text[FINDING_LINE];

	finding_line(text, fmt, ap);
	json_object_set_new(last, "mend", json_string(text));
}

json_t *findings_count(const json_t *checks)
{
	json_t *o = json_object(), *c;
	size_t i;

	for (int l = LEVEL_FAIL; l >= 0; l--) {
		int n = 0;

		json_array_foreach(checks, i, c)
			n += level_of(json_string_value(json_object_get(c, "level"))) ==
			     (enum level)l;
		json_object_set_new(o, level_name((enum level)l), json_integer(n));
	}
	return o;
}

bool findings_named(const char *list, const char *id)
{
	for (const char *at = list; *at; at += strspn(at, ",")) {
		size_t n = strcspn(at, ",");

		if (strncmp(at, id, n) == 0 && (!id[n] || n == strcspn(id, "-")))
			return true;
		at += n;
	}
	return false;
}
