/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_wire.c - the bytes of version 1, pinned.
 *
 * A golden row names every field in its place, in hex: whoever has to change one changes the
 * wire, and needs a new version.  Beside that: each unpack undoes its pack, each field lies where
 * the layout table says and nowhere else, and everything that must be refused is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/proto/wire.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

enum { BYTES_MAX = 512 };

/* Hex with blanks and newlines in it. */
static size_t unhex(const char *text, uint8_t *ret)
{
	size_t n = 0;

	while (*text) {
		unsigned byte;

		if (isspace((unsigned char)*text)) {
			text++;
			continue;
		}
		assert_int_equal(sscanf(text, "%2x", &byte), 1);
		assert_true(n < BYTES_MAX);
		ret[n++] = (uint8_t)byte;
		text += 2;
	}
	return n;
}

static void assert_golden(const void *got, size_t size, const char *hex)
{
	uint8_t want[BYTES_MAX];

	assert_int_equal(unhex(hex, want), size);
	assert_memory_equal(got, want, size);
}

/* --- the handle ---------------------------------------------------------------------------- */

static const char golden_handle[] =
	"21 42 52 41 49 44 48 4c"			/* magic: !BRAIDHL */
	"01 00  01 00"					/* least, most */
	"34 12  07 00"					/* flags, dev */
	"08 07 06 05 04 03 02 01"			/* listen id */
	"a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 aa ab ac ad ae af"	/* process */
	"40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f"	/* token */
	"50 51 52 53 54 55 56 57 58 59 5a 5b 5c 5d 5e 5f"
	"39 30  01 01"					/* port 12345, has4, has6 */
	"0a 00 00 07"					/* 10.0.0.7 */
	"fe 80 00 00 00 00 00 00 00 00 00 00 00 00 00 07"	/* fe80::7 */
	"00 00 00 00 00 00 00 00"			/* reserved */
	"54 ef e4 2c dc f4 6b fd"			/* check: FNV-1a of what is above */
	"03 00 00 00  09 00 00 00"			/* the dialler's slot, generation */
	"18 17 16 15 14 13 12 11";			/* and nonce */

static struct braid_handle some_handle(void)
{
	struct braid_handle h = {
		.least = 1, .most = 1, .flags = 0x1234, .dev = 7, .listen_id = 0x0102030405060708,
		.port = 12345, .has4 = 1, .has6 = 1, .addr4 = { 10, 0, 0, 7 },
		.addr6 = { 0xfe, 0x80, [15] = 7 },
		.state = { .slot = 3, .gen = 9, .nonce = 0x1112131415161718 },
	};

	for (unsigned i = 0; i < sizeof(h.process); i++)
		h.process[i] = (uint8_t)(0xa0 + i);
	for (unsigned i = 0; i < sizeof(h.token); i++)
		h.token[i] = (uint8_t)(0x40 + i);
	return h;
}

static void the_handle_of_version_1_is_these_bytes(void **state)
{
	struct braid_handle h = some_handle();
	uint8_t got[BRAID_HANDLE_SIZE];

	(void)state;
	memset(got, 0x5a, sizeof(got));
	braid_handle_pack(&h, got);
	assert_golden(got, sizeof(got), golden_handle);
}

static void assert_same_handle(const struct braid_handle *a, const struct braid_handle *b)
{
	uint8_t pa[BRAID_HANDLE_SIZE], pb[BRAID_HANDLE_SIZE];

	braid_handle_pack(a, pa);
	braid_handle_pack(b, pb);
	assert_memory_equal(pa, pb, sizeof(pa));
}

static void a_handle_comes_back_whole(void **state)
{
	struct braid_handle h = some_handle(), got;
	uint8_t bytes[BRAID_HANDLE_SIZE];

	(void)state;
	braid_handle_pack(&h, bytes);
	assert_int_equal(braid_handle_unpack(bytes, &got), 0);
	assert_same_handle(&h, &got);
	assert_int_equal(got.flags, 0x1234);
	assert_int_equal(got.dev, 7);
	assert_int_equal(got.port, 12345);
	assert_memory_equal(got.token, h.token, sizeof(h.token));
}

