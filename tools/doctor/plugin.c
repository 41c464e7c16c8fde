/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plugin.c - which network plugin NCCL would load, and whether NCCL would silently use none.
 *
 * NCCL tries the names of NCCL_NET_PLUGIN in turn, or libnccl-net.so; then its own "IB" and
 * "Socket".  A plugin that can't be loaded, fails at init or has no device is passed over, which
 * NCCL logs at INFO only; but if NCCL_NET asks for a name, no other plugin is taken.  The probe
 * (probe_plugin.c) does the same, in a process of its own.
 */
#include "config.h"

#include <string.h>
#include <strings.h>

#include "tools/cmd.h"
#include "tools/doctor/doctor.h"
#include "tools/text.h"

enum { NAMES_KEPT = 14, NAME_MOST = 254 };

static long long number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* The list of candidates, in NCCL's order; NULL: a reason was reported. */
static const json_t *candidates(struct doctor *d)
{
	const char *why;
	const json_t *list = doctor_probe(d, &probe_plugin, &why);

	if (!list)
		doctor_skip(d, "plugins: %s", why);
	return list;
}

/* The candidate that NCCL would use; NULL: none. */
static const json_t *taken(struct doctor *d, const json_t *list)
{
	const char *net = env_get(d, "NCCL_NET");

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *c = json_array_get(list, i);

		if (number(c, "devices") > 0 && (!net || strcasecmp(net, text_of(c, "net")) == 0))
			return c;
	}
	return NULL;
}

/* Report how to ask for Braid, if it is here. */
static void mend_braid(struct doctor *d)
{
	const char *path = NULL;

	doctor_mend(d, "export NCCL_NET_PLUGIN=%s NCCL_NET=Braid",
		    !plugin_find(NULL, &path) && *path == '/' && doctor_is_live(d) ? path :
										       "braid");
}

static void load(struct doctor *d)
{
	const char *asked = env_get(d, "NCCL_NET_PLUGIN"), *why;
	const json_t *list = doctor_probe(d, &probe_plugin, &why), *c;

	if (!list && doctor_is_live(d)) {
		doctor_find(d, LEVEL_FAIL, "the plugin '%s' can't be tried: %s",
			    asked ? asked : "libnccl-net.so", why);
		mend_braid(d);
	} else if (!list) {
		doctor_skip(d, "plugins: %s", why);
	}
	if (!list)
		return;
	if (!json_array_size(list)) {
		doctor_find(d, LEVEL_WARN, "NCCL_NET_PLUGIN=%s: NCCL loads no plugin",
			    asked ? asked : "");
		mend_braid(d);
	}
	for (size_t i = 0; i < json_array_size(list); i++) {
		c = json_array_get(list, i);
		if (json_is_true(json_object_get(c, "loaded"))) {
			doctor_fact(d, "plugin", "%s", text_of(c, "net"));
			doctor_ok(d, "NCCL finds %s in %s, ABI version %lld", text_of(c, "net"),
				  text_of(c, "file"), number(c, "abi"));
			if (*text_of(c, "rccl")) {
				doctor_find(d, LEVEL_WARN, "RCCL is on this host and looks for "
					    "%s, which is not there: it falls back to its own "
					    "transports", text_of(c, "rccl"));
				mend_braid(d);
			}
		} else if (asked) {
			doctor_find(d, LEVEL_FAIL, "NCCL can't load the plugin '%s': %s",
				    text_of(c, "name"), text_of(c, "why"));
			mend_braid(d);
		} else {
			doctor_find(d, LEVEL_WARN, "no plugin is asked for, and there is no %s",
				    text_of(c, "name"));
			mend_braid(d);
		}
	}
}

