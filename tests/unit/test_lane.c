/* SPDX-License-Identifier: BSD-3-Clause */
/* test_lane.c - a link gets lanes, a lane gets a carrier, and its peer is seen to live or not. */
#include "tests/unit/stub.h"

#include <errno.h>
#include <string.h>

#include "core/base/os.h"
#include "core/link/lane_io.h"
#include "core/link/link_int.h"

enum { LANES = 2, NEW = LANES };

static int setup(void **state)
{
	(void)state;
	stub_up(&stub_socket, LANES);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stub_down();
	return 0;
}

static struct braid_carrier carrier(const struct braid_transport *tr)
{
	return (struct braid_carrier){
		.tr = tr, .fd = 300, .priv = &stub, .epoch = 4, .member = 1, .peer_member = 2,
		.peer_rkey_epoch = 6,
	};
}

static int add(unsigned index, const struct braid_transport *tr)
{
	struct braid_carrier c = carrier(tr);

	return braid_link_add_lane(stub.link, index, &c);
}

/* --- lanes --------------------------------------------------------------------------------- */

static void a_new_lane_is_up_with_what_its_carrier_brought(void **state)
{
	const struct braid_lane *lane;

	(void)state;
	assert_int_equal(add(NEW, &stub_nic), 0);
	lane = stub_at(NEW);
	assert_ptr_equal(lane->link, stub.link);
	assert_ptr_equal(lane->tr, &stub_nic);
	assert_int_equal(lane->index, NEW);
	assert_int_equal(lane->fd, 300);
	assert_int_equal(lane->event_fd, -1);
	assert_ptr_equal(lane->priv, &stub);
	assert_int_equal(lane->epoch, 4);
	assert_int_equal(lane->member, 1);
	assert_int_equal(lane->peer_member, 2);
	assert_int_equal(lane->peer_rkey_epoch, 6);
	assert_true(lane->up);
	assert_non_null(lane->tx.ring);		/* the link is in use */
}

static void a_lane_of_an_idle_link_gets_queues_later(void **state)
{
	(void)state;
	braid_link_detach(stub.link);
	assert_int_equal(add(NEW, &stub_socket), 0);
	assert_null(stub_at(NEW)->tx.ring);
	assert_int_equal(braid_link_attach(stub.link), 0);
	assert_non_null(stub_at(NEW)->tx.ring);
}

static void lanes_are_added_in_their_order_and_not_too_many(void **state)
{
	(void)state;
	assert_int_equal(add(0, &stub_socket), -EEXIST);
	assert_int_equal(add(NEW + 1, &stub_socket), -EEXIST);
	assert_int_equal(stub.link->nlanes, LANES);
	assert_int_equal(add(NEW, &stub_socket), 0);
	assert_int_equal(stub.link->nlanes, LANES + 1);
}

static void without_its_transport_or_its_memory_no_lane_is_added(void **state)
{
	(void)state;
	stub.lane[NEW].open_err = -EIO;
	assert_int_equal(add(NEW, &stub_socket), -EIO);
	stub.lane[NEW].open_err = 0;
	stub.lane[NEW].attach_err = -ENOMEM;
	assert_int_equal(add(NEW, &stub_socket), -ENOMEM);
	assert_int_equal(stub.link->nlanes, LANES);
	assert_int_equal(stub.lane[NEW].closes, 2);
	assert_int_equal(stub.lane[NEW].closed_fd, -1);	/* the descriptor is still the caller's */
	assert_false(stub.link->lock.held);
}

/* Its peer's NIC has keys of memory that was given back meanwhile. */
static void a_nics_lane_set_up_before_a_revocation_is_not_added(void **state)
{
	struct braid_carrier c = carrier(&stub_nic);
	unsigned n = braid_link_stop(stub.link);

	(void)state;
	braid_link_revoke(stub.link, NULL, NULL);
	braid_link_go(stub.link, n);
	assert_int_equal(add(NEW, &stub_nic), -EALREADY);
	c.rkey_epoch = 1;
	assert_int_equal(braid_link_add_lane(stub.link, NEW, &c), 0);
	assert_int_equal(add(NEW + 1, &stub_socket), 0);	/* a socket has no keys */
}

/* --- carriers ------------------------------------------------------------------------------ */

struct big {
	struct braid_lane lane;
	char own[4096];
};
static unsigned zeroed, opened;

static int big_open(struct braid_lane *lane)
{
	struct big *b = (struct big *)lane;

	opened++;
	for (unsigned i = 0; i < sizeof(b->own); i++)
		zeroed += !b->own[i];
	memset(b->own, 'x', sizeof(b->own));
	return 0;
}

/* Memory for a lane is made once, and each of its carriers gets it zeroed. */
static void a_lane_has_room_for_the_largest_transport(void **state)
{
	static struct braid_transport big;
	static const struct braid_transport *const list[] = { &stub_socket, &big, NULL };
	struct braid_carrier c;

	(void)state;
	big = stub_socket;
	big.lane_size = sizeof(struct big);
	big.lane_open = big_open;
	braid_transports_use(list);
	zeroed = opened = 0;
	assert_int_equal(add(NEW, &stub_socket), 0);
	for (unsigned i = 1; i <= 2; i++) {
		assert_int_equal(braid_lane_fence(stub_at(NEW)), 0);
		c = carrier(&big);
		assert_int_equal(braid_lane_resume(stub_at(NEW), &c, 0, 0), 0);
		assert_int_equal(opened, i);
		assert_int_equal(zeroed, i * sizeof(((struct big *)0)->own));
	}
}

