/* SPDX-License-Identifier: BSD-3-Clause */
/* file.h - files that Braid writes for others to read: dumps and metrics. */
#ifndef BRAID_WATCH_FILE_H
#define BRAID_WATCH_FILE_H

#include <sys/types.h>

struct braid_text;

/*
 * Write the whole text to that path, or nothing: 0, or -1 and errno.  Replace only a regular file
 * that this user owns: no device, pipe, link or directory, and no other user's file.
 */
int braid_file_write(const char *path, const struct braid_text *t, mode_t mode);

#endif
