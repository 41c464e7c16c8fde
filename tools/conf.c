/* SPDX-License-Identifier: BSD-3-Clause */
/* conf.c - see conf.h. */
#include "tools/conf.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOME_IS_ENV = 23003, FILE_MOST = 1 << 16 };

void conf_parse(char *text, void (*each)(void *arg, const char *name, const char *value,
					 unsigned line), void *arg)
{
	char *rest = text, *line, *value;

	for (unsigned n = 1; (line = strsep(&rest, "\n")); n++) {
		size_t len = strlen(line);

		if (len && line[len - 1] == '\r')
			line[len - 1] = '\0';
		value = strchr(line, '=');
		if (*line == '#' || !value)
			continue;
		*value++ = '\0';
		each(arg, line, value, n);
	}
}

static int has_file(const char *root, const char *dir)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s%s/.nccl.conf", root, dir);
	return access(path, R_OK) == 0;
}

const char *conf_home(const char *home, const char *passwd, long long version, const char *root)
{
	if (!home || !*home || !passwd)
		return passwd ? passwd : home;
	if (version)
		return version >= HOME_IS_ENV ? home : passwd;
	return has_file(root, passwd) || !has_file(root, home) ? passwd : home;
}

/* -- apply files to this process's environment -------------------------------------------- */

struct applying {
	const char *file;
	void (*tell)(const char *name, const char *value, const char *file, unsigned line);
};

static void apply_line(void *arg, const char *name, const char *value, unsigned line)
{
	const struct applying *a = arg;

	if (!*name || getenv(name))
		return;
	setenv(name, value, 0);
	if (a->tell)
		a->tell(name, value, a->file, line);
}

static void apply_file(struct applying *a, const char *path)
{
	char *text = calloc(1, FILE_MOST + 1);
	FILE *f = fopen(path, "re");

	a->file = path;
	if (f && text && fread(text, 1, FILE_MOST, f))
		conf_parse(text, apply_line, a);
	if (f)
		fclose(f);
	free(text);
}

void conf_apply(void (*tell)(const char *name, const char *value, const char *file, unsigned line))
{
	const char *own = getenv("NCCL_CONF_FILE"), *home;
	struct applying a = { .tell = tell };
	const struct passwd *pw;
	char path[PATH_MAX];

	if (own && *own) {
		apply_file(&a, own);
	} else {
		pw = getpwuid(getuid());
		home = conf_home(getenv("HOME"), pw ? pw->pw_dir : NULL, 0, "");
		snprintf(path, sizeof(path), "%s/.nccl.conf", home ? home : "");
		if (home)
			apply_file(&a, path);
	}
	apply_file(&a, CONF_SYSTEM);
}
