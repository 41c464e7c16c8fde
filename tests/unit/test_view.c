/* SPDX-License-Identifier: BSD-3-Clause */
/* test_view.c - what a link shows to a watcher, what is logged of it, and the last events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/flight.h"
#include "core/base/units.h"
#include "core/link/recover.h"
#include "core/setup/links.h"
#include "core/watch/report.h"
#include "core/watch/view.h"
#include "tests/lib/channel.h"

enum { LARGE = 100000, WRITERS = 4 };

static struct braid_view view;
static char from[LARGE], to[LARGE];

static int up(void **state)
{
	const struct null_config config = { .lanes = 2, .window = 512 << 10, .held = true };

	(void)state;
	start(&config);
	braid_clock_set();
	return 0;
}

static int down(void **state)
{
	(void)state;
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

static void one_is_seen(unsigned end, enum braid_view_state state, uint64_t bytes_done)
{
	const struct braid_view *v = seen(end);

	assert_false(v->busy);
	assert_int_equal(v->nmsgs, 1);
	assert_int_equal(v->msg[0].state, state);
	assert_int_equal(v->msg[0].sender, end == 0);
	assert_int_equal(v->msg[0].tag, 7);
	assert_int_equal(v->msg[0].size, LARGE);
	assert_int_equal(v->msg[0].done, bytes_done);
	assert_int_equal(v->outstanding[end == 0], 1);
	assert_int_equal(v->outstanding[end != 0], 0);
}

static void nothing_outstanding(void **state)
{
	const struct braid_view *v = seen(0);

	(void)state;
	assert_int_equal(v->nmsgs, 0);
	assert_int_equal(v->oldest_ns, 0);
	assert_int_equal(v->nlanes, 2);
	assert_true(v->lane[0].home && v->lane[0].up && v->lane[1].up);
	assert_string_equal(v->lane[1].transport, "null");
}

/* The credit has come, and something of the message is on a wire. */
static void until_on_its_way(void)
{
	while (!null_waiting(&pair, 0, 0) && !null_waiting(&pair, 0, 1)) {
		braid_link_try_flush_control(pair.end[1]);
		null_deliver(&pair, 1, 0);
		braid_link_move(pair.end[0]);
	}
}

static void large_send(void **state)
{
	struct braid_req *s = send_one(LARGE), *r;

	(void)state;
	null_settle(&pair);
	one_is_seen(0, BRAID_VIEW_NOT_POSTED, 0);
	assert_int_equal(seen(1)->nmsgs, 0);
	r = recv_one(LARGE);
	one_is_seen(1, BRAID_VIEW_ANNOUNCED, 0);
	until_on_its_way();
	assert_int_equal(seen(0)->nmsgs, 1);
	assert_in_range(view.msg[0].state, BRAID_VIEW_SENDING, BRAID_VIEW_NOT_ACKED);
	assert_int_equal(view.msg[0].done, 0);
	null_settle(&pair);
	one_is_seen(0, BRAID_VIEW_DONE, LARGE);
	one_is_seen(1, BRAID_VIEW_DONE, LARGE);
	assert_true(done(s) && done(r));
	assert_int_equal(seen(0)->nmsgs, 0);
	assert_int_equal(view.open[1].messages, 1);
	assert_int_equal(view.open[1].bytes, LARGE);
	assert_in_range(view.lane[0].sent + view.lane[1].sent, LARGE, LARGE + 1000);
}

static void lost_lane(void **state)
{
	(void)state;
	send_one(LARGE);
	null_settle(&pair);
	recv_one(LARGE);
	until_on_its_way();
	assert_false(seen(0)->msg[0].ill);
	braid_lock_wait(&pair.end[0]->lock);
	for (int i = 0; i < 2; i++)
		braid_lane_lost(pair.end[0]->lane[i], -ECONNRESET);
	braid_unlock(&pair.end[0]->lock);
	assert_false(seen(0)->lane[0].up);
	assert_int_equal(view.lane[0].lost, 1);
	assert_int_equal(view.nmsgs, 1);
	assert_true(view.msg[0].ill);
}

