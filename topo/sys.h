/* SPDX-License-Identifier: BSD-3-Clause */
/* sys.h - read the kernel's small files, such as those in /sys. */
#ifndef BRAID_TOPO_SYS_H
#define BRAID_TOPO_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Reads the beginning of a file and ends it with a zero.  Returns the number of bytes, or -1: the
 * file can't be read, or is not a plain file.  So a pipe in a recorded tree does not block it.
 */
ssize_t braid_sys_read(const char *path, char *ret, size_t len);

/* Reads the first line, without its newline, cut to len; false: it can't be read. */
bool braid_sys_line(const char *path, char *ret, size_t len);

/* Reads a first line that is a number of least to most, hexadecimal if it begins with 0x. */
bool braid_sys_number(const char *path, long least, long most, long *ret);

#endif
