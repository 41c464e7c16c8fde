/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verdict.c - how a check reports: sentences, figures and its last step, as lines of JSON to the
 * process that runs it (check.c).
 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/validate/validate.h"

enum { SAMPLES_MAX = 400 };

static struct validate *self;		/* of this process */

static void line_out(const struct validate *v, json_t *o)
{
	char *text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);

	if (text)
		dprintf(v->out, "%s\n", text);
	free(text);
	json_decref(o);
}

static _Noreturn void leave(struct validate *v)
{
	line_out(v, json_pack("{s:s, s:o, s:o, s:b}", "level", level_name(v->findings.level),
			      "says", v->findings.list, "figures", v->figures, "late", drive_late));
	_exit(0);
}

void saw(struct validate *v, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	findings_add(&v->findings, LEVEL_OK, fmt, ap);
	va_end(ap);
}

void note(struct validate *v, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	findings_add(&v->findings, LEVEL_NOTE, fmt, ap);
	va_end(ap);
}

void skip(struct validate *v, const char *fmt, ...)
{
	va_list ap;

	findings_clear(&v->findings);
	va_start(ap, fmt);
	findings_add(&v->findings, LEVEL_SKIP, fmt, ap);
	va_end(ap);
	leave(v);
}

void step(struct validate *v, const char *fmt, ...)
{
	char text[FINDING_LINE];
	va_list ap;

	if (v->out < 0)
		return;
	va_start(ap, fmt);
	finding_line(text, fmt, ap);
	va_end(ap);
	line_out(v, json_pack("{s:s}", "step", text));
}

static void add(struct validate *v, enum level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void add(struct validate *v, enum level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	findings_add(&v->findings, level, fmt, ap);
	va_end(ap);
}

static void failed(const char *file, int line, const char *text)
{
	const char *warn = net_last_warn();

	(void)file, (void)line;
	add(self, LEVEL_FAIL, "%s%s%.200s", text,
	    *warn && !strstr(text, warn) ? "; the plugin's last warning: " : "",
	    *warn && !strstr(text, warn) ? warn : "");
	leave(self);
}

/* A figure alone is no pass: without a threshold it is only reported. */
void figure(struct validate *v, const struct figure *f)
{
	json_t *samples = json_array(), *shares = json_array();
	const char *close;
	unsigned every = f->n / SAMPLES_MAX + 1;
	enum limit limit;
	char why[256];

	if (!limits_knows(f->name, &close))
		FAIL("a figure that thresholds can't name: %s", f->name);
	for (unsigned i = 0; i < f->n; i += every)
		json_array_append_new(samples, json_real(f->samples[i]));
	json_array_append_new(v->figures,
			      json_pack("{s:s, s:f, s:s, s:s, s:o}", "name", f->name, "value",
					f->value, "unit", f->unit, "better",
					f->more_is_better ? "more" : "less", "samples", samples));
	for (unsigned i = 0; f->shares && i < f->n; i += every)
		json_array_append_new(shares, json_real(f->shares[i]));
	if (f->shares)
		json_object_set(json_array_get(v->figures, json_array_size(v->figures) - 1),
				"cpu_share", shares);
	json_decref(shares);
	limit = limits_hold(v->limits, v->nic, f, why, sizeof(why));
	add(v, limit == LIMIT_NONE ? LEVEL_SKIP : LEVEL_OK, "%s: %.6g %s", f->name, f->value,
	    f->unit);
	if (limit == LIMIT_BROKEN)
		add(v, LEVEL_FAIL, "%s", why);
}

void verdict_begin(struct validate *v)
{
	findings_clear(&v->findings);
	self = v;
	drive_set(failed, 1);
}

void verdict_end(struct validate *v)
{
	if (v->findings.level == LEVEL_SKIP && strncmp(v->check->id, "perf-", 5) == 0)
		add(v, LEVEL_SKIP, "measured; --thresholds FILE says what it must be");
	else if (v->findings.level == LEVEL_SKIP && json_array_size(v->findings.list) == 0)
		saw(v, "as it should be");
	else if (v->findings.level == LEVEL_SKIP)
		saw(v, "it came to its end, with nothing wrong");
	leave(v);
}
