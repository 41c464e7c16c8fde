/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check.c - one check, in a process of its own.
 *
 * That process writes its steps, and in the end its result, as lines of JSON.  If it is silent for
 * longer than its time, it is killed, and its last step is reported, as also when a signal ends it.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tools/child.h"
#include "tools/text.h"
#include "tools/validate/validate.h"

enum { CHECK_S = 20 };

struct work {
	const struct options *w;
	const struct vcheck *c;
	const json_t *limits;
	uint64_t seed;
};

static void work(void *arg, int fd)
{
	const struct work *k = arg;
	struct validate v = {
		.w = k->w, .check = k->c, .limits = k->limits, .out = fd, .abi = k->w->abi,
		.seed = k->seed, .figures = json_array(), .far = -1,
	};

	signal(SIGPIPE, SIG_IGN);
	verdict_begin(&v);
	k->c->run(&v);
	verdict_end(&v);
}

/* The last step, and the result if there is one. */
static json_t *read_lines(const struct child *c, char *last, size_t len)
{
	json_t *o, *got = NULL;
	const char *at = c->text, *end;

	for (; at && (end = strchr(at, '\n')); at = end + 1) {
		o = json_loadb(at, (size_t)(end - at), 0, NULL);
		if (json_object_get(o, "step"))
			snprintf(last, len, "%s",
				 json_string_value(json_object_get(o, "step")));
		if (json_object_get(o, "level")) {
			json_decref(got);
			got = json_incref(o);
		}
		json_decref(o);
	}
	return got;
}

static json_t *lost(const struct child *c, bool over, int seconds, const char *last)
{
	char fate[128] = "", text[FINDING_LINE];

	if (over)
		child_fate(c, fate, sizeof(fate));
	if (over)
		snprintf(text, sizeof(text), "its process was %s", fate);
	else
		snprintf(text, sizeof(text), "it hangs: no end after %d s", seconds);
	if (*last)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), ", at: %.400s", last);
	return json_pack("{s:s, s:[{s:s, s:s}], s:[], s:b}", "level", "fail", "says", "level",
			 "fail", "text", text, "figures", "late", !over);
}

static const char *result_of(const struct vcheck *c, const json_t *o)
{
	switch (level_of(json_string_value(json_object_get(o, "level")))) {
	case LEVEL_FAIL:
		return c->flags & V_MORE ? "skip" : "fail";
	case LEVEL_SKIP:
		return json_array_size(json_object_get(o, "figures")) ? "measured" : "skip";
	default:
		return "pass";
	}
}

/* The sentences of one level, or all of them. */
static json_t *sentences(const json_t *o, bool worst)
{
	json_t *list = json_array(), *x;
	const char *level = json_string_value(json_object_get(o, "level"));
	size_t i;

	json_array_foreach(json_object_get(o, "says"), i, x)
		if (!worst ||
		    strcmp(json_string_value(json_object_get(x, "level")), level) == 0)
			json_array_append(list, json_object_get(x, "text"));
	return list;
}

static json_t *result_json(const struct vcheck *c, json_t *o, double seconds, uint64_t seed)
{
	bool failed = level_of(text_of(o, "level")) == LEVEL_FAIL;
	bool late = json_is_true(json_object_get(o, "late"));
	const char *result = result_of(c, o);
	char group[16];
	json_t *ret;

	snprintf(group, sizeof(group), "%.*s", (int)strcspn(c->id, "-"), c->id);
	ret = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:I, s:o, s:O}", "id", c->id, "group",
			group, "title", c->title, "profile", validate_profile(c), "ends",
			c->flags & V_HERE ? "here" : "both", "result", result,
			"seconds", seconds, "seed", (json_int_t)seed, "saw",
			sentences(o, failed), "figures", json_object_get(o, "figures"));
	if (*result == 'f')
		json_object_set_new(ret, "mend", json_string(late ? TOO_LATE : c->mend));
	json_decref(o);
	return ret;
}

json_t *check_passed_over(const struct vcheck *c, const char *result, const char *why)
{
	json_t *o = json_pack("{s:s, s:[{s:s, s:s}], s:[]}", "level", "skip", "says", "level",
			      "skip", "text", why, "figures");

	o = result_json(c, o, 0, 0);
	json_object_set_new(o, "result", json_string(result));
	return o;
}

json_t *check_run(const struct options *w, const struct vcheck *c, const json_t *limits,
			 uint64_t seed)
{
	int seconds = c->seconds ? c->seconds : CHECK_S;
	struct work arg = { w, c, limits, seed };
	long long began = child_now();
	char last[FINDING_LINE] = "";
	struct child child;
	json_t *got;
	bool over;
	int rc;

	rc = child_start(&child, work, &arg);
	if (rc < 0) {
		got = json_pack("{s:s, s:[{s:s, s:s}], s:[]}", "level", "fail", "says", "level",
				"fail", "text", strerror(-rc), "figures");
		return result_json(c, got, 0, seed);
	}
	over = child_finish(&child, seconds * 1000);
	child_end(&child);
	got = read_lines(&child, last, sizeof(last));
	if (!got)
		got = lost(&child, over, seconds, last);
	child_free(&child);
	return result_json(c, got, (double)(child_now() - began) / 1000, seed);
}
