/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_times.c - how long sends and frames take: which are timed, from when until when, and how a
 * report and the metrics show it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/units.h"
#include "core/setup/links.h"
#include "core/watch/metrics.h"
#include "core/watch/report.h"
#include "core/watch/view.h"
#include "tests/lib/comms.h"

enum { SMALL = 8, LARGE = 256 << 10 };

static struct braid_view view;
static char from[LARGE], to[LARGE];

static int up(void **state)
{
	const struct null_config config = { .lanes = 2, .window = 512 << 10, .held = true };

	(void)state;
	start(&config);
	braid_clock_set();
	braid_links_init();
	braid_svc_lock();
	braid_link_number(pair.end[0]);
	braid_link_list(pair.end[0]);
	braid_svc_unlock();
	snprintf(pair.end[0]->peer, sizeof(pair.end[0]->peer), "b");
	return 0;
}

static int down(void **state)
{
	(void)state;
	braid_list_del(&pair.end[0]->table.node);
	null_pair_fini(&pair);
	return 0;
}

static const struct braid_view *seen(unsigned end)
{
	uint64_t none = 0;

	braid_view_link(pair.end[end], &none, &view);
	return &view;
}

static struct braid_req *send_one(size_t size)
{
	struct braid_req *req = isend(cs, from, size, 7);

	assert_non_null(req);
	return req;
}

static struct braid_req *recv_one(size_t size)
{
	struct braid_req *req = irecv(cr, to, size, 7);

	assert_non_null(req);
	return req;
}

static void sent(size_t size)
{
	struct braid_req *r = recv_one(size), *s = send_one(size);

	null_settle(&pair);
	assert_true(done(s));
	assert_true(done(r));
}

static void one_small_send_in_31_is_timed(void **state)
{
	(void)state;
	assert_int_equal(seen(0)->took[0].count, 0);
	for (int i = 0; i < 31; i++)
		sent(SMALL);
	assert_int_equal(seen(0)->took[0].count, 1);
	for (int i = 0; i < 31 * 99; i++)
		sent(SMALL);
	assert_in_range(seen(0)->took[0].count, 100, 101);
	assert_int_equal(view.took[1].count, 0);
	assert_int_equal(view.lane[0].acks.count, 0);	/* nobody acknowledges these at once */
	assert_int_equal(seen(1)->took[0].count, 0);	/* nor is a receive a send */
}

static void the_clock_is_not_read_for_most_small_sends(void **state)
{
	uint64_t before;

	(void)state;
	sent(SMALL);
	null_tick_ns = 1;
	before = null_now_ns;
	for (int i = 0; i < 31; i++)
		sent(SMALL);
	null_tick_ns = 0;
	assert_int_equal(seen(0)->took[0].count, 1);
	assert_in_range(null_now_ns - before, 2, 3);
}

static void a_large_send_is_timed_until_the_peer_has_acknowledged_it(void **state)
{
	struct braid_req *s = send_one(LARGE), *r;

	(void)state;
	null_settle(&pair);
	null_now_ns += 40 * MS;		/* the receive comes late */
	r = recv_one(LARGE);
	null_now_ns += 2 * MS;
	assert_int_equal(seen(0)->took[1].count, 0);
	null_settle(&pair);
	assert_true(done(s));
	assert_true(done(r));
	assert_int_equal(seen(0)->took[1].count, 1);
	assert_int_equal(view.took[1].max_ns, 42 * MS);
	assert_int_equal(view.took[1].sum_ns, 42 * MS);
	assert_int_equal(view.took[0].count, 0);
	/* No frame was queued before the receive was known: the lanes were not slow. */
	assert_in_range(view.lane[0].acks.count + view.lane[1].acks.count, 1, 2);
	assert_int_equal(view.lane[0].acks.max_ns + view.lane[1].acks.max_ns, 0);
}

