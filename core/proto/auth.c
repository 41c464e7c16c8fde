/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * auth.c - the MACs of auth.h.  Only the signed part of a hello is hashed: its MAC field comes
 * last, so callers pass M1 and M2 whole.
 */
#include "core/proto/auth.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

_Static_assert(BRAID_MAC_SIZE == crypto_generichash_BYTES, "MAC size");
_Static_assert(BRAID_KEY_SIZE == crypto_generichash_KEYBYTES, "key size");
_Static_assert(BRAID_KEY_SIZE == crypto_scalarmult_SCALARBYTES, "secret key size");
_Static_assert(BRAID_KEY_SIZE == BRAID_MAC_SIZE, "a MAC may be a key");
_Static_assert(BRAID_NONCE_SIZE == crypto_scalarmult_BYTES, "public key size");

int braid_auth_init(void)
{
	return sodium_init() < 0 ? -EIO : 0;
}

static void begin(crypto_generichash_state *st, const uint8_t *key, const char *label)
{
	crypto_generichash_init(st, key, key ? BRAID_KEY_SIZE : 0, BRAID_MAC_SIZE);
	crypto_generichash_update(st, (const uint8_t *)label, strlen(label) + 1);
}

static void end(crypto_generichash_state *st, uint8_t *ret)
{
	crypto_generichash_final(st, ret, BRAID_MAC_SIZE);
	sodium_memzero(st, sizeof(*st));
}

static void mac(const uint8_t *key, const char *label, const uint8_t *m1, const uint8_t *m2,
		const uint8_t *setup, uint8_t *ret)
{
	crypto_generichash_state st;

	begin(&st, key, label);
	crypto_generichash_update(&st, m1, BRAID_HELLO_SIGNED);
	if (m2)
		crypto_generichash_update(&st, m2, BRAID_HELLO_SIGNED);
	if (setup)
		crypto_generichash_update(&st, setup, BRAID_SETUP_SIGNED);
	end(&st, ret);
}

void braid_auth_hello(const uint8_t *key, const uint8_t *m1, uint8_t *ret)
{
	mac(key, "braid hello", m1, NULL, NULL, ret);
}

void braid_auth_answer(const uint8_t *key, const uint8_t *m1, const uint8_t *m2, uint8_t *ret)
{
	mac(key, "braid answer", m1, m2, NULL, ret);
}

void braid_auth_proof(const uint8_t *key, const uint8_t *m1, const uint8_t *m2, uint8_t *ret)
{
	mac(key, "braid proof", m1, m2, NULL, ret);
}

void braid_auth_session(const uint8_t *key, const uint8_t *m1, const uint8_t *m2, uint8_t *ret)
{
	mac(key, "braid session", m1, m2, NULL, ret);
}

void braid_auth_setup(const uint8_t *key, const uint8_t *m1, const uint8_t *m2, bool dialler,
		      const uint8_t *msg, uint8_t *ret)
{
	mac(key, dialler ? "braid setup" : "braid setup answer", m1, m2, msg, ret);
}

void braid_auth_ticket(const uint8_t *key, const uint8_t *m1, const uint8_t *m2, uint8_t *ret)
{
	mac(key, "braid ticket", m1, m2, NULL, ret);
}

void braid_auth_public(const uint8_t *secret, uint8_t *ret)
{
	crypto_scalarmult_base(ret, secret);
}

int braid_auth_exchange(const uint8_t *secret, const uint8_t *public, uint8_t *key)
{
	uint8_t shared[crypto_scalarmult_BYTES];
	crypto_generichash_state st;
	int err = crypto_scalarmult(shared, secret, public) ? -EACCES : 0;

	begin(&st, key, "braid exchange");
	crypto_generichash_update(&st, shared, sizeof(shared));
	end(&st, key);
	sodium_memzero(shared, sizeof(shared));
	return err;
}

void braid_auth_job(const char *text, size_t len, uint8_t *ret)
{
	crypto_generichash_state st;

	begin(&st, NULL, "braid secret");
	crypto_generichash_update(&st, (const uint8_t *)text, len);
	end(&st, ret);
}

void braid_auth_mix(const uint8_t *secret, uint8_t *key)
{
	crypto_generichash_state st;

	begin(&st, secret, "braid secret key");
	crypto_generichash_update(&st, key, BRAID_KEY_SIZE);
	end(&st, key);
}

uint32_t braid_auth_hint(const uint8_t *token, const uint8_t *m1)
{
	uint8_t mac[BRAID_MAC_SIZE];
	crypto_generichash_state st;

	begin(&st, token, "braid hint");
	crypto_generichash_update(&st, m1, BRAID_HELLO_HINT);
	end(&st, mac);
	return (uint32_t)mac[0] | (uint32_t)mac[1] << 8 | (uint32_t)mac[2] << 16 |
	       (uint32_t)mac[3] << 24;
}

static void mac_open(const uint8_t *token, const char *label, const uint8_t *session,
		     uint32_t comm, uint64_t listen_id, uint8_t *ret)
{
	uint8_t ids[12];
	crypto_generichash_state st;

	for (int i = 0; i < 4; i++)
		ids[i] = (uint8_t)(comm >> 8 * i);
	for (int i = 0; i < 8; i++)
		ids[4 + i] = (uint8_t)(listen_id >> 8 * i);
	begin(&st, token, label);
	crypto_generichash_update(&st, session, BRAID_KEY_SIZE);
	crypto_generichash_update(&st, ids, sizeof(ids));
	end(&st, ret);
}

void braid_auth_open(const uint8_t *token, const uint8_t *session, uint32_t comm,
		     uint64_t listen_id, uint8_t *ret)
{
	mac_open(token, "braid open", session, comm, listen_id, ret);
}

void braid_auth_opened(const uint8_t *token, const uint8_t *session, uint32_t comm,
		       uint64_t listen_id, uint8_t *ret)
{
	mac_open(token, "braid opened", session, comm, listen_id, ret);
}

bool braid_auth_equal(const uint8_t *a, const uint8_t *b)
{
	return !sodium_memcmp(a, b, BRAID_MAC_SIZE);
}

void braid_auth_wipe(void *key, size_t len)
{
	sodium_memzero(key, len);
}
