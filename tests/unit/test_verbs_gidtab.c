/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_gidtab.c - the GID table of a port: verbs/gidtab.c. */
#include "tests/unit/ports.h"

#include <arpa/inet.h>
#include <string.h>

static unsigned count(const char *name, struct braid_gid *ret)
{
	return braid_ibport_gids(port_named(name), ret, BRAID_GIDS_MAX);
}

static const struct braid_gid *find(const struct braid_gid *g, unsigned n, const char *addr,
				    enum braid_gid_type type)
{
	char text[INET6_ADDRSTRLEN];

	for (unsigned i = 0; i < n; i++) {
		braid_gid_text(g[i].raw, text, sizeof(text));
		if (!strcmp(text, addr) && g[i].type == type)
			return &g[i];
	}
	return NULL;
}

/* The GUID of a NIC is that of its first port less one. */
static void an_infiniband_port_has_its_own_gid(void **state)
{
	static const uint8_t guid[] = { 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x89 };
	struct braid_gid g[BRAID_GIDS_MAX];

	(void)state;
	assert_int_equal(count("ib0:1", g), 1);
	assert_int_equal(g[0].type, BRAID_GID_IB);
	assert_memory_equal(g[0].raw + 8, guid, sizeof(guid));
}

static void a_roce_port_has_an_entry_for_each_address_and_type(void **state)
{
	struct braid_gid g[BRAID_GIDS_MAX];
	unsigned n = count("roce0:1", g);

	(void)state;
	assert_non_null(find(g, n, "127.0.0.1", BRAID_GID_ROCE_V2));
	assert_non_null(find(g, n, "127.0.0.1", BRAID_GID_ROCE_V1));
	for (unsigned i = 1; i < n; i++)
		assert_true(g[i].index > g[i - 1].index);
}

static void addresses_that_this_network_namespace_lacks_are_foreign(void **state)
{
	struct braid_gid g[BRAID_GIDS_MAX];
	unsigned n = count("roce0:1", g);
	const struct braid_gid *own = find(g, n, "127.0.0.1", BRAID_GID_ROCE_V2);
	const struct braid_gid *foreign = find(g, n, "192.0.2.9", BRAID_GID_ROCE_V2);

	(void)state;
	assert_non_null(own);
	assert_non_null(foreign);
	assert_false(own->foreign);
	assert_true(foreign->foreign);
}

static void no_more_are_written_than_there_is_room(void **state)
{
	struct braid_gid g[2] = { { .index = 99 }, { .index = 99 } };

	(void)state;
	assert_int_equal(braid_ibport_gids(port_named("roce0:1"), g, 1), 1);
	assert_int_equal(g[1].index, 99);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_infiniband_port_has_its_own_gid),
		cmocka_unit_test(a_roce_port_has_an_entry_for_each_address_and_type),
		cmocka_unit_test(addresses_that_this_network_namespace_lacks_are_foreign),
		cmocka_unit_test(no_more_are_written_than_there_is_room),
	};

	ports_of("ib0:ib,guid=1122334455667788;roce0:rocev2,netdev=lo,addr=192.0.2.9");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