static void receive_waits(void **state)
{
	struct braid_req *r = recv_one(LARGE);

	(void)state;
	null_settle(&pair);
	one_is_seen(1, BRAID_VIEW_NOT_SENT, 0);
	assert_false(done(r));
}

static void ages(void **state)
{
	(void)state;
	null_now_ns += 5 * SEC;
	braid_clock_set();
	recv_one(10);
	null_now_ns += 3 * SEC;
	braid_clock_set();
	recv_one(20);
	null_now_ns += 1 * SEC;
	assert_int_equal(seen(1)->nmsgs, 2);
	assert_int_equal(view.msg[0].age_ns, 4 * SEC);
	assert_int_equal(view.msg[1].age_ns, 1 * SEC);
	assert_int_equal(view.oldest_ns, 4 * SEC);
	/* Nobody winds the clock while the link is watched: whoever posts does. */
	atomic_store(&pair.end[1]->thread.watched, true);
	recv_one(30);
	assert_int_equal(seen(1)->msg[2].age_ns, 0);
}

static void somebody_has_the_lock(void **state)
{
	(void)state;
	recv_one(10);
	braid_lock_wait(&pair.end[1]->lock);
	assert_true(seen(1)->busy);
	assert_int_equal(view.nmsgs, 0);
	assert_int_equal(view.nlanes, 2);
	assert_true(view.lane[0].up);
	assert_null(view.lane[0].transport);
	assert_int_equal(view.ncomms, 1);
	braid_unlock(&pair.end[1]->lock);
	assert_false(seen(1)->busy);
}

/* --- reports ------------------------------------------------------------------------------- */

static void listed(struct null_pair *p)
{
	static bool once;

	if (!once)
		braid_links_init();
	once = true;
	braid_svc_lock();
	braid_link_number(p->end[0]);
	braid_link_list(p->end[0]);
	braid_svc_unlock();
}

static void unlisted(struct null_pair *p)
{
	braid_svc_lock();
	assert_true(braid_link_unlist(p->end[0]));
	braid_svc_unlock();
}

static json_t *parsed(bool all)
{
	struct braid_text t = { 0 };
	json_error_t err;
	json_t *o;

	assert_int_equal(braid_report_json(&t, all), 0);
	o = json_loadb(t.p, t.len, JSON_REJECT_DUPLICATES, &err);
	if (!o)
		fail_msg("%s at %d in %.*s", err.text, err.position, (int)t.len, t.p);
	assert_int_equal(t.p[t.len - 1], '\n');
	braid_text_free(&t);
	return o;
}

static void json(void **state)
{
	const char *kind, *words, *peer;
	json_int_t age, version, nothing;
	json_t *o;

	(void)state;
	listed(&pair);
	strcpy(pair.end[0]->peer, "a \"host\"\\\n\x01\xc3\xa9");
	braid_event(BRAID_EVENT_LINK_UP, 1, BRAID_FLIGHT_NONE, 4, 0);
	send_one(LARGE);
	null_now_ns += 2 * SEC;
	o = parsed(true);
	assert_int_equal(json_unpack(o, "{s:I, s:[{s:s, s:[{s:s, s:s, s:I}], s:I}]}",
				     "braid_report", &version, "links", "peer", &peer, "messages",
				     "kind", &kind, "state", &words, "age_ms", &age,
				     "messages_left_out", &nothing), 0);
	assert_int_equal(version, BRAID_REPORT_VERSION);
	assert_string_equal(peer, "a \"host\"\\????");
	assert_string_equal(kind, "send");
	assert_string_equal(words, "peer has not posted the receive");
	assert_int_equal(age, 2000);
	assert_int_equal(nothing, 0);
	assert_true(json_array_size(json_object_get(o, "events")) > 0);
	json_decref(o);
	o = parsed(false);
	assert_null(json_object_get(o, "events"));
	assert_null(json_object_get(json_array_get(json_object_get(o, "links"), 0), "messages"));
	json_decref(o);
	unlisted(&pair);
}

