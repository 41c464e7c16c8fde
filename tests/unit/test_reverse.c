/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_reverse.c - when the dialler takes a connection that the other end has made, and asks for one.
 *
 * The linker puts functions of the test in place of those that handle sockets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "core/base/units.h"
#include "core/link/link_int.h"
#include "core/setup/conn.h"
#include "core/setup/dial.h"
#include "core/setup/events.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/setup/reverse.h"
#include "tests/lib/pair.h"

enum { FD = 90 };

static struct null_pair p;
static struct braid_link *link;		/* of the end that dialled it, with two lanes */
static struct braid_conn c, own;	/* the other end's connection; a dial of ours */
static struct {
	unsigned dials, accepts, ended;
	const struct braid_lane *lane;
	int fd;
} w;

int __wrap_braid_dial_reversed(struct braid_link *l, struct braid_lane *lane, unsigned path, int fd,
			       uint64_t now);
int __wrap_braid_dial_reversed(struct braid_link *l, struct braid_lane *lane, unsigned path, int fd,
			       uint64_t now)
{
	(void)l, (void)path, (void)now;
	w.dials++;
	w.lane = lane;
	w.fd = fd;
	return 0;
}

int __wrap_braid_handshake_accept(int fd, struct braid_dev *dev, const struct braid_conn_owner *owner,
				  const struct sockaddr_storage *from, uint64_t now);
int __wrap_braid_handshake_accept(int fd, struct braid_dev *dev, const struct braid_conn_owner *owner,
				  const struct sockaddr_storage *from, uint64_t now)
{
	(void)dev, (void)owner, (void)from, (void)now;
	w.accepts++;
	w.fd = fd;
	return 0;
}

void __wrap_braid_handshake_end(struct braid_conn *conn);
void __wrap_braid_handshake_end(struct braid_conn *conn)
{
	assert_ptr_equal(conn, &own);
	w.ended++;
	link->lane[0]->recover.conn = link->lane[1]->recover.conn = NULL;
}

void __wrap_braid_unwatch(int fd);
void __wrap_braid_unwatch(int fd)
{
	assert_int_equal(fd, FD);
}

static int os_getpeername(int fd, struct sockaddr *sa, socklen_t *len)
{
	assert_int_equal(fd, FD);
	memset(sa, 0, *len);
	return 0;
}

static const struct braid_os *standing;
static struct braid_os os;

static int setup(void **state)
{
	struct null_config config = { .lanes = 2, .held = true };

	(void)state;
	null_pair_init(&p, &config);
	link = p.end[0];
	link->setup.reverses = true;
	link->msg.ncomms = 1;
	null_now_ns += 1000 * SEC;
	memset(&w, 0, sizeof(w));
	memset(&own, 0, sizeof(own));
	memset(&c, 0, sizeof(c));
	c.link = link;
	c.met = link->key.dev;
	c.fd = FD;
	c.version = 2;
	c.theirs.kind = c.mine.kind = BRAID_HELLO_ALIVE;
	c.theirs.options = BRAID_OPTION_REVERSE;
	standing = braid_os;
	os = *standing;
	os.getpeername = os_getpeername;
	braid_os = &os;
	braid_svc_lock();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_unlock();
	braid_os = standing;
	link->lane[0]->recover.conn = link->lane[1]->recover.conn = NULL;
	link->msg.ncomms = 0;
	null_pair_fini(&p);
	return 0;
}

static void lose(struct braid_lane *lane)
{
	null_transport.lane_close(lane);
	braid_lane_died(lane, NULL, -ECONNRESET);
	lane->fd = -1;
}

static void dialled_before(struct braid_lane *lane, uint64_t ms)
{
	own.began_ns = null_now_ns - ms * MS;
	own.state = BRAID_CONN_CONNECT;
	lane->recover.conn = &own;
}

static const struct braid_lane *taken(void)
{
	w.dials = 0;
	c.fd = FD;
	assert_int_equal(braid_reverse_take(&c, null_now_ns), 0);
	assert_int_equal(c.fd, w.dials ? -1 : FD);
	return w.dials ? w.lane : NULL;
}

static void lanes_that_are_well_need_none(void **state)
{
	(void)state;
	link->recover.reversed = true;
	assert_null(taken());
}

static void our_own_dial_goes_first(void **state)
{
	(void)state;
	lose(link->lane[1]);
	assert_null(taken());		/* it is due */
	dialled_before(link->lane[1], 20);
	assert_null(taken());
	dialled_before(link->lane[1], 200);
	own.known = true;		/* it has been answered */
	assert_null(taken());
	assert_int_equal(w.ended, 0);
	own.known = false;
	assert_ptr_equal(taken(), link->lane[1]);
	assert_int_equal(w.fd, FD);
	assert_int_equal(w.ended, 1);
}

