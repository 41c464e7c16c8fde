/* SPDX-License-Identifier: BSD-3-Clause */
/* process.c - see process.h. */
#include "tools/watch/process.h"

#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/text.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

enum { PLACES = 64 };

/* -- where they are ----------------------------------------------------------------------- */

struct places {
	size_t n;
	struct place {
		char dir[104];
		uid_t uid;
		dev_t dev;
		ino_t ino;
	} at[PLACES];
};

/* Take a directory only if its owner alone may enter it: then its files are that user's. */
static void place_add(struct places *p, const char *dir)
{
	struct stat sb;

	if (p->n == PLACES || strlen(dir) >= sizeof(p->at[0].dir) || lstat(dir, &sb) ||
	    !S_ISDIR(sb.st_mode) || sb.st_mode & 077)
		return;
	for (size_t i = 0; i < p->n; i++) {	/* also under another name */
		if (p->at[i].dev == sb.st_dev && p->at[i].ino == sb.st_ino)
			return;
	}
	p->at[p->n].dev = sb.st_dev;
	p->at[p->n].ino = sb.st_ino;
	strcpy(p->at[p->n].dir, dir);
	p->at[p->n++].uid = sb.st_uid;
}

static void places_glob(struct places *p, const char *pattern)
{
	glob_t g;

	if (glob(pattern, 0, NULL, &g))
		return;
	for (size_t i = 0; i < g.gl_pathc; i++)
		place_add(p, g.gl_pathv[i]);
	globfree(&g);
}

/* Places of a user below `root`: "", or the root of a process that has its own file system. */
static void places_of(struct places *p, const char *root, uid_t uid)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/run/user/%u/braid", root, (unsigned)uid);
	place_add(p, path);
	snprintf(path, sizeof(path), "%s/tmp/braid-%u", root, (unsigned)uid);
	place_add(p, path);
}

static struct places places(const char *dir)
{
	const char *set = getenv("BRAID_STAT_DIR"), *run = getenv("XDG_RUNTIME_DIR");
	struct places p = { 0 };
	char path[256];

	if (dir) {
		place_add(&p, dir);
		return p;
	}
	if (set && *set)
		place_add(&p, set);
	if (run && *run) {
		snprintf(path, sizeof(path), "%s/braid", run);
		place_add(&p, path);
	}
	places_of(&p, "", geteuid());
	if (geteuid() == 0) {
		places_glob(&p, "/run/user/*/braid");
		places_glob(&p, "/tmp/braid-*");
	}
	return p;
}

/* A socket's name is a PID, with .1 and so on if a process has the plugin several times. */
static bool process_at(const struct place *at, const char *name, struct process *ret)
{
	char *end;
	long pid = strtol(name, &end, 10);
	int n = snprintf(ret->path, sizeof(ret->path), "%s/%s", at->dir, name);

	ret->pid = (pid_t)pid;
	ret->uid = at->uid;
	return pid > 0 && (*end == 0 || *end == '.') && n > 0 && (size_t)n < sizeof(ret->path);
}

static int by_pid(const void *a, const void *b)
{
	const struct process *x = a, *y = b;

	return x->pid != y->pid ? (x->pid > y->pid) - (x->pid < y->pid) : strcmp(x->path, y->path);
}

void process_own_name(const char *pid, char *ret, size_t len)
{
	char path[64], line[256], *last;
	FILE *f;

	snprintf(ret, len, "%s", pid);
	snprintf(path, sizeof(path), "/proc/%.20s/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "NSpid:", 6) != 0)
			continue;
		line[strcspn(line, "\n")] = 0;
		last = strrchr(line, '\t');
		snprintf(ret, len, "%.20s", last ? last + 1 : pid);
	}
	if (f)
		fclose(f);
}

static bool found_in(const struct places *p, const char *name, struct process *ret)
{
	struct stat sb;

	for (size_t i = 0; i < p->n; i++) {
		if (process_at(&p->at[i], name, ret) && !lstat(ret->path, &sb) &&
		    S_ISSOCK(sb.st_mode))
			return true;
	}
	return false;
}

/* Look where a process of this user has its socket, also in a file system of its own. */
static bool found_at_home(const char *pid, uid_t uid, struct process *ret)
{
	struct places there = { 0 };
	char name[32], root[64];

	snprintf(root, sizeof(root), "/proc/%.*s/root", (int)strcspn(pid, "."), pid);
	process_own_name(pid, name, sizeof(name));
	places_of(&there, "", uid);
	places_of(&there, root, uid);
	return found_in(&there, name, ret);
}

