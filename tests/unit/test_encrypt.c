/* SPDX-License-Identifier: BSD-3-Clause */
/* test_encrypt.c - what two hellos say about encryption, and what the ends make of that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/param.h"
#include "core/link/lane.h"
#include "core/proto/aead.h"
#include "core/setup/conn.h"
#include "core/setup/encrypt.h"
#include "core/transport.h"

static const struct braid_transport tcp = { .id = BRAID_TRANSPORT_TCP };
static const struct braid_transport verbs = { .id = BRAID_TRANSPORT_VERBS, .blob = true };

struct end {
	const char *encrypt, *cipher;
	uint16_t most;			/* the highest wire version that it speaks */
};

static struct braid_conn dialler, accepter;
static uint8_t key[BRAID_KEY_SIZE];

static void be(const struct end *e)
{
	strcpy(braid_param.encrypt, e->encrypt);
	strcpy(braid_param.cipher, e->cipher);
}

/* Both hellos, up to the dialler's verdict.  The answer's status is in accepter.mine. */
static int meet(struct end d, struct end a)
{
	dialler = (struct braid_conn){ .dialler = true, .tr = &tcp, .key = key };
	accepter = (struct braid_conn){ .tr = &tcp, .key = key };
	dialler.version = accepter.version = d.most < a.most ? d.most : a.most;
	be(&d);
	braid_encrypt_offer(&dialler.mine);
	dialler.mine.most = d.most;
	accepter.theirs = dialler.mine;
	if (d.most < 2)
		accepter.theirs.ciphers = accepter.theirs.options = 0;
	be(&a);
	braid_encrypt_offer(&accepter.mine);
	accepter.mine.most = a.most;
	braid_encrypt_choose(&accepter);
	if (a.most < 2)				/* such a build sends zeros there */
		accepter.mine.ciphers = accepter.mine.options = 0;
	dialler.theirs = accepter.mine;
	be(&d);
	return braid_encrypt_check(&dialler);
}

static int setup(void **state)
{
	(void)state;
	braid_aead_init();
	memset(key, 7, sizeof(key));
	braid_param.fabric_encrypted = 0;
	return 0;
}

static uint8_t best(uint8_t ciphers)
{
	ciphers &= braid_aead_ciphers();
	return ciphers & (uint8_t)-ciphers;
}

enum { A256 = BRAID_CIPHER_AES256, A128 = BRAID_CIPHER_AES128, CHACHA = BRAID_CIPHER_CHACHA20 };

static void both_ends_take_the_best_cipher_that_both_have(void **state)
{
	static const struct {
		struct end d, a;
		uint8_t want;
	} rows[] = {
		{ { "off", "auto", 2 }, { "off", "auto", 2 }, 0 },
		{ { "off", "auto", 2 }, { "prefer", "auto", 2 }, 0 },
		{ { "prefer", "auto", 2 }, { "off", "auto", 2 }, 0 },
		{ { "prefer", "auto", 2 }, { "prefer", "auto", 2 }, A256 | A128 | CHACHA },
		{ { "require", "auto", 2 }, { "prefer", "auto", 2 }, A256 | A128 | CHACHA },
		{ { "prefer", "auto", 2 }, { "require", "auto", 2 }, A256 | A128 | CHACHA },
		{ { "require", "aes128", 2 }, { "require", "auto", 2 }, A128 | CHACHA },
		{ { "require", "aes128", 2 }, { "require", "aes256", 2 }, CHACHA },
		{ { "prefer", "auto", 2 }, { "prefer", "chacha20", 2 }, CHACHA },
		{ { "prefer", "auto", 2 }, { "prefer", "auto", 1 }, 0 },
		{ { "prefer", "auto", 1 }, { "prefer", "auto", 2 }, 0 },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(meet(rows[i].d, rows[i].a), 0);
		assert_int_equal(accepter.mine.status, BRAID_HELLO_OK);
		assert_int_equal(accepter.mine.ciphers, best(rows[i].want));
	}
}

static void an_end_that_requires_encryption_refuses_a_peer_without_it(void **state)
{
	static const struct {
		struct end d, a;
		int status, check;
		const char *says;	/* the accepting end, of the dialler */
	} rows[] = {
		{ { "off", "auto", 2 }, { "require", "auto", 2 }, BRAID_HELLO_ENCRYPT, 0,
		  "does not encrypt" },
		{ { "require", "auto", 2 }, { "off", "auto", 2 }, BRAID_HELLO_ENCRYPT, -ENOKEY,
		  "has BRAID_ENCRYPT=require" },
		{ { "off", "auto", 1 }, { "require", "auto", 2 }, BRAID_HELLO_VERSION, 0,
		  "speaks wire version 1 alone" },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char why[256];
		int err = meet(rows[i].d, rows[i].a);

		assert_int_equal(accepter.mine.status, rows[i].status);
		if (rows[i].check)
			assert_int_equal(err, rows[i].check);
		braid_encrypt_why(&accepter, why, sizeof(why));
		assert_non_null(strstr(why, rows[i].says));
		assert_non_null(strstr(why, "[encrypt-mismatch]"));
	}
	/* A peer of version 1 does not know what it is asked, and answers as ever. */
	assert_int_equal(meet((struct end){ "require", "auto", 2 }, (struct end){ "off", "auto", 1 }),
			 -ENOKEY);
}

