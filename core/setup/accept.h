/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * accept.h - connections that peers dial: which listen or link a hello names, whether the peer is
 * admitted, and what becomes of the socket.
 */
#ifndef BRAID_SETUP_ACCEPT_H
#define BRAID_SETUP_ACCEPT_H

#include "core/setup/conn.h"

/* Owns accepted handshakes.  With braid_svc.lock held. */
extern const struct braid_conn_owner braid_accepting;

#endif
