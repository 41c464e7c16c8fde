/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib.h - load third-party libraries at run time.
 *
 * Only at init: loading a library reads files and runs its constructors.  None is ever unloaded.
 */
#ifndef BRAID_BASE_LIB_H
#define BRAID_BASE_LIB_H

#include <stdbool.h>
#include <stddef.h>

/* Load a library.  NULL: `why` has the reason and the package to install, in one line. */
void *braid_lib_open(const char *name, const char *install, char *why, size_t len);
/* Store a function's address in the pointer at `member`; false: the library does not have it. */
bool braid_lib_find(void *lib, const char *name, void *member);

#endif
