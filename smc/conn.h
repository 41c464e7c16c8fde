/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conn.h - a stream over AF_SMC, and the state of its handshake.
 *
 *	sock.c	sockets of AF_SMC, and closing them
 *	setup.c	the handshake
 *	smc.c	the lane
 */
#ifndef BRAID_SMC_CONN_H
#define BRAID_SMC_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/link/lane_io.h"
#include "core/proto/auth.h"
#include "core/transport.h"
#include "smc/diag.h"

enum {
	BRAID_SMC_NONCE = BRAID_MAC_SIZE,
	BRAID_SMC_PENDING = 4,		/* connections that have not sent the nonce yet */
	BRAID_SMC_REST_S = 300,		/* after a failure, no SMC to that peer for so long */
};

struct smc_dial;

struct smc_pending {
	int fd;
	unsigned got;
	uint8_t nonce[BRAID_SMC_NONCE];
};

struct smc_conn {
	int fd;				/* the stream; -1: not connected yet */
	struct braid_smc_mode mode;
	struct smc_dial *dial;		/* connect() is under way; or NULL */
	int err;			/* why there is no stream, once that is known */
	int listen_fd;			/* -1: this end connects, or has the stream */
	struct smc_pending pending[BRAID_SMC_PENDING];
	uint8_t nonce[BRAID_SMC_NONCE];
	struct braid_progress progress;	/* only for the service thread */
};

/* Finds out how the kernel offers SMC, at init.  Returns a first socket, or a negative errno. */
int braid_smc_find(void);
/* A descriptor, or a negative errno. */
int braid_smc_socket(int family);
/* Has a thread close fd, since close() may block.  fd may be -1. */
void braid_smc_close(int fd);

void braid_smc_conn_free(struct smc_conn *w);	/* w may be NULL */

/* The setup members of struct braid_transport. */
int braid_smc_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine);
int braid_smc_setup_peer(struct braid_setup *s, const uint8_t *theirs);
int braid_smc_setup_ready(struct braid_setup *s);
void braid_smc_setup_drop(struct braid_setup *s);

#endif
