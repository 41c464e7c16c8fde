/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib.h - libraries of others, picked up at run time.
 *
 * At init, never later: loading one reads files and runs its constructors.  None is unloaded.
 */
#ifndef BRAID_CORE_LIB_H
#define BRAID_CORE_LIB_H

#include <stdbool.h>
#include <stddef.h>

/* NULL: `why` says in one line why not, and what to install for what. */
void *braid_lib_open(const char *name, const char *install, char *why, size_t len);
/* A function's address into the pointer at `member`; false: the library has none of that name. */
bool braid_lib_find(void *lib, const char *name, void *member);

#endif
