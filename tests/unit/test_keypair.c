/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_keypair.c - key pairs made ahead: each serves one handshake, no forked child has any, and none
 * is made while handshakes are under way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/os.h"
#include "core/base/secret.h"
#include "core/base/units.h"
#include "core/proto/auth.h"
#include "core/setup/keypair.h"

enum { THREADS = 4, TAKES = 25 };

static const struct braid_os *real;
static struct braid_os os;
static bool no_random;
static unsigned made;
static uint8_t *place[64];		/* of the secrets made, in order */
static uint64_t now = 1000 * SEC;

static int os_random(void *buf, size_t len)
{
	if (no_random)
		return -EIO;
	place[made++ % 64] = buf;
	return real->random(buf, len);
}

static int setup(void **state)
{
	(void)state;
	real = braid_os;
	os = *real;
	os.random = os_random;
	braid_os = &os;
	no_random = false;
	made = 0;
	return braid_auth_init();
}

static int teardown(void **state)
{
	(void)state;
	braid_keypairs_forget();
	braid_os = real;
	return 0;
}

static void make_all(void)
{
	for (int i = 0; i < BRAID_KEYPAIRS; i++)
		assert_int_equal(braid_keypairs_tick(now), 0);
	assert_int_equal(braid_keypairs_tick(now), -1);
}

struct pair {
	uint8_t secret[BRAID_KEY_SIZE], public[BRAID_NONCE_SIZE];
};

/* Take a pair, which must be one; true: it had been ready. */
static bool take(struct pair *p, uint8_t fill)
{
	uint8_t given[BRAID_KEY_SIZE], public[BRAID_NONCE_SIZE];

	memset(given, fill, sizeof(given));
	memcpy(p->secret, given, sizeof(given));
	braid_keypair_take(p->secret, p->public);
	braid_auth_public(p->secret, public);
	assert_memory_equal(p->public, public, sizeof(public));
	return memcmp(p->secret, given, sizeof(given)) != 0;
}

static bool is_wiped(const uint8_t *secret)
{
	static const uint8_t zeros[BRAID_KEY_SIZE];

	return !memcmp(secret + 8, zeros, sizeof(zeros) - 8);	/* a link of free places is first */
}

static void a_pair_that_is_ready_serves_once(void **state)
{
	uint8_t *held = braid_secret_new();	/* keeps the pages */
	struct pair p[BRAID_KEYPAIRS + 1];

	(void)state;
	make_all();
	for (int i = 0; i < BRAID_KEYPAIRS; i++)
		assert_false(is_wiped(place[i]));
	for (int i = 0; i < BRAID_KEYPAIRS; i++)
		assert_true(take(&p[i], 1));
	assert_memory_not_equal(p[0].secret, p[1].secret, BRAID_KEY_SIZE);
	for (int i = 0; i < BRAID_KEYPAIRS; i++)
		assert_true(is_wiped(place[i]));
	assert_false(take(&p[BRAID_KEYPAIRS], 1));
	braid_secret_free(held);
}

static void without_any_the_secret_given_is_used(void **state)
{
	struct pair p;

	(void)state;
	assert_false(take(&p, 7));
	assert_int_equal(made, 0);
}

static void none_is_made_until_handshakes_rest(void **state)
{
	struct pair p;

	(void)state;
	make_all();
	assert_int_equal(made, BRAID_KEYPAIRS);
	take(&p, 1);
	assert_int_equal(braid_keypairs_tick(now += MS), 20);
	now += 15 * MS;
	take(&p, 1);
	assert_int_equal(braid_keypairs_tick(now), 20);
	assert_int_equal(braid_keypairs_tick(now += 19 * MS + 1), 1);
	assert_int_equal(made, BRAID_KEYPAIRS);
	now += MS;
	make_all();
	assert_int_equal(made, 2 * BRAID_KEYPAIRS);
}

static void a_listen_makes_the_first(void **state)
{
	struct pair p;

	(void)state;
	braid_keypairs_begin();
	braid_keypairs_begin();
	assert_int_equal(made, 1);
	assert_true(take(&p, 1));
	assert_false(take(&p, 1));
}

static void without_random_numbers_there_is_none(void **state)
{
	struct pair p;

	(void)state;
	no_random = true;
	braid_keypairs_begin();
	assert_true(braid_keypairs_tick(now) > 0);
	assert_false(take(&p, 1));
	no_random = false;
	now += SEC;
	assert_int_equal(braid_keypairs_tick(now), 20);	/* one was asked for */
	now += SEC;
	make_all();
}

static void those_left_over_are_wiped(void **state)
{
	uint8_t *held = braid_secret_new();
	struct pair p;

	(void)state;
	make_all();
	braid_keypairs_forget();
	for (int i = 0; i < BRAID_KEYPAIRS; i++)
		assert_true(is_wiped(place[i]));
	assert_false(take(&p, 1));
	braid_secret_free(held);
}

static void *taker(void *arg)
{
	struct pair *p = arg;

	for (int i = 0; i < TAKES; i++) {
		memset(p[i].secret, (int)(p[i].public[0] + i), sizeof(p[i].secret));
		braid_keypair_take(p[i].secret, p[i].public);
	}
	return NULL;
}

static void threads_never_get_the_same(void **state)
{
	static struct pair p[THREADS * TAKES];
	pthread_t thread[THREADS];

	(void)state;
	make_all();
	for (int t = 0; t < THREADS; t++) {
		for (int i = 0; i < TAKES; i++)
			p[t * TAKES + i].public[0] = (uint8_t)(t * TAKES);
		assert_int_equal(pthread_create(&thread[t], NULL, taker, &p[t * TAKES]), 0);
	}
	for (int i = 0; i < 4 * TAKES; i++)
		braid_keypairs_tick(now += 21 * MS);
	for (int t = 0; t < THREADS; t++)
		pthread_join(thread[t], NULL);
	for (int i = 0; i < THREADS * TAKES; i++) {
		for (int k = 0; k < i; k++)
			assert_memory_not_equal(p[i].public, p[k].public, sizeof(p[i].public));
	}
}

/* The last case: after it, children find zeros where this process has secrets. */
static void a_forked_child_has_none_of_its_parents(void **state)
{
	struct pair p;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(braid_os_atfork(braid_secrets_wipe), 0);
	make_all();
	pid = fork();
	if (!pid) {
		memset(p.secret, 9, sizeof(p.secret));
		braid_keypair_take(p.secret, p.public);
		_exit(p.secret[0] != 9 || memcmp(p.secret, p.secret + 1, sizeof(p.secret) - 1) != 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(take(&p, 1));		/* the parent still has them */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_pair_that_is_ready_serves_once, setup, teardown),
		cmocka_unit_test_setup_teardown(without_any_the_secret_given_is_used, setup,
						teardown),
		cmocka_unit_test_setup_teardown(none_is_made_until_handshakes_rest, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_listen_makes_the_first, setup, teardown),
		cmocka_unit_test_setup_teardown(without_random_numbers_there_is_none, setup,
						teardown),
		cmocka_unit_test_setup_teardown(those_left_over_are_wiped, setup, teardown),
		cmocka_unit_test_setup_teardown(threads_never_get_the_same, setup, teardown),
		cmocka_unit_test_setup_teardown(a_forked_child_has_none_of_its_parents, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
