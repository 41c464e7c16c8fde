/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_process.c - the set-up of a process: what its first call prepares, and which keys a forked child
 * does not have.  The cases run in this order, since a process is set up once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/secret.h"
#include "core/base/self.h"
#include "core/link/link.h"
#include "core/proto/auth.h"
#include "core/setup/conn.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/setup/listen.h"
#include "core/setup/listener.h"
#include "core/setup/process.h"
#include "core/setup/service.h"
#include "tests/lib/warns.h"

int __wrap_braid_auth_init(void);
int __real_braid_auth_init(void);
int __wrap_braid_os_atfork(void (*wipe)(void));
int __real_braid_os_atfork(void (*wipe)(void));

static int auth_err, atfork_err;

int __wrap_braid_auth_init(void)
{
	return auth_err ? auth_err : __real_braid_auth_init();
}

int __wrap_braid_os_atfork(void (*wipe)(void))
{
	return atfork_err ? atfork_err : __real_braid_os_atfork(wipe);
}

static void one(void)
{
}

static void two(void)
{
}

static const struct braid_service_hooks first = { .stalled = one }, second = { .stalled = two };

static int no_random(void *buf, size_t len)
{
	memset(buf, 0, len);
	return -EPERM;
}

static void a_process_without_random_numbers_does_not_start(void **state)
{
	const struct braid_os *real = braid_os;
	struct braid_os os = *real;

	(void)state;
	warns_keep();
	os.random = no_random;
	braid_os = &os;
	assert_int_equal(braid_service_init(&first), -EPERM);
	braid_os = real;
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "no random numbers: getrandom() and /dev/urandom"));
	assert_non_null(strstr(warn_text, "[no-start]"));
	assert_null(braid_service_hooks.stalled);
}

static void a_process_without_keys_does_not_start(void **state)
{
	(void)state;
	warns_keep();
	auth_err = -EIO;
	assert_int_equal(braid_service_init(&first), -EIO);
	assert_non_null(strstr(warn_text, "can't prepare keys and forks"));
	assert_non_null(strstr(warn_text, "[no-start]"));
	assert_null(braid_service_hooks.stalled);
	auth_err = 0;
}

static void init_fails_if_children_would_keep_the_descriptors(void **state)
{
	(void)state;
	atfork_err = -ENOMEM;
	assert_int_equal(braid_service_init(&first), -ENOMEM);
	assert_int_equal(warn_count, 2);
	assert_null(braid_service_hooks.stalled);
	atfork_err = 0;
	braid_log_to(NULL);
}

static void the_first_call_prepares_everything(void **state)
{
	static const uint8_t none[BRAID_ID_SIZE];

	(void)state;
	assert_int_equal(braid_service_init(&first), 0);
	assert_ptr_equal(braid_service_hooks.stalled, one);
	assert_true(braid_list_empty(&braid_svc.links));
	assert_true(braid_list_empty(&braid_handshakes));
	assert_memory_not_equal(braid_self.process, none, sizeof(none));
	assert_int_equal(braid_self.pid, getpid());
	assert_true(braid_svc_trylock());	/* the call has let go of it */
	braid_svc_unlock();
}

static void a_second_call_changes_nothing(void **state)
{
	struct braid_self before = braid_self;
	struct braid_link l = { .number = 1 };

	(void)state;
	braid_svc_lock();
	braid_list_add_tail(&braid_svc.links, &l.table.node);
	braid_svc_unlock();
	assert_int_equal(braid_service_init(&second), 0);
	assert_ptr_equal(braid_service_hooks.stalled, one);
	assert_ptr_equal(braid_svc.links.next, &l.table.node);
	assert_memory_equal(&before, &braid_self, sizeof(before));
	braid_list_del(&l.table.node);
}

static bool all_zero(const uint8_t *b, size_t n)
{
	while (n && !*b) {
		b++;
		n--;
	}
	return !n;
}

/* Runs in the child, where only async-signal-safe functions may be called: its exit status. */
static int keys_left(uint8_t *const *key, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (!all_zero(key[i], BRAID_KEY_SIZE))
			return 1;
	}
	return atomic_load(&braid_forked) ? 0 : 2;
}

static int status_of(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void a_forked_child_has_no_keys_of_links(void **state)
{
	uint8_t *key[2];
	pid_t pid;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		key[i] = braid_secret_new();
		assert_non_null(key[i]);
		memset(key[i], 0x5a, BRAID_KEY_SIZE);
	}
	pid = fork();
	if (!pid)
		_exit(keys_left(key, 2));
	assert_int_equal(status_of(pid), 0);
	/* The parent goes on with its own. */
	assert_int_equal(key[1][BRAID_KEY_SIZE - 1], 0x5a);
	assert_false(atomic_load(&braid_forked));
	for (unsigned i = 0; i < 2; i++)
		braid_secret_free(key[i]);
	braid_links_init();
}

static int one_random(void *buf, size_t len)
{
	memset(buf, 0x5a, len);
	return 0;
}

/* ... nor of handshakes in progress. */
static void a_forked_child_has_no_keys_of_handshakes(void **state)
{
	const struct braid_os *real = braid_os;
	struct braid_os os = *real;
	struct braid_conn c = { 0 };
	pid_t pid;

	(void)state;
	os.random = one_random;
	braid_os = &os;
	assert_int_equal(braid_conn_init(&c, -1, true, NULL), 0);
	braid_os = real;
	memset(c.key, 0x5a, BRAID_KEY_SIZE);
	pid = fork();
	if (!pid)
		_exit(keys_left((uint8_t *[]){ c.key, c.secret }, 2));
	assert_int_equal(status_of(pid), 0);
	braid_conn_forget_keys(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_without_random_numbers_does_not_start),
		cmocka_unit_test(a_process_without_keys_does_not_start),
		cmocka_unit_test(init_fails_if_children_would_keep_the_descriptors),
		cmocka_unit_test(the_first_call_prepares_everything),
		cmocka_unit_test(a_second_call_changes_nothing),
		cmocka_unit_test(a_forked_child_has_no_keys_of_links),
		cmocka_unit_test(a_forked_child_has_no_keys_of_handshakes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
