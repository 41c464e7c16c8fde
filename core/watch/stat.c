/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stat.c - see stat.h.
 *
 * The socket is of mode 0600 in a directory of mode 0700 (statdir.h), and the uid of each client is
 * checked by SO_PEERCRED besides.
 *
 * A request is one word and a newline: stat, dump or metrics.  The answer is text, and ends with
 * the connection.  One client at a time is served, for less than a second.
 */
#include "core/watch/stat.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/watch/file.h"
#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/self.h"
#include "core/base/units.h"
#include "core/watch/metrics.h"
#include "core/watch/report.h"
#include "core/watch/statdir.h"

enum {
	REQUEST_MS = 200, ANSWER_MS = 700,	/* for one client, before the next is served */
	JOIN_MS = 2000,
	LOG_EVENTS = 16,		/* events that go to the log */
	DUMPS_MAX = 8,			/* files that one process writes */
};

static struct {
	atomic_bool wrote;		/* the metrics file is of this process */
	bool running, lost;		/* lost: the last thread never came back */
	pthread_t thread;
	int wake;			/* eventfd */
	atomic_bool stop, dump;
	atomic_bool exiting;		/* no metrics are written any more */
	struct braid_log_gate dump_gate;
} st = { .wake = -1 };

/* --- a client ------------------------------------------------------------------------------ */

/* Wait until fd is ready, the time is over, or the thread has to stop; true: fd is ready. */
static bool ready(int fd, short events, uint64_t until)
{
	struct pollfd p[2] = {
		{ .fd = fd, .events = events }, { .fd = st.wake, .events = POLLIN },
	};
	uint64_t now = braid_os->now_ns();

	return now < until && poll(p, 2, (int)((until - now) / MS) + 1) > 0 &&
	       !atomic_load(&st.stop) && p[0].revents;
}

/* Is the client's user ours, or root? */
static bool client_is_allowed(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !braid_os->getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) &&
	       (cred.uid == geteuid() || cred.uid == 0);
}

/* Read one line, without its newline; false: no whole line came in time, or it is too long. */
static bool read_line(int fd, char *line, size_t len, uint64_t until)
{
	size_t have = 0;
	ssize_t n;

	while (have < len) {
		n = braid_os->recv(fd, line + have, len - have, 0);
		if (n > 0 && line[have + (size_t)n - 1] == '\n') {
			line[have + (size_t)n - 1] = 0;
			return true;
		}
		if (n > 0)
			have += (size_t)n;
		else if (!n || errno != EAGAIN || !ready(fd, POLLIN, until))
			return false;
	}
	return false;
}

static void answer(int fd, const char *line, uint64_t until)
{
	struct braid_text t = { 0 };
	int err = -EINVAL;

	if (!strcmp(line, "stat") || !strcmp(line, "dump"))
		err = braid_report_json(&t, line[0] == 'd');
	else if (!strcmp(line, "metrics"))
		err = braid_metrics_text(&t);
	for (size_t sent = 0; !err && sent < t.len;) {
		ssize_t n = braid_os->send(fd, t.p + sent, t.len - sent, MSG_NOSIGNAL);

		if (n > 0)
			sent += (size_t)n;
		else if (errno != EAGAIN || !ready(fd, POLLOUT, until))
			break;
	}
	braid_text_free(&t);
}

static void serve(int listener)
{
	uint64_t now = braid_os->now_ns();
	int fd = braid_os->accept(listener, NULL, NULL);
	char line[16];

	if (fd < 0)
		return;
	if (client_is_allowed(fd) && read_line(fd, line, sizeof(line), now + REQUEST_MS * MS))
		answer(fd, line, now + ANSWER_MS * MS);
	braid_os->close(fd);
}

/* --- files --------------------------------------------------------------------------------- */

/* Expand %p to the PID, %h to the name of the host, and %% to a percent sign. */
static void expand(const char *pattern, char *ret, size_t len)
{
	size_t at = 0;

	ret[0] = 0;
	for (const char *p = pattern; *p && at + 1 < len; p++) {
		int n;

		if (*p == '%' && p[1] == 'p')
			n = snprintf(ret + at, len - at, "%u", braid_self.pid);
		else if (*p == '%' && p[1] == 'h')
			n = snprintf(ret + at, len - at, "%s", braid_self.host);
		else
			n = snprintf(ret + at, len - at, "%c", *p);
		p += *p == '%' && p[1] && strchr("ph%", p[1]);
		at += (size_t)n;
	}
}

/* A file that outlives its process would go on saying that its links are up. */
static void remove_metrics(void)
{
	char path[2 * BRAID_PARAM_STR_MAX];
	struct stat sb;

	expand(braid_param.metrics_file, path, sizeof(path));
	if (atomic_exchange(&st.wrote, false) && !lstat(path, &sb) && S_ISREG(sb.st_mode) &&
	    sb.st_uid == geteuid())
		unlink(path);
}

