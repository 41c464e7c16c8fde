/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_auth.c - what auth.h promises: each MAC follows its formula (computed here once more), no MAC
 * can be used as another one, and each bit of the input counts.  test_conn.c tests how the handshake
 * uses them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "core/proto/auth.h"

enum { MACS = 4 };

struct four {				/* of one handshake */
	uint8_t mac[MACS][BRAID_MAC_SIZE];	/* hello, answer, proof, session */
};

struct shake {
	uint8_t key[BRAID_KEY_SIZE], m1[BRAID_HELLO_SIZE], m2[BRAID_HELLO_SIZE];
};

static struct four macs_of(const struct shake *s)
{
	struct four f;

	braid_auth_hello(s->key, s->m1, f.mac[0]);
	braid_auth_answer(s->key, s->m1, s->m2, f.mac[1]);
	braid_auth_proof(s->key, s->m1, s->m2, f.mac[2]);
	braid_auth_session(s->key, s->m1, s->m2, f.mac[3]);
	return f;
}

static struct shake some_shake(void)
{
	struct shake s;

	memset(s.key, 0x11, sizeof(s.key));
	for (unsigned i = 0; i < BRAID_HELLO_SIZE; i++) {
		s.m1[i] = (uint8_t)i;
		s.m2[i] = (uint8_t)(i * 3);
	}
	return s;
}

static int setup(void **state)
{
	(void)state;
	return braid_auth_init();
}

static void init_may_be_called_often(void **state)
{
	(void)state;
	assert_int_equal(braid_auth_init(), 0);
	assert_int_equal(braid_auth_init(), 0);
}

/* The formula of auth.h: MAC(K, label NUL | signed part of M1 | signed part of M2). */
static void formula(const char *label, const struct shake *s, bool both, uint8_t *ret)
{
	uint8_t all[64 + 2 * BRAID_HELLO_SIZE];
	size_t n = strlen(label) + 1;

	memcpy(all, label, n);
	memcpy(all + n, s->m1, BRAID_HELLO_SIGNED);
	n += BRAID_HELLO_SIGNED;
	if (both) {
		memcpy(all + n, s->m2, BRAID_HELLO_SIGNED);
		n += BRAID_HELLO_SIGNED;
	}
	crypto_generichash(ret, BRAID_MAC_SIZE, all, n, s->key, sizeof(s->key));
}

static void each_mac_is_what_its_formula_says(void **state)
{
	static const char *const labels[MACS] = {
		"braid hello", "braid answer", "braid proof", "braid session",
	};
	struct shake s = some_shake();
	struct four f = macs_of(&s);

	(void)state;
	for (unsigned i = 0; i < MACS; i++) {
		uint8_t want[BRAID_MAC_SIZE];

		formula(labels[i], &s, i > 0, want);
		assert_memory_equal(f.mac[i], want, sizeof(want));
	}
}