/* Report names that can't be a plugin's, whether there is such a file or not. */
static void names(struct doctor *d)
{
	const char *asked = env_get(d, "NCCL_NET_PLUGIN"), *at;
	unsigned n = 0, bad = 0;

	if (!asked) {
		doctor_ok(d, "NCCL_NET_PLUGIN is not set");
		return;
	}
	for (at = asked; *at; at += strspn(at, ",")) {
		int len = (int)strcspn(at, ",");

		bad++;
		if (len && strncasecmp(at, "STATIC_PLUGIN", (size_t)len) == 0)
			doctor_find(d, LEVEL_FAIL, "'%.*s' is the beginning of STATIC_PLUGIN: NCCL "
				    "looks in the program itself", len, at);
		else if (at[0] == ' ' || (len && at[len - 1] == ' '))
			doctor_find(d, LEVEL_FAIL, "'%.*s' has a blank, which NCCL takes as part "
				    "of the name", len, at);
		else if (len > NAME_MOST)
			doctor_find(d, LEVEL_FAIL, "a name of %d characters is too long", len);
		else if (strchr(asked, ',') && len == 4 && strncasecmp(at, "none", 4) == 0)
			doctor_find(d, LEVEL_WARN, "'none' in a list is a plugin of that name");
		else if (++n > NAMES_KEPT)
			doctor_find(d, LEVEL_WARN, "NCCL keeps %d names, not '%.*s'", NAMES_KEPT,
				    len, at);
		else
			bad--;
		if (bad)
			doctor_mend_set(d, "NCCL_NET_PLUGIN", "braid");
		at += len;
		if (bad)
			return;
	}
	doctor_ok(d, "NCCL_NET_PLUGIN=%s", asked);
}

static void net(struct doctor *d)
{
	const char *asked = env_get(d, "NCCL_NET"), *encrypt = env_get(d, "BRAID_ENCRYPT");
	const json_t *list = candidates(d), *c;

	if (!list)
		return;
	if (!asked && encrypt && strcmp(encrypt, "require") == 0) {
		doctor_find(d, LEVEL_WARN, "BRAID_ENCRYPT=require, and NCCL_NET is not set: if "
			    "Braid can't be loaded, NCCL uses a network of its own, unencrypted");
		doctor_mend(d, "export NCCL_NET=Braid");
		return;
	}
	if (!asked) {
		doctor_ok(d, "NCCL_NET is not set: the first that works is taken");
		return;
	}
	for (size_t i = 0; i < json_array_size(list); i++) {
		c = json_array_get(list, i);
		if (strcasecmp(asked, text_of(c, "net")) == 0) {
			doctor_ok(d, "NCCL_NET=%s is the plugin's name", asked);
			return;
		}
	}
	if (strcasecmp(asked, "IB") == 0 || strcasecmp(asked, "Socket") == 0) {
		doctor_ok(d, "NCCL_NET=%s is NCCL's own", asked);
		return;
	}
	doctor_find(d, LEVEL_FAIL, "NCCL_NET=%s, and no plugin that can be loaded is called so",
		    asked);
	c = json_array_get(list, 0);
	if (*text_of(c, "net"))
		doctor_mend_set(d, "NCCL_NET", text_of(c, "net"));
	else
		mend_braid(d);
}

static void devices(struct doctor *d)
{
	const json_t *list = candidates(d), *c;
	bool seen = false;

	for (size_t i = 0; list && i < json_array_size(list); i++) {
		c = json_array_get(list, i);
		if (!json_is_true(json_object_get(c, "loaded")))
			continue;
		seen = true;
		doctor_fact(d, "plugin devices", "%lld", number(c, "devices"));
		if (number(c, "devices") > 0) {
			doctor_ok(d, "%s has %lld devices", text_of(c, "net"),
				  number(c, "devices"));
			continue;
		}
		doctor_find(d, LEVEL_FAIL, "%s has no device%s%s", text_of(c, "net"),
			    *text_of(c, "why") ? ": " : "", text_of(c, "why"));
		doctor_mend(d, "braid info --verbose --plugin %s", text_of(c, "file"));
	}
	if (list && !seen)
		doctor_skip(d, "no plugin is loaded");
}

static unsigned active(struct doctor *d)
{
	const struct rdma_port *ports;
	unsigned n = doctor_ports(d, &ports), ret = 0;

	for (unsigned i = 0; i < n; i++)
		ret += ports[i].active && !ports[i].soft;
	return ret;
}

