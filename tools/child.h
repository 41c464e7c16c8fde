/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * child.h - runs code that may hang or crash in a process of its own, and reads its output.
 *
 * The child dies with its parent, and is killed when its time is over.
 */
#ifndef BRAID_TOOLS_CHILD_H
#define BRAID_TOOLS_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct child {
	pid_t pid;
	int fd;				/* -1: the child has closed its end */
	char *text;			/* its output so far, zero-terminated */
	size_t len, room;
	int status;			/* of waitpid(); set by child_end() */
};

/* The child runs run(), which may write to fd and has no other input or output.  0 or -errno. */
int child_start(struct child *c, void (*run)(void *arg, int fd), void *arg);
/* Wait at most `ms` for the next piece of output; false: none came. */
bool child_read(struct child *c, int ms);
/* Read all output until the child ends; false: `ms` were over first. */
bool child_finish(struct child *c, int ms);
/* Kill the child if it still runs.  The text stays until child_free(). */
void child_end(struct child *c);
void child_free(struct child *c);
/* Writes "killed by signal 11 (Segmentation fault)", or "ended with status 1". */
void child_fate(const struct child *c, char *ret, size_t len);
long long child_now(void);		/* ms */

#endif
