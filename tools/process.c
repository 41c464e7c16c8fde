/* SPDX-License-Identifier: BSD-3-Clause */
/* process.c - see process.h. */
#include "tools/process.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/child.h"
#include "tools/text.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

enum { REPORT_VERSION = 1, ANSWER_S = 3, ANSWER_MAX = 64 << 20, PLACES = 64 };

/* --- where they are ------------------------------------------------------------------------ */

struct places {
	size_t n;
	struct place {
		char dir[104];
		uid_t uid;
	} at[PLACES];
};

/* A directory that its owner alone may enter: what lies there is that user's. */
static void place_add(struct places *p, const char *dir)
{
	struct stat sb;

	if (p->n == PLACES || strlen(dir) >= sizeof(p->at[0].dir) || lstat(dir, &sb) ||
	    !S_ISDIR(sb.st_mode) || sb.st_mode & 077)
		return;
	for (size_t i = 0; i < p->n; i++) {
		if (strcmp(p->at[i].dir, dir) == 0)
			return;
	}
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

/* `root`: "", or that of a process in a file system of its own. */
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

/* A socket's name is a PID, and .1 and so on if it has the plugin several times. */
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
	qsort(ret, n, sizeof(*ret), by_pid);
	return n;
}

/* What it is called in its own PID namespace. */
static void own_name(const char *pid, char *ret, size_t len)
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

int process_find(const char *dir, const char *pid, struct process *ret, char err[PROCESS_ERR])
{
	struct places here = places(dir), there = { 0 };
	char name[32], path[64];
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
	if (runs && !dir) {
		own_name(pid, name, sizeof(name));
		places_of(&there, "", sb.st_uid);
		strcat(path, "/root");
		places_of(&there, path, sb.st_uid);
		if (found_in(&there, name, ret))
			return 0;
	}
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

/* --- asking -------------------------------------------------------------------------------- */

/* SIGSTOP, or a debugger. */
static bool is_stopped(pid_t pid)
{
	char path[64], line[512] = "";
	const char *state;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	state = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	fclose(f);
	return state && state[1] && (state[2] == 'T' || state[2] == 't');
}

static void no_answer(const struct process *p, char err[PROCESS_ERR])
{
	if (errno == ESRCH)
		snprintf(err, PROCESS_ERR, "another process listens at the socket of process %d "
			 "[no-process]", (int)p->pid);
	else if (errno == ECONNREFUSED || errno == ENOENT)
		snprintf(err, PROCESS_ERR, "process %d has ended, or has closed what it had of "
			 "Braid [no-process]", (int)p->pid);
	else if (errno == EACCES || errno == EPERM)
		snprintf(err, PROCESS_ERR, "process %d is another user's (UID %u): it answers that "
			 "user and root [other-user]", (int)p->pid, (unsigned)p->uid);
	else if (errno == EAGAIN || errno == EINPROGRESS)
		snprintf(err, PROCESS_ERR, "process %d does not answer within %d s%s "
			 "[process-silent]", (int)p->pid,
			 ANSWER_S, is_stopped(p->pid) ?
			 ": it is stopped (SIGSTOP, or a debugger)" : "");
	else
		snprintf(err, PROCESS_ERR, "process %d does not answer: %s [process-silent]",
			 (int)p->pid, strerror(errno));
}

/*
 * Who listens there is the directory's owner, and the process that the socket is named after, by
 * its number in its own PID namespace; 0 is that of a process that is not to be seen from here.
 */
static bool is_its_own(int fd, const struct process *p)
{
	struct ucred who;
	socklen_t len = sizeof(who);
	char pid[32], name[32];

	errno = EPERM;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) || who.uid != p->uid)
		return false;
	snprintf(pid, sizeof(pid), "%d", (int)who.pid);
	own_name(pid, name, sizeof(name));
	errno = ESRCH;
	return who.pid == 0 || who.pid == p->pid || atoi(name) == p->pid;
}

/* Until fd can be read, or the time for the whole answer is over: false, and EAGAIN. */
static bool wait_for(int fd, short events, long long end_ms)
{
	struct pollfd p = { .fd = fd, .events = events };
	long long now;

	while ((now = child_now()) < end_ms) {
		if (poll(&p, 1, (int)(end_ms - now)) > 0)
			return true;
	}
	errno = EAGAIN;
	return false;
}

static char *read_all(int fd, long long end_ms, size_t *ret_len)
{
	size_t room = 64 << 10, len = 0;
	char *text = malloc(room), *more;
	ssize_t n = 0;

	while (text && (n = -1, wait_for(fd, POLLIN, end_ms)) &&
	       (n = read(fd, text + len, room - len - 1)) > 0) {
		len += (size_t)n;
		if (len < room - 1)
			continue;
		more = room < ANSWER_MAX ? realloc(text, room * 2) : NULL;
		room *= 2;
		if (!more)
			break;
		text = more;
	}
	if (text && n == 0 && len) {
		text[len] = 0;
		*ret_len = len;
		return text;
	}
	if (n == 0)
		errno = EPROTO;
	free(text);
	return NULL;
}

/* A listener whose queue is full says EAGAIN at once, and poll() knows nothing of it. */
static bool connected(int fd, const struct sockaddr_un *sa, long long end_ms)
{
	while (connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) != 0) {
		if (errno != EAGAIN || child_now() >= end_ms)
			return false;
		usleep(10000);
	}
	return true;
}

char *process_ask(const struct process *p, const char *word, size_t *ret_len, char err[PROCESS_ERR])
{
	long long end_ms = child_now() + ANSWER_S * 1000;
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char *text = NULL, line[32];
	int n = snprintf(line, sizeof(line), "%s\n", word);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", p->path);
	if (fd >= 0 && connected(fd, &sa, end_ms) && is_its_own(fd, p) &&
	    send(fd, line, (size_t)n, MSG_NOSIGNAL) == n)
		text = read_all(fd, end_ms, ret_len);
	if (!text)
		no_answer(p, err);
	if (fd >= 0)
		close(fd);
	return text;
}

json_t *process_report(const struct process *p, const char *word, char err[PROCESS_ERR])
{
	size_t len = 0;
	char *text = process_ask(p, word, &len, err);
	json_error_t why;
	json_t *o;

	if (!text)
		return NULL;
	o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	free(text);
	if (o && report_number(o, "braid_report") == REPORT_VERSION)
		return o;
	if (o && report_number(o, "braid_report") > REPORT_VERSION)
		snprintf(err, PROCESS_ERR, "process %d has a newer Braid (report %lld; this "
			 "command knows %d) [newer-report]", (int)p->pid,
			 report_number(o, "braid_report"),
			 REPORT_VERSION);
	else
		snprintf(err, PROCESS_ERR, "process %d says what is no report of Braid's "
			 "[bad-report]",
			 (int)p->pid);
	json_decref(o);
	return NULL;
}

/* --- members ------------------------------------------------------------------------------- */

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
	static char text[5][32];
	static unsigned turn;

	return text[turn++ % 5];
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
