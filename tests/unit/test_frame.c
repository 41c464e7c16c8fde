/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_frame.c - the bytes of the frames of version 1, pinned.
 *
 * A golden row names every field in its place, in hex: changing one changes the wire, and needs a
 * new version.  Beside that: each unpack undoes its pack, and everything that must be refused is.
 */
#include <errno.h>
#include <string.h>

#include "core/proto/frame.h"
#include "core/proto/hello.h"
#include "tests/lib/golden.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

/*	type flags n    ack         lseq        comm        seq         tag         rseq        len
 *	offset                  size */
static const struct {
	struct braid_hdr h;
	const char *hex;
} frames[] = {
	{ { .type = BRAID_F_EAGER, .flags = BRAID_FLAG_CREDITED, .ack = 0x01020304,
	    .lseq = 0x11121314, .comm = 0x21222324, .seq = 0x31323334, .tag = -2,
	    .rseq = 0x41424344, .len = 8, .size = 8 },
	  "01 01 0000 04030201 14131211 24232221 34333231 feffffff 44434241 08000000"
	  "0000000000000000 80000000 34332423" },
	{ { .type = BRAID_F_EAGER, .comm = 2, .tag = 5, .len = BRAID_EAGER_MAX,
	    .size = BRAID_EAGER_MAX },
	  "01 00 0000 00000000 00000000 02000000 00000000 05000000 00000000 00001000"
	  "0000000000000000 80000000 00000200" },
	{ { .type = BRAID_F_START, .ack = 1, .lseq = 2, .comm = 3, .seq = 4, .tag = 5, .rseq = 6,
	    .size = BRAID_MSG_MAX },
	  "02 00 0000 01000000 02000000 03000000 04000000 05000000 06000000 00000000"
	  "0000000000000000 0000000040000000" },
	{ { .type = BRAID_F_WANT, .ack = 1, .lseq = 2, .comm = 3, .seq = 4, .tag = 5,
	    .size = 100000 },
	  "03 00 0000 01000000 02000000 03000000 04000000 05000000 00000000 00000000"
	  "0000000000000000 a086010000000000" },
	{ { .type = BRAID_F_CHUNK, .n = 255, .ack = 1, .lseq = 2, .comm = 3, .seq = 4, .tag = 5,
	    .rseq = 6, .len = 128, .offset = 1024, .size = 1152 },
	  "04 00 ff00 01000000 02000000 03000000 04000000 05000000 06000000 80000000"
	  "0004000000000000 8004000000000000" },
	{ { .type = BRAID_F_CREDIT, .ack = 1, .lseq = 2, .comm = 3, .tag = 5, .rseq = 6,
	    .size = 4096 },
	  "05 00 0000 01000000 02000000 03000000 00000000 05000000 06000000 00000000"
	  "0000000000000000 0010000000000000" },
	{ { .type = BRAID_F_RETIRE, .n = 64, .ack = 1, .lseq = 2, .comm = 3, .seq = 4 },
	  "06 00 4000 01000000 02000000 03000000 04000000 00000000 00000000 00000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_ACK, .n = 3, .ack = 1, .lseq = 2, .seq = 0xffffffff },
	  "07 00 0300 01000000 02000000 00000000 ffffffff 00000000 00000000 00000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_OPEN, .ack = 1, .lseq = 2, .comm = 3, .len = BRAID_OPEN_SIZE },
	  "08 00 0000 01000000 02000000 03000000 00000000 00000000 00000000 30000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_OPENED, .ack = 1, .lseq = 2, .comm = 3, .len = BRAID_OPEN_SIZE },
	  "09 00 0000 01000000 02000000 03000000 00000000 00000000 00000000 30000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_REFUSED, .n = BRAID_HELLO_NO_LISTEN, .ack = 1, .lseq = 2, .comm = 3 },
	  "0a 00 0300 01000000 02000000 03000000 00000000 00000000 00000000 00000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_BYE, .ack = 1, .lseq = 2, .comm = 3 },
	  "0b 00 0000 01000000 02000000 03000000 00000000 00000000 00000000 00000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_FAIL, .n = 90, .ack = 1, .lseq = 2, .comm = 3, .offset = 4096,
	    .size = 8192 },
	  "0c 00 5a00 01000000 02000000 03000000 00000000 00000000 00000000 00000000"
	  "0010000000000000 0020000000000000" },
	{ { .type = BRAID_F_LANES, .n = 4, .ack = 1, .lseq = 2 },
	  "0d 00 0400 01000000 02000000 00000000 00000000 00000000 00000000 00000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_CLOSE, .ack = 1, .lseq = 2 },
	  "0e 00 0000 01000000 02000000 00000000 00000000 00000000 00000000 00000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_DOWN, .n = 3, .ack = 1, .lseq = 2, .seq = 7, .rseq = 0xfffe },
	  "0f 00 0300 01000000 02000000 00000000 07000000 00000000 feff0000 00000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_DOWN, .n = 3, .ack = 1, .lseq = 2, .seq = 7, .rseq = 0xfffe,
	    .tag = BRAID_DOWN_WRITES },
	  "0f 00 0300 01000000 02000000 00000000 07000000 01000000 feff0000 00000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_ALIVE, .ack = 1, .lseq = 2 },
	  "10 00 0000 01000000 02000000 00000000 00000000 00000000 00000000 00000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_VOID, .ack = 1, .lseq = 2, .comm = 3, .seq = 4 },
	  "11 00 0000 01000000 02000000 03000000 04000000 00000000 00000000 00000000"
	  "0000000000000000 0000000000000000" },
	{ { .type = BRAID_F_RENEW, .n = 3, .ack = 1, .lseq = 2, .rseq = 0x10005 },
	  "12 00 0300 01000000 02000000 00000000 00000000 00000000 05000100 00000000"
	  "0000000000000000 0000000000000000" },
};

