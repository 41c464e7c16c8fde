/* SPDX-License-Identifier: BSD-3-Clause */
/* sys.c - a check's only access to the system: files below a root, and the process of --pid. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor/doctor_int.h"
#include "topo/machine_int.h"
#include "topo/sys.h"

enum { FILE_MOST = 1 << 20 };

/* The path that fmt gives, below the root. */
#define PATH(d, path, fmt)							\
	char path[PATH_LEN];							\
	do {									\
		va_list ap_;							\
										\
		va_start(ap_, fmt);						\
		path_make(d, path, fmt, ap_);					\
		va_end(ap_);							\
	} while (0)

static void path_make(const struct doctor *d, char *ret, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));
static void path_make(const struct doctor *d, char *ret, const char *fmt, va_list ap)
{
	int n = snprintf(ret, PATH_LEN, "%s", d->w->root);

	if (n < PATH_LEN)
		vsnprintf(ret + n, PATH_LEN - (size_t)n, fmt, ap);
}

bool sys_line(struct doctor *d, char *ret, size_t len, const char *fmt, ...)
{
	PATH(d, path, fmt);
	return braid_sys_line(path, ret, len);
}

bool sys_number(struct doctor *d, long long *ret, const char *fmt, ...)
{
	long v;

	PATH(d, path, fmt);
	if (!braid_sys_number(path, LONG_MIN, LONG_MAX, &v))
		return false;
	*ret = v;
	return true;
}

char *sys_text(struct doctor *d, size_t *ret_len, const char *fmt, ...)
{
	char *text = NULL, *more;
	size_t len = 0;
	ssize_t n = -1;
	int fd;

	PATH(d, path, fmt);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return NULL;
	while (len < FILE_MOST) {
		more = realloc(text, len + 4096 + 1);
		if (!more)
			break;
		text = more;
		n = read(fd, text + len, 4096);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	close(fd);
	if (!text || (n < 0 && !len)) {
		free(text);
		return NULL;
	}
	text[len] = '\0';
	if (ret_len)
		*ret_len = len;
	return text;
}

const char *sys_next_line(const char *text)
{
	text = strchr(text, '\n');
	return text ? text + 1 : NULL;
}

bool sys_has(struct doctor *d, const char *fmt, ...)
{
	PATH(d, path, fmt);
	return access(path, F_OK) == 0;
}

bool sys_may(struct doctor *d, const char *fmt, ...)
{
	PATH(d, path, fmt);
	return access(path, R_OK | W_OK) == 0;
}

bool sys_link(struct doctor *d, char *ret, size_t len, const char *fmt, ...)
{
	char to[PATH_LEN];
	const char *last;
	ssize_t n;

	PATH(d, path, fmt);
	n = readlink(path, to, sizeof(to) - 1);
	if (n < 0)
		return false;
	to[n] = '\0';
	last = strrchr(to, '/');
	snprintf(ret, len, "%s", last ? last + 1 : to);
	return true;
}

static int by_name(const void *a, const void *b)
{
	return strverscmp(a, b);
}

void sys_names(struct doctor *d, struct names *ret, const char *fmt, ...)
{
	const struct dirent *e;
	DIR *dir;

	PATH(d, path, fmt);
	ret->n = 0;
	dir = opendir(path);
	while (dir && ret->n < NAMES_MAX && (e = readdir(dir)))
		if (e->d_name[0] != '.' && strlen(e->d_name) < NAME_LEN)
			strcpy(ret->name[ret->n++], e->d_name);
	if (dir)
		closedir(dir);
	qsort(ret->name, ret->n, NAME_LEN, by_name);
}

/* -- a process ---------------------------------------------------------------------------- */

const char *sys_proc(const struct doctor *d)
{
	return d->proc;
}

static long long limit_value(const char *word)
{
	return strncmp(word, "unlimited", 9) == 0 ? -1 : strtoll(word, NULL, 10);
}

bool sys_limit(struct doctor *d, const char *name, long long *soft, long long *hard)
{
	char *text = sys_text(d, NULL, "%s/limits", d->proc), *at;

	at = text ? strstr(text, name) : NULL;
	if (at) {
		at += strlen(name);
		at += strspn(at, " ");
		*soft = limit_value(at);
		at += strcspn(at, " ");
		at += strspn(at, " ");
		*hard = limit_value(at);
	}
	free(text);
	return at != NULL;
}

bool sys_field(struct doctor *d, const char *path, const char *name, char *ret, size_t len)
{
	char *text = sys_text(d, NULL, "%s", path), *line, *rest = text;
	size_t n = strlen(name);
	bool found = false;

	while (!found && rest && (line = strsep(&rest, "\n"))) {
		if (strncmp(line, name, n) != 0)
			continue;
		line += n + strspn(line + n, " \t");
		if (*line != ':')
			continue;
		line++;
		snprintf(ret, len, "%s", line + strspn(line, " \t"));
		found = true;
	}
	free(text);
	return found;
}

/* Lines come in pairs: names, then values, each line beginning with the group. */
bool sys_snmp(struct doctor *d, const char *file, const char *group, const char *name,
	      long long *ret)
{
	char *text = sys_text(d, NULL, "%s/net/%s", d->proc, file), *rest = text;
	bool found = false;

	while (!found && rest && *rest) {
		char *names = strsep(&rest, "\n"), *values = strsep(&rest, "\n");
		char *word, *value;

		if (!values)
			break;
		word = strsep(&names, ": ");
		if (strcmp(word, group) != 0)
			continue;
		values += strcspn(values, " ");
		while ((word = strsep(&names, " ")) && (value = strsep(&values, " ")) && !found) {
			if (*word && strcmp(word, name) == 0) {
				*ret = strtoll(value, NULL, 10);
				found = true;
			}
		}
	}
	free(text);
	return found;
}

const struct braid_machine *doctor_machine(struct doctor *d)
{
	if (!d->machine && braid_machine_read(d->w->root, &d->machine) < 0 &&
	    braid_machine_new(&d->machine) < 0)
		_exit(1);		/* no memory: the parent reports it */
	return d->machine;
}

/* -- the host, or a recorded one ---------------------------------------------------------- */

bool doctor_is_live(const struct doctor *d)
{
	return !*d->w->root;
}

const char *doctor_host(const struct doctor *d)
{
	return d->w->peer;
}

int doctor_port(const struct doctor *d)
{
	return d->w->port;
}

struct doctor *doctor_new(const struct options *w)
{
	struct doctor *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->w = w;
	if (w->pid)
		snprintf(d->proc, sizeof(d->proc), "/proc/%d", w->pid);
	else
		snprintf(d->proc, sizeof(d->proc), "/proc/self");
	return d;
}

void doctor_free(struct doctor *d)
{
	for (unsigned i = 0; i < d->n_env; i++) {
		free(d->env[i].name);
		free(d->env[i].value);
	}
	for (unsigned i = 0; i < d->n_probes; i++)
		json_decref(d->probes[i].json);
	free(d->env);
	free(d->ports);
	free(d->ifaces);
	if (d->machine)
		braid_machine_free(d->machine);
	json_decref(d->findings.list);
	json_decref(d->facts);
	free(d);
}