static void write_metrics(void)
{
	static bool warned;
	char path[2 * BRAID_PARAM_STR_MAX];
	struct braid_text t = { 0 };

	expand(braid_param.metrics_file, path, sizeof(path));
	if (braid_metrics_text(&t))
		errno = ENOMEM;
	else if (!braid_file_write(path, &t, 0644))
		atomic_store(&st.wrote, true), errno = 0;
	if (errno && !warned)
		braid_info("BRAID_METRICS_FILE: %s can't be written: %s", path, strerror(errno));
	warned |= errno != 0;
	braid_text_free(&t);
	if (atomic_load(&st.exiting))
		remove_metrics();	/* exit() may have looked before they were there */
}

/* A process may exit() with links: many jobs never tell NCCL that they are done. */
static void __attribute__((destructor)) remove_metrics_at_exit(void)
{
	atomic_store(&st.exiting, true);
	if (!atomic_load(&braid_forked))
		remove_metrics();
}

/* Log the last events, for users that have only the log. */
static void log_events(void)
{
	struct braid_event e[LOG_EVENTS];
	unsigned n = braid_flight_copy(e, LOG_EVENTS);
	uint64_t now = braid_os->now_ns();

	for (unsigned i = 0; i < n; i++) {
		const struct braid_event_row *row = &braid_event_rows[e[i].kind];

		braid_info("%u of the last %u events, %" PRIu64 " ms ago: link %u, lane %d: %s, "
			   "%s %" PRId64 ", %s %" PRId64, i + 1, n,
			   (uint64_t)(now > e[i].ns ? (now - e[i].ns) / MS : 0), e[i].link,
			   e[i].lane == BRAID_FLIGHT_NONE ? -1 : e[i].lane, row->words,
			   row->a ? row->a : "-", e[i].a, row->b ? row->b : "-", e[i].b);
	}
}

static void dump(void)
{
	static unsigned dumps;
	char path[2 * BRAID_PARAM_STR_MAX];
	struct braid_text t = { 0 };

	if (!braid_param.dump_dir[0]) {
		log_events();
		return;
	}
	if (dumps == DUMPS_MAX)
		return;
	snprintf(path, sizeof(path), "%s/braid-%s-%u.%u.json", braid_param.dump_dir,
		 braid_self.host, braid_self.pid, dumps++);
	if (braid_report_json(&t, true))
		errno = ENOMEM;
	else if (!braid_file_write(path, &t, 0600))
		errno = 0;
	if (errno)
		braid_info("BRAID_DUMP_DIR: %s can't be written: %s", path, strerror(errno));
	else
		braid_info("what waits, and what happened before, is in %s", path);
	braid_text_free(&t);
}

/* --- the thread ---------------------------------------------------------------------------- */

/* Milliseconds until the metrics are due; -1: never. */
static int metrics_due(uint64_t *next, uint64_t now)
{
	if (!braid_param.metrics_file[0] || atomic_load(&st.exiting))
		return -1;
	if (now >= *next) {
		write_metrics();
		*next = now + (uint64_t)braid_param.metrics_s * 1000 * MS;
	}
	return (int)((*next - now) / MS) + 1;
}

static void *stat_thread(void *arg)
{
	struct sockaddr_un sa;
	struct pollfd p[2] = {
		{ .fd = st.wake, .events = POLLIN },
		{ .fd = braid_param.stat ? braid_statdir_open(&sa) : -1, .events = POLLIN },
	};
	uint64_t next = 0;

	(void)arg;
	while (!atomic_load(&st.stop)) {
		int ms = metrics_due(&next, braid_os->now_ns());

		if (poll(p, 2, ms) > 0 && p[1].revents)
			serve(p[1].fd);
		if (p[0].revents)
			braid_os->unwake(st.wake);
		if (atomic_exchange(&st.dump, false))
			dump();
	}
	braid_statdir_close(p[1].fd, &sa);
	return NULL;
}

void braid_stat_start(void)
{
	int err;

	if (st.lost || (!braid_param.stat && !braid_param.metrics_file[0] &&
			!braid_param.dump_dir[0]))
		return;
	braid_metrics_job();
	atomic_store(&st.stop, false);
	st.wake = braid_os->eventfd();
	err = st.wake < 0 ? -errno : 0;
	if (!err)
		err = braid_os->thread_start(&st.thread, stat_thread, NULL, "braid-stat");
	st.running = !err;
	if (!err)
		return;
	braid_info("braid stat can't look at this process: no thread: %s", strerror(-err));
	if (st.wake >= 0)
		braid_os->close(st.wake);
	st.wake = -1;
}

void braid_stat_stop(void)
{
	if (!st.running)
		return;
	st.running = false;
	atomic_store(&st.stop, true);
	braid_os->wake(st.wake);
	if (braid_os->thread_join(st.thread, JOIN_MS)) {
		st.lost = true;		/* the thread hangs in a file system, and may return */
		braid_info("the thread for braid stat did not end within %d ms; it is left behind",
			   JOIN_MS);
		return;
	}
	braid_os->close(st.wake);
	st.wake = -1;
	remove_metrics();
}

void braid_stat_dump(void)
{
	if (!braid_log_gate_open(&st.dump_gate, braid_os->now_ns()))
		return;
	if (!st.running) {
		log_events();
		return;
	}
	atomic_store(&st.dump, true);
	braid_os->wake(st.wake);
}
