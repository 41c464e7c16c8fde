/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_smc.c - the kernel's reports on SMC connections: its answers, made here byte for byte as
 * smc_diag makes them, whole and damaged; and a text for each of its codes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smc/diag.h"

enum { INODE = 0x1234567, BUF = 1024 };

/* All that net/smc/smc_clc.h of Linux 6.18 has. */
static const uint32_t codes[] = {
	0x01010000, 0x02010000, 0x02020000, 0x03000000, 0x03010000, 0x03020000, 0x03030000, 0x03030001,
	0x03030002, 0x03030003, 0x03030004, 0x03030005, 0x03030006, 0x03030007, 0x03030008, 0x03030009,
	0x0303000a, 0x0303000b, 0x03040000, 0x03050000, 0x03060000, 0x03070000, 0x03080000, 0x03090000,
	0x030a0000, 0x030b0000, 0x030c0000, 0x030d0000, 0x030e0000, 0x030f0000, 0x04000000, 0x05000000,
	0x09990000, 0x09990001, 0x09990002, 0x09990003,
};

/* --- answers ------------------------------------------------------------------------------- */

static uint8_t buf[BUF];
static size_t len;

static void put(const void *data, size_t n)
{
	assert_true(len + n <= sizeof(buf));
	memcpy(buf + len, data, n);
	len += n;
}

static void put16(uint16_t v)
{
	put(&v, sizeof(v));
}

static void put32(uint32_t v)
{
	put(&v, sizeof(v));
}

static void put64(uint64_t v)
{
	put(&v, sizeof(v));
}

static void header(uint32_t size, uint16_t type)	/* struct nlmsghdr */
{
	put32(size);
	put16(type);
	put16(2);
	put32(1);
	put32(0);
}

/* struct smc_diag_msg: 64 bytes, the last 8 of which are the inode. */
static void socket_of(uint64_t inode, uint8_t mode, uint32_t more)
{
	static const uint8_t id[48];

	header(16 + 64 + more, 20);	/* SOCK_DIAG_BY_FAMILY */
	put((uint8_t[]){ 43, 1, mode, 0 }, 4);
	put(id, sizeof(id));
	put32(0);			/* uid */
	put64(inode);
}

static void fallback(uint32_t reason, uint32_t peer)
{
	put16(12);
	put16(5);			/* SMC_DIAG_FALLBACK */
	put32(reason);
	put32(peer);
}

enum { GROUP = 4 + 148 };

/* struct smc_diag_lgrinfo, 147 bytes: one link (number, name, port, two GIDs), and the role. */
static void link_group(const char *ib, uint8_t port)
{
	uint8_t l[148] = { 1 };

	memcpy(l + 1, ib, strlen(ib) < 64 ? strlen(ib) : 64);
	l[65] = port;
	put16(4 + 147);
	put16(2);			/* SMC_DIAG_LGRINFO */
	put(l, sizeof(l));
}

static void done(int32_t err)
{
	header(20, 3);
	put32((uint32_t)err);
}

static int begin(void **state)
{
	(void)state;
	len = 0;
	memset(buf, 0, sizeof(buf));
	return 0;
}

static int parse(struct braid_smc_mode *ret)
{
	/* Put the answer at the end of an allocation, so that a sanitizer sees a read beyond it. */
	uint8_t *tight = malloc(len ? len : 1);
	int err;

	assert_non_null(tight);
	memcpy(tight, buf, len);
	memset(ret, 0, sizeof(*ret));
	err = braid_smc_diag_parse(tight, len, INODE, ret);
	free(tight);
	return err;
}

static void test_ours_is_found_among_others(void **state)
{
	struct braid_smc_mode m;

	(void)state;
	socket_of(INODE - 1, 0, 0);
	socket_of(INODE, 1, 12);
	fallback(0x05000000, 0x03030008);
	socket_of(INODE + 1, 2, 0);
	assert_int_equal(parse(&m), 1);
	assert_true(m.found);
	assert_int_equal(m.kind, BRAID_SMC_TCP);
	assert_int_equal(m.reason, 0x05000000);
	assert_int_equal(m.peer_reason, 0x03030008);
	done(0);
	assert_int_equal(parse(&m), 0);
	assert_true(m.found);
}

