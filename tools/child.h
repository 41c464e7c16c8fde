/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * child.h - something that may hang or crash, in a process of its own whose output is read.
 *
 * It dies with its parent, and is killed when its time is over.
 */
#ifndef BRAID_TOOLS_CHILD_H
#define BRAID_TOOLS_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct child {
	pid_t pid;
	int fd;				/* -1: it has closed its end */
	char *text;			/* what it has written, with a zero behind it */
	size_t len, room;
	int status;			/* as of waitpid, after child_end() */
};

/* run() has its output in fd, and no other input or output.  0 or -errno. */
int child_start(struct child *c, void (*run)(void *arg, int fd), void *arg);
/* Wait at most `ms` for the next piece of output; false: there was none. */
bool child_read(struct child *c, int ms);
/* All of it, until it ends or the time is over; false: the time was over. */
bool child_finish(struct child *c, int ms);
/* Kill it if it is still there.  The text stays until child_free(). */
void child_end(struct child *c);
void child_free(struct child *c);
/* "killed by signal 11 (Segmentation fault)", or "ended with status 1". */
void child_fate(const struct child *c, char *ret, size_t len);
long long child_now(void);		/* ms */

#endif
