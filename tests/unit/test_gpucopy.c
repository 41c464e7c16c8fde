/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_gpucopy.c - copies of GPU memory: the order of NICs and driver, and the time each of them has.
 *
 * The functions of core/mem/mrcache.c and gdr/stage.c that copy are replaced here.  "GPU" memory is
 * an array, and a clock moves on by a microsecond each time that it is read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/units.h"
#include "core/mem/gpucopy.h"
#include "core/mem/mrcache.h"
#include "gdr/stage.h"
#include "tests/lib/warns.h"

enum { BYTES = 2 * BRAID_STAGE_PIECE + 100, NICS = 2, DRIVER = BRAID_PATHS_MAX, ASKED = 64 };

static struct braid_stage {
	int none;
} driver;

static struct braid_staged {
	char bytes[BRAID_STAGE_PIECE];
	bool taken, lost;
} piece;

static char gpu[BYTES], host[BYTES];
static atomic_uint copies;
static struct braid_mr mr;
static struct braid_gpucopy c;

static struct {
	int nic[NICS];			/* their answers */
	int begin, look;		/* the driver's */
	unsigned looks;			/* looks at a piece until it is over */
	bool lost;			/* a piece that fails */
	uint64_t ns;
	unsigned asked[ASKED], n;	/* the copiers, in the order in which they were asked */
	unsigned insisted;		/* calls of a NIC that must try */
	unsigned nic_ends, pieces;
} w;

/* --- the neighbours ------------------------------------------------------------------------ */

static void ask(unsigned who)
{
	if (w.n && w.asked[w.n - 1] == who)
		return;
	assert_true(w.n < ASKED);
	w.asked[w.n++] = who;
}

static void copy(const struct braid_gpu_copy *l, size_t len)
{
	memcpy(l->to_gpu ? l->at : l->own, l->to_gpu ? l->own : l->at, len);
}

int braid_mr_nic_copy(const struct braid_mr *of, unsigned i, struct braid_gpu_copy *l)
{
	assert_ptr_equal(of, &mr);
	if (i >= NICS)
		return -ENODEV;
	ask(i);
	w.insisted += l->insist;
	if (w.nic[i] == -EHOSTDOWN && l->insist)
		w.nic[i] = 0;
	if (!w.nic[i])
		copy(l, l->len);
	return w.nic[i];
}

void braid_mr_nic_copy_end(const struct braid_mr *of, unsigned i, struct braid_gpu_copy *l)
{
	(void)l;
	assert_ptr_equal(of, &mr);
	assert_true(i < NICS);
	w.nic_ends++;
}

int braid_stage_begin(struct braid_stage *s, char *at, const void *own, size_t len, bool to_gpu,
		      struct braid_staged **ret)
{
	ask(DRIVER);
	assert_ptr_equal(s, &driver);
	assert_true(len <= BRAID_STAGE_PIECE);
	if (w.begin)
		return w.begin;
	assert_false(piece.taken);
	memcpy(to_gpu ? at : piece.bytes, to_gpu ? own : at, len);
	piece.taken = true;
	w.pieces++;
	*ret = &piece;
	return 0;
}

int braid_stage_test(struct braid_staged *p)
{
	assert_true(p->taken);
	if (w.looks) {
		w.looks--;
		return -EAGAIN;
	}
	p->lost = w.lost;
	return w.look;
}

bool braid_stage_is_lost(const struct braid_staged *p)
{
	return p->lost;
}

const void *braid_stage_bytes(const struct braid_staged *p)
{
	return p->bytes;
}

void braid_stage_end(struct braid_staged *p)
{
	assert_true(p->taken);
	p->taken = false;
}

static uint64_t now_ns(void)
{
	w.ns += 1000;
	return w.ns;
}

/* --- a copy -------------------------------------------------------------------------------- */

static int setup(void **state)
{
	static struct braid_os os;

	(void)state;
	os.now_ns = now_ns;
	braid_os = &os;
	warns_keep();
	braid_param.gpu_stage = 1;
	memset(&w, 0, sizeof(w));
	memset(&piece, 0, sizeof(piece));
	mr = (struct braid_mr){ .gpu = true, .stage = &driver };
	for (size_t i = 0; i < BYTES; i++) {
		gpu[i] = (char)(i * 7 + (i >> 8));
		host[i] = (char)~gpu[i];
	}
	return 0;
}

static void begin(size_t len, bool to_gpu)
{
	braid_gpucopy_begin(&c, &copies, &mr, gpu, host, len, to_gpu);
	assert_int_equal(copies, 1);
	assert_ptr_equal(c.mr, &mr);
}

static void assert_over(void)
{
	assert_int_equal(copies, 0);
	assert_null(c.mr);
	assert_ptr_equal(c.of, &mr);
	assert_false(piece.taken);
}

