/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sodium.h - what core/proto/auth.c needs of libsodium, for tests/gpu/run on a machine that has none:
 * BLAKE2b with a key and 32 bytes of result.  Not for a plugin that anybody uses.
 */
#ifndef BRAID_TESTS_GPU_SODIUM_H
#define BRAID_TESTS_GPU_SODIUM_H

#include <stddef.h>
#include <stdint.h>

enum { crypto_generichash_BYTES = 32, crypto_generichash_KEYBYTES = 32 };

typedef struct {
	uint64_t h[8], count;		/* bytes hashed so far, without those in `block` */
	uint8_t block[128];
	size_t used, size;
} crypto_generichash_state;

int sodium_init(void);
void sodium_memzero(void *data, size_t len);
int sodium_memcmp(const void *a, const void *b, size_t len);

int crypto_generichash_init(crypto_generichash_state *st, const uint8_t *key, size_t key_len,
			    size_t size);
int crypto_generichash_update(crypto_generichash_state *st, const uint8_t *data,
			      unsigned long long len);
int crypto_generichash_final(crypto_generichash_state *st, uint8_t *ret, size_t size);

#endif
