/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * keypair.h - X25519 key pairs that are made before a handshake needs them.
 *
 * Making a key pair takes as long as the exchange itself, while the other end waits.  So the
 * service thread makes a few while no handshake is under way.  Each serves one handshake.
 */
#ifndef BRAID_SETUP_KEYPAIR_H
#define BRAID_SETUP_KEYPAIR_H

#include <stdint.h>

enum { BRAID_KEYPAIRS = 2 };		/* kept ready: for a dial and for a peer's */

/*
 * Give a handshake its key pair.  secret: BRAID_KEY_SIZE random bytes.  If a pair is ready, its
 * secret replaces them and it is kept no longer; else they are the secret.
 */
void braid_keypair_take(uint8_t *secret, uint8_t *ret_public);

/* Make a pair if none is ready: connections will come. */
void braid_keypairs_begin(void);

/* --- for the service thread ---------------------------------------------------------------- */

/* Make a pair if one is missing and none was taken lately.  Returns ms until the next; or -1. */
int braid_keypairs_tick(uint64_t now);
void braid_keypairs_forget(void);	/* wipe and free them */

#endif