static void test_smcr_names_its_device(void **state)
{
	char longest[65] = { 0 };
	struct braid_smc_mode m;

	(void)state;
	socket_of(INODE, 0, GROUP + 12);
	link_group("mlx5_0", 1);
	fallback(0, 0);
	assert_int_equal(parse(&m), 1);
	assert_int_equal(m.kind, BRAID_SMC_R);
	assert_string_equal(m.ib, "mlx5_0:1");
	begin(state);
	memset(longest, 'x', 64);	/* not terminated, then */
	socket_of(INODE, 0, GROUP);
	link_group(longest, 255);
	assert_int_equal(parse(&m), 1);
	assert_int_equal(strlen(m.ib), 64 + 4);
	begin(state);
	socket_of(INODE, 2, 0);
	assert_int_equal(parse(&m), 1);
	assert_int_equal(m.kind, BRAID_SMC_D);
}

static void test_refusals_of_the_kernel(void **state)
{
	struct braid_smc_mode m;

	(void)state;
	done(-ENOENT);
	assert_int_equal(parse(&m), -ENOENT);
	begin(state);
	header(36, 2);			/* NLMSG_ERROR: errno and the request's header */
	put32((uint32_t)-EPERM);
	header(72, 20);
	assert_int_equal(parse(&m), -EPERM);
	assert_false(m.found);
	begin(state);
	socket_of(INODE + 1, 0, 0);
	done(0);
	assert_int_equal(parse(&m), 0);
	assert_false(m.found);
}

static void damage(size_t at, uint16_t value)
{
	memcpy(buf + at, &value, sizeof(value));
}

/* Every length in the answer is checked before it is used. */
static void test_damage(void **state)
{
	struct braid_smc_mode m;

	(void)state;
	socket_of(INODE, 1, 12);
	fallback(1, 2);
	for (len = 1; len < 92; len++)
		assert_int_equal(parse(&m), -EBADMSG);
	assert_int_equal(parse(&m), 1);
	damage(0, 15);
	assert_int_equal(parse(&m), -EBADMSG);
	damage(0, 93);
	assert_int_equal(parse(&m), -EBADMSG);
	damage(0, 92);
	damage(80, 3);			/* the attribute's length */
	assert_int_equal(parse(&m), -EBADMSG);
	damage(80, 13);
	assert_int_equal(parse(&m), -EBADMSG);
	damage(80, 8);			/* too short for a fallback: none */
	damage(88, 4);
	assert_int_equal(parse(&m), 1);
	assert_int_equal(m.reason, 0);
	damage(80, 12);
	buf[16 + 2] = 3;		/* no such mode */
	assert_int_equal(parse(&m), -EBADMSG);
}

/* --- words --------------------------------------------------------------------------------- */

static void test_words_for_every_code(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		const char *text = braid_smc_reason(codes[i]);

		if (!text)
			fail_msg("no words for 0x%08x", codes[i]);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(text, braid_smc_reason(codes[k]));
	}
	assert_null(braid_smc_reason(0));
	assert_null(braid_smc_reason(0x03990000));
}

static void test_whose_reason(void **state)
{
	struct braid_smc_mode m = { .kind = BRAID_SMC_TCP, .reason = 0x03030000 };
	char text[160];

	(void)state;
	braid_smc_why(&m, text, sizeof(text));
	assert_ptr_equal(strstr(text, "fell back to TCP, reason 0x03030000: no device"), text);
	m.peer_reason = 0x03030008;	/* our own goes first */
	braid_smc_why(&m, text, sizeof(text));
	assert_non_null(strstr(text, "0x03030000"));
	m.reason = 0x05000000;
	braid_smc_why(&m, text, sizeof(text));
	assert_non_null(strstr(text, "the peer's reason 0x03030008: the ends have no UEID"));
	m.peer_reason = 0;
	braid_smc_why(&m, text, sizeof(text));
	assert_non_null(strstr(text, "the peer declined"));
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		m.reason = 0x05000000;
		m.peer_reason = codes[i];
		braid_smc_why(&m, text, sizeof(text));
		assert_true(strlen(text) < sizeof(text) - 1);	/* none is cut */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_ours_is_found_among_others, begin),
		cmocka_unit_test_setup(test_smcr_names_its_device, begin),
		cmocka_unit_test_setup(test_refusals_of_the_kernel, begin),
		cmocka_unit_test_setup(test_damage, begin),
		cmocka_unit_test(test_words_for_every_code),
		cmocka_unit_test(test_whose_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
