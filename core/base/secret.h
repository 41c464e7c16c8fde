/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * secret.h - memory for keys.
 *
 * Keys lie together in pages of their own.  The kernel leaves these pages out of core dumps, gives
 * a forked child zeros in their place, and keeps them out of swap if the limit of locked memory
 * allows it.  A key has one place while it lives; code that is done with it frees it there.
 */
#ifndef BRAID_BASE_SECRET_H
#define BRAID_BASE_SECRET_H

#include <stdint.h>

enum { BRAID_SECRET_SIZE = 32 };	/* bytes of a key */

/* A key of zeros; NULL: out of memory. */
uint8_t *braid_secret_new(void);
/* Wipe a key and free it; NULL is no key. */
void braid_secret_free(uint8_t *key);
/* In a forked child: wipe all keys, where the kernel has not.  Async-signal-safe, takes no lock. */
void braid_secrets_wipe(void);

#endif
