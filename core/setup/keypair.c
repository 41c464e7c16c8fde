/* SPDX-License-Identifier: BSD-3-Clause */
/* keypair.c - see keypair.h. */
#include "core/setup/keypair.h"

#include <stdbool.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/secret.h"
#include "core/base/units.h"
#include "core/proto/auth.h"

/* A pair taken means handshakes under way, which a new pair would delay. */
enum { REST_MS = 20 };

static struct {
	struct braid_lock lock;
	unsigned n;
	bool taken;			/* since the last tick */
	uint8_t *secret[BRAID_KEYPAIRS];	/* core/base/secret.h */
	uint8_t public[BRAID_KEYPAIRS][BRAID_NONCE_SIZE];
	uint64_t due_ns;		/* no pair is made sooner by a tick */
} ready;

void braid_keypair_take(uint8_t *secret, uint8_t *ret_public)
{
	uint8_t *mine = NULL;

	/* A child has no secrets of its parent's: they are zeros there. */
	if (!atomic_load(&braid_forked)) {
		braid_lock_wait(&ready.lock);
		if (ready.n) {
			mine = ready.secret[--ready.n];
			memcpy(ret_public, ready.public[ready.n], BRAID_NONCE_SIZE);
		}
		ready.taken = true;
		braid_unlock(&ready.lock);
	}
	if (mine)
		memcpy(secret, mine, BRAID_KEY_SIZE);
	else
		braid_auth_public(secret, ret_public);
	braid_secret_free(mine);
}

static bool make(void)
{
	uint8_t *secret = braid_secret_new(), public[BRAID_NONCE_SIZE];

	if (!secret || braid_os->random(secret, BRAID_KEY_SIZE)) {
		braid_secret_free(secret);
		return false;
	}
	braid_auth_public(secret, public);
	braid_lock_wait(&ready.lock);
	if (ready.n < BRAID_KEYPAIRS) {
		ready.secret[ready.n] = secret;
		memcpy(ready.public[ready.n++], public, sizeof(public));
		secret = NULL;
	}
	braid_unlock(&ready.lock);
	braid_secret_free(secret);
	return true;
}

void braid_keypairs_begin(void)
{
	unsigned n;

	braid_lock_wait(&ready.lock);
	n = ready.n;
	braid_unlock(&ready.lock);
	if (!n)
		make();
}

int braid_keypairs_tick(uint64_t now)
{
	unsigned n;

	braid_lock_wait(&ready.lock);
	n = ready.n;
	if (ready.taken)
		ready.due_ns = now + REST_MS * MS;
	ready.taken = false;
	braid_unlock(&ready.lock);
	if (n == BRAID_KEYPAIRS)
		return -1;
	if (now < ready.due_ns)
		return (int)((ready.due_ns - now + MS - 1) / MS);
	if (make())
		return 0;
	ready.due_ns = now + REST_MS * MS;
	return REST_MS;
}

void braid_keypairs_forget(void)
{
	braid_lock_wait(&ready.lock);
	while (ready.n)
		braid_secret_free(ready.secret[--ready.n]);
	ready.due_ns = 0;
	ready.taken = false;
	braid_unlock(&ready.lock);
}
