/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * statdir.h - the private directory in which the statistics socket lies, named by the PID.
 *
 * BRAID_STAT_DIR may name a directory that holds a user's own files: Braid removes nothing there
 * but sockets that a Braid process certainly left behind.
 */
#ifndef BRAID_WATCH_STATDIR_H
#define BRAID_WATCH_STATDIR_H

#include <sys/un.h>

/* A listening socket, or -1 and an INFO line. */
int braid_statdir_open(struct sockaddr_un *ret);
void braid_statdir_close(int fd, const struct sockaddr_un *sa);	/* -1: nothing is done */

#endif
