/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_secrets_in_time.c - the handshake takes the same time whatever its secrets are: under valgrind
 * no branch and no address depends on one.  To valgrind a secret is memory that nobody has written;
 * what both ends show to anybody, and the verdict of a comparison, are made known again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config.h"
#include "core/proto/aead.h"
#include "core/proto/auth.h"
#include "core/proto/keys.h"

#ifdef HAVE_VALGRIND_MEMCHECK_H
#include <valgrind/memcheck.h>
#else
#define RUNNING_ON_VALGRIND 0
#define VALGRIND_COUNT_ERRORS 0UL
#define VALGRIND_GET_VBITS(at, bits, n) ((void)(at), (void)(bits), 0)
#define VALGRIND_MAKE_MEM_DEFINED(at, n) ((void)(at), (void)(n))
#define VALGRIND_MAKE_MEM_UNDEFINED(at, n) ((void)(at), (void)(n))
#endif

int __wrap_crypto_scalarmult(uint8_t *q, const uint8_t *n, const uint8_t *p);
int __real_crypto_scalarmult(uint8_t *q, const uint8_t *n, const uint8_t *p);

static void hide(void *at, size_t n)
{
	VALGRIND_MAKE_MEM_UNDEFINED(at, n);
}

static void show(void *at, size_t n)
{
	VALGRIND_MAKE_MEM_DEFINED(at, n);
}

/* Is no bit of it known?  So the marks have come along with what was made of the secrets. */
static bool hidden(const void *at, size_t n)
{
	uint8_t bits[64] = { 0 };

	assert_true(n <= sizeof(bits));
	if (!RUNNING_ON_VALGRIND)
		return true;
	assert_int_equal(VALGRIND_GET_VBITS(at, bits, n), 1);
	for (size_t i = 0; i < n; i++) {
		if (bits[i] != 0xff)
			return false;
	}
	return true;
}

/* Whether a public key is one that every secret fits depends on that key alone. */
int __wrap_crypto_scalarmult(uint8_t *q, const uint8_t *n, const uint8_t *p)
{
	int ret = __real_crypto_scalarmult(q, n, p);

	show(&ret, sizeof(ret));
	return ret;
}

static bool equal(const uint8_t *a, const uint8_t *b)
{
	bool same = braid_auth_equal(a, b);

	show(&same, sizeof(same));
	return same;
}

static void reasons_to_skip(void)
{
#ifndef HAVE_VALGRIND_MEMCHECK_H
	print_message("skip: built without valgrind/memcheck.h (Debian: valgrind)\n");
	skip();
#endif
	if (!RUNNING_ON_VALGRIND) {
		print_message("skip: only valgrind sees it: make check-valgrind\n");
		skip();
	}
}

/* One end of a handshake: K and the secret key are hidden, the messages are on the wire. */
static struct end {
	uint8_t k[BRAID_KEY_SIZE], secret[BRAID_KEY_SIZE];
	uint8_t m[BRAID_HELLO_SIZE];
} ends[2];

static void make_end(struct end *e, int seed)
{
	memset(e->k, 0x11, sizeof(e->k));
	memset(e->secret, seed, sizeof(e->secret));
	memset(e->m, seed + 1, sizeof(e->m));
	hide(e->k, sizeof(e->k));
	hide(e->secret, sizeof(e->secret));
	braid_auth_public(e->secret, e->m + 56);
	assert_true(hidden(e->m + 56, BRAID_NONCE_SIZE));
	show(e->m + 56, BRAID_NONCE_SIZE);
}

/* Make a MAC at one end, send it, and compare it with what the other end has made. */
static void check(void (*mac)(const uint8_t *, const uint8_t *, const uint8_t *, uint8_t *),
		  uint8_t (*key)[BRAID_KEY_SIZE])
{
	uint8_t sent[BRAID_MAC_SIZE], own[BRAID_MAC_SIZE];

	mac(key[0], ends[0].m, ends[1].m, sent);
	assert_true(hidden(sent, sizeof(sent)));
	show(sent, sizeof(sent));
	mac(key[1], ends[0].m, ends[1].m, own);
	assert_true(hidden(own, sizeof(own)));
	assert_true(equal(own, sent));
	sent[31] ^= 1;
	assert_false(equal(own, sent));
}

