/* SPDX-License-Identifier: BSD-3-Clause */
/* unpaced.h - sockets within a host do without a congestion control that paces. */
#ifndef BRAID_SETUP_UNPACED_H
#define BRAID_SETUP_UNPACED_H

#include "core/dev.h"

/*
 * Replace a socket's congestion control if it paces.  Call it before listen() or connect() where
 * the peer may be on this host.  The name of the replaced one goes to ret, or "" if it was kept.
 */
void braid_socket_unpaced(int fd, char ret[BRAID_CONGESTION_SIZE]);

#endif
