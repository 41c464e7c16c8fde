/* SPDX-License-Identifier: BSD-3-Clause */
/* test_peer_handle.c - handles that NCCL passes on: those that can't be dialled say why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/dev.h"
#include "core/proto/handle.h"
#include "core/proto/hello.h"
#include "core/setup/peer_handle.h"
#include "tests/lib/warns.h"

static struct braid_dev dev = { .net.name = "nic0" };
static uint8_t bytes[BRAID_HANDLE_SIZE];

static void pack(unsigned least, unsigned most)
{
	const struct braid_handle h = {
		.least = (uint16_t)least, .most = (uint16_t)most, .listen_id = 77, .port = 4711,
		.has4 = 1, .dev = 3,
	};

	braid_handle_pack(&h, bytes);
}

static int setup(void **state)
{
	(void)state;
	warns_keep();
	warns_clear();
	pack(BRAID_WIRE_LEAST, BRAID_WIRE_MOST);
	return 0;
}

static void a_handle_of_ours_is_read(void **state)
{
	struct braid_handle h;

	(void)state;
	assert_int_equal(braid_peer_handle(&dev, bytes, &h), 0);
	assert_int_equal(h.listen_id, 77);
	assert_int_equal(h.port, 4711);
	assert_int_equal(h.dev, 3);
	assert_int_equal(warn_count, 0);
}

static void assert_refused(int err, const char *id)
{
	struct braid_handle h;

	assert_int_equal(braid_peer_handle(&dev, bytes, &h), err);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "device nic0: "));
	if (!strstr(warn_text, id))
		fail_msg("no %s in: %s", id, warn_text);
}

static void a_handle_of_another_plugin_is_told(void **state)
{
	(void)state;
	memset(bytes, 0, sizeof(bytes));
	assert_refused(-EPROTONOSUPPORT, "[other-plugin]");
}

static void versions_that_differ_are_told_with_their_numbers(void **state)
{
	char want[128];

	(void)state;
	pack(BRAID_WIRE_MOST + 1, BRAID_WIRE_MOST + 2);
	assert_refused(-EPROTONOSUPPORT, "[wire-version]");
	snprintf(want, sizeof(want), "versions %u to %u, this library %u to %u", BRAID_WIRE_MOST + 1,
		 BRAID_WIRE_MOST + 2, BRAID_WIRE_LEAST, BRAID_WIRE_MOST);
	assert_non_null(strstr(warn_text, want));
}

static void a_damaged_handle_is_told(void **state)
{
	(void)state;
	bytes[50] ^= 4;
	assert_refused(-EINVAL, "[bad-handle]");
}

#define CASE(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_handle_of_ours_is_read),
		CASE(a_handle_of_another_plugin_is_told),
		CASE(versions_that_differ_are_told_with_their_numbers),
		CASE(a_damaged_handle_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
