/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_qp_gid.c - the GIDs that a queue pair offers: verbs/qp_gid.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>

#include "core/base/param.h"

static struct braid_qp qp;

static int gids(const char *name, const struct braid_qp_blob *peer, struct braid_qp_blob *ret)
{
	struct braid_dev *dev = dev_named(name);

	*ret = (struct braid_qp_blob){ 0 };
	qp = (struct braid_qp){ .port = braid_ibport_of(dev), .dev = dev, .gid = BRAID_GID_NONE };
	return braid_qp_gids(&qp, dev, peer, ret);
}

static void the_dialler_offers_one_of_each_type_the_newer_first(void **state)
{
	struct braid_qp_blob b;

	(void)state;
	assert_int_equal(gids("roce0:1", NULL, &b), 0);
	assert_int_equal(b.ngids, 2);
	assert_int_equal(b.gid[0].type, BRAID_GID_ROCE_V2);
	assert_int_equal(b.gid[1].type, BRAID_GID_ROCE_V1);
	braid_param.ib_roce_version = 1;
	assert_int_equal(gids("roce0:1", NULL, &b), 0);
	assert_int_equal(b.gid[0].type, BRAID_GID_ROCE_V1);
	braid_param.ib_roce_version = 2;
}

static void the_accepter_answers_with_one_of_the_first_type_that_it_has(void **state)
{
	struct braid_qp_blob offer = { .ngids = 1, .gid = { { .type = BRAID_GID_ROCE_V1 } } }, b;

	(void)state;
	assert_int_equal(gids("roce0:1", &offer, &b), 0);
	assert_int_equal(b.ngids, 1);
	assert_int_equal(b.gid[0].type, BRAID_GID_ROCE_V1);
	assert_int_not_equal(qp.gid, BRAID_GID_NONE);
}

static void the_dialler_takes_its_own_of_that_type(void **state)
{
	struct braid_qp_blob answer = { .ngids = 1, .gid = { { .type = BRAID_GID_ROCE_V1 } } }, b;
	struct braid_setup s = { .dev = dev_named("roce0:1") };
	struct braid_gid g[BRAID_GIDS_MAX];
	unsigned n = braid_ibport_gids(port_named("roce0:1"), g, BRAID_GIDS_MAX);
	int type = -1;

	(void)state;
	assert_int_equal(gids("roce0:1", NULL, &b), 0);
	assert_int_equal(braid_qp_settle_gid(&qp, &s, &answer), 0);
	for (unsigned i = 0; i < n; i++) {
		if ((int)g[i].index == qp.gid)
			type = (int)g[i].type;
	}
	assert_int_equal(type, BRAID_GID_ROCE_V1);
	answer.ngids = 0;
	assert_int_equal(braid_qp_settle_gid(&qp, &s, &answer), -EPROTO);
}

static void an_index_that_is_right_on_another_host_is_named(void **state)
{
	struct braid_setup s = { .dev = dev_named("roce0:1") };
	struct braid_qp_blob b;

	(void)state;
	strcpy(braid_param.ib_gid, "roce0=99");
	assert_int_equal(gids("roce0:1", NULL, &b), -EADDRNOTAVAIL);
	assert_int_equal(braid_qp_no_gid(&s), -EADDRNOTAVAIL);
	assert_non_null(strstr(s.why, "index 99"));
	assert_non_null(strstr(s.why, "BRAID_IB_GID"));
	strcpy(braid_param.ib_gid, "");
}

static void an_infiniband_port_offers_its_own(void **state)
{
	struct braid_qp_blob b;

	(void)state;
	assert_int_equal(gids("ib0:1", NULL, &b), 0);
	assert_int_equal(b.ngids, 1);
	assert_int_equal(b.gid[0].type, BRAID_GID_IB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_dialler_offers_one_of_each_type_the_newer_first),
		cmocka_unit_test(the_accepter_answers_with_one_of_the_first_type_that_it_has),
		cmocka_unit_test(the_dialler_takes_its_own_of_that_type),
		cmocka_unit_test(an_index_that_is_right_on_another_host_is_named),
		cmocka_unit_test(an_infiniband_port_offers_its_own),
	};

	ports_of("ib0:ib;roce0:rocev2,netdev=lo");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