static void an_answer_that_chooses_what_was_not_offered_is_an_error(void **state)
{
	(void)state;
	assert_int_equal(meet((struct end){ "prefer", "chacha20", 2 },
			      (struct end){ "prefer", "auto", 2 }), 0);
	dialler.theirs.ciphers = A256;
	assert_int_equal(braid_encrypt_check(&dialler), -EBADMSG);
	dialler.theirs.ciphers = A256 | CHACHA;
	assert_int_equal(braid_encrypt_check(&dialler), -EBADMSG);
	dialler.theirs.ciphers = 0x80;
	assert_int_equal(braid_encrypt_check(&dialler), -EBADMSG);
}

static void both_ends_derive_the_same_keys_crosswise(void **state)
{
	struct braid_lane_keys d, a;

	(void)state;
	assert_int_equal(meet((struct end){ "require", "auto", 2 },
			      (struct end){ "require", "auto", 2 }), 0);
	assert_true(braid_encrypt_keys(&dialler, &d));
	assert_true(braid_encrypt_keys(&accepter, &a));
	assert_int_equal(d.cipher, a.cipher);
	assert_memory_equal(d.send, a.receive, sizeof(d.send));
	assert_memory_equal(d.receive, a.send, sizeof(d.send));
	assert_memory_not_equal(d.send, d.receive, sizeof(d.send));
	accepter.m1[60] ^= 1;			/* another lane, epoch or nonce: other keys */
	assert_true(braid_encrypt_keys(&accepter, &a));
	assert_memory_not_equal(d.send, a.receive, sizeof(d.send));
	accepter.tr = &verbs;
	assert_false(braid_encrypt_keys(&accepter, &a));
}

static bool keeps_key(void)
{
	return true;
}

static void a_peer_is_told_of_a_key_that_cannot_change(void **state)
{
	const struct braid_transport kernel = {
		.id = BRAID_TRANSPORT_TCP, .keeps_key = keeps_key,
	};
	static const struct braid_transport *const users[] = { &tcp, NULL };
	const struct braid_transport *const kernels[] = { &kernel, NULL };
	struct end end = { "require", "auto", 2 };
	struct braid_lane_keys keys;

	(void)state;
	braid_transports_use(users);
	assert_int_equal(meet(end, end), 0);
	assert_true(braid_encrypt_keys(&dialler, &keys));
	assert_false(keys.peer_keeps);
	braid_transports_use(kernels);
	assert_int_equal(meet(end, end), 0);
	assert_true(braid_encrypt_keys(&dialler, &keys));
	assert_true(keys.peer_keeps);
	end.encrypt = "off";
	assert_int_equal(meet(end, end), 0);
	assert_int_equal(dialler.mine.options, 0);
	braid_transports_use(users);
}

static void only_tcp_is_allowed_where_encryption_is_required(void **state)
{
	(void)state;
	be(&(struct end){ "require", "auto", 2 });
	assert_true(braid_encrypt_allows(BRAID_TRANSPORT_TCP));
	assert_false(braid_encrypt_allows(BRAID_TRANSPORT_VERBS));
	assert_false(braid_encrypt_allows(BRAID_TRANSPORT_SMC));
	assert_false(braid_encrypt_allows(BRAID_TRANSPORT_UCX));
	braid_param.fabric_encrypted = 1;
	assert_true(braid_encrypt_allows(BRAID_TRANSPORT_VERBS));
	braid_param.fabric_encrypted = 0;
	be(&(struct end){ "prefer", "auto", 2 });
	assert_true(braid_encrypt_allows(BRAID_TRANSPORT_VERBS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ends_take_the_best_cipher_that_both_have),
		cmocka_unit_test(an_end_that_requires_encryption_refuses_a_peer_without_it),
		cmocka_unit_test(an_answer_that_chooses_what_was_not_offered_is_an_error),
		cmocka_unit_test(both_ends_derive_the_same_keys_crosswise),
		cmocka_unit_test(a_peer_is_told_of_a_key_that_cannot_change),
		cmocka_unit_test(only_tcp_is_allowed_where_encryption_is_required),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
