/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_hello.c - the bytes of the handshake of version 1, pinned.
 *
 * A golden row names every field in its place, in hex: changing one changes the wire, and needs a
 * new version.  Beside that: each unpack undoes its pack, and everything that must be refused is.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "core/proto/hello.h"
#include "tests/lib/golden.h"
#include "tests/lib/versions.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

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

static void version_2_has_epoch_and_options_behind_the_host_name(void **state)
{
	static const uint8_t bytes[] = { 0x06, 0x05, 0x07, 0x0d, 0xd4, 0xd3, 0xd2, 0xd1 };
	struct braid_hello h = some_hello(), back;
	uint8_t got[BRAID_HELLO_SIZE];

	(void)state;
	h.most = 2;
	h.epoch = 0x05060008;
	h.ciphers = 7;
	h.options = BRAID_OPTION_ENCRYPT | BRAID_OPTION_KEEPS_KEY | BRAID_OPTION_SECRET;
	h.hint = 0xd1d2d3d4;
	braid_hello_pack(&h, got);
	assert_memory_equal(got + 152, bytes, sizeof(bytes));
	assert_int_equal(braid_hello_unpack(got, &back), 0);
	assert_int_equal(back.epoch, h.epoch);
	assert_int_equal(back.ciphers, h.ciphers);
	assert_int_equal(back.options, h.options);
	assert_int_equal(back.hint, h.hint);
	got[10] = 1;
	assert_int_equal(braid_hello_unpack(got, &back), 0);
	assert_int_equal(back.options | back.ciphers, 0);
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

/* Version 2 sends the high half of the epoch behind a host name that is 8 bytes shorter. */
static void an_epoch_has_32_bits_from_version_2_on(void **state)
{
	struct braid_hello h = some_hello(), got;
	uint8_t bytes[BRAID_HELLO_SIZE];

	(void)state;
	h.epoch = 0xabcd1234;
	h.most = 2;
	braid_hello_pack(&h, bytes);
	assert_golden(bytes + 22, 2, "34 12");
	assert_golden(bytes + 96 + BRAID_HOST_SIZE, 8, "cd ab 00 00 00 00 00 00");
	assert_int_equal(braid_hello_unpack(bytes, &got), 0);
	assert_int_equal(got.epoch, 0xabcd1234);
	bytes[10] = 1;			/* version 1 has 64 bytes of host name */
	assert_int_equal(braid_hello_unpack(bytes, &got), 0);
	assert_int_equal(got.epoch, 0x1234);
}

static void a_hello_without_a_common_version_is_refused_with_its_version(void **state)
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

static void sizes_are_what_the_design_says(void **state)
{
	(void)state;
	assert_int_equal(BRAID_HELLO_SIZE, 256);
	assert_int_equal(BRAID_PROOF_SIZE, 64);
	assert_true(BRAID_PROOF_SIZE >= 8 + BRAID_MAC_SIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_hello_of_version_1_is_these_bytes),
		cmocka_unit_test(version_2_has_epoch_and_options_behind_the_host_name),
		cmocka_unit_test(a_hello_comes_back_whole),
		cmocka_unit_test(an_epoch_has_32_bits_from_version_2_on),
		cmocka_unit_test(a_hello_without_a_common_version_is_refused_with_its_version),
		cmocka_unit_test(a_hello_that_is_not_ours_or_has_a_field_out_of_range_is_refused),
		cmocka_unit_test(a_host_name_from_outside_is_fit_to_print),
		cmocka_unit_test(sizes_are_what_the_design_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
