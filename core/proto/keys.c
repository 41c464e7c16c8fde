/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.c - see keys.h.  HMAC-SHA256 and SHA-256 are libsodium's. */
#include "core/proto/keys.h"

#include <sodium.h>
#include <string.h>

#include "core/proto/aead.h"
#include "core/proto/hello.h"

enum { CONTEXT_MAX = crypto_hash_sha256_BYTES };

_Static_assert(BRAID_TRAFFIC_SIZE == crypto_auth_hmacsha256_BYTES, "a secret is one hash");
_Static_assert(BRAID_KEY_SIZE == crypto_auth_hmacsha256_KEYBYTES, "E is a key of HMAC");

void braid_keys_hkdf(const uint8_t *prk, const uint8_t *info, size_t ninfo, uint8_t *ret,
		     size_t len)
{
	uint8_t t[crypto_auth_hmacsha256_BYTES];
	crypto_auth_hmacsha256_state st;

	for (uint8_t i = 1; len; i++) {
		size_t n = len < sizeof(t) ? len : sizeof(t);

		crypto_auth_hmacsha256_init(&st, prk, crypto_auth_hmacsha256_KEYBYTES);
		if (i > 1)
			crypto_auth_hmacsha256_update(&st, t, sizeof(t));
		crypto_auth_hmacsha256_update(&st, info, ninfo);
		crypto_auth_hmacsha256_update(&st, &i, 1);
		crypto_auth_hmacsha256_final(&st, t);
		memcpy(ret, t, n);
		ret += n;
		len -= n;
	}
	sodium_memzero(t, sizeof(t));
	sodium_memzero(&st, sizeof(st));
}

/* The length (2 bytes), the label with its prefix, and the context, each with its length (1). */
void braid_keys_label(const uint8_t *secret, const char *label, const uint8_t *context,
		      size_t ncontext, uint8_t *ret, size_t len)
{
	static const char prefix[] = "tls13 ";
	uint8_t info[2 + 1 + 255 + 1 + CONTEXT_MAX];
	size_t n = 0, nlabel = strlen(label);

	info[n++] = (uint8_t)(len >> 8);
	info[n++] = (uint8_t)len;
	info[n++] = (uint8_t)(sizeof(prefix) - 1 + nlabel);
	memcpy(info + n, prefix, sizeof(prefix) - 1);
	n += sizeof(prefix) - 1;
	memcpy(info + n, label, nlabel);
	n += nlabel;
	info[n++] = (uint8_t)ncontext;
	if (ncontext)
		memcpy(info + n, context, ncontext);
	n += ncontext;
	braid_keys_hkdf(secret, info, n, ret, len);
}

void braid_keys_traffic(const uint8_t *e, const uint8_t *m1, const uint8_t *m2, bool from_dialler,
			uint8_t *ret)
{
	uint8_t hash[crypto_hash_sha256_BYTES];
	crypto_hash_sha256_state st;

	crypto_hash_sha256_init(&st);
	crypto_hash_sha256_update(&st, m1, BRAID_HELLO_SIGNED);
	crypto_hash_sha256_update(&st, m2, BRAID_HELLO_SIGNED);
	crypto_hash_sha256_final(&st, hash);
	braid_keys_label(e, from_dialler ? "braid dialler" : "braid accepter", hash, sizeof(hash),
			 ret, BRAID_TRAFFIC_SIZE);
}

void braid_keys_next(uint8_t *secret)
{
	braid_keys_label(secret, "traffic upd", NULL, 0, secret, BRAID_TRAFFIC_SIZE);
}

void braid_keys_expand(const uint8_t *secret, uint8_t cipher, uint8_t *key, uint8_t *iv)
{
	braid_keys_label(secret, "key", NULL, 0, key, braid_aead_key_size(cipher));
	braid_keys_label(secret, "iv", NULL, 0, iv, BRAID_AEAD_IV_SIZE);
}
