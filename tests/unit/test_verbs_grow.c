/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_grow.c - receives of a lane's own, few and all of them: verbs/grow.c. */
#include "tests/unit/lanes.h"

#include <string.h>

#include "core/base/log.h"
#include "verbs/verbs.h"

enum { IDLE_MAX = 64 << 10, MANY = 200, LARGE = 300000 };

static const char *const own[] = { "iw0:1", "own0:1" };	/* their receives are not shared */

static void both_jobs_done(struct lanes *l)
{
	jobs_done(l->e.dialler.dev);
	jobs_done(l->e.accepter.dev);
}

static void up(struct lanes *l, const char *port)
{
	lanes_up(l, port, port);
	lanes_move(l, 8, false);	/* over iWARP the dialler sends first */
}

static bool has_few(struct lanes *l, unsigned end)
{
	const struct braid_qp *w = lane_qp(l, end);

	return w->m->slots->n == BRAID_SLOTS_FEW && !w->m->more && w->grow.may;
}

/* Small messages in a burst, until the receiving end has had the time to register memory. */
static void burst(struct lanes *l)
{
	for (unsigned i = 0; i < MANY; i++)
		lanes_move(l, 8, false);
	both_jobs_done(l);
	lanes_move(l, 8, false);	/* the next to come finds it registered */
}

/* More than a window at a time: the sender looks at what the peer has written. */
static void exhaust(struct lanes *l)
{
	lanes_move(l, LARGE, false);
}

static void a_lane_begins_with_few(void **state)
{
	struct lanes l;
	long before;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		lanes_up(&l, own[i], own[i]);
		lanes_down(&l);		/* what the port keeps for all lanes is there now */
		before = ports_ctl("live pinned");
		up(&l, own[i]);
		for (unsigned end = 0; end < 2; end++) {
			assert_true(has_few(&l, end));
			assert_int_equal(lane_qp(&l, end)->wr_max, BRAID_WINDOW_FEW);
		}
		assert_true(ports_ctl("live pinned") - before < 2 * IDLE_MAX);
		lanes_down(&l);
	}
}

static void few_are_enough_for_any_message(void **state)
{
	static const size_t sizes[] = { 0, 8, 4096, 8193, 65536, LARGE, 1 << 20 };
	struct lanes l;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		up(&l, own[i]);
		for (unsigned end = 0; end < 2; end++)
			lane_qp(&l, end)->grow.may = false;
		for (unsigned k = 0; k < 2 * sizeof(sizes) / sizeof(sizes[0]); k++)
			lanes_move(&l, sizes[k / 2], k % 2 && sizes[k / 2]);
		assert_null(lane_qp(&l, 1)->m->more);
		assert_int_equal(lane_qp(&l, 0)->wr_max, BRAID_WINDOW_FEW);
		lanes_down(&l);
	}
}

static void a_burst_brings_all(void **state)
{
	struct lanes l;
	struct braid_qp *from, *to;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		up(&l, own[i]);
		from = lane_qp(&l, 0);
		to = lane_qp(&l, 1);
		burst(&l);
		assert_false(to->grow.may);
		assert_int_equal(to->m->slots->n + to->m->more->n, BRAID_SLOTS_RX);
		assert_int_equal(to->grow.repost, BRAID_REPOST);
		exhaust(&l);
		assert_int_equal(from->wr_max, BRAID_WINDOW);
		assert_int_equal(to->grow.report_at, BRAID_SLOTS_RX / 2);
		burst(&l);
		exhaust(&l);
		assert_int_equal(from->wr_max, BRAID_WINDOW);
		lanes_down(&l);
	}
}

static void rare_messages_bring_none(void **state)
{
	struct lanes l;

	(void)state;
	up(&l, own[0]);
	for (unsigned i = 0; i < MANY; i++) {
		lane_qp(&l, 1)->grow.since_ns = 1;	/* long ago */
		lanes_move(&l, 8, false);
	}
	both_jobs_done(&l);
	lanes_move(&l, 8, false);
	assert_true(has_few(&l, 1));
	lanes_down(&l);
}

