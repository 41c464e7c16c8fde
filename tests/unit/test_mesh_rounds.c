/* SPDX-License-Identifier: BSD-3-Clause */
/* test_mesh_rounds.c - braid mesh measures each pair once, and no host twice at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "tools/mesh/mesh.h"

static void each_pair_is_in_one_round(void **state)
{
	static int seen[MESH_HOSTS_MAX][MESH_HOSTS_MAX];
	int n, round, k, a, b, i, j;

	(void)state;
	for (n = 2; n <= 130; n++) {
		memset(seen, 0, sizeof(seen));
		for (round = 0; round < mesh_rounds(n); round++)
			for (k = 0; k < mesh_seats(n) / 2; k++)
				if (mesh_pair(n, round, k, &a, &b))
					seen[a][b]++;
		for (i = 0; i < n; i++)
			for (j = 0; j < n; j++)
				assert_int_equal(seen[i][j], i < j);
	}
}

static void no_host_is_twice_in_a_round(void **state)
{
	bool busy[MESH_HOSTS_MAX];
	int n, round, k, a, b, pairs;

	(void)state;
	for (n = 2; n <= 130; n++)
		for (round = 0; round < mesh_rounds(n); round++) {
			memset(busy, 0, sizeof(busy));
			for (k = pairs = 0; k < mesh_seats(n) / 2; k++) {
				if (!mesh_pair(n, round, k, &a, &b))
					continue;
				assert_in_range(a, 0, n - 1);
				assert_in_range(b, 0, n - 1);
				assert_true(a < b && !busy[a] && !busy[b]);
				busy[a] = busy[b] = true;
				pairs++;
			}
			assert_int_equal(pairs, n / 2);
		}
}

static void the_rounds_are_as_few_as_can_be(void **state)
{
	(void)state;
	assert_int_equal(mesh_rounds(0), 0);
	assert_int_equal(mesh_rounds(1), 0);
	assert_int_equal(mesh_rounds(2), 1);
	assert_int_equal(mesh_rounds(16), 15);
	assert_int_equal(mesh_rounds(17), 17);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_pair_is_in_one_round),
		cmocka_unit_test(no_host_is_twice_in_a_round),
		cmocka_unit_test(the_rounds_are_as_few_as_can_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