/* Deliver what is on one lane, in both directions, until nothing is. */
static void drain(unsigned lane)
{
	for (int moved = 1; moved;) {
		moved = null_deliver(&pair, 0, lane) + null_deliver(&pair, 1, lane);
		for (unsigned end = 0; end < 2; end++) {
			braid_link_try_flush_control(pair.end[end]);
			braid_link_move(pair.end[end]);
		}
		moved |= null_waiting(&pair, 0, lane) || null_waiting(&pair, 1, lane);
	}
}

static void a_slow_lane_is_slower_than_its_sister(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		struct braid_req *r = recv_one(LARGE), *s;

		drain(0);		/* its credit */
		s = send_one(LARGE);
		null_now_ns += 10 * MS;
		drain(0);
		null_now_ns += 20 * MS;	/* so much slower that it still gets a chunk */
		null_settle(&pair);
		assert_true(done(s));
		assert_true(done(r));
	}
	assert_true(seen(0)->lane[0].acks.count >= 5 && view.lane[1].acks.count >= 5);
	assert_in_range(braid_hist_percentile(&view.lane[0].acks, 50), 10 * MS, 13 * MS);
	assert_in_range(braid_hist_percentile(&view.lane[1].acks, 50), 30 * MS, 38 * MS);
}

static void a_frame_that_is_sent_again_is_not_timed(void **state)
{
	struct braid_req *r, *s;

	(void)state;
	sent(LARGE);			/* from now on credits come before sends */
	r = recv_one(LARGE);
	drain(0);
	s = send_one(LARGE);
	assert_true(pair.end[0]->lane[0]->tx.one_ns && pair.end[0]->lane[1]->tx.one_ns);
	null_now_ns += SEC;
	for (unsigned lane = 0; lane < 2; lane++)
		null_lose(&pair, lane);
	null_settle(&pair);
	assert_true(done(s));
	assert_true(done(r));
	seen(0);
	assert_int_equal(view.lane[0].acks.max_ns + view.lane[1].acks.max_ns, 0);
	assert_int_equal(view.took[1].max_ns, SEC);	/* but the message took as long */
	null_settle(&pair);
	sent(LARGE);
	seen(0);
	assert_true(view.lane[0].acks.count + view.lane[1].acks.count > 0);
}

/* The times are there, and no byte is held, while another thread has the lock. */
static void times_can_be_seen_while_the_link_is_busy(void **state)
{
	(void)state;
	sent(LARGE);
	braid_lock_wait(&pair.end[0]->lock);
	seen(0);
	braid_unlock(&pair.end[0]->lock);
	assert_true(view.busy);
	assert_int_equal(view.took[1].count, 1);
}

/* --- what is shown ------------------------------------------------------------------------- */