static void hello(const uint8_t *key, const uint8_t *m1, const uint8_t *m2, uint8_t *ret)
{
	(void)m2;
	braid_auth_hello(key, m1, ret);
}

static void setup_msg(const uint8_t *key, const uint8_t *m1, const uint8_t *m2, uint8_t *ret)
{
	static const uint8_t msg[BRAID_SETUP_SIZE] = { 1, 2, 3 };

	braid_auth_setup(key, m1, m2, true, msg, ret);
}

static void open_mac(const uint8_t *key, const uint8_t *m1, const uint8_t *m2, uint8_t *ret)
{
	(void)m1, (void)m2;
	braid_auth_open(key, key, 3, 0x123456, ret);
}

static void opened_mac(const uint8_t *key, const uint8_t *m1, const uint8_t *m2, uint8_t *ret)
{
	(void)m1, (void)m2;
	braid_auth_opened(key, key, 3, 0x123456, ret);
}

/* E of both ends, after an exchange. */
static void exchange(uint8_t (*e)[BRAID_KEY_SIZE])
{
	for (int i = 0; i < 2; i++) {
		make_end(&ends[i], 0x21 + i);
		memcpy(e[i], ends[i].k, BRAID_KEY_SIZE);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(braid_auth_exchange(ends[i].secret, ends[!i].m + 56, e[i]), 0);
		assert_true(hidden(e[i], BRAID_KEY_SIZE));
	}
}

static void no_branch_of_the_handshake_depends_on_a_secret(void **state)
{
	uint8_t e[2][BRAID_KEY_SIZE], k[2][BRAID_KEY_SIZE];

	(void)state;
	reasons_to_skip();
	exchange(e);
	memcpy(k[0], ends[0].k, sizeof(k[0]));
	memcpy(k[1], ends[1].k, sizeof(k[1]));
	check(hello, k);
	check(braid_auth_answer, e);
	check(braid_auth_proof, e);
	check(braid_auth_session, e);
	check(braid_auth_ticket, e);
	check(setup_msg, e);
	check(open_mac, k);
	check(opened_mac, k);
	braid_auth_wipe(e, sizeof(e));
}

static void no_branch_of_the_keys_depends_on_a_secret(void **state)
{
	uint8_t e[2][BRAID_KEY_SIZE], s[BRAID_TRAFFIC_SIZE];
	uint8_t key[BRAID_AEAD_KEY_MAX], iv[BRAID_AEAD_IV_SIZE];

	(void)state;
	reasons_to_skip();
	exchange(e);
	for (int i = 0; i < 2; i++) {
		braid_keys_traffic(e[0], ends[0].m, ends[1].m, i, s);
		assert_true(hidden(s, sizeof(s)));
		for (uint8_t c = 1; c <= BRAID_CIPHER_CHACHA20; c = (uint8_t)(2 * c)) {
			braid_keys_expand(s, c, key, iv);
			assert_true(hidden(key, braid_aead_key_size(c)));
			assert_true(hidden(iv, sizeof(iv)));
			braid_keys_next(s);
			assert_true(hidden(s, sizeof(s)));
		}
	}
}

/* In a child, which valgrind blames in place of this process. */
static void a_branch_on_a_secret_is_seen(void **state)
{
	static volatile unsigned branches;
	int status;
	pid_t pid;

	(void)state;
	reasons_to_skip();
	print_message("the next report is of a branch that was planted\n");
	pid = fork();
	if (!pid) {
		unsigned long before = VALGRIND_COUNT_ERRORS;
		uint8_t e[2][BRAID_KEY_SIZE];

		exchange(e);
		if (e[0][0] == 0x5a)
			branches++;
		_exit(VALGRIND_COUNT_ERRORS != before ? 42 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_not_equal(WEXITSTATUS(status), 0);
}

static int setup(void **state)
{
	(void)state;
	return braid_auth_init();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_branch_of_the_handshake_depends_on_a_secret),
		cmocka_unit_test(no_branch_of_the_keys_depends_on_a_secret),
		cmocka_unit_test(a_branch_on_a_secret_is_seen),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