static void every_frame_of_version_1_is_these_bytes(void **state)
{
	bool seen[BRAID_F_MAX] = { false };

	(void)state;
	for (unsigned i = 0; i < N(frames); i++) {
		uint8_t got[BRAID_HDR_SIZE];

		braid_hdr_pack(&frames[i].h, got);
		assert_golden(got, sizeof(got), frames[i].hex);
		seen[frames[i].h.type] = true;
	}
	for (unsigned t = 1; t < BRAID_F_MAX; t++)
		assert_true(seen[t]);
}

static void every_frame_comes_back_whole(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N(frames); i++) {
		uint8_t bytes[BRAID_HDR_SIZE], again[BRAID_HDR_SIZE];
		struct braid_hdr got;

		braid_hdr_pack(&frames[i].h, bytes);
		assert_int_equal(braid_hdr_unpack(bytes, &got), 0);
		braid_hdr_pack(&got, again);
		assert_memory_equal(bytes, again, sizeof(bytes));
		assert_int_equal(got.type, frames[i].h.type);
		assert_int_equal(got.tag, frames[i].h.tag);
		assert_true(got.size == frames[i].h.size && got.offset == frames[i].h.offset);
	}
}

static void each_field_lies_in_its_place_and_nowhere_else(void **state)
{
	static const struct {
		unsigned at, size;
		struct braid_hdr h;
	} rows[] = {
		{ 0, 1, { .type = 0xff } },
		{ 1, 1, { .flags = 0xff } },
		{ 2, 2, { .n = 0xffff } },
		{ 4, 4, { .ack = 0xffffffff } },
		{ 8, 4, { .lseq = 0xffffffff } },
		{ 12, 4, { .comm = 0xffffffff } },
		{ 16, 4, { .seq = 0xffffffff } },
		{ 20, 4, { .tag = -1 } },
		{ 24, 4, { .rseq = 0xffffffff } },
		{ 28, 4, { .len = 0xffffffff } },
		{ 32, 8, { .offset = UINT64_MAX } },
		{ 40, 8, { .size = UINT64_MAX } },
	};
	unsigned end = 0;

	(void)state;
	for (unsigned i = 0; i < N(rows); i++) {
		uint8_t got[BRAID_HDR_SIZE], want[BRAID_HDR_SIZE] = { 0 };

		assert_int_equal(rows[i].at, end);
		end += rows[i].size;
		memset(want + rows[i].at, 0xff, rows[i].size);
		braid_hdr_pack(&rows[i].h, got);
		assert_memory_equal(got, want, sizeof(got));
	}
	assert_int_equal(end, BRAID_HDR_SIZE);
}