static void a_handle_has_room_for_more_addresses(void **state)
{
	struct braid_handle h = some_handle(), got;
	uint8_t bytes[BRAID_HANDLE_SIZE];

	(void)state;
	for (uint8_t i = 0; i < BRAID_HANDLE_MORE; i++)
		memset(h.more4[i], 0x10 + i, sizeof(h.more4[i]));
	braid_handle_pack(&h, bytes);
	assert_memory_equal(bytes + 96, "\x10\x10\x10\x10\x11\x11\x11\x11", 8);
	assert_int_equal(braid_handle_unpack(bytes, &got), 0);
	assert_memory_equal(got.addr6, h.addr6, sizeof(h.addr6));
	assert_memory_equal(got.more4[0], h.more4[0], 2 * sizeof(h.more4[0]));
	assert_int_equal(got.more4[2][0], 0);
	/* In place of an IPv6 address four more. */
	h.has6 = 0;
	braid_handle_pack(&h, bytes);
	assert_memory_equal(bytes + 80, "\x12\x12\x12\x12\x13\x13\x13\x13", 8);
	assert_int_equal(braid_handle_unpack(bytes, &got), 0);
	assert_memory_equal(got.more4, h.more4, sizeof(h.more4));
	assert_memory_equal(got.addr4, h.addr4, sizeof(h.addr4));
}

static void the_diallers_state_is_its_own_to_change(void **state)
{
	struct braid_handle h = some_handle(), got;
	struct braid_handle_state st = { .slot = 77, .gen = 0xffffffff, .nonce = UINT64_MAX };
	uint8_t bytes[BRAID_HANDLE_SIZE], before[BRAID_HANDLE_SIZE];

	(void)state;
	braid_handle_pack(&h, bytes);
	memcpy(before, bytes, sizeof(bytes));
	braid_handle_put_state(bytes, &st);
	assert_memory_equal(bytes, before, 112);
	assert_int_equal(braid_handle_unpack(bytes, &got), 0);
	assert_int_equal(got.state.slot, 77);
	assert_int_equal(got.state.gen, 0xffffffff);
	assert_true(got.state.nonce == UINT64_MAX);
}

