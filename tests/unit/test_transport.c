/* SPDX-License-Identifier: BSD-3-Clause */
/* test_transport.c - how transports are found, and what one without more to do answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "core/dev.h"
#include "core/transport.h"

static const struct braid_transport one = { .name = "one", .id = BRAID_TRANSPORT_TCP };
static const struct braid_transport two = { .name = "two", .id = BRAID_TRANSPORT_UCX };

static int begin(void **state)
{
	static const struct braid_transport *const list[] = { &two, &one, NULL };

	(void)state;
	braid_transports_use(list);
	return 0;
}

static void a_transport_is_found_by_its_id(void **state)
{
	(void)state;
	assert_ptr_equal(braid_transport_find(BRAID_TRANSPORT_TCP), &one);
	assert_ptr_equal(braid_transport_find(BRAID_TRANSPORT_UCX), &two);
}

/* The id comes from the peer. */
static void an_id_of_no_transport_finds_none(void **state)
{
	(void)state;
	assert_null(braid_transport_find(0));
	assert_null(braid_transport_find(BRAID_TRANSPORT_SMC));
	assert_null(braid_transport_find(BRAID_TRANSPORT_IDS));
	assert_null(braid_transport_find(255));
}

static void what_a_transport_lacks_is_not_supported(void **state)
{
	struct braid_dev dev = { 0 };
	struct braid_setup setup = { .dev = &dev };
	struct braid_key key = { 0 };
	uint8_t blob[BRAID_BLOB_SIZE] = { 0 };
	struct braid_mem mem = { .data = blob, .size = sizeof(blob), .fd = -1 };

	(void)state;
	assert_int_equal(braid_no_reg(&dev, &mem, &key), -EOPNOTSUPP);
	braid_no_dereg(&dev, &key);
	assert_int_equal(braid_no_setup(&setup, NULL, blob), -EOPNOTSUPP);
	assert_int_equal(braid_no_setup_peer(&setup, blob), -EOPNOTSUPP);
	assert_int_equal(braid_no_setup_ready(&setup), 0);
	braid_no_setup_drop(&setup);
}

static void a_plain_transport_is_always_usable_and_has_no_events(void **state)
{
	struct braid_dev dev = { 0 };

	(void)state;
	assert_true(braid_always(&dev));
	assert_int_equal(braid_no_event_fd(&dev), -1);
	assert_false(braid_no_events(&dev));
	assert_true(braid_no_arm(NULL));
}

#define CASE(test) cmocka_unit_test_setup(test, begin)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_transport_is_found_by_its_id),
		CASE(an_id_of_no_transport_finds_none),
		CASE(what_a_transport_lacks_is_not_supported),
		CASE(a_plain_transport_is_always_usable_and_has_no_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