static void where_receives_are_shared_nothing_grows(void **state)
{
	struct lanes l;

	(void)state;
	up(&l, "ib0:1");
	assert_false(lane_qp(&l, 1)->grow.may);
	assert_int_equal(lane_qp(&l, 0)->wr_max, BRAID_WINDOW);
	burst(&l);
	assert_null(lane_qp(&l, 1)->m->slots);
	lanes_down(&l);
}

static void a_peer_that_does_not_know_it_gets_all_at_once(void **state)
{
	struct lanes l;

	(void)state;
	ends_old = true;
	for (unsigned i = 0; i < 2; i++) {
		lanes_up(&l, own[i], own[i]);
		for (unsigned end = 0; end < 2; end++) {
			assert_non_null(lane_qp(&l, end)->m->more);
			assert_false(lane_qp(&l, end)->grow.may);
			assert_int_equal(lane_qp(&l, end)->wr_max, BRAID_WINDOW);
		}
		burst(&l);
		exhaust(&l);
		lanes_down(&l);
	}
	ends_old = false;
}

static unsigned infos;

static void note(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file, (void)line;
	assert_int_not_equal(level, BRAID_LOG_WARN);
	infos += level == BRAID_LOG_INFO && strstr(text, "it goes on with 6");
}

static void without_memory_it_goes_on_with_few(void **state)
{
	struct lanes l;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		up(&l, own[i]);
		ports_ctl("fail 1 ibv_reg_mr ENOMEM on");
		infos = 0;
		braid_log_to(note);
		burst(&l);
		burst(&l);
		braid_log_to(NULL);
		ports_ctl("fail 0");
		assert_int_equal(infos, 1);	/* one line, however much follows */
		assert_null(lane_qp(&l, 1)->m->more);
		assert_false(lane_qp(&l, 1)->grow.may);
		exhaust(&l);
		assert_int_equal(lane_qp(&l, 0)->wr_max, BRAID_WINDOW_FEW);
		lanes_down(&l);
	}
}

static void a_lane_dies_while_it_grows(void **state)
{
	long mrs = ports_ctl("live mr");
	struct lanes l;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		up(&l, own[i]);
		ports_ctl("slow ibv_reg_mr 50");
		for (unsigned k = 0; k < MANY; k++)
			lanes_move(&l, 8, false);
		assert_true(lane_qp(&l, 1)->grow.asked);
		lanes_down(&l);
		ports_ctl("slow none");
		both_jobs_done(&l);
	}
	assert_true(ports_ctl("live mr") <= mrs + 2);	/* what the ports keep */
}

static void memory_of_a_lane_that_grew_serves_one_with_few(void **state)
{
	struct lanes l;
	long before;

	(void)state;
	up(&l, own[0]);
	lanes_down(&l);
	before = ports_ctl("live pinned");
	for (unsigned i = 0; i < 2; i++) {
		up(&l, own[0]);
		assert_true(has_few(&l, 1));
		burst(&l);
		assert_true(ports_ctl("live pinned") - before > BRAID_SLOTS_RX / 2 * BRAID_SLOT);
		lanes_down(&l);
		assert_int_equal(ports_ctl("live pinned"), before);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lane_begins_with_few),
		cmocka_unit_test(few_are_enough_for_any_message),
		cmocka_unit_test(a_burst_brings_all),
		cmocka_unit_test(rare_messages_bring_none),
		cmocka_unit_test(where_receives_are_shared_nothing_grows),
		cmocka_unit_test(a_peer_that_does_not_know_it_gets_all_at_once),
		cmocka_unit_test(without_memory_it_goes_on_with_few),
		cmocka_unit_test(a_lane_dies_while_it_grows),
		cmocka_unit_test(memory_of_a_lane_that_grew_serves_one_with_few),
	};

	ports_of("ib0:ib;own0:ib,max_srq=0;iw0:iwarp,netdev=lo");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