static int check(struct braid_hdr h)
{
	uint8_t bytes[BRAID_HDR_SIZE];
	struct braid_hdr got;

	braid_hdr_pack(&h, bytes);
	return braid_hdr_unpack(bytes, &got);
}

static void frames_with_a_field_out_of_range_are_refused(void **state)
{
	static const struct {
		struct braid_hdr h;
		int err;
	} rows[] = {
		{ { .type = 0 }, -EBADMSG },
		{ { .type = BRAID_F_MAX }, -EBADMSG },
		{ { .type = 0xff }, -EBADMSG },
		{ { .type = BRAID_F_EAGER }, 0 },
		{ { .type = BRAID_F_EAGER, .flags = 2 }, -EBADMSG },
		{ { .type = BRAID_F_EAGER, .flags = 0x80 }, -EBADMSG },
		{ { .type = BRAID_F_EAGER, .len = 1 }, 0 },	/* its size is not said */
		{ { .type = BRAID_F_EAGER, .len = BRAID_EAGER_MAX + 1,
		    .size = BRAID_EAGER_MAX + 1 }, -EBADMSG },
		{ { .type = BRAID_F_START, .flags = BRAID_FLAG_CREDITED }, -EBADMSG },
		{ { .type = BRAID_F_START, .size = BRAID_MSG_MAX + 1 }, -EBADMSG },
		{ { .type = BRAID_F_WANT, .size = UINT64_MAX }, -EBADMSG },
		{ { .type = BRAID_F_CREDIT, .offset = UINT64_MAX }, 0 },	/* an address */
		{ { .type = BRAID_F_CREDIT, .len = 4 * BRAID_PATHS_MAX }, 0 },
		{ { .type = BRAID_F_CREDIT, .len = 4 * BRAID_PATHS_MAX + 4 }, -EBADMSG },
		{ { .type = BRAID_F_CREDIT, .len = 5 }, -EBADMSG },
		{ { .type = BRAID_F_CHUNK, .flags = BRAID_FLAG_PLACED, .len = 1, .size = 1 }, 0 },
		{ { .type = BRAID_F_EAGER, .flags = BRAID_FLAG_PLACED }, -EBADMSG },
		{ { .type = BRAID_F_CREDIT, .size = BRAID_MSG_MAX, .offset = BRAID_MSG_MAX }, 0 },
		{ { .type = BRAID_F_CHUNK, .len = 1, .size = 1 }, 0 },
		{ { .type = BRAID_F_CHUNK, .len = 0, .size = 1 }, -EBADMSG },
		{ { .type = BRAID_F_CHUNK, .len = 2, .size = 1 }, -EBADMSG },
		{ { .type = BRAID_F_CHUNK, .len = 1, .size = 1, .offset = 1 }, -EBADMSG },
		{ { .type = BRAID_F_CHUNK, .len = 1, .size = 2, .offset = 1 }, 0 },
		{ { .type = BRAID_F_CHUNK, .len = 1, .size = 1, .offset = BRAID_MSG_MAX },
		  -EBADMSG },
		{ { .type = BRAID_F_CHUNK, .len = BRAID_CHUNK_LEN_MAX, .size = BRAID_MSG_MAX }, 0 },
		{ { .type = BRAID_F_CHUNK, .len = BRAID_CHUNK_LEN_MAX + 1u, .size = BRAID_MSG_MAX },
		  -EBADMSG },
		{ { .type = BRAID_F_CHUNK, .len = 0xffffffff, .size = BRAID_MSG_MAX }, -EBADMSG },
		{ { .type = BRAID_F_CHUNK, .len = 1, .size = 1, .n = BRAID_CHUNKS_MAX - 1 }, 0 },
		{ { .type = BRAID_F_CHUNK, .len = 1, .size = 1, .n = BRAID_CHUNKS_MAX }, -EBADMSG },
		{ { .type = BRAID_F_OPEN, .len = BRAID_OPEN_SIZE }, 0 },
		{ { .type = BRAID_F_OPEN, .len = BRAID_OPEN_SIZE - 1 }, -EBADMSG },
		{ { .type = BRAID_F_OPEN, .len = BRAID_OPEN_SIZE + 1 }, -EBADMSG },
		{ { .type = BRAID_F_OPEN }, -EBADMSG },
	};

	(void)state;
	for (unsigned i = 0; i < N(rows); i++)
		assert_int_equal(check(rows[i].h), rows[i].err);
	for (uint8_t t = BRAID_F_START; t < BRAID_F_MAX; t++) {
		struct braid_hdr h = { .type = t, .len = 1 };

		if (t != BRAID_F_CHUNK)
			assert_int_equal(check(h), -EBADMSG);
	}
}