static void a_lane_whose_dial_failed_takes_the_connection(void **state)
{
	(void)state;
	lose(link->lane[1]);
	link->lane[1]->recover.dials_failed = 1;
	link->recover.dial_err = -EREMOTEIO;	/* by an answer of the peer's */
	assert_null(taken());
	link->recover.dial_err = -ETIMEDOUT;
	assert_ptr_equal(taken(), link->lane[1]);
}

static void while_our_dials_fail_the_connection_is_taken_at_once(void **state)
{
	(void)state;
	own.reversed = true;
	own.link = link;
	braid_reverse_dialled(&own, 0);
	lose(link->lane[1]);
	assert_ptr_equal(taken(), link->lane[1]);
	dialled_before(link->lane[1], 0);
	assert_null(taken());		/* that one is in use */
	own.reversed = false;
	braid_reverse_dialled(&own, -ETIMEDOUT);
	assert_ptr_equal(taken(), link->lane[1]);
	braid_reverse_dialled(&own, 0);
	dialled_before(link->lane[1], 0);
	assert_null(taken());
}

static void a_lane_with_a_lesser_transport_takes_it_too(void **state)
{
	(void)state;
	link->setup.path[0].better = true;
	link->key.dev->best = &null_transport;
	link->recover.reversed = true;
	assert_ptr_equal(taken(), link->lane[1]);	/* home comes last */
	link->setup.path[0].plain_until_ns = null_now_ns + 1;
	assert_null(taken());
	link->setup.path[0].plain_until_ns = 0;
	link->recover.reversed = false;
	assert_null(taken());			/* our own dial is due */
}

static void a_peer_without_the_option_keeps_its_connection(void **state)
{
	(void)state;
	lose(link->lane[1]);
	link->recover.reversed = true;
	c.theirs.options = (uint8_t)~BRAID_OPTION_REVERSE;
	assert_null(taken());
	braid_reverse_offer(&c, null_now_ns);
	c.theirs.options = BRAID_OPTION_REVERSE;
	c.version = 1;
	assert_null(taken());
	braid_reverse_offer(&c, null_now_ns);
	assert_int_equal(w.accepts, 0);
	c.version = 2;
	braid_reverse_offer(&c, null_now_ns);
	assert_int_equal(w.accepts, 1);
	assert_int_equal(c.fd, -1);
}

static void a_member_without_a_path_is_left_out(void **state)
{
	struct braid_dev other = { .index = 7 };

	(void)state;
	lose(link->lane[1]);
	link->recover.reversed = true;
	c.met = &other;
	assert_null(taken());
}

static unsigned frames(void)
{
	return braid_link_home(link)->tx.f_head;
}

static void the_peer_is_asked_twice_a_second_if_it_understands(void **state)
{
	unsigned was = frames();

	(void)state;
	braid_reverse_tick(link, null_now_ns);
	assert_int_equal(frames(), was);	/* no need */
	lose(link->lane[1]);
	was = frames();
	dialled_before(link->lane[1], 200);
	link->setup.reverses = false;
	braid_reverse_tick(link, null_now_ns);
	assert_int_equal(frames(), was);
	link->setup.reverses = true;
	for (int i = 0; i < 10; i++) {
		braid_reverse_tick(link, null_now_ns);
		null_now_ns += 100 * MS;
	}
	assert_int_equal(frames(), was + 2);
}

static void nobody_is_asked_while_home_is_lost(void **state)
{
	(void)state;
	lose(link->lane[0]);
	lose(link->lane[1]);
	dialled_before(link->lane[0], 200);
	braid_reverse_tick(link, null_now_ns);
	assert_int_equal(link->recover.call_ns, 0);
	assert_ptr_equal(taken(), link->lane[0]);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(lanes_that_are_well_need_none),
		CASE(our_own_dial_goes_first),
		CASE(a_lane_whose_dial_failed_takes_the_connection),
		CASE(while_our_dials_fail_the_connection_is_taken_at_once),
		CASE(a_lane_with_a_lesser_transport_takes_it_too),
		CASE(a_peer_without_the_option_keeps_its_connection),
		CASE(a_member_without_a_path_is_left_out),
		CASE(the_peer_is_asked_twice_a_second_if_it_understands),
		CASE(nobody_is_asked_while_home_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
