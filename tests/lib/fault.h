/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fault.h - counts the plugin's own calls into the C library, and makes one of them fail.
 *
 * fault_install() redirects the relocations of a loaded plugin to functions of ours.  So only the
 * plugin's calls are counted, from every thread, not the test's nor the C library's own; and the
 * sanitizers' wrappers are still called by ours.  Works on x86-64 and aarch64.
 */
#ifndef BRAID_TESTS_LIB_FAULT_H
#define BRAID_TESTS_LIB_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum fault_kind {
	FAULT_SETUP,			/* memory, sockets, descriptors, threads, files */
	FAULT_IO,			/* send, recv and the like, and waiting */
	FAULT_KINDS,
};

enum fault_how {
	FAULT_ONCE,			/* the k-th call only */
	FAULT_ON,			/* and every later call of that name */
};

/* `dl` is what dlopen() returned.  False: not possible on this machine. */
bool fault_install(void *dl);

/* Count calls of that kind from now on; the k-th fails, or none if k is 0. */
void fault_arm(enum fault_kind kind, unsigned k, enum fault_how how);
/* Count calls of that name alone, from now on; NULL: of all names. */
void fault_only(const char *name);
/* While set, every allocation of the plugin's fails, whatever is armed. */
void fault_memory(bool none);
/* A failing call of FAULT_IO sets this errno instead of its own. */
void fault_errno(int err);

/* Also copies the failing call's name to `ret`, for a process that outlives this one. */
void fault_note(char *ret, unsigned len);

/*
 * All calls counted, in order, whether they fail or not: their names, and the call path through the
 * plugin's functions that led to each.
 */
struct fault_trace {
	char name[2000][24];
	uintptr_t path[2000];
};

/* Record calls in *ret from now on; NULL ends it. */
void fault_trace(struct fault_trace *ret);
const char *fault_name(void);		/* which call failed; NULL: none yet */
int fault_err(void);			/* and its errno */

/* Blocks of memory that the plugin has allocated and not freed. */
long fault_blocks(void);

#endif