static void assert_asked(unsigned n, const unsigned *who)
{
	assert_int_equal(w.n, n);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(w.asked[i], who[i]);
}

#define ASKED_WERE(...) assert_asked(sizeof((unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned), \
				     (unsigned[]){ __VA_ARGS__ })

static void no_nic(void)
{
	w.nic[0] = w.nic[1] = -ENODEV;
}

/* --- cases --------------------------------------------------------------------------------- */

static void the_first_nic_that_can_copies_alone(void **state)
{
	(void)state;
	begin(BYTES, false);
	assert_int_equal(braid_gpucopy_move(&c), 0);
	assert_over();
	assert_memory_equal(host, gpu, BYTES);
	ASKED_WERE(0);
}

static void a_slow_nic_is_asked_again_for_some_microseconds(void **state)
{
	(void)state;
	w.nic[0] = -EAGAIN;
	begin(64, true);
	assert_int_equal(braid_gpucopy_move(&c), -EAGAIN);
	assert_true(w.ns > 5000 && w.ns < 50000);
	assert_ptr_equal(c.mr, &mr);
	assert_int_equal(copies, 1);
	w.nic[0] = 0;
	assert_int_equal(braid_gpucopy_move(&c), 0);
	assert_over();
	assert_memory_equal(gpu, host, 64);
	ASKED_WERE(0);			/* no other copier while it had the copy */
}

static void a_nic_that_fails_gives_way_to_the_next_and_the_last_to_the_driver(void **state)
{
	(void)state;
	w.nic[0] = -EIO;
	w.nic[1] = -ENODEV;
	begin(100, false);
	assert_int_equal(braid_gpucopy_move(&c), 0);
	assert_over();
	assert_int_equal(c.nic_err, -EIO);	/* a NIC without the memory has not failed */
	assert_memory_equal(host, gpu, 100);
	ASKED_WERE(0, 1, DRIVER);
}

static void the_driver_copies_piece_by_piece_both_ways(void **state)
{
	(void)state;
	for (unsigned to_gpu = 0; to_gpu < 2; to_gpu++) {
		setup(state);
		no_nic();
		begin(BYTES, to_gpu);
		assert_int_equal(braid_gpucopy_move(&c), 0);
		assert_over();
		assert_int_equal(w.pieces, 3);
		assert_memory_equal(host, gpu, BYTES);
		assert_int_equal((uint8_t)gpu[1], to_gpu ? (uint8_t)~7 : 7);
	}
}

static void the_driver_is_asked_first_if_the_parameter_says_so(void **state)
{
	(void)state;
	braid_param.gpu_stage = 2;
	begin(100, false);
	assert_int_equal(braid_gpucopy_move(&c), 0);
	ASKED_WERE(DRIVER);
	w.n = 0;
	w.begin = -EIO;			/* the driver started nothing, so a NIC may copy */
	begin(100, false);
	assert_int_equal(braid_gpucopy_move(&c), 0);
	assert_int_equal(c.stage_err, -EIO);
	ASKED_WERE(DRIVER, 0);
	assert_over();
}

static void a_nic_that_failed_recently_is_asked_once_more_when_all_else_failed(void **state)
{
	(void)state;
	w.nic[0] = -EHOSTDOWN;
	w.nic[1] = -ENODEV;
	w.begin = -EIO;
	begin(100, false);
	assert_int_equal(braid_gpucopy_move(&c), 0);
	assert_over();
	ASKED_WERE(0, 1, DRIVER, 0);
	assert_int_equal(w.insisted, 1);
}

static void without_the_driver_a_nic_must_try_at_once(void **state)
{
	(void)state;
	mr.stage = NULL;
	mr.stage_err = -EOPNOTSUPP;
	w.nic[0] = -EHOSTDOWN;
	begin(100, false);
	assert_int_equal(braid_gpucopy_move(&c), 0);
	assert_int_equal(w.insisted, 1);
	ASKED_WERE(0);
}

static void a_copy_that_neither_nic_nor_driver_can_make_names_both_errors(void **state)
{
	(void)state;
	mr.stage = NULL;
	mr.stage_err = -EOPNOTSUPP;
	w.nic[0] = w.nic[1] = -EIO;
	begin(100, false);
	assert_int_equal(braid_gpucopy_move(&c), -EOPNOTSUPP);
	assert_over();
	assert_int_equal(c.nic_err, -EIO);
	assert_int_equal(c.stage_err, -EOPNOTSUPP);
	assert_int_equal(warn_count, 0);	/* the caller reports it */
}

