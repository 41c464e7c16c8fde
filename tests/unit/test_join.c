/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_join.c - a handshake is over: a new link, a new lane, or a lane with another carrier, and what
 * is reported if that carrier is not the best one.
 *
 * The lanes are those of null.h.  Handshakes are structs that the test fills in.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "core/base/pool.h"
#include "core/base/self.h"
#include "core/base/units.h"
#include "core/link/recover.h"
#include "core/proto/auth.h"
#include "core/setup/conn.h"
#include "core/setup/join.h"
#include "core/base/secret.h"
#include "core/setup/links.h"
#include "tests/lib/pair.h"

enum { FD = 1000 };			/* a number: nothing is open there */

static struct null_pair p;		/* a link that is up, the clock, and the log */
static struct braid_dev *dev;
static struct braid_link *link;		/* being made */
static uint8_t token[BRAID_KEY_SIZE] = { 1 };
static struct braid_lane *lane;		/* of p's dialler */
static struct braid_transport tr;	/* null, or that with a fault */
static const struct braid_transport rdma = { .name = "rdma", .blob = true, .rest_s = 300 };

static union braid_netdev_addr at(const char *ip, uint16_t port)
{
	union braid_netdev_addr a = { .in = { .sin_family = AF_INET, .sin_port = htons(port) } };

	assert_int_equal(inet_pton(AF_INET, ip, &a.in.sin_addr), 1);
	return a;
}

static int setup(void **state)
{
	struct null_config config = { .held = true };
	struct braid_link_key key = { .traffic_class = -1 };

	(void)state;
	null_pair_init(&p, &config);
	null_now_ns += 1000 * SEC;
	tr = null_transport;
	dev = &p.dev[0];
	dev->net.addr = at("10.1.0.1", 0);
	dev->net.prefix = 24;
	lane = p.end[0]->lane[0];
	key.dev = dev;
	link = braid_link_new(&key);
	assert_non_null(link);
	link->npaths = 1;
	link->setup.path[0].dev = dev;
	strcpy(link->peer, "peer");
	braid_svc_lock();
	return braid_auth_init();
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_unlock();
	braid_link_free(link);
	null_pair_fini(&p);
	return 0;
}

/* A handshake that is over, for a lane of `of`. */
static struct braid_conn over(struct braid_link *of, bool dialler)
{
	struct braid_conn c = {
		.fd = -1, .dialler = dialler, .dev = dev, .met = dev, .link = of, .tr = &tr,
	};

	return c;
}

/* --- before it is over --------------------------------------------------------------------- */

static void a_lane_is_closed_and_its_counts_are_announced(void **state)
{
	struct braid_conn c = over(p.end[0], true);

	(void)state;
	c.lane = lane;
	lane->rx_frames = 7;
	lane->tx.f_acked = lane->tx.f_sent = lane->tx.f_head = 5;
	assert_int_equal(braid_join_close_lane(&c), 0);
	assert_false(braid_lane_up(lane));
	assert_int_equal(c.mine.frames, 7);
	assert_int_equal(c.mine.first, 5);
}

static void a_peer_that_dials_is_not_asked_to_dial(void **state)
{
	struct braid_conn c = over(p.end[0], true);

	(void)state;
	c.lane = lane;
	c.dialler = false;
	assert_int_equal(braid_join_close_lane(&c), 0);
	assert_true(p.end[0]->recover.probe_ns > null_now_ns);
}

static void a_carrier_that_still_stops_announces_nothing(void **state)
{
	struct braid_conn c = over(p.end[0], true);

	(void)state;
	c.lane = lane;
	lane->rx_frames = 7;
	lane->fd = FD;				/* never reported as closed */
	assert_int_equal(braid_join_close_lane(&c), -EAGAIN);
	assert_int_equal(c.mine.frames, 0);
	lane->fd = -1;
}

static void a_set_up_names_the_member_and_the_state_of_revocation(void **state)
{
	struct braid_dev other = { .index = 9 };
	struct braid_conn c = over(link, true);

	(void)state;
	dev->nmembers = 2;
	dev->member[0] = &other;
	dev->member[1] = dev;
	link->lanes.rkey_epoch = 3;
	c.mine.lane = 2;
	c.mine.traffic_class = 5;
	braid_join_setup(&c);
	assert_ptr_equal(c.setup.dev, dev);
	assert_int_equal(c.setup.lane, 2);
	assert_int_equal(c.setup.traffic_class, 5);
	assert_true(c.setup.dialler);
	assert_ptr_equal(c.setup.to, &c.to);
	assert_int_equal(c.mine_setup.rkey_epoch, 3);
	assert_int_equal(c.mine_setup.member, 1);
	assert_int_equal(c.mine_setup.err, 0);
	dev->nmembers = 1;
	dev->member[0] = dev;
}

