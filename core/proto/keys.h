/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * keys.h - the keys of a lane's records, derived as TLS 1.3 derives its own (RFC 8446, 7.1).
 *
 * With E the key of the handshake (core/proto/auth.h), and M1 and M2 its hellos:
 *
 *	secret      = HKDF-Expand-Label(E, "braid dialler" or "braid accepter",
 *					SHA-256(M1 | M2), 32)
 *	key, iv     = HKDF-Expand-Label(secret, "key" and "iv", "", size)
 *	next secret = HKDF-Expand-Label(secret, "traffic upd", "", 32)
 *
 * The label names the end that sends.  A lane has a handshake of its own each time it is dialled,
 * so no two lanes, directions or epochs share a secret.
 */
#ifndef BRAID_PROTO_KEYS_H
#define BRAID_PROTO_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BRAID_TRAFFIC_SIZE = 32 };	/* bytes of a traffic secret */

/* The first secret of the direction from the dialler, or of that to it. */
void braid_keys_traffic(const uint8_t *e, const uint8_t *m1, const uint8_t *m2, bool from_dialler,
			uint8_t *ret);
/* Turn a secret into the one that follows it. */
void braid_keys_next(uint8_t *secret);
/* key: braid_aead_key_size(cipher) bytes; iv: BRAID_AEAD_IV_SIZE. */
void braid_keys_expand(const uint8_t *secret, uint8_t cipher, uint8_t *key, uint8_t *iv);

/* RFC 5869, 2.3: HKDF-Expand with SHA-256; prk has 32 bytes, len is at most 8160. */
void braid_keys_hkdf(const uint8_t *prk, const uint8_t *info, size_t ninfo, uint8_t *ret,
		     size_t len);
/* RFC 8446, 7.1: HKDF-Expand-Label; the context has at most 32 bytes. */
void braid_keys_label(const uint8_t *secret, const char *label, const uint8_t *context,
		      size_t ncontext, uint8_t *ret, size_t len);

#endif