static void fallback(struct doctor *d)
{
	const json_t *list = candidates(d), *c;
	const char *asked = env_get(d, "NCCL_NET");
	const char *own = "its own IB";
	long long off;

	if (!list)
		return;
	c = taken(d, list);
	if (!active(d) || (env_number(d, "NCCL_IB_DISABLE", &off) && off))
		own = "its own Socket, over TCP";
	doctor_fact(d, "nccl would use", "%s", c ? text_of(c, "net") : asked ? asked : own);
	if (c && asked) {
		doctor_ok(d, "NCCL uses %s, or says that it can't", text_of(c, "net"));
	} else if (c) {
		doctor_find(d, LEVEL_NOTE, "NCCL uses %s; if it fails on some host, %s there, "
			    "silently", text_of(c, "net"), own);
		doctor_mend_set(d, "NCCL_NET", text_of(c, "net"));
	} else if (asked && strcasecmp(asked, "IB") != 0 && strcasecmp(asked, "Socket") != 0) {
		doctor_ok(d, "NCCL stops rather than go on without %s", asked);
	} else if (env_get(d, "NCCL_NET_PLUGIN") &&
		   strcasecmp(env_get(d, "NCCL_NET_PLUGIN"), "none") != 0) {
		doctor_find(d, LEVEL_FAIL, "silent fallback: NCCL goes on with %s",
			    asked ? asked : own);
		mend_braid(d);
	} else if (active(d) && strstr(own, "TCP")) {
		doctor_find(d, LEVEL_FAIL, "silent fallback: %u RDMA ports are active, but NCCL "
			    "uses %s", active(d), own);
		doctor_mend_set(d, "NCCL_IB_DISABLE", NULL);
	} else {
		doctor_find(d, LEVEL_NOTE, "NCCL uses %s", asked ? asked : own);
		mend_braid(d);
	}
}

static bool has(const json_t *list, const char *word)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *s = json_string_value(json_array_get(list, i));

		if (s && strcmp(s, word) == 0)
			return true;
	}
	return false;
}

/* Would Braid use RDMA, or TCP alone?  The plugin's notes say why. */
static void transports(struct doctor *d)
{
	const json_t *list = candidates(d), *c = list ? taken(d, list) : NULL, *devs, *notes;
	bool any = false;

	if (!list)
		return;
	if (!c || strcmp(text_of(c, "net"), "Braid") != 0) {
		doctor_skip(d, "Braid would not be used");
		return;
	}
	devs = json_object_get(c, "list");
	for (size_t i = 0; i < json_array_size(devs); i++) {
		const json_t *dev = json_array_get(devs, i);

		any |= has(json_object_get(dev, "transports"), "verbs");
		doctor_ok(d, "%s: %s first", text_of(dev, "name"),
			  json_array_size(json_object_get(dev, "transports")) ?
			  json_string_value(json_array_get(json_object_get(dev, "transports"), 0)) :
			  "?");
	}
	if (any || !active(d))
		return;
	notes = json_object_get(c, "notes");
	doctor_find(d, LEVEL_FAIL, "silent fallback: %u RDMA ports are active, but Braid would use "
		    "TCP alone%s%s", active(d), json_array_size(notes) ? ": " : "",
		    json_array_size(notes) ? json_string_value(json_array_get(notes, 0)) : "");
	if (doctor_transport_is_on(d, "verbs"))
		doctor_mend(d, "braid info   # its notes say why");
	else
		doctor_mend_set(d, "BRAID_TRANSPORTS", NULL);
}

/* The device of that name; NULL: none. */
static const json_t *device(const json_t *list, const char *name, size_t len)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *dev = json_array_get(list, i);
		const char *its = text_of(dev, "name");

		if (strlen(its) == len && !strncmp(its, name, len))
			return dev;
	}
	return NULL;
}

/* "a,b;c,d": NCCL fails if one of these is not there, or can't be joined. */
static void merge(struct doctor *d)
{
	const char *asked = env_get(d, "NCCL_NET_FORCE_MERGE");
	const json_t *list = asked ? candidates(d) : NULL, *c = list ? taken(d, list) : NULL;
	bool found = false;

	if (!asked)
		doctor_ok(d, "NCCL_NET_FORCE_MERGE is not set");
	else if (list && (!c || strcmp(text_of(c, "net"), "Braid") != 0))
		doctor_skip(d, "Braid would not be used");
	for (const char *at = asked; c && *at; at += strcspn(at, ",;"), at += *at != '\0') {
		int len = (int)strcspn(at, ",;:");
		const json_t *dev = device(json_object_get(c, "list"), at, (size_t)len);

		if (!len || (dev && *text_of(dev, "pci_path")))
			continue;
		found = true;
		doctor_find(d, LEVEL_FAIL, "NCCL_NET_FORCE_MERGE names %.*s, which %s", len, at,
			    dev ? "has no PCI path" : "is no device");
		doctor_mend_set(d, "NCCL_NET_FORCE_MERGE", NULL);
	}
	if (c && !found)
		doctor_ok(d, "NCCL_NET_FORCE_MERGE=%s", asked);
}

