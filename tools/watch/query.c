/* SPDX-License-Identifier: BSD-3-Clause */
/* query.c - see process.h: queries to processes over their sockets, many at a time. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/child.h"
#include "tools/watch/process.h"
#include "topo/thread.h"

enum { REPORT_VERSION = 1, ANSWER_S = 3, ANSWER_MAX = 64 << 20 };

/* What the thread that would answer does. */
static const char *what_it_does(pid_t pid)
{
	switch (braid_thread_of((uint32_t)pid, "braid-stat").state) {
	case 'T':
	case 't':
		return ": it is stopped (SIGSTOP, or a debugger)";
	case BRAID_THREAD_FROZEN:
		return ": its cgroup is frozen (docker pause)";
	case 'R':
		return ": it gets no CPU";
	case 'D':
		return ": the kernel holds it up (storage, swap, a driver)";
	default:
		return "";
	}
}

static void no_answer(const struct process *p, int why, char err[PROCESS_ERR])
{
	if (why == ESRCH)
		snprintf(err, PROCESS_ERR, "another process listens at the socket of process %d "
			 "[no-process]", (int)p->pid);
	else if (why == ECONNREFUSED || why == ENOENT || why == ECONNRESET || why == EPIPE)
		snprintf(err, PROCESS_ERR, "process %d has ended, or has closed what it had of "
			 "Braid [no-process]", (int)p->pid);
	else if (why == EACCES || why == EPERM)
		snprintf(err, PROCESS_ERR, "process %d is another user's (UID %u): it answers that "
			 "user and root [other-user]", (int)p->pid, (unsigned)p->uid);
	else if (why == EAGAIN)
		snprintf(err, PROCESS_ERR, "process %d does not answer within %d s%s "
			 "[process-silent]", (int)p->pid,
			 ANSWER_S, what_it_does(p->pid));
	else
		snprintf(err, PROCESS_ERR, "process %d does not answer: %s [process-silent]",
			 (int)p->pid, strerror(why));
}

/*
 * Is the socket's listener the process that the socket is named after, and its user the directory's
 * owner?  The name has the PID of that process's own PID namespace.  A listener whose PID reads 0
 * is in a namespace that can't be seen from here, and passes.
 */
static bool is_its_own(int fd, const struct process *p)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	char pid[32], name[32];

	errno = EPERM;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.uid != p->uid)
		return false;
	snprintf(pid, sizeof(pid), "%d", (int)cred.pid);
	process_own_name(pid, name, sizeof(name));
	errno = ESRCH;
	return cred.pid == 0 || cred.pid == p->pid || atoi(name) == p->pid;
}

struct query {				/* one process's answer */
	const struct process *p;
	int fd;				/* -1: not connected yet, or done */
	bool connected, over;
	int err;			/* why there is no answer */
	char *text;
	size_t len, room;
};

static void query_end(struct query *a, int err)
{
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	a->over = true;
	a->err = err;
}

/* A full queue gives EAGAIN, and poll() reports nothing: the next round tries again. */
static void query_connect(struct query *a, const char *line)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	ssize_t n = (ssize_t)strlen(line);

	if (a->fd < 0)
		a->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", a->p->path);
	if (a->fd < 0 || connect(a->fd, (const struct sockaddr *)&sa, sizeof(sa)) != 0) {
		a->err = errno;		/* no descriptor until another has answered */
		if (a->fd < 0 ? a->err != EMFILE : a->err != EAGAIN)
			query_end(a, a->err);
		return;
	}
	a->connected = true;
	a->err = EAGAIN;
	if (!is_its_own(a->fd, a->p) || send(a->fd, line, (size_t)n, MSG_NOSIGNAL) != n)
		query_end(a, errno);
}

/* Make room for another byte and a NUL; `all`: the bytes that all answers take. */
static bool query_grow(struct query *a, size_t *all)
{
	size_t room = a->room ? a->room * 2 : 64 << 10;
	char *more;

	if (a->len + 1 < a->room)
		return true;
	more = *all + room - a->room <= ANSWER_MAX ? realloc(a->text, room) : NULL;
	if (!more)
		return false;
	*all += room - a->room;
	a->text = more;
	a->room = room;
	return true;
}

static void query_read(struct query *a, size_t *all)
{
	ssize_t n;

	if (!query_grow(a, all)) {
		query_end(a, ENOMEM);
		return;
	}
	n = read(a->fd, a->text + a->len, a->room - a->len - 1);
	if (n > 0)
		a->len += (size_t)n;
	else if (n == 0)
		query_end(a, a->len ? 0 : EPROTO);
	else if (errno != EAGAIN && errno != EINTR)
		query_end(a, errno);
}

