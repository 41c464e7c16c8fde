/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_handle.c - the bytes of a handle of version 1, pinned.
 *
 * A golden row names every field in its place, in hex: changing one changes the wire, and needs a
 * new version.  Beside that: each unpack undoes its pack, and everything that must be refused is.
 */
#include <errno.h>
#include <string.h>

#include "core/proto/handle.h"
#include "tests/lib/golden.h"
#include "tests/lib/versions.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

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
		.least = 1, .most = 1, .place = 0x1234, .dev = 7, .listen_id = 0x0102030405060708,
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
	assert_int_equal(got.place, 0x1234);
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

static void a_handle_without_a_common_version_is_refused_with_its_version(void **state)
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

static void sizes_are_what_the_design_says(void **state)
{
	(void)state;
	assert_int_equal(BRAID_HANDLE_SIZE, 128);	/* NCCL_NET_HANDLE_MAXSIZE */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_handle_of_version_1_is_these_bytes),
		cmocka_unit_test(a_handle_comes_back_whole),
		cmocka_unit_test(a_handle_has_room_for_more_addresses),
		cmocka_unit_test(the_diallers_state_is_its_own_to_change),
		cmocka_unit_test(any_bit_of_a_handle_flipped_is_an_error),
		cmocka_unit_test(a_handle_without_a_common_version_is_refused_with_its_version),
		cmocka_unit_test(sizes_are_what_the_design_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