/* The peer would only lose it again; the next handshake of the lane may have it. */
static void a_transport_that_failed_on_this_lane_is_declined_once(void **state)
{
	struct braid_conn c = over(p.end[0], false);

	(void)state;
	c.lane = lane;
	atomic_store(&lane->loss.carrier_failed, true);
	braid_join_setup(&c);
	assert_int_equal(c.mine_setup.err, EIO);
	braid_join_setup(&c);
	assert_int_equal(c.mine_setup.err, 0);
	/* The end that dials has made its choice in the hello. */
	atomic_store(&lane->loss.carrier_failed, true);
	c.dialler = true;
	braid_join_setup(&c);
	assert_int_equal(c.mine_setup.err, 0);
	assert_false(atomic_load(&lane->loss.carrier_failed));
}

/* --- a new link ---------------------------------------------------------------------------- */

static struct braid_conn first_lane(bool dialler)
{
	struct braid_conn c = over(link, dialler);
	union braid_netdev_addr from = at("10.1.0.2", 33333);

	c.from = (struct braid_addr){ .ip = { [10] = 0xff, [11] = 0xff, 10, 1, 0, 2 }, .port = 33333 };
	memcpy(&c.to, &from, sizeof(from));
	strcpy(c.addr, "10.1.0.2:4711");
	strcpy(c.theirs.host, "far");
	c.theirs.pid = 42;
	c.theirs.port = 4711;
	c.theirs.lanes_max = 4;
	c.mine.lanes_max = 8;
	c.theirs.window = 1000;
	c.mine.window = (uint32_t)braid_pool_promise(2000);
	c.theirs.ident = 0x7777;
	c.mine.ident = 0x1111;
	c.key = token;
	return c;
}

static void the_first_lane_makes_a_link_of_what_both_hellos_say(void **state)
{
	struct braid_conn c = first_lane(true);
	uint8_t session[BRAID_KEY_SIZE];

	(void)state;
	link->dial.token = braid_secret_new();
	braid_conn_session(&c, session);
	assert_int_equal(braid_join_link(link, &c), 0);
	assert_int_equal(atomic_load(&link->state), BRAID_LINK_UP);
	assert_int_equal(link->nlanes, 1);
	assert_true(link->dialler);
	assert_string_equal(link->peer, "far (pid 42, 10.1.0.2:4711)");
	assert_int_equal(link->lanes_max, 4);
	assert_int_equal(link->msg.tx_window, 1000);
	assert_int_equal(link->msg.rx_window, 2000);
	assert_int_equal(c.mine.window, 0);	/* the link gives it back */
	assert_memory_equal(link->setup.session, session, sizeof(session));
	assert_null(link->dial.token);
	assert_int_equal(warn_count, 0);
}

static void the_accepting_ends_id_names_the_link_at_both_ends(void **state)
{
	struct braid_conn c = first_lane(true);

	(void)state;
	assert_int_equal(braid_join_link(link, &c), 0);
	assert_int_equal(link->setup.id, 0x7777);
	assert_int_equal(link->setup.next_comm % 2, 0);	/* the two ends' comms never clash */
}

static void an_accepted_link_knows_where_its_peer_listens(void **state)
{
	struct braid_conn c = first_lane(false);

	(void)state;
	assert_int_equal(braid_join_link(link, &c), 0);
	assert_false(link->dialler);
	assert_int_equal(link->setup.id, 0x1111);
	assert_int_equal(link->setup.next_comm % 2, 1);
	assert_memory_equal(link->setup.path[0].to.ip, c.from.ip, sizeof(c.from.ip));
	assert_int_equal(link->setup.path[0].to.port, 4711);
}

static void the_peers_pid_counts_on_this_host_only(void **state)
{
	struct braid_conn c = first_lane(false);

	(void)state;
	strcpy(braid_self.host, "near");
	assert_int_equal(braid_join_link(link, &c), 0);
	assert_int_equal(link->setup.peer_pid, 0);
	strcpy(braid_self.host, "far");
	c.mine.window = 0;
	braid_pool_unpromise(2000);
	assert_int_equal(braid_join_link(link, &c), -EEXIST);	/* lane 0 is there; the rest is as before */
	assert_int_equal(link->setup.peer_pid, 42);
}