/* A stream reads only headers ahead of large payloads; each carrier begins with small ones. */
static void a_new_carrier_is_not_expected_to_bring_large_payloads(void **state)
{
	struct braid_hdr start = { .type = BRAID_F_START, .size = 1 << 20 };
	struct braid_carrier c = carrier(&stub_socket);

	(void)state;
	assert_int_equal(stub_receive(1, start, NULL), 0);
	assert_true(braid_rx_rest(stub_at(1)).large);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_int_equal(braid_lane_resume(stub_at(1), &c, 0, 0), 0);
	assert_false(braid_rx_rest(stub_at(1)).large);
}

/* --- the end of a lane's socket ------------------------------------------------------------ */

static int recv_errno;			/* 0: the peer has closed; -1: there is a byte */

static ssize_t os_recv(int fd, void *buf, size_t len, int flags)
{
	assert_int_equal(fd, 100);
	assert_int_equal(len, 1);
	assert_int_equal(flags, MSG_DONTWAIT);
	if (recv_errno < 0) {
		*(char *)buf = 'x';
		return 1;
	}
	errno = recv_errno;
	return recv_errno ? -1 : 0;
}

static int setup_fd(void **state)
{
	static struct braid_os os;

	setup(state);
	os = *braid_os;
	os.recv = os_recv;
	braid_os = &os;
	return 0;
}

static void a_quiet_socket_is_open_and_any_event_is_its_end(void **state)
{
	(void)state;
	recv_errno = EAGAIN;
	assert_int_equal(braid_lane_check_fd(stub_at(0)), 0);
	recv_errno = EINTR;
	assert_int_equal(braid_lane_check_fd(stub_at(0)), 0);
	recv_errno = ECONNRESET;
	assert_int_equal(braid_lane_check_fd(stub_at(0)), -ENOTCONN);
	recv_errno = 0;
	assert_int_equal(braid_lane_check_fd(stub_at(0)), -ENOTCONN);
	recv_errno = -1;
	assert_int_equal(braid_lane_check_fd(stub_at(0)), -ENOTCONN);
}

/* A poll answered n, and the next one will answer `then`. */
static int final_poll(int n, int then)
{
	stub.lane[0].poll = then;
	braid_lock_wait(&stub_at(0)->io);
	n = braid_lane_final_poll(stub_at(0), n);
	braid_unlock(&stub_at(0)->io);
	return n;
}

static void while_the_socket_is_open_a_poll_means_what_it_says(void **state)
{
	(void)state;
	recv_errno = EAGAIN;
	assert_int_equal(final_poll(0, 3), 0);
	assert_int_equal(final_poll(-EIO, 3), -EIO);
	assert_int_equal(stub.lane[0].polls, 0);
}

static void what_came_before_the_end_is_read_first(void **state)
{
	(void)state;
	recv_errno = 0;
	assert_int_equal(final_poll(0, 3), 3);
	assert_int_equal(final_poll(0, 0), -ENOTCONN);
	assert_int_equal(stub.lane[0].polls, 2);
}

static void an_error_after_the_end_is_not_the_carriers_unless_the_peer_sent_nonsense(void **state)
{
	(void)state;
	recv_errno = 0;
	assert_int_equal(final_poll(-EIO, 3), -ENOTCONN);
	assert_int_equal(stub.lane[0].polls, 0);
	assert_int_equal(final_poll(0, -EIO), -ENOTCONN);
	assert_int_equal(final_poll(-ENOMEM, 3), -ENOMEM);
	stub_at(0)->rx_broken = "header";
	assert_int_equal(final_poll(-EBADMSG, 3), -EBADMSG);
}

/* --- a peer that has stopped --------------------------------------------------------------- */

static bool is_stuck(struct braid_progress *look)
{
	return braid_lane_stuck(stub_at(0), look, 3);
}

static void a_lane_is_stuck_while_frames_are_in_flight_and_nothing_happens(void **state)
{
	struct braid_progress look = { 0 };

	(void)state;
	for (unsigned i = 0; i < 10; i++)
		assert_false(is_stuck(&look));		/* the peer owes nothing */
	stub_add(0, BRAID_F_ALIVE);
	stub_push(0);
	for (unsigned i = 0; i < 2; i++)
		assert_false(is_stuck(&look));
	assert_true(is_stuck(&look));
}

static void bytes_and_acknowledgements_are_signs_of_life(void **state)
{
	struct braid_progress look = { 0 };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		stub_add(0, BRAID_F_ALIVE);
		stub_push(0);
	}
	for (unsigned i = 0; i < 20; i++) {
		if (i == 2)
			stub_at(0)->rx_bytes++;
		if (i == 4) {
			stub_lock();
			assert_int_equal(braid_tx_acked(stub_at(0), 1), 0);
			stub_unlock();
		}
		assert_int_equal(is_stuck(&look), i > 6);
	}
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define CASE_FD(f) cmocka_unit_test_setup_teardown(f, setup_fd, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_new_lane_is_up_with_what_its_carrier_brought),
		CASE(a_lane_of_an_idle_link_gets_queues_later),
		CASE(lanes_are_added_in_their_order_and_not_too_many),
		CASE(without_its_transport_or_its_memory_no_lane_is_added),
		CASE(a_nics_lane_set_up_before_a_revocation_is_not_added),
		CASE(a_lane_has_room_for_the_largest_transport),
		CASE(a_new_carrier_is_not_expected_to_bring_large_payloads),
		CASE_FD(a_quiet_socket_is_open_and_any_event_is_its_end),
		CASE_FD(while_the_socket_is_open_a_poll_means_what_it_says),
		CASE_FD(what_came_before_the_end_is_read_first),
		CASE_FD(an_error_after_the_end_is_not_the_carriers_unless_the_peer_sent_nonsense),
		CASE(a_lane_is_stuck_while_frames_are_in_flight_and_nothing_happens),
		CASE(bytes_and_acknowledgements_are_signs_of_life),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
