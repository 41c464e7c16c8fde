/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_gpu_reg.c - the ways to register GPU memory: verbs/gpu_reg.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/base/param.h"
#include "verbs/gpu.h"

static _Alignas(4096) char memory[8192];	/* plays the GPU's: nvidia-peermem takes it */

static const struct braid_mem mem = {
	.data = memory, .size = sizeof(memory), .gpu = true, .gpu_index = 3, .fd = -1,
};

static void a_way_that_was_found_to_work_is_used(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_key key;

	(void)state;
	braid_ibport_of(dev)->gpu_methods = 1 << BRAID_PEERMEM;
	assert_int_equal(braid_verbs_gpu_reg(dev, &mem, &key), 0);
	assert_int_equal(key.gpu, 3);
	assert_int_equal(key.remote, ((struct ibv_mr *)key.mr)->rkey);
	braid_ibv.dereg_mr(key.mr);
}

static void a_strict_port_names_the_key_to_no_peer(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_key key;

	(void)state;
	braid_ibport_of(dev)->gpu_methods = 1 << BRAID_PEERMEM;
	braid_param.rdma_strict = 1;
	assert_int_equal(braid_verbs_gpu_reg(dev, &mem, &key), 0);
	braid_param.rdma_strict = 0;
	assert_true(key.sealed);
	braid_ibv.dereg_mr(key.mr);
}

static void without_a_way_the_reason_is_reported_once(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_key key;

	(void)state;
	braid_ibport_of(dev)->gpu_methods = 0;
	warns_clear();
	assert_int_equal(braid_verbs_gpu_reg(dev, &mem, &key), -EOPNOTSUPP);
	assert_int_equal(braid_verbs_gpu_reg(dev, &mem, &key), -EOPNOTSUPP);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "GPU 3"));
	assert_non_null(strstr(warn_text, "[gpu-not-registered]"));
}

static void each_way_has_a_name_and_two_are_by_data_direct(void **state)
{
	unsigned direct = 0;

	(void)state;
	for (unsigned method = 0; method < BRAID_GPU_METHODS; method++) {
		assert_non_null(braid_gpu_method_name[method]);
		if (braid_gpu_method_is_direct(method))
			direct |= 1u << method;
	}
	assert_int_equal(direct, BRAID_WITH_DIRECT);
}

static void reasons_are_gathered_in_one_line(void **state)
{
	char why[24] = "";

	(void)state;
	braid_gpu_note(why, sizeof(why), "pcie", 0);
	braid_gpu_note_text(why, sizeof(why), "dmabuf", "no");
	assert_string_equal(why, "pcie, dmabuf: no");
	braid_gpu_note_text(why, sizeof(why), "peermem", "cut to its room");
	assert_int_equal(strlen(why), sizeof(why) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_way_that_was_found_to_work_is_used),
		cmocka_unit_test(a_strict_port_names_the_key_to_no_peer),
		cmocka_unit_test(without_a_way_the_reason_is_reported_once),
		cmocka_unit_test(each_way_has_a_name_and_two_are_by_data_direct),
		cmocka_unit_test(reasons_are_gathered_in_one_line),
	};

	ports_of("ib0:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
