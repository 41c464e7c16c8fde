/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl.c - the job's variables: misspelt, out of range, fighting each other, or turning things off.
 * What NCCL's configuration files add counts as well (sys.c).
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/param.h"
#include "tools/doctor/doctor.h"

static const struct {
	const char *name;
	long long least, most;		/* both 0: text */
} names[] = {
#define TEXT(name) { #name, 0, 0 },
#define NUMBER(name, least, most) { #name, least, most },
#include "tools/doctor/nccl_names.h"
#undef TEXT
#undef NUMBER
};
enum { NAMES = sizeof(names) / sizeof(names[0]), FAR = 4, WORD = 64 };

/* How many letters are to be changed, added, left out or swapped; FAR: that many or more. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[3][WORD + 1], *now, *last = row[0], *before = row[1];
	size_t n = strlen(a), m = strlen(b);

	if (n > WORD || m > WORD || n > m + FAR || m > n + FAR)
		return FAR;
	for (unsigned k = 0; k <= m; k++)
		last[k] = k;
	for (unsigned i = 1; i <= n; i++) {
		now = row[(i + 1) % 3];
		now[0] = i;
		for (unsigned k = 1; k <= m; k++) {
			unsigned best = last[k - 1] + (a[i - 1] != b[k - 1]);

			best = last[k] + 1 < best ? last[k] + 1 : best;
			best = now[k - 1] + 1 < best ? now[k - 1] + 1 : best;
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] &&
			    before[k - 2] + 1 < best)
				best = before[k - 2] + 1;
			now[k] = best;
		}
		before = last;
		last = now;
	}
	return last[m] < FAR ? last[m] : FAR;
}

/* The one that `name` is, or NAMES; *ret_near: the one that it is most like, or NAMES. */
static unsigned find(const char *name, unsigned *ret_near)
{
	unsigned least = FAR;

	*ret_near = NAMES;
	for (unsigned i = 0; i < NAMES; i++) {
		unsigned far = distance(name, names[i].name);

		if (far == 0)
			return i;
		if (far < least && far * 3 < strlen(name)) {
			least = far;
			*ret_near = i;
		}
	}
	return NAMES;
}

/* Where a variable is changed: `export` in the shell, or the file that has it. */
static void mend_set(struct doctor *d, const struct env *e, const char *name, const char *value)
{
	if (value && strpbrk(value, "'\\|&"))		/* of use to nobody, and odd in a shell */
		value = NULL;
	if (*e->where == '~' || *e->where == '/')
		doctor_mend(d, "sed -i 's|^%s=.*|%s%s%s|' %s", e->name, value ? name : "",
			    value ? "=" : "", value ? value : "", e->where);
	else if (!value)
		doctor_mend(d, "unset %s", e->name);
	else if (strcmp(e->name, name) != 0)
		doctor_mend(d, "unset %s; export %s='%s'", e->name, name, value);
	else
		doctor_mend(d, "export %s=%s", name, value);
}

static void misspelt(struct doctor *d)
{
	const struct env *e;
	unsigned n = env_all(d, &e), seen = 0, bad = 0, near;

	for (; n; n--, e++) {
		char right[WORD + 8];

		if (strncmp(e->name, "NCCL_", 5) != 0)
			continue;
		seen++;
		if (find(e->name + 5, &near) < NAMES)
			continue;
		bad++;
		if (near == NAMES) {
			doctor_find(d, LEVEL_NOTE, "%s is no variable of NCCL's that was known "
				    "when this was written", e->name);
			continue;
		}
		snprintf(right, sizeof(right), "NCCL_%s", names[near].name);
		doctor_find(d, LEVEL_WARN, "%s is no variable of NCCL's: %s?", e->name, right);
		mend_set(d, e, right, e->value);
	}
	if (!seen)
		doctor_ok(d, "no variable of NCCL's is set");
	else if (!bad)
		doctor_ok(d, "all %u are known", seen);
}