static void no_links(void **state)
{
	json_t *o;

	(void)state;
	listed(&pair);
	unlisted(&pair);
	o = parsed(true);
	assert_int_equal(json_array_size(json_object_get(o, "links")), 0);
	json_decref(o);
}

/* --- events -------------------------------------------------------------------------------- */

static void last_events(void **state)
{
	static struct braid_event e[BRAID_FLIGHT_MAX];

	(void)state;
	for (int64_t i = 0; i < BRAID_FLIGHT_MAX + 1000; i++)
		braid_event(BRAID_EVENT_STALL, 3, 5, i, -i);
	assert_int_equal(braid_flight_copy(e, BRAID_FLIGHT_MAX), BRAID_FLIGHT_MAX);
	for (int64_t i = 0; i < BRAID_FLIGHT_MAX; i++) {
		assert_int_equal(e[i].a, i + 1000);
		assert_int_equal(e[i].b, -e[i].a);
		assert_int_equal(e[i].link, 3);
		assert_int_equal(e[i].lane, 5);
		assert_int_equal(e[i].kind, BRAID_EVENT_STALL);
	}
	assert_int_equal(braid_flight_copy(e, 2), 2);
	assert_int_equal(e[1].a, BRAID_FLIGHT_MAX + 999);
}

static atomic_bool stop;

static void *write_events(void *arg)
{
	int64_t n = *(int *)arg;

	while (!atomic_load(&stop))
		braid_event(BRAID_EVENT_HOME, (uint32_t)n, (unsigned)n, n, n);
	return NULL;
}

static void whole_events(void **state)
{
	static struct braid_event e[BRAID_FLIGHT_MAX];
	pthread_t th[WRITERS];
	int id[WRITERS];
	unsigned seen_events = 0;

	(void)state;
	for (int i = 0; i < WRITERS; i++) {
		id[i] = i + 1;
		assert_int_equal(pthread_create(&th[i], NULL, write_events, &id[i]), 0);
	}
	for (int round = 0; round < 200 || !seen_events; round++) {
		unsigned n = braid_flight_copy(e, BRAID_FLIGHT_MAX);

		for (unsigned i = 0; i < n; i++) {
			if (e[i].kind != BRAID_EVENT_HOME)
				continue;
			seen_events++;
			assert_int_equal(e[i].a, e[i].link);
			assert_int_equal(e[i].b, e[i].link);
			assert_int_equal(e[i].lane, e[i].link);
		}
	}
	atomic_store(&stop, true);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(th[i], NULL);
}

/* A channel counts them late, when it takes them back. */
static void puts_count(void **state)
{
	const struct braid_rma_hdr put = { .what = BRAID_RMA_DATA, .size = 8 };
	const struct braid_rma_hdr get = { .what = BRAID_RMA_GET, .size = 8 };
	struct braid_rma_op *op;

	(void)state;
	win_here(64);
	op = post(put, from);
	assert_int_equal(seen(0)->open[1].messages, 0);
	assert_int_equal(op_run(op), 0);
	assert_int_equal(seen(0)->open[1].messages, 1);
	post(get, to);				/* it is not answered */
	op = post(put, from);
	assert_int_equal(seen(0)->open[1].messages, 1);
	assert_int_equal(op_end(op), 0);
	assert_int_equal(seen(0)->open[1].messages, 2);
	assert_int_equal(view.open[1].bytes, 16);
	braid_comm_close(cs);
	assert_int_equal(seen(0)->closed[1].messages, 2);
	assert_int_equal(view.closed[1].bytes, 16);
}

#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PAIR(nothing_outstanding),
		WITH_PAIR(large_send),
		WITH_PAIR(lost_lane),
		WITH_PAIR(receive_waits),
		WITH_PAIR(ages),
		WITH_PAIR(somebody_has_the_lock),
		WITH_PAIR(json),
		WITH_PAIR(no_links),
		CHANNEL(puts_count),
		cmocka_unit_test(last_events),
		cmocka_unit_test(whole_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
