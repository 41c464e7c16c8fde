/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_unpaced.c - which sockets lose a congestion control that paces, over a kernel that the test
 * plays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/setup/unpaced.h"

enum { FD = 7 };

static struct {
	char now[BRAID_CONGESTION_SIZE];	/* the socket's congestion control */
	bool silent, firm;			/* it can't be read; it can't be changed */
	unsigned reads, writes;
} kernel;

static char replaced[BRAID_CONGESTION_SIZE];
static const struct braid_os *real;
static struct braid_params saved;

static int os_getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
	assert_int_equal(fd, FD);
	assert_int_equal(level, IPPROTO_TCP);
	assert_int_equal(name, TCP_CONGESTION);
	kernel.reads++;
	memcpy(val, kernel.now, *len);		/* a failed call may leave anything there */
	if (kernel.silent) {
		errno = ENOPROTOOPT;
		return -1;
	}
	return 0;
}

static int os_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	assert_int_equal(fd, FD);
	assert_int_equal(level, IPPROTO_TCP);
	assert_int_equal(name, TCP_CONGESTION);
	kernel.writes++;
	if (kernel.firm) {
		errno = EPERM;
		return -1;
	}
	memset(kernel.now, 0, sizeof(kernel.now));
	memcpy(kernel.now, val, len);
	return 0;
}

static int setup(void **state)
{
	static struct braid_os os;

	(void)state;
	real = braid_os;
	os = *real;
	os.getsockopt = os_getsockopt;
	os.setsockopt = os_setsockopt;
	braid_os = &os;
	saved = braid_param;
	memset(&kernel, 0, sizeof(kernel));
	memset(replaced, 'x', sizeof(replaced));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_os = real;
	braid_param = saved;
	return 0;
}

static void socket_with(const char *name)
{
	memset(kernel.now, 0, sizeof(kernel.now));
	memcpy(kernel.now, name, strlen(name));
	braid_socket_unpaced(FD, replaced);
}

static void bbr_gives_way_to_reno_and_is_named(void **state)
{
	(void)state;
	socket_with("bbr");
	assert_string_equal(kernel.now, "reno");
	assert_string_equal(replaced, "bbr");
}

static void later_versions_of_bbr_give_way_to_reno(void **state)
{
	(void)state;
	socket_with("bbr2_long_names");
	assert_string_equal(kernel.now, "reno");
	assert_string_equal(replaced, "bbr2_long_names");
}

static void one_that_does_not_pace_is_kept(void **state)
{
	static const char *const names[] = { "cubic", "reno", "dctcp", "bb", "" };

	(void)state;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		socket_with(names[i]);
		assert_string_equal(kernel.now, names[i]);
		assert_string_equal(replaced, "");
	}
	assert_int_equal(kernel.writes, 0);
}

static void the_users_choice_is_kept(void **state)
{
	(void)state;
	strcpy(braid_param.congestion, "bbr");
	socket_with("bbr");
	assert_string_equal(kernel.now, "bbr");
	assert_string_equal(replaced, "");
	assert_int_equal(kernel.reads + kernel.writes, 0);
}

static void a_socket_without_statistics_is_left_alone(void **state)
{
	(void)state;
	kernel.silent = true;
	socket_with("bbr");
	assert_string_equal(replaced, "");
	assert_int_equal(kernel.writes, 0);
}

static void one_that_could_not_be_replaced_is_not_named(void **state)
{
	(void)state;
	kernel.firm = true;
	socket_with("bbr");
	assert_string_equal(kernel.now, "bbr");
	assert_string_equal(replaced, "");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(bbr_gives_way_to_reno_and_is_named),
		CASE(later_versions_of_bbr_give_way_to_reno),
		CASE(one_that_does_not_pace_is_kept),
		CASE(the_users_choice_is_kept),
		CASE(a_socket_without_statistics_is_left_alone),
		CASE(one_that_could_not_be_replaced_is_not_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
