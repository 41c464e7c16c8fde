/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcrypto.h - the ciphers of OpenSSL's libcrypto, loaded at run time.
 *
 * Braid is a guest of the one that the process uses, if it uses one.  Of OpenSSL 3 it takes the
 * functions of the default provider (provider-cipher(7)), in a library context of its own: so no
 * configuration file is read, the process can still read its own, and nothing is left to be done
 * at exit.  OpenSSL 1.1 has no providers; there EVP does it.
 *
 * A key's schedule lies in libcrypto's heap, which wipes it when the key is freed.
 */
#ifndef BRAID_PROTO_LIBCRYPTO_H
#define BRAID_PROTO_LIBCRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Only at init; may be called often.  Without the library there are no ciphers. */
void braid_libcrypto_load(void);
const char *braid_libcrypto_name(void);	/* "OpenSSL 3.0.15" */
bool braid_libcrypto_has(uint8_t cipher);	/* enum braid_cipher */

struct braid_libcrypto;

/* A key, for sealing or for opening.  NULL: no memory, or no such cipher. */
struct braid_libcrypto *braid_libcrypto_new(uint8_t cipher, const uint8_t *key, bool seal);
void braid_libcrypto_free(struct braid_libcrypto *c);	/* wipes it; NULL is none */

/* Begin a message: its nonce of 12 bytes, and the additional data.  All of these: did it work? */
bool braid_libcrypto_begin(struct braid_libcrypto *c, const uint8_t *nonce, const uint8_t *ad,
			   size_t adlen);
/* The next n bytes of it; out may be in. */
bool braid_libcrypto_update(struct braid_libcrypto *c, uint8_t *out, const uint8_t *in, size_t n);
/* The end: write the tag of 16 bytes, or compare it. */
bool braid_libcrypto_end(struct braid_libcrypto *c, uint8_t *tag);

#endif