static void values(struct doctor *d)
{
	const struct env *e;
	unsigned n = env_all(d, &e), seen = 0, near;

	for (; n; n--, e++) {
		unsigned i = strncmp(e->name, "NCCL_", 5) == 0 && *e->value ?
			     find(e->name + 5, &near) : NAMES;
		char fact[WORD + 16], *end;
		long long v;

		if (i == NAMES)
			continue;
		seen++;
		snprintf(fact, sizeof(fact), "env %.60s", e->name);
		doctor_fact(d, fact, "%s", e->value);
		if (names[i].least == names[i].most)
			continue;
		v = strtoll(e->value, &end, 0);
		if (end == e->value || *end)
			doctor_find(d, LEVEL_WARN, "%s=%s is no number: NCCL takes its default",
				    e->name, e->value);
		else if (v < names[i].least || v > names[i].most)
			doctor_find(d, LEVEL_WARN, "%s=%s is not from %lld to %lld", e->name,
				    e->value, names[i].least, names[i].most);
		else
			continue;
		mend_set(d, e, e->name, NULL);
	}
	doctor_ok(d, "%u values were looked at", seen);
}

/* -- Braid's own -------------------------------------------------------------------------- */

static void own(struct doctor *d)
{
	static struct braid_params scratch;
	const struct env *e;
	unsigned n = env_all(d, &e), seen = 0;

	for (; n; n--, e++) {
		char name[WORD], right[WORD + 8];
		size_t k;
		int err;

		if (strncmp(e->name, "BRAID_", 6) != 0 || strncmp(e->name, "BRAID_TEST_", 11) == 0)
			continue;
		snprintf(name, sizeof(name), "%s", e->name + 6);
		for (k = 0; name[k]; k++)
			name[k] = (char)tolower((unsigned char)name[k]);
		seen++;
		err = *e->value ? braid_param_set(&scratch, name, e->value) : 0;
		if (err == 0)
			continue;
		if (err == -EINVAL) {
			doctor_find(d, LEVEL_FAIL, "%s=%s is not possible: Braid will not start",
				    e->name, e->value);
			doctor_mend(d, "braid info --params   # %s: its range; or unset it",
				    e->name);
			continue;
		}
		snprintf(right, sizeof(right), "BRAID_%s", braid_param_nearest(name));
		for (k = 0; right[k]; k++)
			right[k] = (char)toupper((unsigned char)right[k]);
		doctor_find(d, LEVEL_WARN, "%s is no parameter of Braid's: %s?", e->name, right);
		mend_set(d, e, right, e->value);
	}
	doctor_ok(d, seen ? "%u parameters of Braid's were looked at" :
		  "no parameter of Braid's is set", seen);
}

/* -- fights ------------------------------------------------------------------------------- */

/* `a` has no effect, or another one than it seems, beside `b`; NULL values: any. */
static const struct {
	const char *a, *b, *b_value;
	const char *what;
} fights[] = {
	{ "NCCL_IB_HCA", "NCCL_IB_DISABLE", "1", "no RDMA device is used at all" },
	{ "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE", "1", "no RDMA device is used at all" },
	{ "NCCL_IB_TC", "NCCL_IB_DISABLE", "1", "no RDMA device is used at all" },
	{ "NCCL_IB_HCA", "NCCL_NET", "Socket", "NCCL's sockets are used, no RDMA device" },
	{ "NCCL_NET_PLUGIN", "NCCL_NET", "Socket", "no plugin is used" },
	{ "NCCL_NET_PLUGIN", "NCCL_NET", "IB", "no plugin is used" },
	{ "NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE", "1", "GPUs do not reach each other at all" },
	{ "NCCL_NET_GDR_READ", "NCCL_NET_GDR_LEVEL", "LOC", "GPUDirect is off" },
	{ "NCCL_NET_GDR_READ", "NCCL_NET_GDR_LEVEL", "0", "GPUDirect is off" },
	{ "NCCL_IB_ADDR_FAMILY", "NCCL_IB_GID_INDEX", NULL, "the index is taken whatever it is" },
	{ "NCCL_IB_ADDR_RANGE", "NCCL_IB_GID_INDEX", NULL, "the index is taken whatever it is" },
	{ "NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_GID_INDEX", NULL,
	  "the index is taken whatever it is" },
	{ "NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_AR_THRESHOLD", "0", "every write is a plain one" },
	{ "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG", "WARN", "subsystems are for INFO and TRACE" },
	{ "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG", "VERSION", "subsystems are for INFO and TRACE" },
	{ "NCCL_NET_SHARED_COMMS", "NCCL_NET_SHARED_BUFFERS", "0", "shared comms need them" },
	{ "NCCL_SOCKET_IFNAME", "BRAID_SOCKET_IFNAME", NULL, "Braid takes its own" },
	{ "NCCL_IB_HCA", "BRAID_IB_HCA", NULL, "Braid takes its own" },
	{ "NCCL_IB_GID_INDEX", "BRAID_IB_GID_INDEX", NULL, "Braid takes its own" },
	{ "NCCL_IB_TC", "BRAID_DSCP", NULL, "Braid takes its own" },
	{ "NCCL_IB_DISABLE", "BRAID_IB_DISABLE", NULL, "Braid takes its own" },
	{ "NCCL_MIN_RINGS", "NCCL_MIN_NCHANNELS", NULL, "they are one thing" },
	{ "NCCL_MAX_RINGS", "NCCL_MAX_NCHANNELS", NULL, "they are one thing" },
};