/* All but the 16 bytes that the dialler keeps its state in. */
static void any_bit_of_a_handle_flipped_is_an_error(void **state)
{
	struct braid_handle h = some_handle(), got, untouched;
	uint8_t bytes[BRAID_HANDLE_SIZE];

	(void)state;
	memset(&untouched, 0x77, sizeof(untouched));
	braid_handle_pack(&h, bytes);
	for (unsigned bit = 0; bit < 112 * 8; bit++) {
		int err;

		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		got = untouched;
		err = braid_handle_unpack(bytes, &got);
		assert_int_equal(err, bit < 64 ? -EPROTO : -EBADMSG);
		assert_memory_equal(&got, &untouched, sizeof(got));
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static const struct version_row {
	uint16_t least, most;
	int err;
} versions[] = {
	{ 1, 1, 0 }, { 0, 1, 0 }, { 1, 2, 0 }, { 0, 0xffff, 0 },
	{ 0, 0, -EPROTONOSUPPORT }, { 2, 2, -EPROTONOSUPPORT }, { 2, 9, -EPROTONOSUPPORT },
	{ 0xffff, 0xffff, -EPROTONOSUPPORT },
	{ 2, 1, -EPROTONOSUPPORT }, { 1, 0, -EPROTONOSUPPORT }, { 0xffff, 0, -EPROTONOSUPPORT },
};

static void a_handle_without_a_common_version_is_refused_but_says_its_own(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N(versions); i++) {
		struct braid_handle h = some_handle(), got = { 0 };
		uint8_t bytes[BRAID_HANDLE_SIZE];

		h.least = versions[i].least;
		h.most = versions[i].most;
		braid_handle_pack(&h, bytes);
		assert_int_equal(braid_handle_unpack(bytes, &got), versions[i].err);
		assert_int_equal(got.least, h.least);
		assert_int_equal(got.most, h.most);
	}
}

/* --- the handshake ------------------------------------------------------------------------- */

static const char golden_hello[] =
	"21 42 52 41 49 44 57 4c"			/* magic: !BRAIDWL */
	"01 00  01 00"					/* least, most */
	"02  04  05  08"				/* LANE, NO_LINK, lane, lanes_max */
	"03 00  04 00"					/* dev, peer_dev */
	"fe ff  06 00"					/* traffic class -2, epoch */
	"d2 04 00 00  00 00 08 00"			/* pid 1234, window 524288 */
	"08 07 06 05 04 03 02 01"			/* ident */
	"a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 aa ab ac ad ae af"	/* process */
	"40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f"	/* nonce */
	"50 51 52 53 54 55 56 57 58 59 5a 5b 5c 5d 5e 5f"
	"02 01 00 00 00 00 00 00"			/* transports: verbs, tcp */
	"6e 6f 64 65 37 00 00 00 00 00 00 00 00 00 00 00"	/* host: node7 */
	"00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
	"00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
	"00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
	"11 12 13 14 21 22 23 24 31 32 00 00 00 00 00 00"	/* frames, first, port */
	"00 00 00 00 ff ff 0a 01 02 03 33 34 00 00 00 00"	/* further addresses */
	"00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
	"00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
	"c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 ca cb cc cd ce cf"	/* MAC of all above */
	"d0 d1 d2 d3 d4 d5 d6 d7 d8 d9 da db dc dd de df";

static struct braid_hello some_hello(void)
{
	struct braid_hello h = {
		.least = 1, .most = 1, .kind = BRAID_HELLO_LANE, .status = BRAID_HELLO_NO_LINK,
		.lane = 5, .lanes_max = 8, .dev = 3, .peer_dev = 4, .traffic_class = -2, .epoch = 6,
		.pid = 1234, .window = 524288, .ident = 0x0102030405060708, .transports = { 2, 1 },
		.host = "node7", .frames = 0x14131211, .first = 0x24232221, .port = 0x3231,
		.more = { { .ip = { [10] = 0xff, 0xff, 10, 1, 2, 3 }, .port = 0x3433 } },
	};

	for (unsigned i = 0; i < sizeof(h.process); i++)
		h.process[i] = (uint8_t)(0xa0 + i);
	for (unsigned i = 0; i < sizeof(h.nonce); i++)
		h.nonce[i] = (uint8_t)(0x40 + i);
	for (unsigned i = 0; i < sizeof(h.mac); i++)
		h.mac[i] = (uint8_t)(0xc0 + i);
	return h;
}

static void the_hello_of_version_1_is_these_bytes(void **state)
{
	struct braid_hello h = some_hello();
	uint8_t got[BRAID_HELLO_SIZE];

	(void)state;
	memset(got, 0x5a, sizeof(got));
	braid_hello_pack(&h, got);
	assert_golden(got, sizeof(got), golden_hello);
	assert_int_equal(BRAID_HELLO_SIGNED, 224);
}

static void a_hello_comes_back_whole(void **state)
{
	struct braid_hello h = some_hello(), got;
	uint8_t bytes[BRAID_HELLO_SIZE], again[BRAID_HELLO_SIZE];

	(void)state;
	braid_hello_pack(&h, bytes);
	assert_int_equal(braid_hello_unpack(bytes, &got), 0);
	braid_hello_pack(&got, again);
	assert_memory_equal(bytes, again, sizeof(bytes));
	assert_int_equal(got.traffic_class, -2);
	assert_int_equal(got.window, 524288);
	assert_string_equal(got.host, "node7");
	assert_memory_equal(got.mac, h.mac, sizeof(h.mac));
}

static void a_hello_without_a_common_version_is_refused_but_says_its_own(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N(versions); i++) {
		struct braid_hello h = some_hello(), got = { 0 };
		uint8_t bytes[BRAID_HELLO_SIZE];

		h.least = versions[i].least;
		h.most = versions[i].most;
		if (versions[i].err)		/* what else is in it, a later version may define */
			h.kind = h.status = h.lane = h.lanes_max = 0xee;
		braid_hello_pack(&h, bytes);
		assert_int_equal(braid_hello_unpack(bytes, &got), versions[i].err);
		assert_int_equal(got.least, h.least);
		assert_int_equal(got.most, h.most);
	}
}

static void a_hello_that_is_not_ours_or_has_a_field_out_of_range_is_refused(void **state)
{
	/* Offset of a byte, the greatest value that is fine, whether 0 is. */
	static const struct {
		unsigned at, most;
		bool zero;
	} rows[] = {
		{ 12, BRAID_HELLO_ALIVE, false },
		{ 13, BRAID_HELLO_STATUS_MAX - 1, true },
		{ 14, BRAID_LANES_MAX - 1, true },
		{ 15, BRAID_LANES_MAX, false },
	};
	struct braid_hello h = some_hello(), got, untouched;
	uint8_t bytes[BRAID_HELLO_SIZE];

	(void)state;
	memset(&untouched, 0x77, sizeof(untouched));
	for (unsigned i = 0; i < N(rows); i++) {
		for (unsigned v = 0; v < 256; v++) {
			bool fine = v ? v <= rows[i].most : rows[i].zero;

			braid_hello_pack(&h, bytes);
			bytes[rows[i].at] = (uint8_t)v;
			got = untouched;
			assert_int_equal(braid_hello_unpack(bytes, &got), fine ? 0 : -EBADMSG);
			if (!fine)
				assert_memory_equal(&got, &untouched, sizeof(got));
		}
	}
	for (unsigned bit = 0; bit < 64; bit++) {
		braid_hello_pack(&h, bytes);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(braid_hello_unpack(bytes, &got), -EPROTO);
	}
}

