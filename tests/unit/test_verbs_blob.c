/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_blob.c - what two ends exchange: verbs/blob.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>

#include "verbs/blob.h"

static const struct braid_qp_blob good = {
	.fabric = BRAID_FABRIC_ROCE, .mtu = IBV_MTU_4096, .imm = 1, .ngids = 2, .grh = 1,
	.lid = 0x1234, .slots = 56, .cm_port = 4791, .qpn = 0xabcdef, .psn = 0x123456,
	.ack_key = 0x89abcdef, .ack = 0x0123456789abcdef, .nonce = 0xfedcba9876543210,
	.ece_vendor = 0x15b3, .ece_options = 7, .begins = 5,
	.gid = {
		{ .type = BRAID_GID_ROCE_V2, .raw = { 1, [15] = 2 } },
		{ .type = BRAID_GID_ROCE_V1, .raw = { 3, [15] = 4 } },
	},
};

static void a_blob_comes_out_as_it_went_in(void **state)
{
	uint8_t bytes[BRAID_BLOB_SIZE], again[BRAID_BLOB_SIZE];
	struct braid_qp_blob b;

	(void)state;
	braid_qp_blob_pack(&good, bytes);
	assert_int_equal(braid_qp_blob_unpack(bytes, &b), 0);
	braid_qp_blob_pack(&b, again);
	assert_memory_equal(bytes, again, sizeof(bytes));
	assert_int_equal(b.qpn, good.qpn);
	assert_true(b.ack == good.ack && b.nonce == good.nonce);
	assert_memory_equal(b.gid[1].raw, good.gid[1].raw, 16);
}

static void integers_are_little_endian(void **state)
{
	uint8_t bytes[BRAID_BLOB_SIZE];

	(void)state;
	braid_qp_blob_pack(&good, bytes);
	assert_memory_equal(bytes + 12, "\xef\xcd\xab\0", 4);
	assert_memory_equal(bytes + 24, "\xef\xcd\xab\x89\x67\x45\x23\x01", 8);
	assert_memory_equal(bytes + 85, "\x05", 2);
}

static void values_out_of_range_are_refused(void **state)
{
	static const struct {
		unsigned at;
		uint8_t value;
	} bad[] = {
		{ 0, BRAID_FABRIC_IWARP + 1 }, { 1, 0 }, { 1, IBV_MTU_4096 + 1 }, { 2, 2 },
		{ 3, 3 }, { 6, 15 }, { 15, 1 }, { 19, 1 }, { 40, BRAID_GID_ROCE_V2 + 1 }, { 85, 3 },
		{ 85, 57 },
	};
	uint8_t bytes[BRAID_BLOB_SIZE];
	struct braid_qp_blob b;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		braid_qp_blob_pack(&good, bytes);
		bytes[bad[i].at] = bad[i].value;
		if (braid_qp_blob_unpack(bytes, &b) != -EBADMSG)
			fail_msg("%u at %u is taken", bad[i].value, bad[i].at);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_blob_comes_out_as_it_went_in),
		cmocka_unit_test(integers_are_little_endian),
		cmocka_unit_test(values_out_of_range_are_refused),
	};

	ports_of("ib0:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