static const char *const ordered[][2] = {
	{ "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS" },
	{ "NCCL_MIN_CTAS", "NCCL_MAX_CTAS" },
	{ "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS" },
};

static void conflicts(struct doctor *d)
{
	enum { SOCKETS = 64 };
	long long least, most;
	bool found = false;

	for (unsigned i = 0; i < sizeof(fights) / sizeof(fights[0]); i++) {
		const char *a = env_get(d, fights[i].a), *b = env_get(d, fights[i].b);

		if (!a || !b || (fights[i].b_value ? strcasecmp(b, fights[i].b_value) != 0 :
				 strcmp(a, b) == 0) || strcmp(b, "-1") == 0)
			continue;
		found = true;
		doctor_find(d, LEVEL_WARN, "%s=%s beside %s=%s: %s", fights[i].a, a, fights[i].b, b,
			    fights[i].what);
		doctor_mend(d, "unset %s   # or %s", fights[i].a, fights[i].b);
	}
	for (unsigned i = 0; i < sizeof(ordered) / sizeof(ordered[0]); i++) {
		if (!env_number(d, ordered[i][0], &least) || !env_number(d, ordered[i][1], &most) ||
		    least <= most)
			continue;
		found = true;
		doctor_find(d, LEVEL_WARN, "%s=%lld is more than %s=%lld", ordered[i][0], least,
			    ordered[i][1], most);
		doctor_mend(d, "export %s=%lld", ordered[i][0], most);
	}
	if (env_number(d, "NCCL_SOCKET_NTHREADS", &least) &&
	    env_number(d, "NCCL_NSOCKS_PERTHREAD", &most) && least * most > SOCKETS) {
		found = true;
		doctor_find(d, LEVEL_WARN, "NCCL_SOCKET_NTHREADS=%lld times NCCL_NSOCKS_PERTHREAD="
			    "%lld is more than 64 sockets", least, most);
		doctor_mend(d, "export NCCL_NSOCKS_PERTHREAD=%lld", SOCKETS / least);
	}
	if (!found)
		doctor_ok(d, "no two variables fight");
}

/* -- turned off --------------------------------------------------------------------------- */

static void disabled(struct doctor *d)
{
	static const struct {
		const char *name, *value, *cost;
	} rows[] = {
		{ "NCCL_P2P_DISABLE", "1", "GPUs of one host go through the CPU's memory" },
		{ "NCCL_SHM_DISABLE", "1", "ranks of one host go through the network" },
		{ "NCCL_IB_DISABLE", "1", "NCCL's own code uses no RDMA" },
		{ "BRAID_IB_DISABLE", "1", "Braid uses no RDMA" },
		{ "NCCL_NET_GDR_LEVEL", "LOC", "no NIC touches GPU memory" },
		{ "NCCL_NET_GDR_LEVEL", "0", "no NIC touches GPU memory" },
		{ "NCCL_NVLS_ENABLE", "0", "NVLink's switches do not reduce" },
		{ "NCCL_PXN_DISABLE", "1", "a GPU does not use the NIC of its neighbour" },
		{ "NCCL_CHECKS_DISABLE", "1", "mistakes in arguments are not seen" },
		{ "NCCL_NET_SHARED_BUFFERS", "0", "each connection has buffers of its own" },
		{ "BRAID_GPU", "none", "no NIC touches GPU memory" },
		{ "BRAID_SHARE", "0", "each communicator has connections of its own" },
	};
	bool found = false;

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *value = env_get(d, rows[i].name);

		if (!value || strcasecmp(value, rows[i].value) != 0)
			continue;
		found = true;
		doctor_find(d, LEVEL_WARN, "%s=%s: %s", rows[i].name, value, rows[i].cost);
		doctor_mend(d, "unset %s", rows[i].name);
	}
	if (!found)
		doctor_ok(d, "nothing that costs is turned off");
}

