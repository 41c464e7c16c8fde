/* SPDX-License-Identifier: BSD-3-Clause */
/* test_wakeup.c - waking the service thread: it works if the thread runs, and is harmless if not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>

#include "core/base/os.h"
#include "core/base/wakeup.h"

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void waking_a_closed_service_does_nothing(void **state)
{
	(void)state;
	braid_wake_service();
	braid_wakeup_close();
	braid_wake_service();
}

static void a_wake_up_is_seen_until_it_is_read(void **state)
{
	int fd = braid_wakeup_open();

	(void)state;
	assert_true(fd >= 0);
	assert_false(is_readable(fd));
	braid_wake_service();
	braid_wake_service();
	assert_true(is_readable(fd));
	braid_os->unwake(fd);
	assert_false(is_readable(fd));
	braid_wakeup_close();
	braid_wake_service();
}

static int no_eventfd(void)
{
	errno = EMFILE;
	return -1;
}

static void without_a_descriptor_there_is_an_error_and_no_wake_up(void **state)
{
	const struct braid_os *real = braid_os;
	struct braid_os poor = *real;

	(void)state;
	poor.eventfd = no_eventfd;
	braid_os = &poor;
	assert_int_equal(braid_wakeup_open(), -EMFILE);
	braid_wake_service();
	braid_wakeup_close();
	braid_os = real;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waking_a_closed_service_does_nothing),
		cmocka_unit_test(a_wake_up_is_seen_until_it_is_read),
		cmocka_unit_test(without_a_descriptor_there_is_an_error_and_no_wake_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
