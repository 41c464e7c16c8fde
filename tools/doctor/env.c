/* SPDX-License-Identifier: BSD-3-Clause */
/* env.c - the environment of a job as NCCL sees it: variables, then configuration files. */
#include "config.h"

#include <ctype.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "tools/conf.h"
#include "tools/doctor/doctor_int.h"

static const struct env *entry(const struct doctor *d, const char *name)
{
	for (unsigned i = 0; i < d->n_env; i++)
		if (strcmp(d->env[i].name, name) == 0)
			return &d->env[i];
	return NULL;
}

/* A variable that is set keeps its value, as for NCCL. */
static void env_add(struct doctor *d, const char *name, const char *value, const char *file,
		    unsigned line)
{
	if (!*name || d->n_env == ENV_MAX || entry(d, name))
		return;
	d->env[d->n_env++] = (struct env){ strdup(name), strdup(value), file, line };
}

/* Split NAME=VALUE at the "=". */
static void env_own(struct doctor *d)
{
	size_t len = 0;
	char *text = sys_text(d, &len, "%s/environ", d->proc), *value;

	for (size_t at = 0, n; at < len; at += n + 1) {
		n = strlen(text + at);
		value = strchr(text + at, '=');
		if (!value)
			continue;
		*value++ = '\0';
		env_add(d, text + at, value, NULL, 0);
	}
	free(text);
}

struct reading {
	struct doctor *d;
	const char *file;
};

static void env_line(void *arg, const char *name, const char *value, unsigned line)
{
	struct reading *r = arg;

	env_add(r->d, name, value, r->file, line);
}

static void env_file(struct doctor *d, const char *path)
{
	struct reading r = { d, strdup(path) };
	char *text = sys_text(d, NULL, "%s", path);

	if (text)
		conf_parse(text, env_line, &r);
	free(text);
}

/* Field n, from 0, of a line of the password file, which is changed; or NULL. */
static const char *passwd_field(char *line, unsigned n)
{
	const char *field = strsep(&line, ":");

	while (field && n--)
		field = strsep(&line, ":");
	return field;
}

/* The home directory of a user in the password file, of the system or below the root. */
static const char *passwd_home(struct doctor *d, unsigned uid)
{
	enum { UID = 2, DIR = 5 };
	const struct passwd *pw = doctor_is_live(d) ? getpwuid(uid) : NULL;
	char *text = doctor_is_live(d) ? NULL : sys_text(d, NULL, "/etc/passwd");
	char *rest = text, *line;
	static char dir[PATH_LEN];

	snprintf(dir, sizeof(dir), "%s", pw ? pw->pw_dir : "");
	while (rest && !*dir && (line = strsep(&rest, "\n"))) {
		char *other = strdup(line);
		const char *id = other ? passwd_field(other, UID) : NULL, *home;

		home = id && *id && strtoul(id, NULL, 10) == uid ? passwd_field(line, DIR) : NULL;
		if (home)
			snprintf(dir, sizeof(dir), "%s", home);
		free(other);
	}
	free(text);
	return *dir ? dir : NULL;
}

/* The home of the process's user, as NCCL finds it. */
static const char *env_home(struct doctor *d)
{
	const struct env *env = entry(d, "HOME");
	const char *home = env && *env->value ? env->value : NULL, *passwd;
	char uid[NAME_LEN], path[PATH_LEN];

	snprintf(path, sizeof(path), "%s/status", d->proc);
	if (!sys_field(d, path, "Uid", uid, sizeof(uid)))
		return home;
	passwd = passwd_home(d, (unsigned)atoi(uid));
	if (!home || !passwd || strcmp(home, passwd) == 0)
		return passwd ? passwd : home;
	if (sys_has(d, "%s/.nccl.conf", home) || sys_has(d, "%s/.nccl.conf", passwd))
		snprintf(d->conf_other, sizeof(d->conf_other), "%.480s/.nccl.conf", home);
	return conf_home(home, passwd, doctor_nccl_version(d), d->w->root);
}

static void env_load(struct doctor *d)
{
	const struct env *own;
	const char *home;

	if (d->env)
		return;
	d->env = calloc(ENV_MAX, sizeof(*d->env));
	if (!d->env)
		return;
	env_own(d);
	own = entry(d, "NCCL_CONF_FILE");
	home = own && *own->value ? NULL : env_home(d);
	if (own && *own->value)
		snprintf(d->conf, sizeof(d->conf), "%s", own->value);
	else if (home)
		snprintf(d->conf, sizeof(d->conf), "%.480s/.nccl.conf", home);
	if (*d->conf)
		env_file(d, d->conf);
	env_file(d, CONF_SYSTEM);
}

const char *env_conf(struct doctor *d)
{
	env_load(d);
	return *d->conf ? d->conf : NULL;
}

const char *env_conf_other(struct doctor *d)
{
	env_load(d);
	return *d->conf_other ? d->conf_other : NULL;
}

const struct env *env_find(struct doctor *d, const char *name)
{
	env_load(d);
	return entry(d, name);
}

const char *env_get(struct doctor *d, const char *name)
{
	const struct env *e = env_find(d, name);

	return e && *e->value ? e->value : NULL;
}

bool env_number(struct doctor *d, const char *name, long long *ret)
{
	const char *text = env_get(d, name);
	int64_t v = 0;

	if (!text || (strncmp(name, "NCCL_", 5) == 0 ? braid_nccl_number(text, &v) < 0 :
		      sscanf(text, "%" SCNd64, &v) != 1))
		return false;
	*ret = v;
	return true;
}

unsigned env_all(struct doctor *d, const struct env **ret)
{
	env_load(d);
	*ret = d->env;
	return d->n_env;
}

const char *env_param(struct doctor *d, const char *name, const char **ret_name)
{
	static char own[NAME_LEN];
	const char *value;

	for (unsigned i = 0; i < braid_param_count; i++) {
		const struct braid_param_row *row = &braid_param_rows[i];
		size_t k;

		if (strcmp(row->name, name) != 0)
			continue;
		snprintf(own, sizeof(own), "BRAID_%s", row->name);
		for (k = 0; own[k]; k++)
			own[k] = (char)toupper((unsigned char)own[k]);
		*ret_name = own;
		value = env_get(d, own);
		if (!value && row->fallback) {
			value = env_get(d, row->fallback);
			if (value)
				*ret_name = row->fallback;
		}
		return value;
	}
	return NULL;
}

bool doctor_transport_is_on(struct doctor *d, const char *transport)
{
	const char *name, *text = env_param(d, "transports", &name), *at;
	size_t n = strlen(transport);

	for (unsigned i = 0; i < braid_param_count && !text; i++)
		if (strcmp(braid_param_rows[i].name, "transports") == 0)
			text = braid_param_rows[i].def;
	for (at = text; *at; at += strspn(at, ", ")) {
		size_t len = strcspn(at, ", ");

		if (len == n && strncmp(at, transport, n) == 0)
			return true;
		at += len;
	}
	return false;
}