static void a_host_name_from_outside_is_fit_to_print(void **state)
{
	struct braid_hello h = some_hello(), got;
	uint8_t bytes[BRAID_HELLO_SIZE];

	(void)state;
	braid_hello_pack(&h, bytes);
	memset(bytes + 96, 'x', BRAID_HOST_SIZE);
	bytes[96] = '\n';
	bytes[97] = 0x1b;
	bytes[98] = 0xff;
	bytes[99] = ' ';
	bytes[100] = 0x7f;
	assert_int_equal(braid_hello_unpack(bytes, &got), 0);
	assert_int_equal(strlen(got.host), BRAID_HOST_SIZE - 1);
	assert_int_equal(strncmp(got.host, "?????xxx", 8), 0);
}

/* --- frames -------------------------------------------------------------------------------- */

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
		"00 00 00 00 00 00 00 00";		/* reserved */
	struct braid_open o = { .listen_id = 0x0102030405060708 }, back;
	uint8_t got[BRAID_OPEN_SIZE];

	(void)state;
	for (unsigned i = 0; i < sizeof(o.mac); i++)
		o.mac[i] = (uint8_t)(0xc0 + i);
	memset(got, 0x5a, sizeof(got));
	braid_open_pack(&o, got);
	assert_golden(got, sizeof(got), hex);
	braid_open_unpack(got, &back);
	assert_true(back.listen_id == o.listen_id);
	assert_memory_equal(back.mac, o.mac, sizeof(o.mac));
}

static size_t add_frame(uint8_t *at, struct braid_hdr h)
{
	braid_hdr_pack(&h, at);
	return BRAID_HDR_SIZE;
}

static void frames_tell_whether_the_last_lacks_its_payload(void **state)
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

/* --- sizes --------------------------------------------------------------------------------- */

static void sizes_are_what_the_design_says(void **state)
{
	(void)state;
	assert_int_equal(BRAID_HANDLE_SIZE, 128);	/* NCCL_NET_HANDLE_MAXSIZE */
	assert_int_equal(BRAID_HELLO_SIZE, 256);
	assert_int_equal(BRAID_PROOF_SIZE, 64);
	assert_int_equal(BRAID_HDR_SIZE % 16, 0);
	assert_int_equal(BRAID_OPEN_SIZE % 16, 0);
	assert_int_equal(BRAID_CHUNK_ALIGN, 128);
	assert_int_equal(BRAID_CHUNKS_MAX, 256);
	assert_true(BRAID_PROOF_SIZE >= 8 + BRAID_MAC_SIZE);
	assert_true(BRAID_MSG_MAX >= 1ull << 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_handle_of_version_1_is_these_bytes),
		cmocka_unit_test(a_handle_comes_back_whole),
		cmocka_unit_test(a_handle_has_room_for_more_addresses),
		cmocka_unit_test(the_diallers_state_is_its_own_to_change),
		cmocka_unit_test(any_bit_of_a_handle_flipped_is_an_error),
		cmocka_unit_test(a_handle_without_a_common_version_is_refused_but_says_its_own),
		cmocka_unit_test(the_hello_of_version_1_is_these_bytes),
		cmocka_unit_test(a_hello_comes_back_whole),
		cmocka_unit_test(a_hello_without_a_common_version_is_refused_but_says_its_own),
		cmocka_unit_test(a_hello_that_is_not_ours_or_has_a_field_out_of_range_is_refused),
		cmocka_unit_test(a_host_name_from_outside_is_fit_to_print),
		cmocka_unit_test(every_frame_of_version_1_is_these_bytes),
		cmocka_unit_test(every_frame_comes_back_whole),
		cmocka_unit_test(each_field_lies_in_its_place_and_nowhere_else),
		cmocka_unit_test(frames_with_a_field_out_of_range_are_refused),
		cmocka_unit_test(a_short_header_is_known_by_its_first_bytes),
		cmocka_unit_test(every_frame_has_a_name_of_its_own),
		cmocka_unit_test(an_open_is_these_bytes_and_comes_back_whole),
		cmocka_unit_test(frames_tell_whether_the_last_lacks_its_payload),
		cmocka_unit_test(sizes_are_what_the_design_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