static void a_short_header_is_known_by_its_first_bytes(void **state)
{
	uint8_t whole[BRAID_HDR_SIZE];
	struct braid_hdr h = { .type = BRAID_F_EAGER, .comm = 0x12345, .seq = 0x6789a, .len = 1 };
	uint8_t *bytes = whole + BRAID_HDR_SIZE - BRAID_SHORT_SIZE;
	uint32_t what;

	(void)state;
	braid_hdr_pack(&h, whole);
	assert_true(braid_short_unpack(bytes, BRAID_SHORT_SIZE + 1, &what));
	assert_int_equal(what, 0x2345789a);
	assert_int_equal(braid_hdr_unpack(whole, &h), 0);
	assert_false(braid_short_unpack(bytes, BRAID_SHORT_SIZE, &what));	/* of nothing */
	assert_false(braid_short_unpack(whole, sizeof(whole), &what));
	for (unsigned i = 0; i < BRAID_SHORT_SIZE; i++) {
		bytes[i] ^= 1;
		assert_int_equal(braid_short_unpack(bytes, BRAID_SHORT_SIZE + 1, &what), i >= 4);
		assert_int_equal(braid_hdr_unpack(whole, &h), -EBADMSG);
		bytes[i] ^= 1;
	}
}

/* --- sealed headers ------------------------------------------------------------------------ */

enum { SUM = (int)0xa1b2c3d4 };

static void a_sealed_header_is_these_bytes(void **state)
{
	const struct braid_hdr chunk = { .type = BRAID_F_CHUNK, .n = 255, .ack = 1, .comm = 3,
		.seq = 4, .tag = 5, .rseq = 6, .len = 128, .offset = 1024, .size = 1152 };
	const struct braid_hdr eager = { .type = BRAID_F_EAGER, .comm = 3, .seq = 4, .len = 8 };
	const struct braid_hdr alive = { .type = BRAID_F_ALIVE, .ack = 1 };
	uint8_t got[BRAID_HDR_SIZE];

	(void)state;
	braid_hdr_pack(&chunk, got);
	braid_hdr_seal(got, 2, BRAID_FLAG_PLACED, (uint32_t)SUM);
	assert_golden(got, sizeof(got),
		      "04 02 ffd4 01000000 59e0e28f 03000000 04000000 05000000 06000000 80000000"
		      "0004000000000000 8004000000c3b2a1");
	braid_hdr_pack(&eager, got);
	braid_hdr_seal(got, 2, BRAID_FLAG_UNSUMMED, 0);
	assert_golden(got, sizeof(got),
		      "01 04 0000 00000000 b05003ec 03000000 04000000 00000000 00000000 08000000"
		      "0000000000000000 0800000000000000");
	braid_hdr_pack(&alive, got);
	braid_hdr_seal(got, 2, 0, 0);
	assert_golden(got, sizeof(got),
		      "10 00 0000 01000000 90e4cc31 00000000 00000000 00000000 00000000 00000000"
		      "0000000000000000 0000000000000000");
}

