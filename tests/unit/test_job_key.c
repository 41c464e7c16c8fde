/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_job_key.c - the secret of the job in the handshake of a new link.  The other end is played here,
 * with a secret of its own.  The cases run in this order, since a process reads its secret once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/secret.h"
#include "core/proto/auth.h"
#include "core/setup/conn.h"
#include "core/setup/job_key.h"
#include "tests/lib/warns.h"

uint8_t *__wrap_braid_secret_new(void);
uint8_t *__real_braid_secret_new(void);

static const char ours[] = "known to this job alone", others[] = "that of some other job";
static const char none[] = "";
static bool no_memory;
static uint8_t token[BRAID_KEY_SIZE], key[BRAID_KEY_SIZE];

uint8_t *__wrap_braid_secret_new(void)
{
	return no_memory ? NULL : __real_braid_secret_new();
}

static int setup(void **state)
{
	(void)state;
	memset(token, 7, sizeof(token));
	warns_keep();
	return braid_auth_init();
}

/* --- the other end ------------------------------------------------------------------------- */

/* The key that an end with this secret makes of the token. */
static const uint8_t *key_with(const char *text)
{
	static uint8_t ret[BRAID_KEY_SIZE];
	uint8_t s[BRAID_KEY_SIZE];

	memcpy(ret, token, sizeof(ret));
	braid_auth_job(text, strlen(text), s);
	if (*text)
		braid_auth_mix(s, ret);
	return ret;
}

static struct braid_conn conn(bool dialler, enum braid_hello_kind kind)
{
	struct braid_conn c = { .dialler = dialler, .key = key };

	memcpy(key, token, sizeof(key));
	c.mine = (struct braid_hello){
		.least = 1, .most = 2, .kind = (uint8_t)kind, .lanes_max = 1, .port = 9, .transports = { 1 },
	};
	memset(c.mine.more, 5, sizeof(c.mine.more));
	c.theirs = c.mine;
	return c;
}

/* A hello from an end with that secret. */
static struct braid_conn from(const char *text, enum braid_hello_kind kind, uint16_t most)
{
	struct braid_conn c = conn(false, kind);

	c.theirs.most = most;
	c.theirs.options = *text ? BRAID_OPTION_SECRET : 0;
	braid_hello_pack(&c.theirs, c.m1);
	if (*text)
		c.theirs.hint = braid_auth_hint(token, c.m1);
	braid_hello_pack(&c.theirs, c.m1);
	braid_auth_hello(kind == BRAID_HELLO_LINK ? key_with(text) : token, c.m1, c.theirs.mac);
	return c;
}

