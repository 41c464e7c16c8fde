/* SPDX-License-Identifier: BSD-3-Clause */
/* probe_plugin.c - each plugin that NCCL would try, loaded and initialised as NCCL does. */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/doctor/doctor.h"
#include "tools/info/info.h"
#include "tools/proxy.h"

/* Can the loader load this file?  It stays loaded, as it would for NCCL. */
static bool loads(const char *file, char *why, size_t len)
{
	const void *dl = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	if (!dl)
		snprintf(why, len, "%s", dlerror());
	return dl;
}

/* Look for a name as NCCL does: as it is, then as a short name. */
static json_t *candidate(const char *name)
{
	char file[PATH_LEN], rccl[PATH_LEN] = "", err[INFO_ERR] = "", why[TEXT_LEN] = "";
	size_t n = strlen(name);
	struct net *net;
	json_t *o, *doc;
	bool ok;

	snprintf(file, sizeof(file), "%s", name);
	ok = loads(file, why, sizeof(why));
	if (!ok && !strchr(name, '/') &&
	    !(strncmp(name, "lib", 3) == 0 && n > 3 && strcmp(name + n - 3, ".so") == 0)) {
		snprintf(file, sizeof(file), "libnccl-net-%s.so", name);
		snprintf(rccl, sizeof(rccl), "librccl-net-%s.so", name);
		ok = loads(file, why, sizeof(why));
	}
	o = json_pack("{s:s, s:s, s:b}", "name", name, "file", file, "loaded", 0);
	if (*rccl && loads("librccl.so.1", err, sizeof(err)) && !loads(rccl, err, sizeof(err)))
		json_object_set_new(o, "rccl", json_string(rccl));	/* RCCL lacks this file */
	if (!ok) {
		json_object_set_new(o, "why", json_string(why));
		return o;
	}
	*err = '\0';
	net = net_load(file, 0, err, sizeof(err));
	if (!net) {
		json_object_set_new(o, "why", json_string(err));
		return o;
	}
	json_object_set_new(o, "loaded", json_true());
	json_object_set_new(o, "abi", json_integer(net->abi));
	json_object_set_new(o, "net", json_string(net->name));
	doc = info_plugin(file, 0, err);
	if (!doc) {
		json_object_set_new(o, "why", json_string(err));
		return o;
	}
	json_object_set(o, "notes", json_object_get(doc, "notes"));
	json_object_set(o, "list", json_object_get(doc, "devices"));
	json_object_set_new(o, "devices", json_integer((json_int_t)json_array_size(
						    json_object_get(doc, "devices"))));
	json_decref(doc);
	return o;
}

/* The plugin is to see the variables of the job's environment and of NCCL's files. */
static json_t *plugin(struct doctor *d)
{
	const char *asked = env_get(d, "NCCL_NET_PLUGIN");
	json_t *list = json_array();
	char *names, *rest, *name;
	const struct env *e;

	for (unsigned n = env_all(d, &e); n; n--, e++)
		if (strncmp(e->name, "NCCL_", 5) == 0 || strncmp(e->name, "BRAID_", 6) == 0 ||
		    strncmp(e->name, "UCX_", 4) == 0)
			setenv(e->name, e->value, 1);
	for (unsigned n = env_all(d, &e); n; n--, e++)
		if (strcmp(e->name, "NCCL_NET_PLUGIN") == 0 && !*e->value)
			return list;
	if (asked && strcasecmp(asked, "none") == 0)
		return list;
	names = rest = strdup(asked ? asked : "libnccl-net.so");
	while ((name = strsep(&rest, ",")))
		if (*name)
			json_array_append_new(list, candidate(name));
	free(names);
	return list;
}

const struct probe probe_plugin = { "plugin", plugin, 2500 };

/* The plugin that NCCL loads where none is named, or where NCCL has forgotten the name. */
static json_t *standard(struct doctor *d)
{
	char err[INFO_ERR] = "";
	struct net *net = net_load("libnccl-net.so", 0, err, sizeof(err));

	(void)d;
	return json_pack("{s:b, s:s}", "loaded", net != NULL, "net", net ? net->name : "");
}

const struct probe probe_standard = { "standard", standard, 2000 };
