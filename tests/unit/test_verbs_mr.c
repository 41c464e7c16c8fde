/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_mr.c - registered memory: verbs/mr.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/param.h"
#include "verbs/mr.h"

enum { BYTES = 8192 };

static void *pages(int prot)
{
	void *p = mmap(NULL, BYTES, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static int reg(struct braid_dev *dev, void *data, bool send_only, struct braid_key *ret)
{
	struct braid_mem mem = { .data = data, .size = BYTES, .fd = -1, .send_only = send_only };

	return braid_ibport_reg(dev, &mem, ret);
}

static void the_users_memory_has_keys_for_both_ends(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	void *data = pages(PROT_READ | PROT_WRITE);
	long before = ports_ctl("live mr");
	struct braid_key key;

	(void)state;
	assert_int_equal(reg(dev, data, false, &key), 0);
	assert_false(key.sealed);
	assert_int_equal(key.local, ((struct ibv_mr *)key.mr)->lkey);
	assert_int_equal(key.remote, ((struct ibv_mr *)key.mr)->rkey);
	assert_int_equal(ports_ctl("live mr"), before + 1);
	braid_ibport_dereg(dev, &key);
	assert_int_equal(ports_ctl("live mr"), before);
	munmap(data, BYTES);
}

/* Not by this process's NIC either: a peer with the key has no use of it. */
static void memory_to_send_from_can_not_be_written(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	void *data = pages(PROT_READ | PROT_WRITE);
	long open = ports_ctl("live open");
	struct braid_key key;

	(void)state;
	assert_int_equal(reg(dev, data, true, &key), 0);
	assert_true(key.sealed);
	assert_int_equal(key.remote, 0);
	assert_int_equal(ports_ctl("live open"), open);
	braid_ibport_dereg(dev, &key);
	munmap(data, BYTES);
}

static void memory_that_can_not_be_written_can_be_sent_from(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	void *data = pages(PROT_READ);
	struct braid_key key;

	(void)state;
	assert_int_equal(reg(dev, data, false, &key), 0);
	assert_true(key.sealed);
	assert_int_equal(key.remote, 0);
	braid_ibport_dereg(dev, &key);
	munmap(data, BYTES);
}

static void only_the_users_memory_is_written_in_any_order(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	void *data = pages(PROT_READ | PROT_WRITE);
	struct braid_key key;
	struct ibv_mr *own;

	(void)state;
	assert_int_equal(braid_ibport_relaxed(), IBV_ACCESS_RELAXED_ORDERING);
	assert_int_equal(reg(dev, data, false, &key), 0);
	own = braid_ibport_own(braid_ibport_of(dev), braid_ibport_of(dev)->pd, data, BYTES,
			       IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(own);
	assert_int_equal(ports_ctl("live relaxed"), 1);
	braid_ibv.dereg_mr(own);
	braid_ibport_dereg(dev, &key);
	braid_param.ib_pci_relaxed_ordering = 0;
	assert_int_equal(braid_ibport_relaxed(), 0);
	braid_param.ib_pci_relaxed_ordering = 1;
	munmap(data, BYTES);
}

static void a_lack_of_pinned_memory_is_reported_and_may_pass(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	void *data = pages(PROT_READ | PROT_WRITE);
	struct braid_key key;

	(void)state;
	warns_clear();
	ports_ctl("fail 1 ibv_reg_mr_iova2 ENOMEM");
	assert_int_equal(reg(dev, data, false, &key), -EAGAIN);
	ports_ctl("fail 0");
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "can't register 8192 bytes"));
	munmap(data, BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_users_memory_has_keys_for_both_ends),
		cmocka_unit_test(memory_that_can_not_be_written_can_be_sent_from),
		cmocka_unit_test(memory_to_send_from_can_not_be_written),
		cmocka_unit_test(only_the_users_memory_is_written_in_any_order),
		cmocka_unit_test(a_lack_of_pinned_memory_is_reported_and_may_pass),
	};

	ports_of("ib0:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