static void a_sealed_header_opens_to_what_was_sealed(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N(frames); i++) {
		uint8_t bytes[BRAID_HDR_SIZE], again[BRAID_HDR_SIZE], plain[BRAID_HDR_SIZE];
		struct braid_hdr h = frames[i].h, got;
		uint32_t sum = 1;

		h.lseq = 77;
		braid_hdr_pack(&h, plain);
		memcpy(bytes, plain, sizeof(bytes));
		braid_hdr_seal(bytes, 5, BRAID_FLAG_UNSUMMED, ~0u);	/* not for the first time */
		braid_hdr_seal(bytes, 77, 0, (uint32_t)SUM);
		assert_int_equal(braid_hdr_open(bytes, 77, &got, &sum), 0);
		assert_int_equal(sum, h.len ? (uint32_t)SUM : 0);
		braid_hdr_pack(&got, again);
		assert_memory_equal(again, plain, sizeof(plain));
		braid_hdr_read(bytes, &got);		/* all but lseq */
		got.lseq = 77;
		braid_hdr_pack(&got, again);
		assert_memory_equal(again, plain, sizeof(plain));
		braid_hdr_read(plain, &got);
		braid_hdr_pack(&got, again);
		assert_memory_equal(again, plain, sizeof(plain));
	}
}

static void a_changed_bit_of_a_sealed_header_is_found(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N(frames); i++) {
		uint8_t bytes[BRAID_HDR_SIZE];
		struct braid_hdr got;
		uint32_t sum;

		braid_hdr_pack(&frames[i].h, bytes);
		braid_hdr_seal(bytes, 9, 0, (uint32_t)SUM);
		assert_int_equal(braid_hdr_open(bytes, 8, &got, &sum), -EILSEQ);
		for (unsigned bit = 0; bit < 8 * BRAID_HDR_SIZE; bit++) {
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_int_equal(braid_hdr_open(bytes, 9, &got, &sum), -EILSEQ);
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		assert_int_equal(braid_hdr_open(bytes, 9, &got, &sum), 0);
	}
}

static void a_sealed_header_out_of_range_is_refused(void **state)
{
	const struct braid_hdr h = { .type = BRAID_F_CHUNK, .len = 2, .size = 1 };
	uint8_t bytes[BRAID_HDR_SIZE];
	struct braid_hdr got;
	uint32_t sum;

	(void)state;
	braid_hdr_pack(&h, bytes);
	braid_hdr_seal(bytes, 0, 0, 0);
	assert_int_equal(braid_hdr_open(bytes, 0, &got, &sum), -EBADMSG);
}

static void every_frame_has_a_name_of_its_own(void **state)
{
	(void)state;
	for (unsigned t = 1; t < BRAID_F_MAX; t++) {
		assert_string_not_equal(braid_frame_name(t), "unknown");
		for (unsigned u = 1; u < t; u++)
			assert_string_not_equal(braid_frame_name(t), braid_frame_name(u));
	}
	assert_string_equal(braid_frame_name(0), "unknown");
	assert_string_equal(braid_frame_name(BRAID_F_MAX), "unknown");
	assert_string_equal(braid_frame_name(255), "unknown");
}

