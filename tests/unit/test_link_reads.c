/* SPDX-License-Identifier: BSD-3-Clause */
/* test_link_reads.c - which lanes read, and what becomes of their reads: core/link/reads.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "core/link/lane_io.h"
#include "core/link/reads.h"
#include "tests/lib/comms.h"

enum { FIRST = 10, SECOND = 20 };	/* comms */

static struct braid_transport reading;
static struct braid_mr mr;
static struct braid_read last;
static unsigned nread, nlost;
static uint32_t bytes;

static uint32_t ids, ended;

static int note_read(struct braid_lane *lane, struct braid_read *r)
{
	(void)lane;
	r->id = ids++;
	last = *r;
	return 0;
}

static void over(struct braid_xfer *x, uint32_t len, bool read)
{
	(void)x;
	nread += read;
	nlost += !read;
	bytes += len;
}

static const struct braid_xfer_ops ops = { .read_over = over };

static struct braid_lane *lane(void)
{
	return pair.end[A]->lane[0];
}

static int setup_reads(void **state)
{
	setup(state);
	reading = *lane()->tr;
	reading.read = note_read;
	lane()->tr = &reading;
	mr.key[0] = (struct braid_key){ .mr = &mr, .local = 3 };
	nread = nlost = bytes = 0;
	ids = ended = UINT32_MAX;		/* so that they wrap */
	braid_reads_offer(lane(), 3, 1000);
	return 0;
}

static struct braid_xfer xfer(uint32_t comm)
{
	return (struct braid_xfer){
		.ops = &ops, .comm = comm, .mr = &mr,
		.to = { .addr = 5000, .nkeys = 1, .key[0] = 4 },
	};
}

static uint32_t read_some(struct braid_xfer *x, uint32_t len)
{
	uint32_t n;

	braid_lock_wait(&pair.end[A]->lock);
	n = braid_lane_read(lane(), x, NULL, 7, len);
	braid_unlock(&pair.end[A]->lock);
	return n;
}

static void one_is_over(void)
{
	braid_lock_wait(&pair.end[A]->lock);
	braid_reads_over(lane(), ended++);
	braid_unlock(&pair.end[A]->lock);
}

static void a_lane_reads_where_both_ends_gave_keys_that_hold(void **state)
{
	struct braid_xfer x = xfer(FIRST);

	(void)state;
	assert_true(braid_lane_can_read(lane(), &x));
	mr.key[0].sealed = true;		/* the NIC may not write here */
	assert_false(braid_lane_can_read(lane(), &x));
	mr.key[0].sealed = false;
	mr.key[0].mr = NULL;
	assert_false(braid_lane_can_read(lane(), &x));
	mr.key[0].mr = &mr;
	x.to.nkeys = 0;
	assert_false(braid_lane_can_read(lane(), &x));
	x.to.nkeys = 1;
	lane()->peer_rkey_epoch = 1;
	assert_false(braid_lane_can_read(lane(), &x));
	x.to.rkey_epoch = 1;
	assert_true(braid_lane_can_read(lane(), &x));
	pair.end[A]->checksums = true;
	assert_false(braid_lane_can_read(lane(), &x));
	pair.end[A]->checksums = false;
	braid_reads_offer(lane(), 0, 0);
	assert_false(braid_lane_can_read(lane(), &x));
}

static void a_read_is_as_long_as_the_carrier_takes(void **state)
{
	struct braid_xfer x = xfer(FIRST);

	(void)state;
	assert_int_equal(read_some(&x, 5000), 1000);
	assert_int_equal(last.len, 1000);
	assert_int_equal(last.from, 5007);
	assert_int_equal(last.local, 3);
	assert_int_equal(last.remote, 4);
	assert_int_equal(read_some(&x, 10), 10);
	assert_int_equal(read_some(&x, 10), 10);
	assert_int_equal(read_some(&x, 10), 0);		/* three are in progress */
	one_is_over();
	assert_int_equal(nread, 1);
	assert_int_equal(bytes, 1000);
	lane()->flight_max = 20;			/* as many bytes are in progress */
	assert_int_equal(read_some(&x, 10), 0);
	lane()->flight_max = 0;
	assert_int_equal(read_some(&x, 10), 10);
}

static void reads_are_lost_with_their_carrier(void **state)
{
	struct braid_xfer x = xfer(FIRST);

	(void)state;
	read_some(&x, 10);
	read_some(&x, 20);
	one_is_over();
	braid_lock_wait(&pair.end[A]->lock);
	braid_lane_reads_lost(lane());
	braid_unlock(&pair.end[A]->lock);
	assert_int_equal(nread, 1);
	assert_int_equal(nlost, 1);
	assert_int_equal(lane()->reads.bytes, 0);
}

static void reads_of_a_comm_are_forgotten_and_others_are_not(void **state)
{
	struct braid_xfer x = xfer(FIRST), y = xfer(SECOND);

	(void)state;
	read_some(&x, 10);
	read_some(&y, 20);
	read_some(&x, 40);
	assert_true(braid_lane_is_reading(lane(), FIRST));
	assert_true(braid_lane_is_reading(lane(), SECOND));
	braid_lock_wait(&pair.end[A]->lock);
	braid_link_forget_reads(pair.end[A], FIRST);
	braid_unlock(&pair.end[A]->lock);
	assert_false(braid_lane_is_reading(lane(), FIRST));
	assert_true(braid_lane_is_reading(lane(), SECOND));
	memset(&x, 0, sizeof(x));			/* its owner frees it */
	one_is_over();
	one_is_over();
	one_is_over();
	assert_int_equal(nread, 1);
	assert_int_equal(bytes, 20);
	assert_false(braid_lane_is_reading(lane(), SECOND));
}

#define READS(f) cmocka_unit_test_setup_teardown(f, setup_reads, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		READS(a_lane_reads_where_both_ends_gave_keys_that_hold),
		READS(a_read_is_as_long_as_the_carrier_takes),
		READS(reads_are_lost_with_their_carrier),
		READS(reads_of_a_comm_are_forgotten_and_others_are_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
