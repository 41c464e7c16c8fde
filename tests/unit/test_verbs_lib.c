/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_lib.c - the libraries, loaded at run time: verbs/lib.c. */
#include "tests/unit/ports.h"

#include <string.h>

static void libraries_are_loaded_once(void **state)
{
	char why[160] = "";
	struct braid_ibv first;

	(void)state;
	assert_int_equal(braid_ibv_load(why, sizeof(why)), 0);
	first = braid_ibv;
	assert_int_equal(braid_ibv_load(why, sizeof(why)), 0);
	assert_memory_equal(&first, &braid_ibv, sizeof(first));
	assert_string_equal(why, "");
}

static void every_function_that_is_needed_is_there(void **state)
{
	char why[160] = "";

	(void)state;
	assert_int_equal(braid_rdma_load(why, sizeof(why)), 0);
	assert_int_equal(braid_mlx5_load(why, sizeof(why)), 0);
#define THERE(result, name, args) assert_non_null(braid_ibv.name);
	BRAID_IBV_NEEDED(THERE)
#undef THERE
#define THERE(result, name, args) assert_non_null(braid_rdma.name);
	BRAID_RDMA_NEEDED(THERE)
#undef THERE
#define THERE(result, name, args) assert_non_null(braid_mlx5.name);
	BRAID_MLX5_NEEDED(THERE)
#undef THERE
}

/* The fake's kernel is an old one, for which libibverbs marks pages. */
static void what_keeps_pinned_memory_across_fork_is_named(void **state)
{
	(void)state;
	assert_string_equal(braid_ibv_fork(), "libibverbs");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(libraries_are_loaded_once),
		cmocka_unit_test(every_function_that_is_needed_is_there),
		cmocka_unit_test(what_keeps_pinned_memory_across_fork_is_named),
	};

	ports_of("ib0:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
