/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_secret.c - memory for keys: each key has its place, and neither a core dump nor a forked child
 * gets any of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/secret.h"

void *__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t off);
void *__real_mmap(void *at, size_t size, int prot, int flags, int fd, off_t off);
int __wrap_munmap(void *at, size_t size);
int __real_munmap(void *at, size_t size);
int __wrap_madvise(void *at, size_t size, int advice);
int __real_madvise(void *at, size_t size, int advice);

enum { KEYS = 1000 };

static const uint8_t zero[BRAID_SECRET_SIZE];
static uint8_t *key[KEYS];
static bool no_memory, old_kernel;
static unsigned mapped;

void *__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t off)
{
	if (no_memory) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	mapped++;
	return __real_mmap(at, size, prot, flags, fd, off);
}

int __wrap_munmap(void *at, size_t size)
{
	mapped--;
	return __real_munmap(at, size);
}

int __wrap_madvise(void *at, size_t size, int advice)
{
	if (old_kernel) {
		errno = EINVAL;
		return -1;
	}
	return __real_madvise(at, size, advice);
}

static void take(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		key[i] = braid_secret_new();
		assert_non_null(key[i]);
		assert_memory_equal(key[i], zero, sizeof(zero));
		memset(key[i], (int)(i % 255) + 1, BRAID_SECRET_SIZE);
	}
}

static void give_back(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		braid_secret_free(key[i]);
}

static void each_key_has_its_own_place(void **state)
{
	(void)state;
	take(KEYS);
	assert_in_range(mapped, 1, KEYS * BRAID_SECRET_SIZE / 4096 + 1);
	for (unsigned i = 0; i < KEYS; i++) {
		for (unsigned k = 0; k < BRAID_SECRET_SIZE; k++)
			assert_int_equal(key[i][k], i % 255 + 1);
	}
	give_back(KEYS);
}

static void a_place_is_wiped_and_used_again(void **state)
{
	uint8_t *was;

	(void)state;
	take(2);
	was = key[1];
	braid_secret_free(key[1]);
	assert_memory_equal(was + sizeof(void *), zero, sizeof(zero) - sizeof(void *));
	assert_ptr_equal(braid_secret_new(), was);
	assert_memory_equal(was, zero, sizeof(zero));
	give_back(2);
}

static void the_last_key_takes_its_pages_along(void **state)
{
	(void)state;
	take(KEYS);
	give_back(KEYS - 1);
	assert_true(mapped);
	braid_secret_free(key[KEYS - 1]);
	assert_int_equal(mapped, 0);
	braid_secret_free(NULL);
	take(1);
	assert_int_equal(mapped, 1);
	give_back(1);
}

static void without_memory_there_is_no_key(void **state)
{
	(void)state;
	no_memory = true;
	assert_null(braid_secret_new());
	no_memory = false;
	take(1);
	give_back(1);
}

/* The flags of the mapping that holds `at`, as /proc/self/smaps has them. */
static void flags_of(const void *at, char *ret, size_t len)
{
	unsigned long from, to;
	char line[512];
	bool here = false;
	FILE *f = fopen("/proc/self/smaps", "re");

	assert_non_null(f);
	ret[0] = '\0';
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (uintptr_t)at >= from && (uintptr_t)at < to;
		else if (here && !strncmp(line, "VmFlags:", 8))
			snprintf(ret, len, "%s", line);
	}
	fclose(f);
}

static void a_core_dump_has_no_keys(void **state)
{
	char flags[512];

	(void)state;
	take(KEYS);
	for (unsigned i = 0; i < KEYS; i += KEYS - 1) {
		flags_of(key[i], flags, sizeof(flags));
		assert_non_null(strstr(flags, " dd"));
	}
	give_back(KEYS);
}

/* Runs in a child. */
static int keys_left(void)
{
	for (unsigned i = 0; i < KEYS; i++) {
		if (memcmp(key[i], zero, sizeof(zero)))
			return 1;
	}
	return 0;
}

static int status_of(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void a_child_that_runs_no_fork_handlers_has_no_keys(void **state)
{
	pid_t pid;

	(void)state;
	take(KEYS);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid)
		_exit(keys_left());
	assert_int_equal(status_of(pid), 0);
	assert_int_equal(key[1][0], 2);
	give_back(KEYS);
}

static void where_the_kernel_leaves_the_keys_the_handler_wipes_them(void **state)
{
	pid_t pid;

	(void)state;
	old_kernel = true;
	take(KEYS);
	old_kernel = false;
	pid = fork();
	if (!pid) {
		if (!keys_left())
			_exit(2);
		braid_secrets_wipe();
		_exit(keys_left());
	}
	assert_int_equal(status_of(pid), 0);
	assert_int_equal(key[1][0], 2);
	give_back(KEYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_key_has_its_own_place),
		cmocka_unit_test(a_place_is_wiped_and_used_again),
		cmocka_unit_test(the_last_key_takes_its_pages_along),
		cmocka_unit_test(without_memory_there_is_no_key),
		cmocka_unit_test(a_core_dump_has_no_keys),
		cmocka_unit_test(a_child_that_runs_no_fork_handlers_has_no_keys),
		cmocka_unit_test(where_the_kernel_leaves_the_keys_the_handler_wipes_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
