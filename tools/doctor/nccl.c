/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl.c - the job's variables: misspelt, out of range, contradicting each other, or turning things
 * off.  NCCL's configuration files count as well (env.c).
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/param.h"
#include "tools/conf.h"
#include "tools/doctor/doctor.h"
#include "tools/text.h"
#include "topo/ips.h"

struct name {
	const char *name;
	long long least, most;		/* both 0: text */
};

static const struct name names[] = {
#define TEXT(name) { #name, 0, 0 },
#define NUMBER(name, least, most) { #name, least, most },
#include "tools/doctor/nccl_names.h"
#undef TEXT
#undef NUMBER
};
enum { NAMES = sizeof(names) / sizeof(names[0]), FAR = 4, WORD = 64, NONE = -1 };

/* The i-th name: first those of names[], then those that Braid ignores (core/base/nccl.def). */
static struct name name_at(unsigned i)
{
	const struct braid_nccl_row *row = i < NAMES ? NULL : &braid_nccl_rows[i - NAMES];

	return row ? (struct name){ row->name + 5, row->least, row->most } : names[i];
}

/* The variable called `name`, or NONE; *ret_near: the most similar one, or NONE. */
static int find(const char *name, int *ret_near)
{
	unsigned least = FAR;

	*ret_near = NONE;
	for (unsigned i = 0; i < NAMES + braid_nccl_count; i++) {
		unsigned far = text_distance(name, name_at(i).name);

		if (far == 0)
			return (int)i;
		if (far < least && far * 3 < strlen(name)) {
			least = far;
			*ret_near = (int)i;
		}
	}
	return NONE;
}

static void misspelt(struct doctor *d)
{
	const struct env *e;
	unsigned n = env_all(d, &e), seen = 0, bad = 0;
	int near;

	for (; n; n--, e++) {
		char right[WORD + 8];

		if (strncmp(e->name, "NCCL_", 5) != 0)
			continue;
		seen++;
		if (find(e->name + 5, &near) != NONE)
			continue;
		bad++;
		if (near == NONE) {
			doctor_find(d, LEVEL_NOTE, "%s is no variable of NCCL's that was known "
				    "when this was written", e->name);
			continue;
		}
		snprintf(right, sizeof(right), "NCCL_%s", name_at((unsigned)near).name);
		doctor_find(d, LEVEL_WARN, "%s is no variable of NCCL's: %s?", e->name, right);
		doctor_mend_rename(d, e->name, right, e->value);
	}
	if (!seen)
		doctor_ok(d, "no variable of NCCL's is set");
	else if (!bad)
		doctor_ok(d, "all %u are known", seen);
}

/* True: Braid refuses `value`; ret then lists the words it accepts, "AF_INET or AF_INET6". */
static bool is_refused(const char *name, const char *value, char *ret, size_t len)
{
	static struct braid_params scratch;

	for (unsigned i = 0; i < braid_param_count; i++) {
		const struct braid_param_row *row = &braid_param_rows[i];

		if (!row->fallback || !row->words || strcmp(row->fallback, name) != 0)
			continue;
		braid_param_range(row, ret, len);
		return braid_param_set(&scratch, row->name, value) == -EINVAL;
	}
	return false;
}

/* Report how NCCL reads a value, if it is not as meant; true: it is fine. */
static bool value_fits(struct doctor *d, const struct env *e, const struct name *as)
{
	char words[TEXT_LEN];
	int64_t v = 0;
	int rc;

	if (is_refused(e->name, e->value, words, sizeof(words))) {
		doctor_find(d, LEVEL_WARN, "%s=%s is not %s, and has no effect", e->name, e->value,
			    words);
		return false;
	}
	if (as->least == as->most)
		return true;
	rc = braid_nccl_number(e->value, &v);
	if (rc < 0)
		doctor_find(d, LEVEL_WARN, "%s=%s is too large: NCCL takes its default", e->name,
			    e->value);
	else if (rc)
		doctor_find(d, LEVEL_WARN, "%s=%s is no number: NCCL reads %" PRId64, e->name,
			    e->value, v);
	else if (v < as->least || (v > as->most && (as->least || as->most > 1)))
		doctor_find(d, LEVEL_WARN, "%s=%s is not from %lld to %lld", e->name, e->value,
			    as->least, as->most);
	else
		return true;
	return false;
}

