/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_gid.c - which GID is chosen: by the address in use, or by NCCL's variables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "verbs/gid.h"

enum { OURS = 7, VLAN = 8 };

static const struct {
	const char *addr;
	unsigned ifindex;
	enum braid_gid_type type;
} rows[] = {
	{ "fe80::1", OURS, BRAID_GID_ROCE_V1 },			/* 0 */
	{ "fe80::1", OURS, BRAID_GID_ROCE_V2 },			/* 1 */
	{ "10.0.0.1", OURS, BRAID_GID_ROCE_V2 },		/* 2 */
	{ "10.1.0.1", OURS, BRAID_GID_ROCE_V2 },		/* 3 */
	{ "fd00::1", OURS, BRAID_GID_ROCE_V2 },			/* 4 */
	{ "192.168.7.1", VLAN, BRAID_GID_ROCE_V2 },		/* 5 */
	{ "10.0.0.1", OURS, BRAID_GID_ROCE_V1 },		/* 6 */
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static int choose(int family, const char *range, enum braid_gid_type type, int forced)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct braid_gid table[ROWS];
	struct braid_gid_pref pref;
	char why[400];

	inet_pton(AF_INET, "10.0.0.1", &in.sin_addr);
	for (unsigned i = 0; i < ROWS; i++) {
		table[i] = (struct braid_gid){ .index = i, .ifindex = rows[i].ifindex,
					       .type = rows[i].type };
		if (inet_pton(AF_INET, rows[i].addr, table[i].raw + 12) == 1)
			memset(table[i].raw + 10, 0xff, 2);
		else
			assert_int_equal(inet_pton(AF_INET6, rows[i].addr, table[i].raw), 1);
	}
	braid_gid_pref_parse(family, range, &pref);
	return braid_gid_choose(table, ROWS, type, (struct sockaddr *)&in, OURS, forced, &pref, why,
				sizeof(why));
}

static void the_gid_is_the_one_asked_for_where_there_is_one(void **state)
{
	static const struct {
		int family;
		const char *range;
		enum braid_gid_type type;
		int forced, chosen;
	} cases[] = {
		{ AF_UNSPEC, "", BRAID_GID_ROCE_V2, -1, 2 },	/* the address in use */
		{ AF_UNSPEC, "", BRAID_GID_ROCE_V1, -1, 6 },
		{ AF_INET, "", BRAID_GID_ROCE_V2, -1, 2 },
		{ AF_INET6, "", BRAID_GID_ROCE_V2, -1, 4 },
		{ AF_UNSPEC, "10.1.0.0/16", BRAID_GID_ROCE_V2, -1, 3 },
		{ AF_UNSPEC, "10.0.0.0/8", BRAID_GID_ROCE_V2, -1, 2 },
		{ AF_UNSPEC, "10.1.0.1/32", BRAID_GID_ROCE_V2, -1, 3 },
		{ AF_UNSPEC, "0.0.0.0/0", BRAID_GID_ROCE_V2, -1, 2 },
		{ AF_UNSPEC, "fd00::/8", BRAID_GID_ROCE_V2, -1, 4 },
		{ AF_UNSPEC, "fe80::/10", BRAID_GID_ROCE_V2, -1, 1 },
		{ AF_UNSPEC, "192.168.0.0/16", BRAID_GID_ROCE_V2, -1, 5 },	/* another's */
		{ AF_INET6, "10.1.0.0/16", BRAID_GID_ROCE_V2, -1, 2 },	/* there is none */
		{ AF_UNSPEC, "172.16.0.0/12", BRAID_GID_ROCE_V2, -1, 2 },
		{ AF_UNSPEC, "10.1.0.0/16", BRAID_GID_ROCE_V2, 4, 4 },	/* an index wins */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int got = choose(cases[i].family, cases[i].range, cases[i].type, cases[i].forced);

		if (got != cases[i].chosen)
			fail_msg("case %zu, '%s': %d, not %d", i, cases[i].range, got,
				 cases[i].chosen);
	}
}

static void a_range_that_is_none_is_refused(void **state)
{
	static const char *const texts[] = { "10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/x",
					     "10.0.0/8", "fd00::/129", "/8", "eth0/8", "10.0.0.0/8 " };
	struct braid_gid_pref pref;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (braid_gid_pref_parse(AF_UNSPEC, texts[i], &pref) != -EINVAL)
			fail_msg("'%s' is taken", texts[i]);
		assert_false(pref.has_range);
	}
	assert_int_equal(braid_gid_pref_parse(AF_INET, "", &pref), 0);
	assert_int_equal(pref.family, AF_INET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_gid_is_the_one_asked_for_where_there_is_one),
		cmocka_unit_test(a_range_that_is_none_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