static int no_memory(struct braid_lane *l)
{
	(void)l;
	return -ENOMEM;
}

static void a_link_without_memory_fails_and_logs(void **state)
{
	struct braid_conn c = first_lane(true);

	(void)state;
	tr.lane_attach = no_memory;
	assert_int_equal(braid_join_link(link, &c), -ENOMEM);
	assert_int_equal(atomic_load(&link->state), BRAID_LINK_DEAD);
	assert_int_equal(atomic_load(&link->err), -ENOMEM);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[no-link]"));
}

/* --- a new lane ---------------------------------------------------------------------------- */

static void a_lane_owns_its_socket_and_all_that_was_set_up(void **state)
{
	struct braid_dev other = { .index = 9 };
	struct braid_conn c = over(link, true);
	struct braid_lane *made;

	(void)state;
	dev->nmembers = 2;
	dev->member[0] = &other;
	dev->member[1] = dev;
	c.fd = FD;
	c.setup.priv = &tr;
	c.path = 3;
	c.mine.epoch = 8;
	c.their_setup.member = 2;
	c.their_setup.rkey_epoch = 6;
	atomic_store(&link->thread.watched, true);
	assert_int_equal(braid_join_new_lane(link, &c, 0), 0);
	made = link->lane[0];
	assert_int_equal(made->fd, FD);
	assert_int_equal(c.fd, -1);
	assert_ptr_equal(made->priv, &tr);
	assert_null(c.setup.priv);
	assert_int_equal(made->recover.path, 3);
	assert_int_equal(made->epoch, 8);
	assert_int_equal(made->member, 1);
	assert_int_equal(made->peer_member, 2);
	assert_int_equal(made->peer_rkey_epoch, 6);
	dev->nmembers = 1;
	dev->member[0] = dev;
	/* The next tick watches the new socket, too. */
	assert_false(atomic_load(&link->thread.watched));
	made->fd = -1;
}

static void an_accepted_lane_has_the_diallers_number(void **state)
{
	struct braid_conn c = over(link, false);

	(void)state;
	c.mine.epoch = 8;
	c.theirs.epoch = 9;
	assert_int_equal(braid_join_new_lane(link, &c, 0), 0);
	assert_int_equal(link->lane[0]->epoch, 9);
}

static void a_lane_that_cannot_be_opened_is_reported(void **state)
{
	struct braid_conn c = over(link, true);

	(void)state;
	tr.lane_open = no_memory;
	c.fd = FD;
	assert_int_equal(braid_join_new_lane(link, &c, 0), -ENOMEM);
	assert_int_equal(c.fd, FD);		/* still the handshake's */
	assert_int_equal(link->nlanes, 0);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "can't open lane 0: Cannot allocate memory [no-lane]"));
}

static void one_set_up_before_memory_was_given_back_is_no_fault(void **state)
{
	struct braid_conn c = over(link, true);

	(void)state;
	tr.dma = true;
	link->lanes.rkey_epoch = 1;
	assert_int_equal(braid_join_new_lane(link, &c, 0), -EALREADY);
	assert_int_equal(link->nlanes, 0);
	assert_int_equal(warn_count, 0);
}

/* --- a lane that was lost ------------------------------------------------------------------ */

/* Its carrier is gone, at this end and at the other. */
static struct braid_conn lost(bool dialler)
{
	struct braid_conn c = over(p.end[0], dialler);

	null_transport.lane_close(lane);
	assert_int_equal(braid_lane_fence(lane), 0);
	c.lane = lane;
	c.theirs.epoch = lane->recover.dialled = 4;
	return c;
}

static void a_lost_lane_is_up_again(void **state)
{
	struct braid_conn c = lost(true);

	(void)state;
	p.end[0]->recover.received_ns = 0;
	assert_int_equal(braid_join_lane(lane, &c), 0);
	assert_true(braid_lane_up(lane));
	assert_int_equal(lane->loss.back, 1);
	assert_int_equal(lane->recover.resumed_ns, null_now_ns);
	assert_int_equal(warn_count, 0);
}

static void an_earlier_dial_of_the_peers_is_too_late(void **state)
{
	struct braid_conn c = lost(false);

	(void)state;
	c.theirs.epoch = 3;
	assert_int_equal(braid_join_lane(lane, &c), -EALREADY);
	assert_false(braid_lane_up(lane));
	assert_int_equal(atomic_load(&p.end[0]->state), BRAID_LINK_UP);
	c.dialler = true;			/* what this end dialled is what it waits for */
	assert_int_equal(braid_join_lane(lane, &c), 0);
}