static void a_piece_that_never_ends_is_given_up_after_its_time_with_one_warning(void **state)
{
	uint64_t beg;

	(void)state;
	braid_param.gpu_stage = 2;
	w.looks = UINT32_MAX;
	begin(100, true);
	assert_int_equal(braid_gpucopy_move(&c), -EAGAIN);
	beg = w.ns;
	while (braid_gpucopy_move(&c) == -EAGAIN && w.ns < 60 * SEC)
		w.ns += MS;
	assert_true(w.ns - beg > SEC && w.ns - beg < 5 * SEC);
	assert_int_equal(c.stage_err, -ETIMEDOUT);
	assert_over();
	ASKED_WERE(DRIVER);		/* which may still write there: no NIC may */
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[gpu-copy-late]"));
}

/* All slots are other copies': they may end, or be lost, and nothing of this copy is anywhere. */
static void a_copy_that_gets_no_slot_waits_longer_and_warns_of_nothing(void **state)
{
	uint64_t beg;

	(void)state;
	no_nic();
	w.begin = -EAGAIN;
	begin(100, true);
	assert_int_equal(braid_gpucopy_move(&c), -EAGAIN);
	beg = w.ns;
	while (braid_gpucopy_move(&c) == -EAGAIN && w.ns < 60 * SEC)
		w.ns += MS;
	assert_true(w.ns - beg > 5 * SEC && w.ns - beg < 20 * SEC);
	assert_int_equal(warn_count, 0);
	assert_over();
}

/* The clock of a piece starts with that piece: a large copy may take longer than one piece may. */
static void each_piece_has_its_own_time(void **state)
{
	int err;

	(void)state;
	no_nic();
	begin(BYTES, false);
	do {
		w.looks = 3;
		err = braid_gpucopy_move(&c);
		w.ns += 3 * SEC / 2;
	} while (err == -EAGAIN && w.ns < 60 * SEC);
	assert_int_equal(err, 0);
	assert_memory_equal(host, gpu, BYTES);
}

/* The driver may still write that piece into the GPU, over what another copier would write. */
static void after_a_lost_piece_no_other_copier_writes_there(void **state)
{
	(void)state;
	braid_param.gpu_stage = 2;
	w.look = -EIO;
	w.lost = true;
	begin(100, true);
	assert_int_equal(braid_gpucopy_move(&c), -EIO);
	ASKED_WERE(DRIVER);
	assert_over();
	w.n = 0;
	piece.lost = false;
	begin(100, false);		/* host memory is ours: a NIC may copy to it */
	assert_int_equal(braid_gpucopy_move(&c), 0);
	ASKED_WERE(DRIVER, 0);
	assert_over();
}

static void a_copy_that_is_abandoned_leaves_nothing_in_flight(void **state)
{
	(void)state;
	w.nic[0] = -EAGAIN;
	begin(100, true);
	braid_gpucopy_move(&c);
	braid_gpucopy_end(&c);
	assert_int_equal(w.nic_ends, 1);
	assert_over();
	braid_gpucopy_end(&c);		/* none is in progress */
	assert_int_equal(w.nic_ends, 1);
	assert_over();

	no_nic();
	w.looks = 1000;
	begin(100, true);
	braid_gpucopy_move(&c);
	assert_true(piece.taken);
	w.looks = 20;			/* it is over soon */
	braid_gpucopy_end(&c);
	assert_int_equal(w.looks, 0);
	assert_int_equal(w.nic_ends, 1);
	assert_int_equal(warn_count, 0);
	assert_over();
}

static void abandoning_waits_for_the_driver_no_longer_than_for_a_piece(void **state)
{
	(void)state;
	no_nic();
	w.looks = UINT32_MAX;
	begin(100, true);
	braid_gpucopy_move(&c);
	w.ns += 5 * SEC;
	braid_gpucopy_end(&c);
	assert_int_equal(warn_count, 1);
	assert_over();
}

#define CASE(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_first_nic_that_can_copies_alone),
		CASE(a_slow_nic_is_asked_again_for_some_microseconds),
		CASE(a_nic_that_fails_gives_way_to_the_next_and_the_last_to_the_driver),
		CASE(the_driver_copies_piece_by_piece_both_ways),
		CASE(the_driver_is_asked_first_if_the_parameter_says_so),
		CASE(a_nic_that_failed_recently_is_asked_once_more_when_all_else_failed),
		CASE(without_the_driver_a_nic_must_try_at_once),
		CASE(a_copy_that_neither_nic_nor_driver_can_make_names_both_errors),
		CASE(a_piece_that_never_ends_is_given_up_after_its_time_with_one_warning),
		CASE(a_copy_that_gets_no_slot_waits_longer_and_warns_of_nothing),
		CASE(each_piece_has_its_own_time),
		CASE(after_a_lost_piece_no_other_copier_writes_there),
		CASE(a_copy_that_is_abandoned_leaves_nothing_in_flight),
		CASE(abandoning_waits_for_the_driver_no_longer_than_for_a_piece),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
