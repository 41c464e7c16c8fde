/* SPDX-License-Identifier: BSD-3-Clause */
/* test_crc32c.c - CRC32C: the vectors of RFC 3720, and both ways to compute it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/base/crc32c.h"

static const uint8_t read10[48] = {
	0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
	0, 0, 0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0,
};

static void check(const void *p, size_t n, uint32_t want)
{
	assert_int_equal(braid_crc32c(0, p, n), want);
	assert_int_equal(braid_crc32c_plain(0, p, n), want);
}

static void the_vectors_of_rfc_3720_hold(void **state)
{
	uint8_t zeros[32] = { 0 }, ones[32], up[32], down[32];

	(void)state;
	memset(ones, 0xff, sizeof(ones));
	for (uint8_t i = 0; i < 32; i++) {
		up[i] = i;
		down[i] = (uint8_t)(31 - i);
	}
	check(zeros, sizeof(zeros), 0x8a9136aa);
	check(ones, sizeof(ones), 0x62a8ab43);
	check(up, sizeof(up), 0x46dd794e);
	check(down, sizeof(down), 0x113fdb5c);
	check(read10, sizeof(read10), 0xd9963a56);
	check("123456789", 9, 0xe3069283);
	check("", 0, 0);
}

/* Long input takes another way than short input, and any address is allowed. */
static void both_ways_agree_at_every_length_and_address(void **state)
{
	enum { N = 12000 };
	uint8_t *p = malloc(N + 8);
	uint32_t x = 1;

	(void)state;
	assert_non_null(p);
	for (unsigned i = 0; i < N + 8; i++) {
		x = x * 1664525 + 1013904223;
		p[i] = (uint8_t)(x >> 24);
	}
	for (size_t n = 0; n <= N; n += n < 1000 ? 1 : 997)
		for (size_t at = 0; at < 8; at++)
			assert_int_equal(braid_crc32c(7, p + at, n),
					 braid_crc32c_plain(7, p + at, n));
	free(p);
}

static void parts_give_the_checksum_of_the_whole(void **state)
{
	uint8_t p[5000];
	uint32_t whole;

	(void)state;
	for (unsigned i = 0; i < sizeof(p); i++)
		p[i] = (uint8_t)(i * 7);
	whole = braid_crc32c(0, p, sizeof(p));
	for (size_t at = 0; at <= sizeof(p); at += 613)
		assert_int_equal(braid_crc32c(braid_crc32c(0, p, at), p + at, sizeof(p) - at),
				 whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_vectors_of_rfc_3720_hold),
		cmocka_unit_test(both_ways_agree_at_every_length_and_address),
		cmocka_unit_test(parts_give_the_checksum_of_the_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