static void a_report_has_the_percentiles_and_buckets_of_links_and_lanes(void **state)
{
	struct braid_text t = { 0 };
	json_int_t timed, p50, p99, max, sum, n = 0, bound = 0;
	json_t *o, *link, *buckets, *b;
	size_t i;

	(void)state;
	for (int k = 0; k < 3; k++)
		sent(LARGE);
	braid_hist_note(&pair.end[0]->msg.took[1], 5 * MS);
	braid_hist_note(&pair.end[0]->lane[1]->acks, 7 * MS);
	assert_int_equal(braid_report_json(&t, false), 0);
	o = json_loadb(t.p, t.len, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(o);
	link = json_array_get(json_object_get(o, "links"), 0);
	assert_int_equal(json_unpack(link, "{s:{s:I, s:I, s:I, s:I, s:I, s:o}}", "large_sends",
				     "timed", &timed, "p50_ns", &p50, "p99_ns", &p99, "max_ns",
				     &max, "sum_ns", &sum, "buckets", &buckets), 0);
	assert_int_equal(timed, 4);
	assert_in_range(p50, 0, 256);
	assert_int_equal(p99, 5 * MS);
	assert_int_equal(max, 5 * MS);
	assert_int_equal(sum, 5 * MS);
	json_array_foreach(buckets, i, b) {
		assert_true(json_integer_value(json_array_get(b, 0)) > bound);
		bound = json_integer_value(json_array_get(b, 0));
		n += json_integer_value(json_array_get(b, 1));
	}
	assert_int_equal(n, 4);
	assert_in_range(bound, 5 * MS, 5 * MS * 5 / 4);
	assert_null(json_object_get(link, "small_sends"));
	b = json_array_get(json_object_get(link, "lanes"), 1);
	assert_string_equal(json_string_value(json_object_get(b, "nic")), "null0");
	assert_int_equal(json_integer_value(json_object_get(json_object_get(b, "acks"), "max_ns")), 7 * MS);
	json_decref(o);
	braid_text_free(&t);
}

static uint64_t value_of(const char *text, const char *begin, const char *has)
{
	for (const char *s = text; *s; s += strcspn(s, "\n") + 1) {
		char line[1000];

		snprintf(line, sizeof(line), "%.*s", (int)strcspn(s, "\n"), s);
		if (strncmp(line, begin, strlen(begin)) == 0 && strstr(line, has))
			return strtoull(strrchr(line, ' '), NULL, 10);
	}
	fail_msg("no line begins with %s and has %s: %s", begin, has, text);
	return 0;
}

static void metrics_have_cumulative_buckets_a_count_and_a_sum(void **state)
{
	static const uint64_t times[] = { 3, 1023, 1024, 70000, 3 * SEC, 43200 * SEC };
	struct braid_text t = { 0 };
	uint64_t last = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		braid_hist_note(&pair.end[0]->msg.took[0], times[i]);
	braid_hist_note(&pair.end[0]->lane[1]->acks, 7 * MS);
	assert_int_equal(braid_metrics_text(&t), 0);
	assert_non_null(strstr(t.p, "# TYPE braid_send_seconds histogram\n"));
	assert_non_null(strstr(t.p, "# TYPE braid_lane_ack_seconds histogram\n"));
#define SENDS "braid_send_seconds"
	for (unsigned e = 10; e <= 30; e++) {
		char le[64];
		uint64_t n = 0, bound = UINT64_C(1) << e;

		for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
			n += times[i] < bound;
		snprintf(le, sizeof(le), ",size=\"small\",le=\"%" PRIu64 ".%09" PRIu64 "\"}",
			 (uint64_t)(bound / SEC), (uint64_t)(bound % SEC));
		assert_int_equal(value_of(t.p, SENDS "_bucket{", le), n);
		assert_true(n >= last);
		last = n;
	}
	assert_int_equal(value_of(t.p, SENDS "_bucket{", "le=\"+Inf\""), 6);
	assert_int_equal(value_of(t.p, SENDS "_count{", "size=\"small\"}"), 6);
	assert_int_equal(value_of(t.p, SENDS "_sum{", "} 43203.000072050"), 43203);
	assert_null(strstr(t.p, "size=\"large\""));	/* none of these was timed */
	assert_int_equal(value_of(t.p, "braid_lane_ack_seconds_count{",
				  "device=\"null0\",peer=\"b\",lane=\"1\",nic=\"null0\"}"), 1);
	assert_null(strstr(t.p, "lane=\"0\""));
	braid_text_free(&t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_small_send_in_31_is_timed),
		TEST(the_clock_is_not_read_for_most_small_sends),
		TEST(a_large_send_is_timed_until_the_peer_has_acknowledged_it),
		TEST(a_slow_lane_is_slower_than_its_sister),
		TEST(a_frame_that_is_sent_again_is_not_timed),
		TEST(times_can_be_seen_while_the_link_is_busy),
		TEST(a_report_has_the_percentiles_and_buckets_of_links_and_lanes),
		TEST(metrics_have_cumulative_buckets_a_count_and_a_sum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
