/* SPDX-License-Identifier: BSD-3-Clause */
/* probe_libs.c - which libraries the loader finds, and NCCL's version. */
#include "config.h"

#include <dlfcn.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "tools/info/info.h"
#include "tools/text.h"

static json_t *libraries(struct doctor *d)
{
	json_t *list = info_libraries();
	void *dl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL), *at;
	int (*get)(int *ret), v = 0;

	(void)d;
	at = dl ? dlsym(dl, "ncclGetVersion") : NULL;
	memcpy(&get, &at, sizeof(at));
	if (at)
		get(&v);
	json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:o, s:i}", "name", "libnccl.so.2",
					      "for", "NCCL", "found", dl != NULL, "why",
					      dl ? json_null() : json_string(dlerror()), "version",
					      v));
	return list;
}

const struct probe probe_libraries = { "libraries", libraries, 2000 };

long long doctor_nccl_version(struct doctor *d)
{
	const char *why;
	const json_t *libs = doctor_probe(d, &probe_libraries, &why);

	for (size_t i = 0; i < json_array_size(libs); i++) {
		const json_t *x = json_array_get(libs, i);

		if (strncmp(text_of(x, "name"), "libnccl", 7) == 0)
			return json_integer_value(json_object_get(x, "version"));
	}
	return 0;
}

bool doctor_lacks_library(struct doctor *d, const char *prefix, const char *devices)
{
	const char *why, *name;
	const json_t *libs = doctor_probe(d, &probe_libraries, &why), *x;

	if (!libs)
		doctor_skip(d, "%s: %s", prefix, why);
	for (size_t i = 0; i < json_array_size(libs); i++) {
		x = json_array_get(libs, i);
		name = json_string_value(json_object_get(x, "name"));
		if (!name || strncmp(name, prefix, strlen(prefix)) != 0)
			continue;
		if (json_is_true(json_object_get(x, "found"))) {
			doctor_ok(d, "%s is there", name);
			return false;
		}
		doctor_find(d, LEVEL_FAIL, "%s are there, but %s can't be loaded: %s", devices,
			    name, json_string_value(json_object_get(x, "why")));
		return true;
	}
	return false;
}