static void values(struct doctor *d)
{
	const struct env *e;
	unsigned n = env_all(d, &e), seen = 0;

	for (; n; n--, e++) {
		int near, i = strncmp(e->name, "NCCL_", 5) == 0 && *e->value ?
			      find(e->name + 5, &near) : NONE;
		struct name as;
		char fact[WORD + 16];

		if (i == NONE)
			continue;
		seen++;
		as = name_at((unsigned)i);
		snprintf(fact, sizeof(fact), "env %.60s", e->name);
		doctor_fact(d, fact, "%s", e->value);
		if (!value_fits(d, e, &as))
			doctor_mend_set(d, e->name, NULL);
	}
	doctor_ok(d, "%u values were looked at", seen);
}

static void unheeded(struct doctor *d)
{
	bool found = false;

	for (unsigned i = 0; i < braid_nccl_count; i++) {
		const struct braid_nccl_row *row = &braid_nccl_rows[i];
		const char *value = env_get(d, row->name);

		if (!value)
			continue;
		found = true;
		doctor_find(d, LEVEL_NOTE, "%s=%s is not heeded by Braid: %s", row->name, value,
			    row->why);
		doctor_mend(d, "man braid-params   # what is heeded");
	}
	if (!found)
		doctor_ok(d, "none is set that Braid does not heed");
}

/* -- Braid's own -------------------------------------------------------------------------- */

static void own_address(struct doctor *d, const char *value)
{
	if (braid_ips_choose(value) == 0)
		return;
	doctor_find(d, LEVEL_WARN, "BRAID_ADDRESS=%s is not a list of at most 16 subnets: Braid "
		    "ignores it", value);
	doctor_mend(d, "unset BRAID_ADDRESS   # or write it as 10.0.0.0/8,fd00::/8");
}

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
		if (braid_param_is_known(e->name) && braid_param_hides(e->name))
			continue;
		err = *e->value ? braid_param_set(&scratch, name, e->value) : 0;
		if (err == 0 && strcmp(name, "address") == 0)
			own_address(d, e->value);
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
		doctor_mend_rename(d, e->name, right,
				   braid_param_hides(e->name) ? NULL : e->value);
	}
	doctor_ok(d, seen ? "%u parameters of Braid's were looked at" :
		  "no parameter of Braid's is set", seen);
}

/* Does `value` mean `wanted`?  "1" stands for any number but 0, as in NCCL's switches. */
static bool is_value(const char *value, const char *wanted)
{
	bool number = *value && strchr("+-0123456789", *value) && isdigit((unsigned char)*wanted);
	int64_t v = 0;

	if (!number || braid_nccl_number(value, &v) < 0)
		return strcasecmp(value, wanted) == 0;
	return *wanted == '0' ? v == 0 : v != 0;
}

/* -- contradictions ----------------------------------------------------------------------- */

/* `a` has no effect, or an unexpected one, if `b` is set too; NULL values: any. */
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
	char value[32];
	bool found = false;

	for (unsigned i = 0; i < sizeof(fights) / sizeof(fights[0]); i++) {
		const char *a = env_get(d, fights[i].a), *b = env_get(d, fights[i].b);

		if (!a || !b || (fights[i].b_value ? !is_value(b, fights[i].b_value) :
				 strcmp(a, b) == 0) || strcmp(b, "-1") == 0)
			continue;
		found = true;
		doctor_find(d, LEVEL_WARN, "%s=%s beside %s=%s: %s", fights[i].a, a, fights[i].b, b,
			    fights[i].what);
		doctor_mend_set(d, fights[i].a, NULL);
	}
	for (unsigned i = 0; i < sizeof(ordered) / sizeof(ordered[0]); i++) {
		if (!env_number(d, ordered[i][0], &least) || !env_number(d, ordered[i][1], &most) ||
		    least <= most)
			continue;
		found = true;
		doctor_find(d, LEVEL_WARN, "%s=%lld is more than %s=%lld", ordered[i][0], least,
			    ordered[i][1], most);
		snprintf(value, sizeof(value), "%lld", most);
		doctor_mend_set(d, ordered[i][0], value);
	}
	if (env_number(d, "NCCL_SOCKET_NTHREADS", &least) &&
	    env_number(d, "NCCL_NSOCKS_PERTHREAD", &most) && least * most > SOCKETS) {
		found = true;
		doctor_find(d, LEVEL_WARN, "NCCL_SOCKET_NTHREADS=%lld times NCCL_NSOCKS_PERTHREAD="
			    "%lld is more than 64 sockets", least, most);
		snprintf(value, sizeof(value), "%lld", SOCKETS / least);
		doctor_mend_set(d, "NCCL_NSOCKS_PERTHREAD", value);
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

		if (!value || !is_value(value, rows[i].value))
			continue;
		found = true;
		doctor_find(d, LEVEL_WARN, "%s=%s: %s", rows[i].name, value, rows[i].cost);
		doctor_mend_set(d, rows[i].name, NULL);
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
		doctor_mend_set(d, names_of[i], NULL);
	}
	if (!seen)
		doctor_ok(d, "no file is named");
}