static void ends_that_counted_differently_end_the_link(void **state)
{
	struct braid_conn c = lost(true);

	(void)state;
	c.theirs.frames = 99;			/* this end has sent none */
	p.end[0]->msg.ncomms = 1;
	assert_int_equal(braid_join_lane(lane, &c), -EPROTO);
	p.end[0]->msg.ncomms = 0;
	assert_int_equal(atomic_load(&p.end[0]->state), BRAID_LINK_DEAD);
	assert_int_equal(atomic_load(&p.end[0]->err), -EREMOTEIO);
}

/* --- not the best transport ---------------------------------------------------------------- */

/* A lane that is a socket, since the peer's set-up of rdma failed with that errno. */
static void refuse_by(const struct braid_transport *of, int err, bool dialler)
{
	struct braid_conn c = over(link, dialler);

	link->dialler = dialler;
	c.refused = of;
	c.their_setup.err = (uint16_t)err;
	assert_int_equal(braid_join_new_lane(link, &c, link->nlanes), 0);
}

static void refuse(int err, bool dialler)
{
	refuse_by(&rdma, err, dialler);
}

static void a_lesser_transport_is_reported_once_a_link(void **state)
{
	(void)state;
	refuse(EPERM, true);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "null carries lane 0: the peer can't have rdma"));
	assert_non_null(strstr(warn_text, "; it is tried again now and then [lesser-transport]"));
	refuse(EPERM, true);
	assert_int_equal(warn_count, 1);
	assert_int_equal(link->nlanes, 2);
}

static void the_dialler_tries_the_better_one_again_after_a_rest(void **state)
{
	(void)state;
	refuse(EPERM, true);
	assert_true(link->setup.better && link->setup.path[0].better);
	assert_int_equal(link->setup.path[0].plain_until_ns, null_now_ns + 300 * SEC);
	/* One that had come up before needs no long rest. */
	link->setup.path[0].plain_until_ns = 0;
	refuse(EIO, true);
	assert_true(link->setup.path[0].plain_until_ns < null_now_ns + 300 * SEC);
	assert_true(link->setup.path[0].plain_until_ns > null_now_ns);
}

/* Such a try costs little: so the better transport is back soon after the path is. */
static void a_path_that_carries_no_packet_is_tried_again_every_two_seconds(void **state)
{
	static const struct braid_transport quick = { .name = "quick", .blob = true };

	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		refuse_by(&quick, EHOSTUNREACH, true);
		assert_int_equal(link->setup.path[0].plain_until_ns, null_now_ns + 2 * SEC);
		null_now_ns += 2 * SEC;
	}
	refuse_by(&quick, EPERM, true);
	assert_int_equal(link->setup.path[0].plain_until_ns, null_now_ns + 4 * SEC);
}

static void the_end_that_is_dialled_tries_nothing(void **state)
{
	(void)state;
	refuse(EPERM, false);
	assert_int_equal(warn_count, 1);
	assert_true(link->setup.better);
	assert_false(link->setup.path[0].better);
	assert_int_equal(link->setup.path[0].plain_until_ns, 0);
}

static void a_refusal_for_good_promises_no_further_try(void **state)
{
	(void)state;
	refuse(EPROTOTYPE, true);
	assert_int_equal(warn_count, 1);
	assert_null(strstr(warn_text, "tried again"));
	assert_non_null(strstr(warn_text, "[lesser-transport]"));
	assert_false(link->setup.better || link->setup.path[0].better);
}

static void what_was_reported_before_is_not_reported_again(void **state)
{
	(void)state;
	refuse(EALREADY, true);
	assert_int_equal(warn_count, 0);
	assert_false(link->setup.warned_plain);	/* another cause would still be reported */
	refuse(EPERM, true);
	assert_int_equal(warn_count, 1);
}

/* The peer closes the lane once more while it returns: no fault of the transport. */
static void a_refusal_of_a_lane_that_returns_is_not_reported(void **state)
{
	struct braid_conn c = lost(true);

	(void)state;
	c.refused = &rdma;
	c.their_setup.err = ECONNREFUSED;
	assert_int_equal(braid_join_lane(lane, &c), 0);
	assert_int_equal(warn_count, 0);
}

static void a_peer_that_does_not_offer_the_best_transport_is_reported_once(void **state)
{
	struct braid_conn c = over(link, true);

	(void)state;
	dev->best = &rdma;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(braid_join_new_lane(link, &c, i), 0);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "the peer does not offer rdma"));
	assert_non_null(strstr(warn_text, "[peer-lacks-transport]"));
	assert_false(link->setup.better);
}

