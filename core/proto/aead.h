/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * aead.h - encrypt and authenticate bytes under one key, in one direction.
 *
 * The ciphers are libcrypto's, which is loaded at run time, or else libsodium's, which is part of
 * Braid.  Whichever library does it, the bytes are the same.
 */
#ifndef BRAID_PROTO_AEAD_H
#define BRAID_PROTO_AEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum braid_cipher {			/* bits of a hello's `ciphers` */
	BRAID_CIPHER_NONE = 0,
	BRAID_CIPHER_AES256 = 1,
	BRAID_CIPHER_AES128 = 2,
	BRAID_CIPHER_CHACHA20 = 4,
};

enum {
	BRAID_AEAD_KEY_MAX = 32,
	BRAID_AEAD_IV_SIZE = 12,
	BRAID_AEAD_TAG_SIZE = 16,
};

/* Load libcrypto.  Only at init; may be called often. */
void braid_aead_init(void);

/* The ciphers of this process, as bits.  AES only where the CPU has instructions for it. */
uint8_t braid_aead_ciphers(void);
const char *braid_aead_name(uint8_t cipher);	/* "AES-256-GCM" */
const char *braid_aead_library(uint8_t cipher);	/* whose it is: "OpenSSL 3.0.15", "libsodium" */
size_t braid_aead_key_size(uint8_t cipher);

/*
 * For tests: make further keys of libsodium alone (false), or of libcrypto where there is one.  If
 * false at init, libcrypto is not loaded.
 */
void braid_aead_use_libcrypto(bool use);

struct braid_aead;

/*
 * A key for sealing or for opening; key and iv stay the caller's.  NULL: no memory, or this process
 * does not have the cipher.
 */
struct braid_aead *braid_aead_new(uint8_t cipher, const uint8_t *key, const uint8_t *iv,
				  bool seal);
void braid_aead_free(struct braid_aead *a);	/* wipes it; NULL is none */

/*
 * Seal bytes [skip, skip + len) of an iovec, and one byte more, `last`: len + 1 bytes and the tag
 * go to `out`, which the iovec does not overlap.  The nonce is the iv XOR seq (RFC 8446, 5.3), so
 * no seq may be used twice.  0 or -EIO.
 */
int braid_aead_seal(struct braid_aead *a, uint64_t seq, const uint8_t *ad, size_t adlen,
		    const struct iovec *iov, int niov, size_t skip, size_t len, uint8_t last,
		    uint8_t *out);

/*
 * Open len bytes and the tag behind them.  `out` has room for len bytes and does not overlap `in`;
 * it must be memory that nobody but Braid reads, since it holds bytes before they are verified.
 * 0, or -EILSEQ: not what was sealed; `out` is wiped.
 */
int braid_aead_open(struct braid_aead *a, uint64_t seq, const uint8_t *ad, size_t adlen,
		    const uint8_t *in, size_t len, uint8_t *out);

#endif
