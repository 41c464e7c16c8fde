/* SPDX-License-Identifier: BSD-3-Clause */
/* file.h - files that Braid writes for others to read: dumps and metrics. */
#ifndef BRAID_CORE_FILE_H
#define BRAID_CORE_FILE_H

#include <sys/types.h>

struct braid_text;

/*
 * The whole text or nothing is at that path: 0, or -1 and errno.  It replaces a regular file of
 * this user's, and nothing else: no device, pipe, link, directory or file of somebody else.
 */
int braid_file_write(const char *path, const struct braid_text *t, mode_t mode);

#endif