/* One round of all queries; returns how many are not done. */
static size_t query_round(struct query *a, size_t n, const char *line, struct pollfd *fds,
			  long long end_ms, size_t *all)
{
	long long left = end_ms - child_now();
	size_t open = 0, waiting = 0;

	for (size_t i = 0; i < n; i++) {
		if (!a[i].over && !a[i].connected)
			query_connect(&a[i], line);
		if (!a[i].over && a[i].connected)
			fds[open++] = (struct pollfd){ .fd = a[i].fd, .events = POLLIN };
		waiting += !a[i].over;
	}
	if (left < 0)
		left = 0;
	if (!waiting || poll(fds, open, (int)(open < waiting && left > 10 ? 10 : left)) <= 0)
		return waiting;
	for (size_t i = 0, at = 0; i < n && at < open; i++) {
		if (!a[i].over && a[i].connected && fds[at++].revents)
			query_read(&a[i], all);
	}
	return waiting;
}

/* Query all at once: however many are silent, they cost one deadline together. */
static void query_all(struct query *a, size_t n, const char *word)
{
	long long end_ms = child_now() + ANSWER_S * 1000;
	struct pollfd *fds = calloc(n + 1, sizeof(*fds));
	size_t all = 0;
	char line[32];

	snprintf(line, sizeof(line), "%s\n", word);
	while (fds && query_round(a, n, line, fds, end_ms, &all) && child_now() < end_ms)
		;
	free(fds);
	for (size_t i = 0; i < n; i++) {
		if (!a[i].over)
			query_end(&a[i], fds ? a[i].err : ENOMEM);
		if (a[i].err) {
			free(a[i].text);
			a[i].text = NULL;
		} else {
			a[i].text[a[i].len] = 0;
		}
	}
}

char *process_query(const struct process *p, const char *word, size_t *ret_len,
		    char err[PROCESS_ERR])
{
	struct query a = { .p = p, .fd = -1 };

	query_all(&a, 1, word);
	if (!a.text)
		no_answer(p, a.err, err);
	*ret_len = a.len;
	return a.text;
}

/* Parse an answer, and free the text. */
static json_t *report_of(const struct process *p, char *text, size_t len, char err[PROCESS_ERR])
{
	json_error_t why;
	json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);

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

json_t *process_report(const struct process *p, const char *word, char err[PROCESS_ERR])
{
	size_t len = 0;
	char *text = process_query(p, word, &len, err);

	return text ? report_of(p, text, len, err) : NULL;
}

/* Leave of "process 4711 is another user's (UID 5): ..." what a row of a table has room for. */
static void shorten(char err[PROCESS_ERR])
{
	char *end = strpbrk(err, "([");
	int skip = 0;

	if (strstr(err, "[no-process]"))
		end = err + 1;
	if (end && end > err)
		end[-1] = 0;
	sscanf(err, "process %*d %n", &skip);
	memmove(err, err + skip, strlen(err + skip) + 1);
}

/* One descriptor for each process. */
static struct query *queries(const struct process *p, size_t n, const char *word)
{
	struct query *a = calloc(n + 1, sizeof(*a));
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	for (size_t i = 0; a && i < n; i++)
		a[i] = (struct query){ .p = &p[i], .fd = -1 };
	if (a)
		query_all(a, n, word);
	return a;
}

void process_texts(const struct process *p, size_t n, const char *word, char **ret,
		   char (*err)[PROCESS_ERR])
{
	struct query *a = queries(p, n, word);

	for (size_t i = 0; i < n; i++) {
		err[i][0] = 0;
		ret[i] = a ? a[i].text : NULL;
		if (!ret[i]) {
			no_answer(&p[i], a ? a[i].err : ENOMEM, err[i]);
			shorten(err[i]);
		}
	}
	free(a);
}

void process_reports(const struct process *p, size_t n, const char *word, json_t **ret,
		     char (*err)[PROCESS_ERR])
{
	struct query *a = queries(p, n, word);

	for (size_t i = 0; i < n; i++) {
		err[i][0] = 0;
		ret[i] = a && a[i].text ? report_of(&p[i], a[i].text, a[i].len, err[i]) : NULL;
		if (ret[i])
			continue;
		if (!err[i][0])
			no_answer(&p[i], a ? a[i].err : ENOMEM, err[i]);
		shorten(err[i]);
	}
	free(a);
}