static void files(struct doctor *d)
{
	static const char *const names_of[] = { "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE",
					       "NCCL_CONF_FILE",
						"NCCL_TUNER_CONFIG_FILE" };
	bool seen = false;

	for (unsigned i = 0; i < sizeof(names_of) / sizeof(names_of[0]); i++) {
		const char *path = env_get(d, names_of[i]);

		if (!path)
			continue;
		seen = true;
		if (sys_has(d, "%s", path)) {
			doctor_ok(d, "%s is there", path);
			continue;
		}
		doctor_find(d, LEVEL_FAIL, "%s names %s, which is not there", names_of[i], path);
		doctor_mend(d, "unset %s", names_of[i]);
	}
	if (!seen)
		doctor_ok(d, "no file is named");
}

static void debug(struct doctor *d)
{
	const char *level = env_get(d, "NCCL_DEBUG");

	if (level && strcasecmp(level, "TRACE") == 0) {
		doctor_find(d, LEVEL_WARN, "NCCL_DEBUG=TRACE writes a line per operation");
		doctor_mend(d, "export NCCL_DEBUG=WARN");
	} else if (level && strcasecmp(level, "INFO") != 0 && strcasecmp(level, "WARN") != 0 &&
		   strcasecmp(level, "VERSION") != 0 && strcasecmp(level, "ABORT") != 0) {
		doctor_find(d, LEVEL_WARN, "NCCL_DEBUG=%s is no level", level);
		doctor_mend(d, "export NCCL_DEBUG=WARN");
	} else if (!level) {
		doctor_find(d, LEVEL_NOTE, "NCCL_DEBUG is not set: NCCL does not say why it fails");
		doctor_mend(d, "export NCCL_DEBUG=WARN");
	} else {
		doctor_ok(d, "NCCL_DEBUG=%s", level);
	}
}

static void conf(struct doctor *d)
{
	static const char path[] = "/etc/nccl.conf";
	char *text = sys_text(d, NULL, "%s", path), *rest = text, *line;
	unsigned n = 0, bad = 0;

	if (!text) {
		doctor_ok(d, "there is no %s", path);
		return;
	}
	while ((line = strsep(&rest, "\n"))) {
		size_t name;

		n++;
		line += strspn(line, " \t\r");
		if (!*line || *line == '#')
			continue;
		name = strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
		if (name && line[name] == '=')
			continue;
		bad++;
		doctor_find(d, LEVEL_WARN, "%s:%u is not NAME=VALUE: %.40s", path, n, line);
		doctor_mend(d, "sudo sed -i '%ud' %s", n, path);
	}
	free(text);
	if (!bad)
		doctor_ok(d, "%s is well-formed", path);
}

const struct check doctor_nccl[] = {
	{ "nccl-misspelt", "NCCL's variables, their names",
	  "NCCL passes over what it does not know", misspelt },
	{ "nccl-values", "NCCL's variables, their values",
	  "NCCL takes something else than what was meant, and says so at INFO only", values },
	{ "nccl-conflicts", "NCCL's variables, among each other",
	  "One has no effect because of the other", conflicts },
	{ "nccl-disabled", "What is turned off",
	  "Left over from a search for a fault, it costs speed", disabled },
	{ "nccl-files", "Files the variables name", "NCCL fails, or goes on without", files },
	{ "nccl-debug", "What NCCL logs",
	  "Without a level causes are not told; with the highest all is slow", debug },
	{ "nccl-conf", "/etc/nccl.conf", "A line that is not understood has no effect", conf },
	{ "braid-parameters", "Braid's parameters",
	  "A bad value keeps Braid from starting, a bad name has no effect", own },
	{ NULL, NULL, NULL, NULL },
};