static void the_best_transport_is_not_logged(void **state)
{
	struct braid_conn c = over(link, true);

	(void)state;
	link->dialler = true;
	tr.blob = true;
	dev->best = &tr;
	assert_int_equal(braid_join_new_lane(link, &c, 0), 0);
	assert_true(link->setup.better && link->setup.path[0].better);
	/* A socket beside it, while the path rests, is no news either. */
	dev->best = &rdma;
	tr.blob = false;
	assert_int_equal(braid_join_new_lane(link, &c, 1), 0);
	assert_int_equal(warn_count, 0);
}

static void whether_the_peer_takes_one_comm_of_a_connect_is_kept(void **state)
{
	for (unsigned i = 0; i < 3; i++) {
		struct braid_conn c = first_lane(true);

		link->dial.token = braid_secret_new();
		c.theirs.options = i ? BRAID_OPTION_ONE_COMM : 0;
		c.version = i == 2 ? 1 : 2;
		assert_int_equal(braid_join_link(link, &c), 0);
		assert_int_equal(link->setup.one_comm, i == 1);
		teardown(state);
		setup(state);
	}
}

/* --- checksums ----------------------------------------------------------------------------- */

static void both_ends_must_want_checksums(void **state)
{
	static const struct {
		uint8_t mine, theirs;
		uint16_t version;
		bool agreed;
		const char *warn;
	} rows[] = {
		{ BRAID_OPTION_CHECKSUM, BRAID_OPTION_CHECKSUM, 2, true, NULL },
		{ 0, BRAID_OPTION_CHECKSUM, 2, false, NULL },
		{ 0, 0, 2, false, NULL },
		{ BRAID_OPTION_CHECKSUM, 0, 2, false, "runs without BRAID_CHECKSUM=on" },
		{ BRAID_OPTION_CHECKSUM, 0, 1, false, "has an older Braid" },
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct braid_conn c = first_lane(i % 2);

		link->dial.token = braid_secret_new();
		c.mine.options = rows[i].mine;
		c.theirs.options = rows[i].theirs;
		c.version = rows[i].version;
		assert_int_equal(braid_join_link(link, &c), 0);
		assert_int_equal(link->checksums, rows[i].agreed);
		assert_int_equal(warn_count, rows[i].warn ? 1 : 0);
		if (rows[i].warn) {
			assert_non_null(strstr(warn_text, rows[i].warn));
			assert_non_null(strstr(warn_text, "[no-checksum]"));
		}
		null_now_ns += 20 * SEC;
		teardown(state);
		setup(state);
	}
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_lane_is_closed_and_its_counts_are_announced),
		CASE(a_peer_that_dials_is_not_asked_to_dial),
		CASE(a_carrier_that_still_stops_announces_nothing),
		CASE(a_set_up_names_the_member_and_the_state_of_revocation),
		CASE(a_transport_that_failed_on_this_lane_is_declined_once),
		CASE(the_first_lane_makes_a_link_of_what_both_hellos_say),
		CASE(the_accepting_ends_id_names_the_link_at_both_ends),
		CASE(an_accepted_link_knows_where_its_peer_listens),
		CASE(the_peers_pid_counts_on_this_host_only),
		CASE(a_link_without_memory_fails_and_logs),
		CASE(a_lane_owns_its_socket_and_all_that_was_set_up),
		CASE(an_accepted_lane_has_the_diallers_number),
		CASE(a_lane_that_cannot_be_opened_is_reported),
		CASE(one_set_up_before_memory_was_given_back_is_no_fault),
		CASE(a_lost_lane_is_up_again),
		CASE(an_earlier_dial_of_the_peers_is_too_late),
		CASE(ends_that_counted_differently_end_the_link),
		CASE(a_lesser_transport_is_reported_once_a_link),
		CASE(the_dialler_tries_the_better_one_again_after_a_rest),
		CASE(a_path_that_carries_no_packet_is_tried_again_every_two_seconds),
		CASE(the_end_that_is_dialled_tries_nothing),
		CASE(a_refusal_for_good_promises_no_further_try),
		CASE(what_was_reported_before_is_not_reported_again),
		CASE(a_refusal_of_a_lane_that_returns_is_not_reported),
		CASE(a_peer_that_does_not_offer_the_best_transport_is_reported_once),
		CASE(the_best_transport_is_not_logged),
		CASE(whether_the_peer_takes_one_comm_of_a_connect_is_kept),
		CASE(both_ends_must_want_checksums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
