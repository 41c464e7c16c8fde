/* SPDX-License-Identifier: BSD-3-Clause */
/* meet.h - processes on hosts of tests/net share a directory: they leave files there for each other. */
#ifndef BRAID_TESTS_NET_MEET_H
#define BRAID_TESTS_NET_MEET_H

#include <stddef.h>

struct net;

/* Load the plugin, and say `me` in each failure.  dir: where the files are; both stay. */
struct net *meet_at(const char *me, const char *dir);
void meet_end(struct net *net);
/* The file is there only once it is whole. */
void leave(const char *name, const void *data, size_t len);
/* Wait for the file, `ms` at most. */
void wait_for(const char *name, unsigned ms);
void read_handle(const char *name, void *handle);

#endif
