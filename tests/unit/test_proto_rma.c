/* SPDX-License-Identifier: BSD-3-Clause */
/* test_proto_rma.c - the bytes of one-sided operations, pinned, and all that is refused. */
#include "tests/lib/golden.h"

#include <errno.h>
#include <string.h>

#include "core/proto/frame.h"
#include "core/proto/rma.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

enum { D = BRAID_RMA_DATA, BU = BRAID_RMA_BULK, S = BRAID_RMA_SIGNAL, O = BRAID_RMA_ORDERED,
       G = BRAID_RMA_GET, R = BRAID_RMA_RANK };

static const uint8_t kinds[] = {	/* all there are */
	D, BU, S, D | S, S | O, D | S | O, BU | S | O, G, R,
};

/*	what context 0	window	offset		size		sig.wnd	id	sig.offset	value */
static const struct {
	struct braid_rma_hdr h;
	const char *hex;
} rows[] = {
	{ { .what = D, .context = 7, .window = 0x01020304, .offset = 0x11, .size = 5 },
	  "01 07 0000 04030201 1100000000000000 0500000000000000 00000000 00000000"
	  "0000000000000000 0000000000000000" },
	{ { .what = BU | S | O, .context = 255, .window = 1, .offset = BRAID_MSG_MAX,
	    .size = BRAID_MSG_MAX, .signal_window = 0x21222324, .signal_offset = 8,
	    .value = 0x0102030405060708 },
	  "0e ff 0000 01000000 0000000040000000 0000000040000000 24232221 00000000"
	  "0800000000000000 0807060504030201" },
	{ { .what = BU, .size = 9, .id = BRAID_RMA_SLOT | 127 << 8 | 63 },
	  "02 00 0000 00000000 0000000000000000 0900000000000000 00000000 3f7f0100"
	  "0000000000000000 0000000000000000" },
	{ { .what = G, .window = 2, .offset = 3, .size = 4, .id = 0x31323334 },
	  "10 00 0000 02000000 0300000000000000 0400000000000000 00000000 34333231"
	  "0000000000000000 0000000000000000" },
	{ { .what = R, .id = 9 },
	  "20 00 0000 00000000 0000000000000000 0000000000000000 00000000 09000000"
	  "0000000000000000 0000000000000000" },
};

static size_t length(const struct braid_rma_hdr *h)
{
	return BRAID_RMA_HDR_SIZE + (h->what & D ? h->size : 0);
}

static void assert_same(const struct braid_rma_hdr *a, const struct braid_rma_hdr *b)
{
	assert_int_equal(a->what, b->what);
	assert_int_equal(a->context, b->context);
	assert_int_equal(a->window, b->window);
	assert_int_equal(a->offset, b->offset);
	assert_int_equal(a->size, b->size);
	assert_int_equal(a->signal_window, b->signal_window);
	assert_int_equal(a->id, b->id);
	assert_int_equal(a->signal_offset, b->signal_offset);
	assert_int_equal(a->value, b->value);
}

static void each_operation_has_its_bytes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N(rows); i++) {
		struct braid_rma_hdr got;
		uint8_t bytes[BRAID_RMA_HDR_SIZE];

		braid_rma_pack(&rows[i].h, bytes);
		assert_golden(bytes, sizeof(bytes), rows[i].hex);
		assert_int_equal(braid_rma_unpack(bytes, length(&rows[i].h), &got),
				 length(&rows[i].h));
		assert_same(&rows[i].h, &got);
	}
}

static bool is_a_kind(unsigned what)
{
	return memchr(kinds, (int)what, sizeof(kinds)) != NULL;
}

static void an_operation_of_no_kind_is_refused(void **state)
{
	uint8_t bytes[BRAID_RMA_HDR_SIZE];

	(void)state;
	for (unsigned what = 0; what < 256; what++) {
		struct braid_rma_hdr h = { .what = (uint8_t)what }, got;

		braid_rma_pack(&h, bytes);
		assert_int_equal(braid_rma_unpack(bytes, sizeof(bytes), &got),
				 is_a_kind(what) ? BRAID_RMA_HDR_SIZE : -EBADMSG);
	}
}

/* Only a small put has bytes behind it.  What follows is the next operation's. */
static void an_operation_that_lacks_bytes_is_refused(void **state)
{
	uint8_t bytes[BRAID_RMA_HDR_SIZE + 8] = { 0 };

	(void)state;
	for (unsigned i = 0; i < N(kinds); i++) {
		struct braid_rma_hdr h = { .what = kinds[i], .size = 4 }, got;
		size_t right = length(&h);

		braid_rma_pack(&h, bytes);
		for (size_t n = 0; n <= sizeof(bytes); n++)
			assert_int_equal(braid_rma_unpack(bytes, n, &got),
					 n >= right ? (int)right : -EBADMSG);
	}
}

static void an_operation_beyond_the_largest_message_is_refused(void **state)
{
	const struct braid_rma_hdr wrong[] = {
		{ .what = BU, .size = BRAID_MSG_MAX + 1 }, { .what = BU, .size = UINT64_MAX },
		{ .what = G, .offset = BRAID_MSG_MAX + 1 }, { .what = S, .offset = UINT64_MAX },
		{ .what = D, .size = UINT64_MAX - BRAID_RMA_HDR_SIZE + 1 },
	};
	uint8_t bytes[BRAID_RMA_HDR_SIZE];

	(void)state;
	for (unsigned i = 0; i < N(wrong); i++) {
		struct braid_rma_hdr got;

		braid_rma_pack(&wrong[i], bytes);
		assert_int_equal(braid_rma_unpack(bytes, sizeof(bytes), &got), -EBADMSG);
	}
}

static void a_flipped_bit_is_refused_or_read_as_what_it_says(void **state)
{
	unsigned refused = 0;

	(void)state;
	for (unsigned i = 0; i < N(rows); i++) {
		uint8_t bytes[BRAID_RMA_HDR_SIZE], again[BRAID_RMA_HDR_SIZE];

		braid_rma_pack(&rows[i].h, bytes);
		for (unsigned bit = 0; bit < 8 * sizeof(bytes); bit++) {
			struct braid_rma_hdr got;
			int err;

			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			err = braid_rma_unpack(bytes, length(&rows[i].h), &got);
			assert_true(err >= BRAID_RMA_HDR_SIZE || err == -EBADMSG);
			refused += err < 0;
			if (err > 0) {
				braid_rma_pack(&got, again);
				assert_memory_equal(bytes, again, sizeof(bytes));
				assert_true(is_a_kind(got.what));
			}
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
	}
	/* At least the two bytes that are 0, and most of what each kind may be. */
	assert_true(refused > N(rows) * (16 + 5));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_operation_has_its_bytes),
		cmocka_unit_test(an_operation_of_no_kind_is_refused),
		cmocka_unit_test(an_operation_that_lacks_bytes_is_refused),
		cmocka_unit_test(an_operation_beyond_the_largest_message_is_refused),
		cmocka_unit_test(a_flipped_bit_is_refused_or_read_as_what_it_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