static bool is_listed(const struct process *list, size_t n, const char *path)
{
	struct stat a, b;

	if (lstat(path, &a))
		return true;
	for (size_t i = 0; i < n; i++) {
		if (!lstat(list[i].path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
			return true;
	}
	return false;
}

bool process_is_apart(pid_t pid, const char *namespace)
{
	char own[64], path[64];
	struct stat here, there;

	snprintf(own, sizeof(own), "/proc/self/ns/%.8s", namespace);
	snprintf(path, sizeof(path), "/proc/%d/ns/%.8s", (int)pid, namespace);
	return !stat(own, &here) && !stat(path, &there) && here.st_ino != there.st_ino;
}

/* Add the processes of containers to the n that are listed. */
static size_t list_containers(struct process *ret, size_t n, size_t max)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	struct stat sb;
	char path[64];

	while (d && n < max && (e = readdir(d))) {
		long pid = strtol(e->d_name, NULL, 10);

		snprintf(path, sizeof(path), "/proc/%.20s", e->d_name);
		if (pid <= 0 || !process_is_apart((pid_t)pid, "mnt") || stat(path, &sb) ||
		    !found_at_home(e->d_name, sb.st_uid, &ret[n]) ||
		    is_listed(ret, n, ret[n].path))
			continue;
		ret[n++].pid = (pid_t)pid;
	}
	if (d)
		closedir(d);
	return n;
}

size_t process_list(const char *dir, struct process *ret, size_t max)
{
	struct places all = places(dir);
	size_t n = 0;

	for (size_t i = 0; i < all.n; i++) {
		DIR *d = opendir(all.at[i].dir);
		struct dirent *e;

		while (d && n < max && (e = readdir(d)))
			n += e->d_name[0] != '.' && process_at(&all.at[i], e->d_name, &ret[n]);
		if (d)
			closedir(d);
	}
	if (!dir)
		n = list_containers(ret, n, max);
	qsort(ret, n, sizeof(*ret), by_pid);
	return n;
}

int process_find(const char *dir, const char *pid, struct process *ret, char err[PROCESS_ERR])
{
	struct places here = places(dir);
	char path[64];
	struct stat sb;
	bool runs;

	if (!*pid || strlen(pid) > 20 || pid[strspn(pid, "0123456789.")] || pid[0] == '.') {
		snprintf(err, PROCESS_ERR, "a PID is a number, not '%.40s'", pid);
		return -1;
	}
	snprintf(path, sizeof(path), "/proc/%.*s", (int)strcspn(pid, "."), pid);
	runs = !stat(path, &sb);
	if (found_in(&here, pid, ret))
		return 0;
	if (runs && !dir && found_at_home(pid, sb.st_uid, ret))
		return 0;
	if (!runs)
		snprintf(err, PROCESS_ERR, "there is no process %s [no-process]", pid);
	else if (geteuid() != 0 && sb.st_uid != geteuid())
		snprintf(err, PROCESS_ERR, "process %s is another user's (UID %u): it answers that "
			 "user and root [other-user]", pid, (unsigned)sb.st_uid);
	else
		snprintf(err, PROCESS_ERR, "process %s has no connection of Braid's open, or "
			 "BRAID_STAT=0, or its BRAID_STAT_DIR is another (--dir) "
			 "[no-process]", pid);
	return -1;
}

/* -- members ------------------------------------------------------------------------------ */

long long report_number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

const char *report_text(const json_t *o, const char *key)
{
	static char text[16][256];
	static unsigned turn;
	const char *s = json_string_value(json_object_get(o, key));
	char *t = text[turn++ % 16];

	snprintf(t, sizeof(text[0]), "%s", s ? s : "");
	text_clean(t, sizeof(text[0]), "");
	return t;
}

bool report_is(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

static char *scratch(void)
{
	static char text[8][32];
	static unsigned turn;

	return text[turn++ % 8];
}

const char *report_bytes(double bytes)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
	char *t = scratch();
	unsigned u = 0;

	for (; bytes >= 999.5 && u < 6; u++)
		bytes /= 1000;
	snprintf(t, 32, u ? "%.3g %s" : "%.0f %s", bytes, units[u]);
	return t;
}

const char *report_age(long long ms)
{
	char *t = scratch();

	if (ms < 1000)
		snprintf(t, 32, "%lld ms", ms);
	else
		snprintf(t, 32, "%.1f s", (double)ms / 1000);
	return t;
}

const char *report_time(uint64_t ns)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	double v = (double)ns;
	char *t = scratch();
	unsigned u = 0;

	for (; v >= 999.5 && u < 3; u++)
		v /= 1000;
	snprintf(t, 32, v < 999.5 ? "%.3g %s" : "%.0f %s", v, units[u]);
	return t;
}

/* The answer may be anything: a number below 0 is none. */
static uint64_t count_of(const json_t *n)
{
	json_int_t v = json_integer_value(n);

	return v > 0 ? (uint64_t)v : 0;
}

void report_times(const json_t *o, const char *key, struct braid_hist *ret)
{
	const json_t *h = json_object_get(o, key), *b;
	size_t i;

	*ret = (struct braid_hist){ .sum_ns = count_of(json_object_get(h, "sum_ns")),
				    .max_ns = count_of(json_object_get(h, "max_ns")) };
	json_array_foreach(json_object_get(h, "buckets"), i, b) {
		uint64_t bound = count_of(json_array_get(b, 0));
		uint64_t n = count_of(json_array_get(b, 1));

		ret->n[braid_hist_bucket(bound ? bound - 1 : 0)] += n;
		ret->count += n;
	}
}

static void add_link(struct report_sums *s, const json_t *link)
{
	json_t *lane;
	size_t i;

	s->links++;
	s->links_up += strcmp(report_text(link, "state"), "up") == 0;
	s->sends += report_number(link, "sends");
	s->receives += report_number(link, "receives");
	s->sent_bytes += report_number(link, "sent_bytes");
	s->received_bytes += report_number(link, "received_bytes");
	s->sent_messages += report_number(link, "sent_messages");
	s->received_messages += report_number(link, "received_messages");
	if (report_number(link, "oldest_ms") > s->oldest_ms)
		s->oldest_ms = report_number(link, "oldest_ms");
	json_array_foreach(json_object_get(link, "lanes"), i, lane) {
		s->lanes++;
		s->lanes_up += report_is(lane, "up");
		s->lost += report_number(lane, "lost");
		s->resent += report_number(lane, "resent_packets");
	}
}

struct report_sums report_sums(const json_t *report)
{
	struct report_sums s = { 0 };
	json_t *link;
	size_t i;

	json_array_foreach(json_object_get(report, "links"), i, link)
		add_link(&s, link);
	return s;
}
