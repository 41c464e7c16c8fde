/* SPDX-License-Identifier: BSD-3-Clause */
/* child.c - see child.h. */
#include "tools/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 65536, MOST = 64 << 20 };

long long child_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

int child_start(struct child *c, void (*run)(void *arg, int fd), void *arg)
{
	int fds[2], nowhere;

	*c = (struct child){ .fd = -1 };
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	fflush(NULL);
	c->pid = fork();
	if (c->pid < 0) {
		int err = -errno;

		close(fds[0]);
		close(fds[1]);
		return err;
	}
	if (c->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
		for (int fd = 0; fd <= 2 && nowhere >= 0; fd++)
			dup2(nowhere, fd);
		run(arg, fds[1]);
		_exit(0);
	}
	close(fds[1]);
	c->fd = fds[0];
	return 0;
}

static bool have_room(struct child *c)
{
	char *more;

	if (c->room - c->len > PIECE)
		return true;
	more = c->room < MOST ? realloc(c->text, c->room * 2 + 2 * PIECE) : NULL;
	if (!more)
		return false;
	c->text = more;
	c->room = c->room * 2 + 2 * PIECE;
	return true;
}

bool child_read(struct child *c, int ms)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	ssize_t n;

	if (c->fd < 0 || poll(&p, 1, ms < 0 ? 0 : ms) <= 0)
		return false;
	n = have_room(c) ? read(c->fd, c->text + c->len, PIECE) : 0;
	if (n <= 0) {
		close(c->fd);
		c->fd = -1;
		return false;
	}
	c->len += (size_t)n;
	c->text[c->len] = '\0';
	return true;
}

bool child_finish(struct child *c, int ms)
{
	long long until = child_now() + ms;

	while (c->fd >= 0 && child_now() < until)
		child_read(c, (int)(until - child_now()));
	return c->fd < 0;
}

/*
 * Kill the child, but if it has closed its output, give it some 100 ms to end by itself.  A child
 * in an uninterruptible system call can't be killed, and is left behind.
 */
void child_end(struct child *c)
{
	struct timespec ms = { .tv_nsec = 1000000 };

	if (c->fd >= 0)
		close(c->fd);
	for (int i = 0; i < 200; i++) {
		if ((i == 100 || c->fd >= 0) && c->pid > 0)
			kill(c->pid, SIGKILL);
		if (c->pid <= 0 || waitpid(c->pid, &c->status, WNOHANG) != 0)
			break;
		nanosleep(&ms, NULL);
	}
	c->fd = -1;
	c->pid = 0;
}

void child_free(struct child *c)
{
	free(c->text);
	c->text = NULL;
}

void child_fate(const struct child *c, char *ret, size_t len)
{
	if (WIFSIGNALED(c->status))
		snprintf(ret, len, "killed by signal %d (%s)", WTERMSIG(c->status),
			 strsignal(WTERMSIG(c->status)));
	else
		snprintf(ret, len, "ended with status %d", WEXITSTATUS(c->status));
}
