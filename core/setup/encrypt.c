/* SPDX-License-Identifier: BSD-3-Clause */
/* encrypt.c - see encrypt.h. */
#include "core/setup/encrypt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/param.h"
#include "core/link/lane.h"
#include "core/proto/aead.h"
#include "core/proto/hello.h"
#include "core/proto/keys.h"
#include "core/setup/conn.h"

static bool is_off(void)
{
	return strcmp(braid_param.encrypt, "off") == 0;
}

static bool is_required(void)
{
	return strcmp(braid_param.encrypt, "require") == 0;
}

bool braid_encrypt_allows(unsigned transport)
{
	return transport == BRAID_TRANSPORT_TCP || !is_required() || braid_param.fabric_encrypted;
}

/* ChaCha20 stays in the offer beside AES: the peer's CPU may lack instructions for that. */
static uint8_t wanted(void)
{
	static const struct {
		const char *name;
		uint8_t ciphers;
	} by_name[] = {
		{ "aes256", BRAID_CIPHER_AES256 | BRAID_CIPHER_CHACHA20 },
		{ "aes128", BRAID_CIPHER_AES128 | BRAID_CIPHER_CHACHA20 },
		{ "chacha20", BRAID_CIPHER_CHACHA20 },
	};

	for (unsigned i = 0; i < sizeof(by_name) / sizeof(by_name[0]); i++) {
		if (strcmp(braid_param.cipher, by_name[i].name) == 0)
			return by_name[i].ciphers;
	}
	return BRAID_CIPHER_AES256 | BRAID_CIPHER_AES128 | BRAID_CIPHER_CHACHA20;
}

void braid_encrypt_start(void)
{
	char names[128] = "";
	size_t n = 0;

	if (is_off()) {
		braid_info("encrypt: off (BRAID_ENCRYPT)");
		return;
	}
	braid_aead_init();
	for (unsigned bit = 1; bit <= BRAID_CIPHER_CHACHA20; bit <<= 1) {
		if (wanted() & braid_aead_ciphers() & bit)
			n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s by %s",
					      n ? ", " : "", braid_aead_name((uint8_t)bit),
					      braid_aead_library((uint8_t)bit));
	}
	braid_info("encrypt: %s, TCP: %s", braid_param.encrypt, names);
}

void braid_encrypt_offer(struct braid_hello *h)
{
	const struct braid_transport *tcp = braid_transport_find(BRAID_TRANSPORT_TCP);

	h->ciphers = is_off() ? 0 : wanted() & braid_aead_ciphers();
	h->options &= (uint8_t)~(BRAID_OPTION_ENCRYPT | BRAID_OPTION_KEEPS_KEY);
	if (h->ciphers && tcp && tcp->keeps_key && tcp->keeps_key())
		h->options |= BRAID_OPTION_KEEPS_KEY;
	if (is_required())
		h->options |= BRAID_OPTION_ENCRYPT;
}

void braid_encrypt_choose(struct braid_conn *c)
{
	uint8_t both = c->mine.ciphers & c->theirs.ciphers;

	if (both)
		c->mine.ciphers = both & (uint8_t)-both;	/* the lowest bit is the best */
	else if (!((c->mine.options | c->theirs.options) & BRAID_OPTION_ENCRYPT))
		c->mine.ciphers = 0;
	else if (c->version >= 2)
		c->mine.status = BRAID_HELLO_ENCRYPT;
	else {
		c->mine.least = 2;		/* a peer of version 1 knows no such status */
		c->mine.status = BRAID_HELLO_VERSION;
	}
}

int braid_encrypt_check(const struct braid_conn *c)
{
	uint8_t chosen = c->theirs.ciphers;

	if (chosen & (chosen - 1) || (chosen & c->mine.ciphers) != chosen)
		return -EBADMSG;
	return !chosen && c->mine.options & BRAID_OPTION_ENCRYPT ? -ENOKEY : 0;
}

void braid_encrypt_why(const struct braid_conn *c, char *ret, size_t len)
{
	if (c->theirs.most < 2)
		snprintf(ret, len, "speaks wire version %u alone, which is never encrypted, and "
			 "BRAID_ENCRYPT=require here: install this release of Braid there "
			 "[encrypt-mismatch]", c->theirs.most);
	else if (!c->theirs.ciphers)
		snprintf(ret, len, "does not encrypt (BRAID_ENCRYPT=off there, or an older "
			 "Braid), and BRAID_ENCRYPT=require here: set the same on all hosts "
			 "[encrypt-mismatch]");
	else if (!c->mine.ciphers)
		snprintf(ret, len, "has BRAID_ENCRYPT=require, and BRAID_ENCRYPT=off here: set "
			 "the same on all hosts [encrypt-mismatch]");
	else
		snprintf(ret, len, "has no cipher in common with this host: compare BRAID_CIPHER "
			 "on both [encrypt-mismatch]");
}

/* That of a lane of TCP.  Other transports are never encrypted. */
static uint8_t cipher_of(const struct braid_conn *c)
{
	const struct braid_hello *answer = c->dialler ? &c->theirs : &c->mine;

	return c->tr->id == BRAID_TRANSPORT_TCP ? answer->ciphers : BRAID_CIPHER_NONE;
}

const char *braid_encrypt_name(const struct braid_conn *c)
{
	return cipher_of(c) ? braid_aead_name(cipher_of(c)) : "not encrypted";
}

bool braid_encrypt_keys(const struct braid_conn *c, struct braid_lane_keys *ret)
{
	ret->cipher = cipher_of(c);
	if (!ret->cipher)
		return false;
	ret->peer_keeps = c->theirs.options & BRAID_OPTION_KEEPS_KEY;
	braid_keys_traffic(c->key, c->m1, c->m2, c->dialler, ret->send);
	braid_keys_traffic(c->key, c->m1, c->m2, !c->dialler, ret->receive);
	return true;
}
