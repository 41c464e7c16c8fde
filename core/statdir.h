/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * statdir.h - the socket's place: a private directory, where it is named after this process.
 *
 * The directory may hold a user's own files (BRAID_STAT_DIR names any): only what is certainly a
 * socket that a process of ours left behind is ever removed there.
 */
#ifndef BRAID_CORE_STATDIR_H
#define BRAID_CORE_STATDIR_H

#include <sys/un.h>

/* A listening socket, or -1 and an INFO line. */
int braid_statdir_open(struct sockaddr_un *ret);
void braid_statdir_close(int fd, const struct sockaddr_un *sa);	/* -1: nothing is done */

#endif
