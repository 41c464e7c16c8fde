/* SPDX-License-Identifier: BSD-3-Clause */
/* test_flight.c - the flight recorder keeps the newest events, whole and in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "core/base/flight.h"

static struct braid_event got[BRAID_FLIGHT_MAX + 1];

static void an_event_is_read_as_it_was_written(void **state)
{
	const struct braid_event *e;

	(void)state;
	assert_int_equal(braid_flight_copy(got, BRAID_FLIGHT_MAX), 0);
	braid_event(BRAID_EVENT_LINK_UP, UINT32_MAX, BRAID_FLIGHT_NONE, INT64_MIN, INT64_MAX);
	assert_int_equal(braid_flight_copy(got, BRAID_FLIGHT_MAX), 1);
	e = &got[0];
	assert_int_equal(e->kind, BRAID_EVENT_LINK_UP);
	assert_int_equal(e->link, UINT32_MAX);
	assert_int_equal(e->lane, BRAID_FLIGHT_NONE);
	assert_true(e->a == INT64_MIN && e->b == INT64_MAX && e->ns > 0);
}

static void the_newest_are_copied_oldest_first(void **state)
{
	(void)state;
	for (int i = 0; i < 3 * BRAID_FLIGHT_MAX; i++)
		braid_event(BRAID_EVENT_LINK_UP, 1, 0, i, 0);
	assert_int_equal(braid_flight_copy(got, BRAID_FLIGHT_MAX + 1), BRAID_FLIGHT_MAX);
	for (int i = 0; i < BRAID_FLIGHT_MAX; i++)
		assert_int_equal(got[i].a, 2 * BRAID_FLIGHT_MAX + i);
	assert_int_equal(braid_flight_copy(got, 2), 2);
	assert_int_equal(got[0].a, 3 * BRAID_FLIGHT_MAX - 2);
	assert_int_equal(got[1].a, 3 * BRAID_FLIGHT_MAX - 1);
	assert_int_equal(braid_flight_copy(got, 0), 0);
}

/* Both numbers of an event have one value, so an event of two writers' halves would differ. */
static void *write_many(void *arg)
{
	for (int64_t i = 0; i < 20000; i++)
		braid_event(BRAID_EVENT_LINK_UP, (uint32_t)(uintptr_t)arg, 0, i, i);
	return NULL;
}

static void events_of_several_writers_are_never_mixed(void **state)
{
	pthread_t t[3];

	(void)state;
	for (uintptr_t i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, write_many, (void *)(i + 7)), 0);
	for (int i = 0; i < 200; i++) {
		unsigned n = braid_flight_copy(got, BRAID_FLIGHT_MAX);

		for (unsigned k = 0; k < n; k++)
			assert_true(got[k].link < 7 || got[k].a == got[k].b);
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
}

static void every_kind_has_its_words(void **state)
{
	(void)state;
	for (int i = 0; i < BRAID_EVENTS; i++) {
		assert_non_null(braid_event_rows[i].words);
		assert_true(braid_event_rows[i].a || !braid_event_rows[i].b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_event_is_read_as_it_was_written),
		cmocka_unit_test(the_newest_are_copied_oldest_first),
		cmocka_unit_test(events_of_several_writers_are_never_mixed),
		cmocka_unit_test(every_kind_has_its_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