static void assert_taken(const char *text, enum braid_hello_kind kind, uint16_t most)
{
	struct braid_conn c = from(text, kind, most);

	assert_int_equal(braid_job_key_check(&c), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
	assert_memory_equal(key, kind == BRAID_HELLO_LINK ? key_with(text) : token, sizeof(key));
	assert_null(braid_job_key_differs(&c));
	assert_int_equal(c.mine.port, 9);
}

static void assert_refused(const char *text, uint8_t options, const char *says)
{
	static const struct braid_addr nowhere[BRAID_PATHS_MAX - 1];
	struct braid_conn c = from(text, BRAID_HELLO_LINK, 2);

	assert_int_equal(braid_job_key_check(&c), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_SECRET);
	assert_int_equal(c.mine.options, options);
	assert_memory_equal(key, token, sizeof(key));
	assert_string_equal(braid_job_key_differs(&c), says);
	assert_int_equal(c.mine.port, 0);
	assert_int_equal(c.mine.transports[0], 0);
	assert_memory_equal(c.mine.more, nowhere, sizeof(nowhere));
}

static void assert_stranger(const char *text, uint16_t at)
{
	struct braid_conn c = from(text, BRAID_HELLO_LINK, 2);

	c.theirs.mac[3] ^= 1;
	c.m1[at] ^= 1;
	assert_int_equal(braid_job_key_check(&c), -EACCES);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
}

/* Sign a hello of ours. */
static struct braid_conn to(enum braid_hello_kind kind)
{
	struct braid_conn c = conn(true, kind);
	struct braid_hello h;

	braid_job_key_sign(&c);
	assert_memory_equal(key, token, sizeof(key));
	assert_int_equal(braid_hello_unpack(c.m1, &h), 0);
	assert_int_equal(h.options, c.mine.options);
	assert_int_equal(h.hint, c.mine.hint);
	assert_memory_equal(h.mac, c.mine.mac, sizeof(h.mac));
	return c;
}

static void assert_signed(const struct braid_conn *c, const uint8_t *with)
{
	uint8_t mac[BRAID_MAC_SIZE];

	braid_auth_hello(with, c->m1, mac);
	assert_memory_equal(c->mine.mac, mac, sizeof(mac));
}

/* --- this process has no secret ------------------------------------------------------------- */

static void without_a_secret_the_token_is_the_key(void **state)
{
	struct braid_conn c;

	(void)state;
	assert_false(braid_job_key_is_set());
	c = to(BRAID_HELLO_LINK);
	assert_signed(&c, token);
	assert_int_equal(c.mine.options, 0);
	assert_int_equal(c.mine.hint, 0);
	braid_job_key_mix(&c);
	assert_memory_equal(key, token, sizeof(key));
	for (uint16_t most = 1; most <= 2; most++)
		assert_taken(none, BRAID_HELLO_LINK, most);
}

static void without_a_secret_a_peer_with_one_is_refused(void **state)
{
	(void)state;
	assert_refused(others, 0, "has a secret of the job, and this process has none");
	assert_stranger(others, 154);	/* the hint does not fit either */
	assert_stranger(none, 154);
}

/* --- this process has one ------------------------------------------------------------------- */

/* Runs in a child, which reads the secret for itself: its exit status. */
static int load(const char *text, int want, const char *id)
{
	setenv("BRAID_SECRET", text, 1);
	if (!want)
		unsetenv("BRAID_SECRET");
	no_memory = want == -ENOMEM;
	if (braid_job_key_load() != want || braid_job_key_is_set())
		return 1;
	if (want && (warn_count != 1 || strstr(warn_text, text) || !strstr(warn_text, id)))
		return 2;
	no_memory = false;
	setenv("BRAID_SECRET", ours, 1);
	return braid_job_key_load() == want ? 0 : 3;	/* it is read once */
}

static int status_of(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void a_secret_that_is_asked_for_and_can_not_be_had_is_an_error(void **state)
{
	static const struct {
		const char *text;
		int want;
		const char *id;
	} rows[] = {
		{ "short", -EINVAL, "[bad-secret]" },
		{ ours, -ENOMEM, "[no-memory]" },
		{ "", 0, NULL },
	};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(load(rows[i].text, rows[i].want, rows[i].id));
		assert_int_equal(status_of(pid), 0);
	}
}

static void the_secret_is_read_once(void **state)
{
	(void)state;
	assert_false(braid_job_key_is_set());
	setenv("BRAID_SECRET", ours, 1);
	assert_int_equal(braid_job_key_load(), 0);
	assert_true(braid_job_key_is_set());
	setenv("BRAID_SECRET", others, 1);
	assert_int_equal(braid_job_key_load(), 0);
	assert_int_equal(warn_count, 0);
}

static void with_a_secret_the_key_is_a_mac_of_the_token_under_it(void **state)
{
	struct braid_conn c;
	uint8_t plain[BRAID_HELLO_SIZE];
	struct braid_hello h;

	(void)state;
	c = to(BRAID_HELLO_LINK);
	assert_signed(&c, key_with(ours));
	assert_int_equal(c.mine.options, BRAID_OPTION_SECRET);
	h = c.mine;
	h.hint = 0;
	braid_hello_pack(&h, plain);
	assert_int_equal(c.mine.hint, braid_auth_hint(token, plain));
	braid_job_key_mix(&c);
	assert_memory_equal(key, key_with(ours), sizeof(key));
	assert_taken(ours, BRAID_HELLO_LINK, 2);
}

/* Their key is a link's session, which comes of the secret already. */
static void lanes_keep_their_key(void **state)
{
	static const enum braid_hello_kind kinds[] = { BRAID_HELLO_LANE, BRAID_HELLO_ALIVE };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct braid_conn c = to(kinds[i]);

		assert_signed(&c, token);
		assert_int_equal(c.mine.options, 0);
		braid_job_key_mix(&c);
		assert_memory_equal(key, token, sizeof(key));
		assert_taken(none, kinds[i], 2);
	}
}

static void a_peer_without_it_or_with_another_is_refused(void **state)
{
	(void)state;
	assert_refused(none, BRAID_OPTION_SECRET,
		       "has no secret of the job, and this process has one");
	assert_refused(others, BRAID_OPTION_SECRET,
		       "has another secret of the job than this process");
}

static void a_peer_of_version_1_gets_a_refusal_that_it_knows(void **state)
{
	struct braid_conn c = from(none, BRAID_HELLO_LINK, 1);

	(void)state;
	assert_int_equal(braid_job_key_check(&c), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_NO_ROOM);
	assert_memory_equal(key, token, sizeof(key));
	assert_non_null(braid_job_key_differs(&c));
	c.known = true;			/* then that status has its usual meaning */
	assert_null(braid_job_key_differs(&c));
}

static void who_does_not_know_the_token_learns_nothing(void **state)
{
	(void)state;
	assert_stranger(none, 154);
	assert_stranger(ours, 154);
	assert_stranger(others, 154);
	assert_stranger(others, 60);
}

static void a_refused_dialler_knows_what_differs(void **state)
{
	struct braid_conn c = conn(true, BRAID_HELLO_LINK);

	(void)state;
	assert_null(braid_job_key_differs(&c));
	c.theirs.status = BRAID_HELLO_NO_ROOM;
	assert_null(braid_job_key_differs(&c));
	c.theirs.status = BRAID_HELLO_SECRET;
	assert_non_null(strstr(braid_job_key_differs(&c), "has no secret"));
	c.theirs.options = BRAID_OPTION_SECRET;
	assert_non_null(strstr(braid_job_key_differs(&c), "another secret"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_secret_the_token_is_the_key),
		cmocka_unit_test(without_a_secret_a_peer_with_one_is_refused),
		cmocka_unit_test(a_secret_that_is_asked_for_and_can_not_be_had_is_an_error),
		cmocka_unit_test(the_secret_is_read_once),
		cmocka_unit_test(with_a_secret_the_key_is_a_mac_of_the_token_under_it),
		cmocka_unit_test(lanes_keep_their_key),
		cmocka_unit_test(a_peer_without_it_or_with_another_is_refused),
		cmocka_unit_test(a_peer_of_version_1_gets_a_refusal_that_it_knows),
		cmocka_unit_test(who_does_not_know_the_token_learns_nothing),
		cmocka_unit_test(a_refused_dialler_knows_what_differs),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