/* NCCL 2.28 to 2.30.2 forgets the plugin's name with the last communicator, unless it is kept. */
static bool forgets(struct doctor *d)
{
	enum { RELOADS_BADLY = 22800, RELOADS_WELL = 23003 };
	long long v = doctor_nccl_version(d), keep;

	return v >= RELOADS_BADLY && v < RELOADS_WELL && env_get(d, "NCCL_NET_PLUGIN") &&
	       !(env_number(d, "NCCL_NET_PLUGIN_REF_COUNT", &keep) && keep);
}

/* The plugin called libnccl-net.so, or NULL: there is none. */
static const char *standard(struct doctor *d)
{
	const char *why;
	const json_t *o = doctor_probe(d, &probe_standard, &why);

	return o && json_is_true(json_object_get(o, "loaded")) ? text_of(o, "net") : NULL;
}

static void check_standard(struct doctor *d)
{
	const char *net = standard(d);

	if (!net) {
		doctor_ok(d, "there is no libnccl-net.so");
	} else if (strcmp(net, "Braid") == 0) {
		doctor_ok(d, "libnccl-net.so is Braid");
	} else if (!env_get(d, "NCCL_NET_PLUGIN")) {
		doctor_find(d, LEVEL_WARN, "libnccl-net.so is %s, not Braid, and NCCL loads it",
			    net);
		mend_braid(d);
	} else if (forgets(d)) {
		doctor_find(d, LEVEL_WARN, "libnccl-net.so is %s, which this NCCL loads once all "
			    "communicators are gone and new ones come", net);
		doctor_mend_set(d, "NCCL_NET_PLUGIN_REF_COUNT", "1");
	} else {
		doctor_ok(d, "libnccl-net.so is %s, but NCCL_NET_PLUGIN names another", net);
	}
}

static void library(struct doctor *d)
{
	enum { OLDEST_V6 = 21200 };
	long long v = doctor_nccl_version(d);
	const char *net = standard(d);

	if (!v) {
		doctor_skip(d, "libnccl.so.2 is not where the loader looks");
		return;
	}
	doctor_fact(d, "nccl", "%lld.%lld.%lld", v / 10000, v / 100 % 100, v % 100);
	if (v < OLDEST_V6) {
		doctor_find(d, LEVEL_WARN, "NCCL %lld.%lld is older than 2.12", v / 10000,
			    v / 100 % 100);
		doctor_mend_install(d, "libnccl2", "libnccl");
	} else if (forgets(d) && !(net && strcmp(net, "Braid") == 0)) {
		doctor_find(d, LEVEL_NOTE, "NCCL %lld.%lld.%lld forgets the plugin's name when all "
			    "communicators are gone: new ones get %s", v / 10000, v / 100 % 100,
			    v % 100, net ? net : "no plugin, or an error if NCCL_NET names it");
		doctor_mend_set(d, "NCCL_NET_PLUGIN_REF_COUNT", "1");
	} else {
		doctor_ok(d, "NCCL %lld.%lld.%lld", v / 10000, v / 100 % 100, v % 100);
	}
}

const struct check doctor_plugin[] = {
	{ "plugin-load", "The plugin that NCCL loads",
	  "NCCL goes on with its own transports, and says so at INFO only", load },
	{ "plugin-name", "The names in NCCL_NET_PLUGIN",
	  "NCCL does not find what was meant", names },
	{ "plugin-net", "The name in NCCL_NET",
	  "No communicator can be made: \"failed to initialize any NET plugin\"", net },
	{ "plugin-devices", "The plugin's devices",
	  "NCCL passes over a plugin without devices, and goes on with its own transports",
	  devices },
	{ "plugin-fallback", "What NCCL would use in the end",
	  "A job on the wrong transport runs, and is slow", fallback },
	{ "plugin-transports", "What Braid would use",
	  "RDMA is there and not used: a job runs, and is slow", transports },
	{ "plugin-merge", "NICs that NCCL is made to join",
	  "NCCL does not start: it joins only devices that are there and have a PCI path", merge },
	{ "plugin-standard", "The plugin that is called libnccl-net.so",
	  "Where no plugin is asked for, and in some versions later, NCCL loads that one",
	  check_standard },
	{ "plugin-nccl", "NCCL's version",
	  "Known of this version; a later communicator may come without the plugin", library },
	{ "plugin-rma", "Who does one-sided operations (RMA)",
	  "Without a backend there is no symmetric memory between hosts", doctor_onesided },
	{ NULL, NULL, NULL, NULL },
};
