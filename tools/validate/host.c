/* SPDX-License-Identifier: BSD-3-Clause */
/* host.c - a report's description of the host, for readers elsewhere. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/base/param.h"
#include "tools/child.h"
#include "tools/info/info.h"
#include "tools/perf/stat.h"
#include "tools/text.h"
#include "tools/validate/validate.h"

extern char **environ;

enum { PLUGIN_MS = 20000 };

static void set(json_t *o, const char *key, const char *value)
{
	json_t *s = value && *value ? json_string(value) : NULL;

	if (s)
		json_object_set_new(o, key, s);
}

static void run_plugin(void *arg, int fd)
{
	const struct options *w = arg;
	char err[INFO_ERR] = "", *text;
	json_t *o = info_plugin(w->plugin, w->abi, err);

	if (!o)
		o = json_pack("{s:s}", "error", err);
	text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);
	if (text)
		dprintf(fd, "%s", text);
	_exit(0);
}

/* In a process of its own: a plugin may crash. */
static json_t *plugin_json(const struct options *w)
{
	struct child c;
	json_t *o = NULL;

	if (child_start(&c, run_plugin, (void *)(uintptr_t)w) == 0) {
		child_finish(&c, PLUGIN_MS);
		child_end(&c);
		o = c.text ? json_loads(c.text, 0, NULL) : NULL;
		child_free(&c);
	}
	return o ? o : json_pack("{s:s}", "error", "it gave no answer");
}

static json_t *environ_json(void)
{
	static const char *const ours[] = { "BRAID_", "NCCL_", "UCX_", "RDMAV_", "IBV_" };
	json_t *o = json_object();

	for (char **e = environ; *e; e++) {
		char name[128];

		for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
			if (strncmp(*e, ours[i], strlen(ours[i])) != 0 || !strchr(*e, '='))
				continue;
			snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e, "="), *e);
			if (!braid_param_hides(name))
				set(o, name, strchr(*e, '=') + 1);
		}
	}
	return o;
}

json_t *host_inventory(const struct options *w)
{
	json_t *o = json_object(), *plugin = plugin_json(w), *dev;
	char name[256] = "?", room[64];
	struct rlimit lock;
	struct utsname u;
	size_t i;

	gethostname(name, sizeof(name) - 1);
	set(o, "name", name);
	if (uname(&u) == 0) {
		set(o, "kernel", u.release);
		set(o, "machine", u.machine);
	}
	json_object_set_new(o, "cpus", json_integer(perf_cpus()));
	getrlimit(RLIMIT_MEMLOCK, &lock);
	snprintf(room, sizeof(room), "%llu", (unsigned long long)lock.rlim_cur);
	set(o, "memlock", lock.rlim_cur == RLIM_INFINITY ? "unlimited" : room);
	set(o, "iommu_groups", access("/sys/kernel/iommu_groups/0", F_OK) == 0 ? "yes" : "no");
	json_array_foreach(json_object_get(plugin, "devices"), i, dev)
		json_object_set_new(dev, "nic", report_nic(text_of(dev, "name")));
	json_object_set_new(o, "plugin", plugin);
	json_object_set_new(o, "environment", environ_json());
	return o;
}
