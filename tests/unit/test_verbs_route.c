/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_route.c - how a peer over InfiniBand is addressed: verbs/route.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>

#include "core/base/param.h"
#include "verbs/route.h"

static char why[160];

/* The addresses that the other port sends. */
static struct braid_qp_blob blob_of(const char *name)
{
	struct braid_ibport *p = port_named(name);
	struct braid_qp_blob b = { .lid = atomic_load(&p->lid), .grh = p->grh };
	struct braid_gid g[2];

	b.ngids = (uint8_t)braid_route_gids(p, g);
	for (unsigned i = 0; i < b.ngids; i++)
		memcpy(b.gid[i].raw, g[i].raw, 16);
	return b;
}

static int find(struct braid_qp *w, const char *from, const char *to)
{
	struct braid_qp_blob b = blob_of(to);

	*w = (struct braid_qp){ .port = port_named(from) };
	why[0] = '\0';
	return braid_route_find(w, &b, why, sizeof(why));
}

static void within_a_subnet_the_lid_is_enough(void **state)
{
	struct braid_qp w;

	(void)state;
	assert_int_equal(find(&w, "near:1", "near:1"), 0);
	assert_int_equal(w.dlid, 3);
	assert_int_equal(w.gid, BRAID_GID_NONE);
}

static void a_port_that_demands_a_grh_gets_one(void **state)
{
	struct braid_qp w;

	(void)state;
	assert_int_equal(find(&w, "near:1", "must:1"), 0);
	assert_int_equal(w.dlid, 5);
	assert_int_equal(w.gid, 0);
}

static void another_subnet_is_reached_by_the_flid_in_the_peers_gid(void **state)
{
	struct braid_qp w;

	(void)state;
	braid_param.ib_flid_gid_index = 1;
	assert_int_equal(find(&w, "near:1", "far:1"), 0);
	assert_int_equal(w.dlid, 9);
	assert_int_equal(w.peer_gid, 1);
	assert_int_not_equal(w.gid, BRAID_GID_NONE);
}

static void or_by_the_routers_lid_that_the_user_sets(void **state)
{
	struct braid_qp w;

	(void)state;
	braid_param.ib_flid_gid_index = 0;
	assert_int_equal(find(&w, "near:1", "far:1"), -EHOSTUNREACH);
	assert_non_null(strstr(why, "BRAID_IB_ROUTER_LID"));
	braid_param.ib_router_lid = 33;
	assert_int_equal(find(&w, "near:1", "far:1"), 0);
	assert_int_equal(w.dlid, 33);
	braid_param.ib_router_lid = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(within_a_subnet_the_lid_is_enough),
		cmocka_unit_test(a_port_that_demands_a_grh_gets_one),
		cmocka_unit_test(another_subnet_is_reached_by_the_flid_in_the_peers_gid),
		cmocka_unit_test(or_by_the_routers_lid_that_the_user_sets),
	};

	ports_of("near:ib,lid=3;far:ib,subnet=7,flid=9,lid=4;must:ib,grh=1,lid=5");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
