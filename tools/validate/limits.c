/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * limits.c - the thresholds of one model of NIC, from a file:
 *
 *	{ "schema": "braid-thresholds", "version": 1, "nic": "mlx5_*",
 *	  "figures": { "latency_8B_p50": { "most": 3.5 }, "bw_1M": { "least": 350 } } }
 *
 * "nic" is a pattern for the device's name; without it the thresholds hold for any.
 */
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "tools/text.h"
#include "tools/validate/validate.h"

static const char *const names[] = {
	"latency_8B_p50", "latency_8B_p99", "latency_8B_p999", "latency_64K_p50",
	"jitter_p99_over_p50", "bw_1M", "bw_64K", "bw_1M_4_comms", "bw_1M_both_ways", "rate_8B",
	"cpu_1M", "latency_8B_over_tcp", "bw_1M_over_tcp", "death_noticed", "mesh_setup",
	"fds_per_comm", "threads_per_comm", "kb_per_comm", "reap", "setup_first", "setup_next",
	"rate_back",
};

bool limits_knows(const char *name, const char **ret_near)
{
	unsigned best = UINT_MAX, far;

	*ret_near = names[0];
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		far = text_distance(name, names[i]);
		if (far < best)
			*ret_near = names[i];
		best = far < best ? far : best;
	}
	return best == 0;
}

static const char *figure_wrong(const char *name, const json_t *f, char *err, size_t len)
{
	const char *key, *close;
	json_t *x;

	json_object_foreach((json_t *)(uintptr_t)f, key, x) {
		if (!json_is_number(x) || (strcmp(key, "least") != 0 && strcmp(key, "most") != 0)) {
			snprintf(err, len, "\"%.60s\" of figure \"%.60s\": \"least\" and \"most\" "
				 "take a number", key, name);
			return err;
		}
	}
	if (json_object_size(f) == 0) {
		snprintf(err, len, "figure \"%.60s\" has neither \"least\" nor \"most\"", name);
		return err;
	}
	if (!limits_knows(name, &close)) {
		snprintf(err, len, "there is no figure \"%.60s\"; is \"%s\" meant?", name, close);
		return err;
	}
	return NULL;
}

static const char *wrong(const json_t *o, char *err, size_t len)
{
	const json_t *nic = json_object_get(o, "nic"), *version = json_object_get(o, "version");
	const char *name, *schema = json_string_value(json_object_get(o, "schema"));
	json_t *f;

	if (!schema || strcmp(schema, "braid-thresholds") != 0)
		return "its schema is not braid-thresholds";
	if (!json_is_integer(version) || json_integer_value(version) < 1)
		return "it has no version";
	if (json_integer_value(version) > VALIDATE_VERSION)
		return "it is of a newer version than this braid";
	if (nic && !json_is_string(nic))
		return "\"nic\" is a pattern for a device's name";
	if (!json_is_object(json_object_get(o, "figures")))
		return "it has no figures";
	json_object_foreach(json_object_get(o, "figures"), name, f)
		if (figure_wrong(name, f, err, len))
			return err;
	return NULL;
}

json_t *limits_load(const char *path, char *err, size_t len)
{
	json_error_t e;
	json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
	char room[200];
	const char *why;

	if (!o) {
		if (e.line < 1)
			snprintf(err, len, "%.200s", e.text);
		else
			snprintf(err, len, "%.150s: line %d: %.120s", path, e.line, e.text);
		return NULL;
	}
	why = wrong(o, room, sizeof(room));
	if (why) {
		snprintf(err, len, "%.150s: %s", path, why);
		json_decref(o);
		return NULL;
	}
	return o;
}

enum limit limits_hold(const json_t *limits, const char *nic, const struct figure *f, char *ret,
		       size_t len)
{
	const char *pattern = json_string_value(json_object_get(limits, "nic"));
	json_t *o = json_object_get(json_object_get(limits, "figures"), f->name), *x;

	if (!o || (pattern && fnmatch(pattern, nic, 0) != 0))
		return LIMIT_NONE;
	x = json_object_get(o, "most");
	if (x && !(f->value <= json_number_value(x))) {
		snprintf(ret, len, "%s is %.6g %s, and at most %.6g was to be", f->name, f->value,
			 f->unit, json_number_value(x));
		return LIMIT_BROKEN;
	}
	x = json_object_get(o, "least");
	if (x && !(f->value >= json_number_value(x))) {
		snprintf(ret, len, "%s is %.6g %s, and at least %.6g was to be", f->name, f->value,
			 f->unit, json_number_value(x));
		return LIMIT_BROKEN;
	}
	return LIMIT_KEPT;
}
