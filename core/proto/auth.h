/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * auth.h - proofs of knowledge, over BLAKE2b keyed hashing (libsodium's crypto_generichash).
 *
 * The dialler's hello is M1, the answer M2.  With K the listen's token (a new link) or the link's
 * session key (another lane of it), and every MAC bound to its role by a different label:
 *
 *	K       = MAC(S, "secret key" | token)		where the job has a secret, S
 *	M1.mac  = MAC(K, "hello" | M1)			lets the listener drop strangers at once
 *	E       = MAC(K, "exchange" | X25519)		of the public keys in M1 and M2
 *	M2.mac  = MAC(E, "answer" | M1 | M2)		the listener knows K and saw this M1
 *	proof   = MAC(E, "proof" | M1 | M2)		the dialler knows K and saw this M2
 *	session = MAC(E, "session" | M1 | M2)		bound to both nonces
 *
 * Who knows K and reads the handshake, but can't change it, still does not know E.  Wire version 1
 * has no exchange: E is K, and the public keys are nonces.
 *
 * A recorded M1 gets an M2 with a new nonce, which only a holder of K can answer; a reflected
 * message fails on its label.  K itself never crosses the wire.
 */
#ifndef BRAID_PROTO_AUTH_H
#define BRAID_PROTO_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/proto/hello.h"

int braid_auth_init(void);	/* 0 or -EIO; may be called often */

void braid_auth_hello(const uint8_t *key, const uint8_t *m1,
		      uint8_t *ret);
void braid_auth_answer(const uint8_t *key, const uint8_t *m1,
		       const uint8_t *m2, uint8_t *ret);
void braid_auth_proof(const uint8_t *key, const uint8_t *m1,
		      const uint8_t *m2, uint8_t *ret);
void braid_auth_session(const uint8_t *key, const uint8_t *m1,
			const uint8_t *m2, uint8_t *ret);
/* Proof that the peer that opens a comm on a link knows the token of the listen it names.  The MAC
 * of the answer proves the same of the end that accepts the comm. */
void braid_auth_open(const uint8_t *token, const uint8_t *session,
		     uint32_t comm, uint64_t listen_id, uint8_t *ret);
void braid_auth_opened(const uint8_t *token, const uint8_t *session,
		       uint32_t comm, uint64_t listen_id, uint8_t *ret);

/* The MAC of one end's set-up message of a lane, bound to this handshake. */
void braid_auth_setup(const uint8_t *key, const uint8_t *m1, const uint8_t *m2, bool dialler,
		      const uint8_t *msg, uint8_t *ret);

/*
 * The MAC by which a second connection of the same set-up (SMC's socket, iWARP's queue pair) shows
 * that the dialler of this handshake made it.
 */
void braid_auth_ticket(const uint8_t *key, const uint8_t *m1, const uint8_t *m2, uint8_t *ret);

/* Make S of the text of a job's secret. */
void braid_auth_job(const char *text, size_t len, uint8_t *ret);
/* Turn a token into the key K of a new link's handshake. */
void braid_auth_mix(const uint8_t *secret, uint8_t *key);
/* Bytes of a MAC over the start of M1, by which its sender shows that it knows the token. */
uint32_t braid_auth_hint(const uint8_t *token, const uint8_t *m1);

/* Make the public key of a secret one, BRAID_KEY_SIZE random bytes. */
void braid_auth_public(const uint8_t *secret, uint8_t *ret);
/* Turn K into E.  0, or -EACCES: no key has that public one. */
int braid_auth_exchange(const uint8_t *secret, const uint8_t *public, uint8_t *key);

bool braid_auth_equal(const uint8_t *a, const uint8_t *b);
void braid_auth_wipe(void *key, size_t len);	/* async-signal-safe */

#endif