static void an_open_is_these_bytes_and_comes_back_whole(void **state)
{
	static const char hex[] =
		"08 07 06 05 04 03 02 01"		/* listen id */
		"c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 ca cb cc cd ce cf"	/* MAC */
		"d0 d1 d2 d3 d4 d5 d6 d7 d8 d9 da db dc dd de df"
		"18 17 16 15 14 13 12 11";		/* number of the connect() */
	struct braid_open o = {
		.listen_id = 0x0102030405060708, .connect = 0x1112131415161718,
	}, back;
	uint8_t got[BRAID_OPEN_SIZE];

	(void)state;
	for (unsigned i = 0; i < sizeof(o.mac); i++)
		o.mac[i] = (uint8_t)(0xc0 + i);
	memset(got, 0x5a, sizeof(got));
	braid_open_pack(&o, got);
	assert_golden(got, sizeof(got), hex);
	braid_open_unpack(got, &back);
	assert_true(back.listen_id == o.listen_id && back.connect == o.connect);
	assert_memory_equal(back.mac, o.mac, sizeof(o.mac));
}

static size_t add_frame(uint8_t *at, struct braid_hdr h)
{
	braid_hdr_pack(&h, at);
	return BRAID_HDR_SIZE;
}

static void a_last_frame_without_its_payload_is_detected(void **state)
{
	const struct braid_hdr whole = { .type = BRAID_F_EAGER, .len = 8, .size = 8 };
	struct braid_hdr chunk = { .type = BRAID_F_CHUNK, .seq = 7, .len = 100, .size = 100 }, got;
	uint8_t buf[4 * BRAID_HDR_SIZE] = { 0 };
	size_t first = add_frame(buf, whole) + 8, n = first + add_frame(buf + first, chunk);

	(void)state;
	assert_true(braid_frames_lack(buf, n, &got));
	assert_int_equal(got.type, BRAID_F_CHUNK);
	assert_int_equal(got.seq, 7);
	for (size_t less = 0; less < n; less++)	/* but where the first lacks all of its own */
		assert_true(braid_frames_lack(buf, less, &got) == (less == BRAID_HDR_SIZE));
	assert_false(braid_frames_lack(buf, n + 1, &got));	/* a part is there */
	chunk.flags = BRAID_FLAG_PLACED;
	add_frame(buf + first, chunk);
	assert_false(braid_frames_lack(buf, n, &got));	/* it was written to its place */
	buf[0] = 0xff;
	assert_false(braid_frames_lack(buf, n, &got));
}

static void sizes_are_what_the_design_says(void **state)
{
	(void)state;
	assert_int_equal(BRAID_HDR_SIZE % 16, 0);
	assert_int_equal(BRAID_OPEN_SIZE % 16, 0);
	assert_int_equal(BRAID_CHUNK_ALIGN, 128);
	assert_int_equal(BRAID_CHUNKS_MAX, 256);
	assert_true(BRAID_MSG_MAX >= 1ull << 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_frame_of_version_1_is_these_bytes),
		cmocka_unit_test(every_frame_comes_back_whole),
		cmocka_unit_test(each_field_lies_in_its_place_and_nowhere_else),
		cmocka_unit_test(frames_with_a_field_out_of_range_are_refused),
		cmocka_unit_test(a_short_header_is_known_by_its_first_bytes),
		cmocka_unit_test(a_sealed_header_is_these_bytes),
		cmocka_unit_test(a_sealed_header_opens_to_what_was_sealed),
		cmocka_unit_test(a_changed_bit_of_a_sealed_header_is_found),
		cmocka_unit_test(a_sealed_header_out_of_range_is_refused),
		cmocka_unit_test(every_frame_has_a_name_of_its_own),
		cmocka_unit_test(an_open_is_these_bytes_and_comes_back_whole),
		cmocka_unit_test(a_last_frame_without_its_payload_is_detected),
		cmocka_unit_test(sizes_are_what_the_design_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
