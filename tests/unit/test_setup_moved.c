/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_setup_moved.c - a device takes over the addresses that its interface gets, and the ways of a link
 * follow; by a list of interfaces that the test writes.  Links and lanes: tests/sim, tests/net/moved.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/setup/listener.h"
#include "core/setup/moved.h"
#include "core/setup/ways.h"

static union braid_netdev_addr addrs[8], mask;
static struct ifaddrs list[8];
static unsigned n, asked, freed;
static struct braid_dev dev;
static struct braid_os os;
static const struct braid_os *real;

static union braid_netdev_addr at(const char *ip)
{
	union braid_netdev_addr a = { .in = { .sin_family = AF_INET } };

	assert_int_equal(inet_pton(AF_INET, ip, &a.in.sin_addr), 1);
	return a;
}

static void has(const char *name, const char *ip)
{
	addrs[n] = at(ip);
	list[n] = (struct ifaddrs){ .ifa_name = (char *)(uintptr_t)name, .ifa_addr = &addrs[n].sa,
				    .ifa_netmask = &mask.sa };
	if (n)
		list[n - 1].ifa_next = &list[n];
	n++;
}

static int get(struct ifaddrs **ret)
{
	asked++;
	*ret = list;
	return n ? 0 : -1;
}

static void release(struct ifaddrs *l)
{
	assert_ptr_equal(l, list);
	freed++;
}

static int begin(void **state)
{
	(void)state;
	real = braid_os;
	os = *real;
	os.getifaddrs = get;
	os.freeifaddrs = release;
	braid_os = &os;
	n = asked = freed = 0;
	memset(list, 0, sizeof(list));
	mask = at("255.255.255.0");
	memset(&dev, 0, sizeof(dev));
	dev.nmembers = 1;
	dev.member[0] = &dev;
	strcpy(dev.net.name, "mlx5_0");
	strcpy(dev.net.interface, "eth0");
	strcpy(dev.addr, "10.1.0.1");
	dev.net.addr = at("10.1.0.1");
	dev.net.prefix = 24;
	braid_svc_lock();
	braid_links_init();
	braid_listeners_init();
	braid_handshakes_init();
	return 0;
}

static int end(void **state)
{
	(void)state;
	braid_svc_unlock();
	braid_os = real;
	assert_int_equal(asked - (asked && !n), freed);
	return 0;
}

static bool is(const char *ip)
{
	union braid_netdev_addr a = at(ip);

	return dev.net.addr.in.sin_addr.s_addr == a.in.sin_addr.s_addr && !strcmp(dev.addr, ip);
}

/* --- a device ------------------------------------------------------------------------------ */

static void a_device_takes_its_interfaces_new_addresses_over(void **state)
{
	(void)state;
	has("lo", "127.0.0.1");
	has("eth0", "10.1.0.9");
	has("eth0:1", "10.1.0.10");
	has("eth01", "10.1.0.11");
	braid_moved_device(&dev);
	assert_true(is("10.1.0.9"));
	assert_int_equal(dev.net.nmore, 1);
	assert_int_equal(dev.net.more[0].addr.in.sin_addr.s_addr, at("10.1.0.10").in.sin_addr.s_addr);
}

static void an_interface_without_an_address_keeps_what_it_had(void **state)
{
	(void)state;
	has("lo", "127.0.0.1");
	braid_moved_device(&dev);
	assert_true(is("10.1.0.1"));
}

static void a_list_that_cannot_be_had_changes_nothing(void **state)
{
	(void)state;
	braid_moved_device(&dev);
	assert_true(is("10.1.0.1"));
}

static void one_look_follows_many_signs_and_only_if_due(void **state)
{
	(void)state;
	has("eth0", "10.1.0.1");
	assert_int_equal(braid_moved_tick(1000 * SEC), -1);
	braid_moved_perhaps(1000 * SEC);
	braid_moved_perhaps(1000 * SEC + 50 * MS);
	assert_in_range(braid_moved_tick(1000 * SEC + 60 * MS), 1, 41);
	assert_int_equal(asked, 0);
	assert_int_equal(braid_moved_tick(1000 * SEC + 100 * MS), -1);
	assert_int_equal(asked, 1);
	braid_moved_perhaps(1000 * SEC + 200 * MS);	/* a second later at the earliest */
	assert_true(braid_moved_tick(1000 * SEC + 400 * MS) > 500);
	assert_int_equal(braid_moved_tick(1000 * SEC + 1100 * MS), -1);
	assert_int_equal(asked, 2);
}

/* --- ways ---------------------------------------------------------------------------------- */

static void the_ways_begin_at_the_new_address_and_lead_where_they_did(void **state)
{
	union braid_netdev_addr to[] = { at("10.1.0.2"), at("10.1.0.3") };
	struct braid_ways w;

	(void)state;
	braid_ways_find(&w, &dev, to, 2, BRAID_PEER_UNKNOWN, false);
	w.now = 1;
	dev.net.addr = at("10.1.0.9");
	braid_ways_again(&w, &dev, NULL);
	assert_int_equal(w.n, 2);
	assert_int_equal(w.way[w.now].pair.from.addr.in.sin_addr.s_addr, dev.net.addr.in.sin_addr.s_addr);
	assert_int_equal(w.way[w.now].pair.to.in.sin_addr.s_addr, to[1].in.sin_addr.s_addr);
}

static void a_new_address_of_the_peer_is_dialled_next(void **state)
{
	union braid_netdev_addr to = at("10.1.0.2"), more = at("10.1.0.7");
	struct braid_ways w;

	(void)state;
	braid_ways_find(&w, &dev, &to, 1, BRAID_PEER_UNKNOWN, false);
	assert_false(braid_ways_lead_to(&w, &more));
	braid_ways_again(&w, &dev, &more);
	assert_int_equal(w.n, 2);
	assert_int_equal(w.way[w.now].pair.to.in.sin_addr.s_addr, more.in.sin_addr.s_addr);
	assert_true(braid_ways_lead_to(&w, &to));	/* it has come from there again */
	assert_int_equal(w.way[w.now].pair.to.in.sin_addr.s_addr, to.in.sin_addr.s_addr);
	for (unsigned i = 0; i < 100; i++) {	/* however often it moves */
		more.in.sin_addr.s_addr = htonl(0x0a010100 + i);
		braid_ways_again(&w, &dev, &more);
	}
	assert_true(w.n <= BRAID_HANDLE_ADDRS);
	assert_int_equal(w.way[w.now].pair.to.in.sin_addr.s_addr, more.in.sin_addr.s_addr);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_device_takes_its_interfaces_new_addresses_over),
		CASE(an_interface_without_an_address_keeps_what_it_had),
		CASE(a_list_that_cannot_be_had_changes_nothing),
		CASE(one_look_follows_many_signs_and_only_if_due),
		CASE(the_ways_begin_at_the_new_address_and_lead_where_they_did),
		CASE(a_new_address_of_the_peer_is_dialled_next),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
