/* SPDX-License-Identifier: BSD-3-Clause */
/* test_netdev.c - which interfaces of an imaginary machine are found, and why not others. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* nftw */
#endif
#include "tests/unit/netdevs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topo/ips.h"

static void with_no_filter_the_order_is_that_of_nccl(void **state)
{
	static const struct {
		struct fake fakes[FAKES_MAX];
		const char *names;
	} rows[] = {
		{ { { "lo", LO, { "127.0.0.1" } }, { "docker0", UP, { "172.17.0.1" } },
		    { "eth0", UP, { "10.0.0.1" } }, { "ib0", UP, { "10.0.2.1" } },
		    { "ib1", UP, { "10.0.2.2" } } }, "ib0 ib1" },
		{ { { "ib0", IFF_UP, { "10.0.2.1" } }, { "eth0", UP, { "10.0.0.1" } } }, "eth0" },
		{ { { "ib0", IFF_RUNNING, { "10.0.2.1" } }, { "eth0", UP, { "10.0.0.1" } } },
		  "eth0" },
		{ { { "ib0", UP, { NULL } }, { "eth0", UP, { "10.0.0.1" } } }, "eth0" },
		{ { { "lo", LO, { "127.0.0.1" } }, { "docker0", UP, { "172.17.0.1" } },
		    { "virbr0", UP, { "192.168.122.1" } }, { "ens3", UP, { "10.0.0.1" } },
		    { "wlan0", UP, { "10.0.0.2" } } }, "ens3 wlan0" },
		{ { { "lo", LO, { "127.0.0.1" } }, { "virbr0", UP, { "192.168.122.1" } },
		    { "docker0", UP, { "172.17.0.1" } }, { "docker_gwbridge", UP,
		    { "172.18.0.1" } } }, "docker0 docker_gwbridge" },
		{ { { "virbr0", UP, { "192.168.122.1" } }, { "lo", LO, { "127.0.0.1" } } }, "lo" },
		{ { { "lo", LO, { "127.0.0.1" } }, { "eth0", 0, { "10.0.0.1" } } }, "lo" },
		{ { { "virbr0", UP, { "192.168.122.1" } } }, "virbr0" },
		{ { { "lo", LO, { "127.0.0.1" } }, { "lowpan0", UP, { "10.0.0.1" } } },
		  "lowpan0" },
		{ { { "bond0", UP, { "10.0.0.1" } }, { "eth0", UP | IFF_SLAVE, { "10.0.0.9" } } },
		  "bond0" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		assert_string_equal(found_names(find(rows[i].fakes, "", AF_UNSPEC)),
				    rows[i].names);
		assert_string_equal(found_names(find(rows[i].fakes, NULL, AF_UNSPEC)),
				    rows[i].names);
	}
}

static void a_filter_chooses_as_in_nccl(void **state)
{
	static const char *const rows[][2] = {
		{ "eth", "eth0 eth1" },
		{ "eth0", "eth0" },
		{ "=eth", "" },
		{ "=eth0", "eth0" },
		{ "=eth0,ib0", "eth0 ib0" },
		{ "ib,eth1", "eth1 ib0 ibs2" },
		{ "eth1,eth0", "eth0 eth1" },
		{ "^eth", "docker0 virbr0 ib0 ibs2" },
		{ "^docker,virbr", "eth0 eth1 ib0 ibs2" },
		{ "^=eth0", "docker0 virbr0 eth1 ib0 ibs2" },
		{ "^=eth", "docker0 virbr0 eth0 eth1 ib0 ibs2" },
		{ "docker", "docker0" },
		{ "virbr", "virbr0" },
		{ "e", "eth0 eth1" },
		{ "nothing", "" },
		/* Loopback: asked for, or all that is left. */
		{ "lo", "lo" },
		{ "=lo", "lo" },
		{ "lo,eth0", "lo eth0" },
		{ "^docker,virbr,eth,ib", "lo" },
		{ "^docker,virbr,eth,ib,lo", "" },
		/* A port does not count, nor do blanks and empty names. */
		{ "eth0:7", "eth0" },
		{ "eth1:1,eth0:7", "eth0 eth1" },
		{ " eth0 ,\tib0 ", "eth0 ib0" },
		{ ",,eth0,,", "eth0" },
		/* No names at all: as if there was no filter. */
		{ "^", "ib0 ibs2" },
		{ "=", "ib0 ibs2" },
		{ "^=", "ib0 ibs2" },
		{ ",", "ib0 ibs2" },
		{ " ", "ib0 ibs2" },
		{ ":3", "ib0 ibs2" },
		/* Marks before each name, or the other way round; quotes. */
		{ "^=eth0,^=eth1", "docker0 virbr0 ib0 ibs2" },
		{ "=eth0,=eth1", "eth0 eth1" },
		{ "^docker,^virbr,^ib", "eth0 eth1" },
		{ "=^eth0", "docker0 virbr0 eth1 ib0 ibs2" },
		{ "\"eth0,eth1\"", "eth0 eth1" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		int n = find(full, rows[i][0], AF_INET);

		if (n < 0 || strcmp(found_names(n), rows[i][1]) != 0)
			fail_msg("'%s': %d, %s", rows[i][0], n, n < 0 ? why : found_names(n));
		assert_int_equal(n == 0, strncmp(why, "no usable", 9) == 0);
	}
}

static void a_filter_is_parsed_into_marks_and_names(void **state)
{
	static const struct {
		const char *text;
		bool exclude, exact;
		const char *names[4];
		bool odd;		/* not as NCCL reads it */
		const char *plain;
	} rows[] = {
		{ "", false, false, { NULL }, false, "" },
		{ "eth0", false, false, { "eth0" }, false, "eth0" },
		{ "^eth0", true, false, { "eth0" }, false, "^eth0" },
		{ "=eth0", false, true, { "eth0" }, false, "=eth0" },
		{ "^=a,b,c", true, true, { "a", "b", "c" }, false, "^=a,b,c" },
		{ "a:1,b:2:3", false, false, { "a", "b" }, false, "a:1,b:2:3" },
		{ "a::3,b:::4", false, false, { "a", "b" }, false, "a::3,b:::4" },
		{ "a:,b:-1", false, false, { "a", "b" }, false, "a,b" },
		{ "a,,b,", false, false, { "a", "b" }, false, "a,b" },
		{ "^", true, false, { NULL }, false, "^" },
		{ "123456789012345", false, false, { "123456789012345" }, false,
		  "123456789012345" },
		{ "a b", false, false, { "a b" }, false, "a b" },
		{ "a:0123456789012345678", false, false, { "a" }, false, "a:0" },
		{ "mlx5_0:x", false, false, { "mlx5_0" }, false, "mlx5_0:0" },
		/* Marks, quotes and blanks that NCCL reads as part of a name, and Braid does not. */
		{ "^=a,^=b", true, true, { "a", "b" }, true, "^=a,b" },
		{ "^=a,^b,=c", true, true, { "a", "b", "c" }, true, "^=a,b,c" },
		{ "=a,=b", false, true, { "a", "b" }, true, "=a,b" },
		{ "^lo,^eth0", true, false, { "lo", "eth0" }, true, "^lo,eth0" },
		{ "==a", false, true, { "a" }, true, "=a" },
		{ "=^a", true, true, { "a" }, true, "^=a" },
		{ "\"mlx5_0\"", false, false, { "mlx5_0" }, true, "mlx5_0" },
		{ "'^=a,b'", true, true, { "a", "b" }, true, "^=a,b" },
		{ "'a',\"b\"", false, false, { "a", "b" }, true, "a,b" },
		{ "a, b", false, false, { "a", "b" }, true, "a,b" },
		{ " ^ a\t,b ", true, false, { "a", "b" }, true, "^a,b" },
		{ "a : 1", false, false, { "a" }, false, "a:1" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct braid_netdev_filter f;
		char plain[64];
		unsigned n = 0;

		memset(&f, 0x5a, sizeof(f));
		if (braid_netdev_filter_parse(rows[i].text, &f, NULL, 0))
			fail_msg("'%s' is refused", rows[i].text);
		assert_int_equal(f.exclude, rows[i].exclude);
		assert_int_equal(f.exact, rows[i].exact);
		if (f.odd != rows[i].odd)
			fail_msg("'%s' is %sodd", rows[i].text, f.odd ? "" : "not ");
		for (; rows[i].names[n]; n++)
			assert_string_equal(f.item[n].name, rows[i].names[n]);
		assert_int_equal(f.n, n);
		braid_netdev_filter_format(&f, plain, sizeof(plain));
		assert_string_equal(plain, rows[i].plain);
	}
}

static void marks_that_differ_are_refused(void **state)
{
	static const char *const rows[] = { "=a,^b", "a,^b", "a,=b", "^a,=b", "^=a,b,=^c,^^d",
					    "^^a", "^=^a" };

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct braid_netdev_filter f;
		char text[BRAID_FILTER_TEXT] = "";

		if (braid_netdev_filter_parse(rows[i], &f, text, sizeof(text)) != -EINVAL)
			fail_msg("'%s' is taken", rows[i]);
		assert_non_null(strstr(text, "mark"));
		assert_int_equal(find(full, rows[i], AF_INET), -EINVAL);
		assert_non_null(strstr(why, rows[i]));
	}
}

static void a_port_has_a_name_and_a_number(void **state)
{
	static const struct {
		const char *text, *name;
		unsigned num;
		bool match;
		int rail, plane;
	} rows[] = {
		{ "", "mlx5_0", 1, true, -1, -1 },
		{ "mlx5", "mlx5_0", 1, true, -1, -1 },
		{ "mlx5_0:1", "mlx5_0", 1, true, -1, -1 },
		{ "mlx5_0:1", "mlx5_0", 2, false, -1, -1 },
		{ "mlx5_0:0", "mlx5_0", 1, false, -1, -1 },
		{ "mlx5_0:", "mlx5_0", 2, true, -1, -1 },
		{ "mlx5_1,mlx5_0:2:3:4", "mlx5_0", 2, true, 3, 4 },
		{ "^mlx5_0:1", "mlx5_0", 1, false, -1, -1 },
		{ "^mlx5_0:1", "mlx5_0", 2, true, -1, -1 },
		{ "=mlx5_1", "mlx5_10", 1, false, -1, -1 },
		{ "^=mlx5_0,^=mlx5_1", "mlx5_1", 1, false, -1, -1 },
		{ "=mlx5_0,=mlx5_1", "mlx5_1", 1, true, -1, -1 },
		{ "\"mlx5_0\"", "mlx5_0", 1, true, -1, -1 },
		{ "mlxl5_0", "mlx5_0", 1, false, -1, -1 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct braid_netdev_filter f;
		int16_t rail, plane;

		assert_int_equal(braid_netdev_filter_parse(rows[i].text, &f, NULL, 0), 0);
		if (braid_netdev_port_match(&f, rows[i].name, rows[i].num, &rail, &plane) !=
		    rows[i].match)
			fail_msg("'%s' and %s:%u", rows[i].text, rows[i].name, rows[i].num);
		assert_int_equal(rail, rows[i].rail);
		assert_int_equal(plane, rows[i].plane);
	}
}

static void a_filter_too_big_is_refused_untouched(void **state)
{
	static struct braid_netdev_filter f, before;
	char text[2 * BRAID_FILTER_NAME], most[8 * BRAID_FILTER_NAMES], many[sizeof(most) + 8];
	size_t n = 0;

	(void)state;
	memset(&f, 0x5a, sizeof(f));
	before = f;
	memset(text, 'x', sizeof(text));
	text[BRAID_FILTER_NAME] = '\0';
	assert_int_equal(braid_netdev_filter_parse(text, &f, NULL, 0), -EINVAL);
	memset(text, 'x', sizeof(text));
	memcpy(text, "a,", 2);
	text[BRAID_FILTER_NAME + 2] = '\0';
	assert_int_equal(braid_netdev_filter_parse(text, &f, NULL, 0), -EINVAL);
	for (unsigned i = 0; i < BRAID_FILTER_NAMES; i++)
		n += (size_t)snprintf(most + n, sizeof(most) - n, "%seth%u", i ? "," : "", i);
	snprintf(many, sizeof(many), "%s,x", most);
	assert_int_equal(braid_netdev_filter_parse(many, &f, NULL, 0), -EINVAL);
	assert_memory_equal(&f, &before, sizeof(f));
	assert_int_equal(find(full, many, AF_INET), -EINVAL);
	assert_non_null(strstr(why, "256 names"));
	snprintf(many, sizeof(many), "^%s,,", most);
	assert_int_equal(braid_netdev_filter_parse(many, &f, NULL, 0), 0);
	assert_int_equal(f.n, BRAID_FILTER_NAMES);
}

static void each_interface_gives_its_best_address(void **state)
{
	static const struct {
		int family;
		const char *addrs[ADDRS_MAX];
		const char *found;
	} rows[] = {
		{ AF_UNSPEC, { "10.0.0.1", "2001:db8::1" }, "eth0 10.0.0.1" },
		{ AF_UNSPEC, { "2001:db8::1" }, "eth0 2001:db8::1" },
		{ AF_UNSPEC, { "169.254.1.1", "2001:db8::1" }, "eth0 2001:db8::1" },
		{ AF_UNSPEC, { "fe80::1" }, "eth0 fe80::1%1" },
		{ AF_UNSPEC, { NULL }, "" },
		{ AF_INET, { "10.0.0.1", "2001:db8::1" }, "eth0 10.0.0.1" },
		{ AF_INET, { "10.0.0.1", "10.0.0.2" }, "eth0 10.0.0.1" },
		{ AF_INET, { "169.254.1.1", "10.0.0.2" }, "eth0 10.0.0.2" },
		{ AF_INET, { "0.0.0.0", "10.0.0.2" }, "eth0 10.0.0.2" },
		{ AF_INET, { "2001:db8::1" }, "" },
		{ AF_INET6, { "10.0.0.1", "2001:db8::1" }, "eth0 2001:db8::1" },
		{ AF_INET6, { "10.0.0.1" }, "" },
		{ AF_INET6, { "fe80::1", "fd00::1", "2001:db8::1" }, "eth0 2001:db8::1" },
		{ AF_INET6, { "fe80::1", "fd00::1" }, "eth0 fd00::1" },
		{ AF_INET6, { "fe80::1", "fec0::1" }, "eth0 fec0::1" },
		{ AF_INET6, { "fe80::1", "fe80::2" }, "eth0 fe80::1%1" },
		{ AF_INET6, { "2001:db8::1", "2001:db8::2" }, "eth0 2001:db8::1" },
		{ AF_INET6, { "ff02::1", "::", "::ffff:10.0.0.1" }, "" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct fake fakes[2] = { { .name = "eth0", .flags = UP } };

		memcpy(fakes[0].addrs, rows[i].addrs, sizeof(fakes[0].addrs));
		assert_string_equal(found(find(fakes, "", rows[i].family)), rows[i].found);
	}
}

static void ipv4_wins_on_each_interface_by_itself(void **state)
{
	static const struct fake fakes[] = {
		{ "eth0", UP, { "10.0.0.1", "2001:db8::1" } },
		{ "eth1", UP, { "2001:db8::2", "fe80::2" } },
		{ "eth2", UP, { "fe80::3" } },
		{ NULL, 0, { NULL } },
	};

	(void)state;
	assert_string_equal(found(find(fakes, "eth", AF_UNSPEC)),
			    "eth0 10.0.0.1, eth1 2001:db8::2, eth2 fe80::3%3");
	assert_string_equal(found(find(fakes, "eth", AF_INET6)),
			    "eth0 2001:db8::1, eth1 2001:db8::2, eth2 fe80::3%3");
	assert_string_equal(found(find(full, "lo", AF_INET6)), "lo ::1");
}

static void ipv6_addresses_that_will_not_last_are_left(void **state)
{
	static const struct fake fakes[] = {
		{ "eth0", UP, { "2001:db8::1", "2001:db8::2", "fd00::1", "fe80::1" } },
		{ NULL, 0, { NULL } },
	};
	static const struct {
		const char *flags_1, *flags_2;	/* of 2001:db8::1 and ::2 */
		const char *found;
	} rows[] = {
		{ "80", "80", "eth0 2001:db8::1" },
		{ "c0", "80", "eth0 2001:db8::2" },	/* tentative */
		{ "a0", "80", "eth0 2001:db8::2" },	/* deprecated */
		{ "48", "80", "eth0 2001:db8::2" },	/* a duplicate */
		{ "01", "80", "eth0 2001:db8::2" },	/* temporary */
		{ "01", "20", "eth0 2001:db8::1" },
		{ "01", "01", "eth0 2001:db8::1" },
		{ "40", "20", "eth0 fd00::1" },
		{ "02", "00", "eth0 2001:db8::1" },
	};
	char text[512];

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		snprintf(text, sizeof(text),
			 "00000000000000000000000000000001 01 80 10 80       lo\n"
			 "short line\n"
			 "20010db8000000000000000000000001 02 40 00 60     eth1\n"
			 "20010db8000000000000000000000001 02 40 00 %s     eth0\n"
			 "20010db8000000000000000000000002 02 40 00 %s     eth0\n"
			 "fe800000000000000000000000000001 02 40 20 80     eth0\n",
			 rows[i].flags_1, rows[i].flags_2);
		put(at("proc/net/if_inet6"), text);
		assert_string_equal(found(find(fakes, "", AF_INET6)), rows[i].found);
	}
}

/* All addresses of the first interface that was found, in their order. */
static const char *all_of_first(int n)
{
	static char text[1024];
	struct braid_netdev_ip ip[BRAID_NETDEV_IPS];
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 0; n > 0 && i < braid_netdev_ips(&devs[0], ip); i++) {
		char addr[INET6_ADDRSTRLEN];

		inet_ntop(ip[i].addr.sa.sa_family, ip[i].addr.sa.sa_family == AF_INET ?
			  (const void *)&ip[i].addr.in.sin_addr :
			  (const void *)&ip[i].addr.in6.sin6_addr, addr, sizeof(addr));
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s/%u", i ? " " : "",
					 addr, ip[i].prefix);
	}
	return text;
}

static void all_addresses_are_known_best_first(void **state)
{
	static const struct {
		const char *addrs[ADDRS_MAX], *choice, *found;
	} rows[] = {
		{ { "10.5.5.1/32", "10.0.0.1/24" }, "", "10.0.0.1/24 10.5.5.1/32" },
		{ { "127.0.0.1/8", "10.5.5.1/32" }, "", "10.5.5.1/32" },
		{ { "127.0.0.1/8", "::1/128" }, "", "127.0.0.1/8 ::1/128" },
		{ { "10.0.0.1/24", "10.0.0.2/24", "10.1.0.1/16" }, "",
		  "10.0.0.1/24 10.0.0.2/24 10.1.0.1/16" },
		{ { "2001:db8::5/128", "fe80::1/64", "fd00::1/64", "2001:db8::1/64", "10.9.9.9/32",
		    "169.254.3.3/16", "10.0.0.1/8" }, "",
		  "10.0.0.1/8 10.9.9.9/32 2001:db8::1/64 fd00::1/64 2001:db8::5/128" },
		{ { "fe80::1/64", "169.254.3.3/16" }, "", "169.254.3.3/16 fe80::1/64" },
		{ { "10.0.0.1/24", "10.0.0.1/32" }, "", "10.0.0.1/24" },
		/* More than fit: the best are kept. */
		{ { "10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32", "10.0.0.5/32",
		    "10.0.0.6/32", "10.0.0.7/32", "10.0.0.8/32", "10.0.0.9/24" }, "",
		  "10.0.0.9/24 10.0.0.1/32 10.0.0.2/32 10.0.0.3/32 10.0.0.4/32 10.0.0.5/32 "
		  "10.0.0.6/32 10.0.0.7/32" },
		/* What the user says comes first. */
		{ { "10.0.0.1/24", "10.5.5.1/32" }, "10.5.0.0/16", "10.5.5.1/32" },
		{ { "10.0.0.1/24", "10.5.5.1/32" }, "10.5.0.0/16,10.0.0.0/8",
		  "10.5.5.1/32 10.0.0.1/24" },
		{ { "10.0.0.1/24", "10.5.5.1/32" }, "^10.0.0.1", "10.5.5.1/32" },
		{ { "10.0.0.1/24", "fd00::1/64" }, " fd00::/8 , 0.0.0.0/0 ", "fd00::1/64 10.0.0.1/24" },
		{ { "10.0.0.1/24", "fe80::1/64" }, "fe80::/10", "fe80::1/64" },
		{ { "10.0.0.1/24" }, "10.1.0.0/16", "" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct fake fakes[2] = { { .name = "eth0", .flags = UP } };

		memcpy(fakes[0].addrs, rows[i].addrs, sizeof(fakes[0].addrs));
		assert_int_equal(braid_ips_choose(rows[i].choice), 0);
		assert_string_equal(all_of_first(find(fakes, "eth0", AF_UNSPEC)), rows[i].found);
	}
	assert_int_equal(braid_ips_choose(""), 0);
}

static void a_list_of_subnets_that_is_none_changes_nothing(void **state)
{
	static const char *const bad[] = { "10.0.0.0/33", "10.0.0", "eth0", "10.0.0.0/8/8", "fd00::/129",
		"10.0.0.0/", "10.0.0.0/-1", "10.0.0.1,x", "^^10.0.0.1",
		("1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1,"
		 "1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1") };
	static const struct fake fakes[] = { { "eth0", UP, { "10.0.0.1", "10.5.0.1" } },
					     { NULL, 0, { NULL } } };

	(void)state;
	assert_int_equal(braid_ips_choose("10.5.0.0/16"), 0);
	for (size_t i = 0; i < COUNT(bad); i++) {
		if (braid_ips_choose(bad[i]) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
	}
	assert_string_equal(found(find(fakes, "", AF_INET)), "eth0 10.5.0.1");
	assert_int_equal(braid_ips_choose(""), 0);
}

static void an_address_that_is_still_checked_is_waited_for(void **state)
{
	static const struct fake fakes[] = { { "eth0", UP, { "2001:db8::1", "fe80::1" } },
					     { NULL, 0, { NULL } } };

	(void)state;
	put(at("proc/net/if_inet6"),
	    "20010db8000000000000000000000001 02 40 00 c0     eth0");
	net.lists = 0;
	net.ready_at = 2;		/* the address is ready once the list has been read twice */
	assert_string_equal(found(find(fakes, "", AF_UNSPEC)), "eth0 2001:db8::1");
	assert_int_equal(net.lists, 3);
	/* It never gets ready: after some time the link-local address is used. */
	put(at("proc/net/if_inet6"),
	    "20010db8000000000000000000000001 02 40 00 c0     eth0");
	net.ready_at = 0;
	assert_string_equal(found(find(fakes, "", AF_UNSPEC)), "eth0 fe80::1%1");
	/* With a usable IPv4 address there is no wait for the IPv6 one. */
	net.lists = 0;
	assert_string_equal(found(find(one, "", AF_UNSPEC)), "eth0 10.0.0.1");
	assert_int_equal(net.lists, 1);
}

static void what_leads_nowhere_is_left_unless_it_is_named(void **state)
{
	static const struct fake host[] = {
		{ "eth0", UP, { "10.0.0.1/24" } }, { "vlan5", UP, { "10.5.0.1/24" } },
		{ "br-lan", UP, { "10.6.0.1/24" } }, { "eth1", UP, { "10.7.0.1/24" } },
		{ "br-0a1b", UP, { "172.18.0.1/16" } }, { "veth1", UP, { "fe80::1/64" } },
		{ "flannel.1", UP, { "10.244.0.0/32" } }, { "tailscale0", UP, { "100.64.0.1/32" } },
		{ "usb0", UP, { "169.254.3.1/16" } }, { NULL, 0, { NULL } },
	};
	static const struct fake pod[] = {
		{ "eth0", UP, { "10.244.1.7/24" } }, { "net1", UP, { "10.9.0.7/24" } },
		{ "port", UP, { "10.9.1.7/24" } }, { NULL, 0, { NULL } },
	};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		char dir[64], name[8];

		snprintf(dir, sizeof(dir), "pci0000:00/0000:00:0%u.0", i + 1);
		snprintf(name, sizeof(name), i == 2 ? "usb0" : "eth%u", i);
		put_device(dir, "pci");
		put_netdev(name, dir);
	}
	put_netdev("vlan5", "virtual");
	put_lower("vlan5", "eth0");
	put_netdev("br-lan", "virtual");
	put_lower("br-lan", "eth1");
	put_lower("br-lan", "tap0");
	put_net("eth1", "brport/state", "3");
	put_netdev("br-0a1b", "virtual");
	put_lower("br-0a1b", "veth1");
	put_netdev("veth1", "virtual");
	put_netdev("flannel.1", "virtual");
	put_lower("flannel.1", "eth0");
	put_net("flannel.1", "uevent", "DEVTYPE=vxlan\nINTERFACE=flannel.1");
	put_netdev("tailscale0", "virtual");
	put_net("tailscale0", "tun_flags", "0x1001");
	assert_string_equal(found_names(find(host, "", AF_UNSPEC)), "eth0 vlan5 br-lan");
	assert_string_equal(why, "eth1 is a port of a bridge, br-0a1b is virtual, with no hardware "
			    "below it, veth1 has a link-local address only, flannel.1 is a tunnel, "
			    "tailscale0 is a tunnel, usb0 has a link-local address only");
	assert_string_equal(found_names(find(host, "flannel,br-,eth1", AF_UNSPEC)),
			    "br-lan eth1 br-0a1b flannel.1");
	assert_string_equal(why, "");
	assert_string_equal(found_names(find(full, "", AF_UNSPEC)), "ib0 ibs2");
	assert_non_null(strstr(why, "docker0 is Docker's by its name"));
	assert_non_null(strstr(why, "virbr0 is libvirt's by its name"));
	assert_non_null(strstr(why, "eth1 is not named ib, as others are"));
	/* Where all are virtual, all are offered but the ports. */
	remove(at("sys/class/net/eth0"));
	put_netdev("eth0", "virtual");
	put_netdev("net1", "virtual");
	put_netdev("port", "virtual");
	put_net("port", "brport/state", "3");
	assert_string_equal(found_names(find(pod + 1, "", AF_UNSPEC)), "net1");
	assert_string_equal(found_names(find(pod, "", AF_UNSPEC)), "eth0 net1");
}

static void many_ipv6_addresses_are_no_trouble(void **state)
{
	static const struct fake fakes[] = {
		{ "eth0", UP, { "2001:db8::c7", "2001:db8::1" } }, { NULL, 0, { NULL } },
	};
	char text[200 * 64];
	size_t used = 0;

	(void)state;
	for (unsigned i = 0; i < 200; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used,
					 "20010db80000000000000000%08x 02 40 00 %s eth0\n", i,
					 i == 199 ? "20" : "80");
	put(at("proc/net/if_inet6"), text);
	assert_string_equal(found(find(fakes, "", AF_INET6)), "eth0 2001:db8::1");
}

static void an_alias_is_its_interface(void **state)
{
	static const struct fake fakes[] = {
		{ "eth0", UP, { NULL } },
		{ "eth0:1", UP, { "10.0.0.1" } },
		{ "eth0:2", UP, { "10.0.0.2" } },
		{ "eth1", UP, { "10.0.1.1" } },
		{ NULL, 0, { NULL } },
	};

	(void)state;
	assert_string_equal(found(find(fakes, "", AF_INET)), "eth0 10.0.0.1, eth1 10.0.1.1");
	assert_int_equal(devs[0].ifindex, 1);
	assert_int_equal(devs[1].ifindex, 4);
}

static void no_more_than_max_are_written(void **state)
{
	(void)state;
	net.fakes = full;
	memset(devs, 0x5a, sizeof(devs));
	assert_int_equal(braid_netdev_find("eth", AF_INET, root, devs, 1, NULL, 0), 1);
	assert_string_equal(devs[0].name, "eth0");
	assert_int_equal(devs[1].name[0], 0x5a);
	assert_int_equal(braid_netdev_find("eth", AF_INET, root, NULL, 0, NULL, 0), 0);
}

static void the_reason_for_none_names_each_interface(void **state)
{
	static const struct {
		struct fake fakes[FAKES_MAX];
		const char *filter;
		int family;
		const char *why;
	} rows[] = {
		{ { { "eth0", 0, { "10.0.0.1" } }, { "eth1", IFF_UP, { "10.0.0.1" } },
		    { "eth2", UP, { NULL } }, { "eth3", UP | IFF_SLAVE, { "10.0.0.1" } } },
		  "", AF_INET, "no usable network interface: eth0 is down, eth1 has no carrier, "
		  "eth2 has no IPv4 address, eth3 is the slave of another" },
		{ { { "eth0", UP, { "10.0.0.1" } } }, "ens", AF_UNSPEC,
		  "no usable network interface for the filter 'ens': eth0 is not in the filter" },
		{ { { "eth0", UP, { "10.0.0.1" } } }, "", AF_INET6,
		  "no usable network interface: eth0 has no usable IPv6 address" },
		{ { { "eth0", UP, { NULL } } }, "", AF_UNSPEC,
		  "no usable network interface: eth0 has no IP address" },
		{ { { .name = NULL } }, "", AF_UNSPEC,
		  "no usable network interface: there is none at all" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		assert_int_equal(find(rows[i].fakes, rows[i].filter, rows[i].family), 0);
		assert_string_equal(why, rows[i].why);
	}
}

static void the_reason_for_none_names_the_choice_of_addresses(void **state)
{
	static const struct fake two[] = {
		{ "eth0", UP, { "10.0.0.1" } }, { "eth1", UP, { NULL } }, { NULL, 0, { NULL } },
	};

	(void)state;
	assert_int_equal(braid_ips_choose("10.5.0.0/16"), 0);
	assert_int_equal(find(two, "", AF_UNSPEC), 0);
	assert_int_equal(braid_ips_choose(""), 0);
	assert_string_equal(why, "no usable network interface: eth0 has no address that "
				 "BRAID_ADDRESS allows, eth1 has no IP address");
}

static void the_reason_is_cut_to_its_room(void **state)
{
	static const struct fake many[] = {
		{ "eth0", 0, { "10.0.0.1" } }, { "eth1", 0, { "10.0.0.2" } },
		{ "eth2", 0, { "10.0.0.3" } }, { "eth3", 0, { "10.0.0.4" } },
		{ "eth4", 0, { "10.0.0.5" } }, { NULL, 0, { NULL } },
	};
	char text[16], list[80];

	(void)state;
	net.fakes = many;
	assert_int_equal(braid_netdev_find("", AF_INET, root, devs, 1, list, sizeof(list)), 0);
	assert_string_equal(list, "no usable network interface: eth0 is down, eth1 is down, and "
				  "3 more");
	net.fakes = full;
	memset(text, 'w', sizeof(text));
	assert_int_equal(braid_netdev_find("x", AF_INET, root, devs, 1, text, 10), 0);
	assert_string_equal(text, "no usable");
	assert_int_equal(text[10], 'w');
	assert_int_equal(braid_netdev_find("x", AF_INET, root, devs, 1, text, 0), 0);
	assert_string_equal(text, "no usable");
}

static void what_cannot_be_read_or_done_is_an_error(void **state)
{
	(void)state;
	net.err = EMFILE;
	assert_int_equal(find(full, "", AF_INET), -EMFILE);
	assert_non_null(strstr(why, strerror(EMFILE)));
	net.err = 0;
	assert_int_equal(find(full, "", AF_UNIX), -EAFNOSUPPORT);
	assert_non_null(strstr(why, "address family 1 "));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(with_no_filter_the_order_is_that_of_nccl),
		T(a_filter_chooses_as_in_nccl),
		T(a_filter_is_parsed_into_marks_and_names),
		T(marks_that_differ_are_refused),
		T(a_port_has_a_name_and_a_number),
		T(a_filter_too_big_is_refused_untouched),
		T(each_interface_gives_its_best_address),
		T(ipv4_wins_on_each_interface_by_itself),
		T(ipv6_addresses_that_will_not_last_are_left),
		T(all_addresses_are_known_best_first),
		T(a_list_of_subnets_that_is_none_changes_nothing),
		T(an_address_that_is_still_checked_is_waited_for),
		T(what_leads_nowhere_is_left_unless_it_is_named),
		T(many_ipv6_addresses_are_no_trouble),
		T(an_alias_is_its_interface),
		T(no_more_than_max_are_written),
		T(the_reason_for_none_names_each_interface),
		T(the_reason_for_none_names_the_choice_of_addresses),
		T(the_reason_is_cut_to_its_room),
		T(what_cannot_be_read_or_done_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