static void debug(struct doctor *d)
{
	const char *level = env_get(d, "NCCL_DEBUG");

	if (level && strcasecmp(level, "TRACE") == 0) {
		doctor_find(d, LEVEL_WARN, "NCCL_DEBUG=TRACE writes a line per operation");
		doctor_mend_set(d, "NCCL_DEBUG", "WARN");
	} else if (level && strcasecmp(level, "INFO") != 0 && strcasecmp(level, "WARN") != 0 &&
		   strcasecmp(level, "VERSION") != 0 && strcasecmp(level, "ABORT") != 0 &&
		   strcasecmp(level, "ATTN") != 0) {
		doctor_find(d, LEVEL_WARN, "NCCL_DEBUG=%s is no level", level);
		doctor_mend_set(d, "NCCL_DEBUG", "WARN");
	} else if (!level) {
		doctor_find(d, LEVEL_NOTE, "NCCL_DEBUG is not set: NCCL does not say why it fails");
		doctor_mend_set(d, "NCCL_DEBUG", "WARN");
	} else {
		doctor_ok(d, "NCCL_DEBUG=%s", level);
	}
}

/* How many lines of a file set nothing, or not what they seem to; -1: there is no such file. */
static int conf_file(struct doctor *d, const char *path)
{
	char *text = sys_text(d, NULL, "%s", path), *rest = text, *line;
	const char *sudo = strncmp(path, "/etc/", 5) == 0 ? "sudo " : "";
	int bad = 0;

	if (!text)
		return -1;
	for (unsigned n = 1; (line = strsep(&rest, "\n")); n++) {
		size_t name = strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");

		if (*line == '#' || !line[strspn(line, " \t\r")] || (name && line[name] == '='))
			continue;
		bad++;
		doctor_find(d, LEVEL_WARN, "%s:%u is not NAME=VALUE: %.*s", path, n,
			    braid_param_hides(line) ? (int)strcspn(line, " =") : 40, line);
		doctor_mend(d, "%ssed -i '%ud' %s   # or write it without blanks", sudo, n, path);
	}
	free(text);
	return bad;
}

static void conf(struct doctor *d)
{
	const char *own = env_conf(d), *other = env_conf_other(d);
	int bad[2] = { own ? conf_file(d, own) : -1, conf_file(d, CONF_SYSTEM) };

	if (other) {
		doctor_find(d, LEVEL_NOTE, "HOME is not the home of the password file: NCCL before "
			    "2.30 reads the latter's .nccl.conf, later ones %s", other);
		doctor_mend(d, "export NCCL_CONF_FILE=%s   # for all versions", own);
	}
	for (unsigned i = 0; i < 2; i++) {
		const char *path = i ? CONF_SYSTEM : own;

		if (path && bad[i] <= 0)
			doctor_ok(d, bad[i] < 0 ? "there is no %s" : "%s is well-formed", path);
	}
}

const struct check doctor_nccl[] = {
	{ "nccl-misspelt", "NCCL's variables, their names",
	  "NCCL passes over what it does not know", misspelt },
	{ "nccl-values", "NCCL's variables, their values",
	  "NCCL takes something else than what was meant, and says so at INFO only", values },
	{ "nccl-unheeded", "NCCL's variables that Braid does not heed",
	  "They have no effect here; what comes near is another", unheeded },
	{ "nccl-conflicts", "NCCL's variables, among each other",
	  "One has no effect because of the other", conflicts },
	{ "nccl-disabled", "What is turned off",
	  "Left over from a search for a fault, it costs speed", disabled },
	{ "nccl-files", "Files the variables name", "NCCL fails, or goes on without", files },
	{ "nccl-debug", "What NCCL logs",
	  "Without a level no causes are logged; the highest slows everything down", debug },
	{ "nccl-conf", "NCCL's configuration files",
	  "A line that is not understood has no effect", conf },
	{ "braid-parameters", "Braid's parameters",
	  "A bad value keeps Braid from starting, a bad name has no effect", own },
	{ NULL, NULL, NULL, NULL },
};