/* The formula of auth.h: MAC(K, "exchange" | X25519), the same from both ends. */
static void both_ends_of_an_exchange_make_its_formulas_key(void **state)
{
	static const char label[] = "braid exchange";
	uint8_t secret[2][BRAID_KEY_SIZE], public[2][BRAID_KEY_SIZE], key[2][BRAID_KEY_SIZE];
	uint8_t all[sizeof(label) + BRAID_KEY_SIZE], want[BRAID_KEY_SIZE], k[BRAID_KEY_SIZE];

	(void)state;
	memset(k, 7, sizeof(k));
	for (int i = 0; i < 2; i++) {
		memset(secret[i], 0x21 + i, BRAID_KEY_SIZE);
		braid_auth_public(secret[i], public[i]);
		memcpy(key[i], k, sizeof(k));
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(braid_auth_exchange(secret[i], public[!i], key[i]), 0);
	memcpy(all, label, sizeof(label));
	assert_int_equal(crypto_scalarmult(all + sizeof(label), secret[0], public[1]), 0);
	crypto_generichash(want, sizeof(want), all, sizeof(all), k, sizeof(k));
	assert_memory_equal(key[0], want, sizeof(want));
	assert_memory_equal(key[1], want, sizeof(want));
}

static void a_public_key_that_every_secret_fits_is_refused(void **state)
{
	static const uint8_t zero[BRAID_KEY_SIZE], one[BRAID_KEY_SIZE] = { 1 };
	uint8_t secret[BRAID_KEY_SIZE], key[BRAID_KEY_SIZE] = { 5 };

	(void)state;
	memset(secret, 0x21, sizeof(secret));
	assert_int_equal(braid_auth_exchange(secret, zero, key), -EACCES);
	assert_int_equal(braid_auth_exchange(secret, one, key), -EACCES);
}

static void a_jobs_secret_makes_a_key_of_a_token(void **state)
{
	static const char text[] = "the text of a secret";
	uint8_t all[64], s[BRAID_KEY_SIZE], key[BRAID_KEY_SIZE], want[BRAID_KEY_SIZE];

	(void)state;
	memset(key, 9, sizeof(key));
	memcpy(all, "braid secret", 13);
	memcpy(all + 13, text, strlen(text));
	crypto_generichash(want, sizeof(want), all, 13 + strlen(text), NULL, 0);
	braid_auth_job(text, strlen(text), s);
	assert_memory_equal(s, want, sizeof(s));
	memcpy(all, "braid secret key", 17);
	memcpy(all + 17, key, sizeof(key));
	crypto_generichash(want, sizeof(want), all, 17 + sizeof(key), s, sizeof(s));
	braid_auth_mix(s, key);
	assert_memory_equal(key, want, sizeof(key));
}

/* The formula of auth.h, over the bytes before the hint. */
static void a_hint_covers_the_start_of_a_hello(void **state)
{
	struct shake s = some_shake();
	uint8_t all[11 + 156], mac[BRAID_MAC_SIZE];
	uint32_t hint = braid_auth_hint(s.key, s.m1);

	(void)state;
	memcpy(all, "braid hint", 11);
	memcpy(all + 11, s.m1, 156);
	crypto_generichash(mac, sizeof(mac), all, sizeof(all), s.key, sizeof(s.key));
	assert_int_equal(hint, (uint32_t)mac[3] << 24 | (uint32_t)mac[2] << 16 |
				       (uint32_t)mac[1] << 8 | mac[0]);
	s.m1[156] ^= 1;
	assert_int_equal(braid_auth_hint(s.key, s.m1), hint);
	s.m1[155] ^= 1;
	assert_int_not_equal(braid_auth_hint(s.key, s.m1), hint);
}

/* For comm 0x01020304 and listen 0x1112131415161718, from the formula. */
static void assert_open_mac(const uint8_t *mac, const char *label, const uint8_t *token,
			    const uint8_t *session)
{
	size_t n = strlen(label) + 1;
	uint8_t all[16 + BRAID_KEY_SIZE + 12], want[BRAID_MAC_SIZE];

	memcpy(all, label, n);
	memcpy(all + n, session, BRAID_KEY_SIZE);
	memcpy(all + n + BRAID_KEY_SIZE, "\4\3\2\1\x18\x17\x16\x15\x14\x13\x12\x11", 12);
	crypto_generichash(want, sizeof(want), all, n + BRAID_KEY_SIZE + 12, token,
			   BRAID_KEY_SIZE);
	assert_memory_equal(mac, want, sizeof(want));
}

static void an_open_is_bound_to_session_comm_and_listen(void **state)
{
	uint8_t token[BRAID_KEY_SIZE], session[BRAID_KEY_SIZE];
	uint8_t mac[BRAID_MAC_SIZE], other[BRAID_MAC_SIZE];

	(void)state;
	memset(token, 1, sizeof(token));
	memset(session, 2, sizeof(session));
	braid_auth_open(token, session, 0x01020304, 0x1112131415161718, mac);
	assert_open_mac(mac, "braid open", token, session);
	braid_auth_open(token, session, 0x01020305, 0x1112131415161718, other);
	assert_false(braid_auth_equal(mac, other));
	braid_auth_open(token, session, 0x01020304, 0x1112131415161719, other);
	assert_false(braid_auth_equal(mac, other));
	session[31] ^= 1;
	braid_auth_open(token, session, 0x01020304, 0x1112131415161718, other);
	assert_false(braid_auth_equal(mac, other));
	session[31] ^= 1;
	token[0] ^= 0x80;
	braid_auth_open(token, session, 0x01020304, 0x1112131415161718, other);
	assert_false(braid_auth_equal(mac, other));
}

static void an_answer_to_an_open_is_not_that_open(void **state)
{
	uint8_t key[BRAID_KEY_SIZE] = { 1 };
	uint8_t mac[BRAID_MAC_SIZE], other[BRAID_MAC_SIZE];

	(void)state;
	braid_auth_opened(key, key, 0x01020304, 0x1112131415161718, mac);
	assert_open_mac(mac, "braid opened", key, key);
	braid_auth_open(key, key, 0x01020304, 0x1112131415161718, other);
	assert_false(braid_auth_equal(mac, other));
}

static void no_mac_can_stand_in_for_another(void **state)
{
	struct shake s = some_shake();
	struct four f, swapped;

	(void)state;
	memcpy(s.m2, s.m1, sizeof(s.m2));	/* even where a message was reflected */
	f = macs_of(&s);
	for (unsigned i = 0; i < MACS; i++) {
		for (unsigned j = 0; j < i; j++)
			assert_false(braid_auth_equal(f.mac[i], f.mac[j]));
	}
	s = some_shake();
	f = macs_of(&s);
	memcpy(s.m1, s.m2, sizeof(s.m1));
	memcpy(s.m2, some_shake().m1, sizeof(s.m2));
	swapped = macs_of(&s);
	for (unsigned i = 0; i < MACS; i++) {
		for (unsigned j = 0; j < MACS; j++)
			assert_false(braid_auth_equal(f.mac[i], swapped.mac[j]));
	}
}

static void assert_differ(const struct four *a, const struct four *b, unsigned from)
{
	for (unsigned i = 0; i < MACS; i++)
		assert_int_equal(braid_auth_equal(a->mac[i], b->mac[i]), i < from);
}

static void each_bit_of_key_and_messages_counts(void **state)
{
	struct shake s = some_shake();
	struct four f = macs_of(&s), g;

	(void)state;
	for (unsigned bit = 0; bit < BRAID_KEY_SIZE * 8; bit++) {
		s.key[bit / 8] ^= (uint8_t)(1u << bit % 8);
		g = macs_of(&s);
		assert_differ(&f, &g, 0);
		s.key[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (unsigned bit = 0; bit < BRAID_HELLO_SIGNED * 8; bit++) {
		s.m1[bit / 8] ^= (uint8_t)(1u << bit % 8);
		g = macs_of(&s);
		assert_differ(&f, &g, 0);
		s.m1[bit / 8] ^= (uint8_t)(1u << bit % 8);

		s.m2[bit / 8] ^= (uint8_t)(1u << bit % 8);
		g = macs_of(&s);
		assert_differ(&f, &g, 1);
		s.m2[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void the_mac_field_itself_is_not_covered(void **state)
{
	struct shake s = some_shake();
	struct four f = macs_of(&s), g;

	(void)state;
	memset(s.m1 + BRAID_HELLO_SIGNED, 0, BRAID_MAC_SIZE);
	memset(s.m2 + BRAID_HELLO_SIGNED, 0, BRAID_MAC_SIZE);
	g = macs_of(&s);
	for (unsigned i = 0; i < MACS; i++)
		assert_true(braid_auth_equal(f.mac[i], g.mac[i]));
}

static void equal_looks_at_every_bit(void **state)
{
	uint8_t a[BRAID_MAC_SIZE] = { 0 }, b[BRAID_MAC_SIZE] = { 0 };

	(void)state;
	assert_true(braid_auth_equal(a, b));
	for (unsigned bit = 0; bit < BRAID_MAC_SIZE * 8; bit++) {
		b[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_false(braid_auth_equal(a, b));
		b[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void wipe_leaves_nothing(void **state)
{
	uint8_t key[48], zero[48] = { 0 };

	(void)state;
	memset(key, 0xaa, sizeof(key));
	braid_auth_wipe(key, 40);
	assert_memory_equal(key, zero, 40);
	assert_int_equal(key[40], 0xaa);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(init_may_be_called_often),
		cmocka_unit_test(each_mac_is_what_its_formula_says),
		cmocka_unit_test(both_ends_of_an_exchange_make_its_formulas_key),
		cmocka_unit_test(a_public_key_that_every_secret_fits_is_refused),
		cmocka_unit_test(a_jobs_secret_makes_a_key_of_a_token),
		cmocka_unit_test(a_hint_covers_the_start_of_a_hello),
		cmocka_unit_test(an_open_is_bound_to_session_comm_and_listen),
		cmocka_unit_test(an_answer_to_an_open_is_not_that_open),
		cmocka_unit_test(no_mac_can_stand_in_for_another),
		cmocka_unit_test(each_bit_of_key_and_messages_counts),
		cmocka_unit_test(the_mac_field_itself_is_not_covered),
		cmocka_unit_test(equal_looks_at_every_bit),
		cmocka_unit_test(wipe_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
