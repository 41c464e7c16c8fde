/* SPDX-License-Identifier: BSD-3-Clause */
/* test_netdev_sys.c - what is found of an interface in /sys, and what pci.h promises. */
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

#include "topo/pci.h"

#define BRIDGE "pci0000:00/0000:00:01.0/"

static const struct fake two[] = {
	{ "eth0", UP, { "10.0.0.1" } },
	{ "eth1", UP, { "10.0.1.1" } },
	{ NULL, 0, { NULL } },
};

static void a_plain_nic_is_described(void **state)
{
	char path[PATH_MAX];
	uint64_t guid;

	(void)state;
	put_device(BRIDGE "0000:03:00.0", "pci");
	put_netdev("eth0", BRIDGE "0000:03:00.0");
	put_net("eth0", "speed", "100000");
	put_net("eth0", "ifindex", "1");
	put_net("eth0", "address", "02:fc:00:00:00:01");
	assert_int_equal(find(one, "", AF_INET), 1);
	assert_string_equal(devs[0].pci_path, "/sys/devices/" BRIDGE "0000:03:00.0");
	assert_int_equal(devs[0].speed_mbps, 100000);
	assert_true(devs[0].speed_known);
	assert_false(devs[0].loopback);
	assert_int_equal(devs[0].ifindex, 1);
	assert_int_equal(devs[0].port, 0);
	assert_true(devs[0].guid != 0);
	assert_non_null(realpath(at("%s/subsystem", devs[0].pci_path + 1), path));
	assert_string_equal(strrchr(path, '/'), "/pci");
	guid = devs[0].guid;
	assert_int_equal(find(one, "", AF_INET), 1);
	assert_true(devs[0].guid == guid);
	put(at("proc/sys/kernel/random/boot_id"), "another machine");
	assert_int_equal(find(one, "", AF_INET), 1);
	assert_true(devs[0].guid != guid);
}

static void a_list_gives_a_number_for_a_port(void **state)
{
	static const struct {
		const char *list, *name;
		unsigned num;
		int number;
	} rows[] = {
		{ "", "mlx5_0", 1, -1 }, { "mlx5_0=3", "mlx5_0", 1, 3 },
		{ "mlx5_0=3", "mlx5_0", 2, 3 }, { "mlx5_0=3", "mlx5_01", 1, -1 },
		{ "mlx5_01=3", "mlx5_0", 1, -1 }, { "mlx5_0:2=3", "mlx5_0", 1, -1 },
		{ "mlx5_0:2=3", "mlx5_0", 2, 3 }, { "a=1,mlx5_0:1=7,mlx5_0=8", "mlx5_0", 1, 7 },
		{ "a=1,mlx5_0:1=7,mlx5_0=8", "mlx5_0", 2, 8 }, { "a=1,mlx5_0:2", "mlx5_0", 2, -1 },
		{ "mlx5_0", "mlx5_0", 1, -1 }, { ",,mlx5_0=4", "mlx5_0", 1, 4 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int n = braid_netdev_port_number(rows[i].list, rows[i].name, rows[i].num);

		if (n != rows[i].number)
			fail_msg("%s in '%s': %d", rows[i].name, rows[i].list, n);
	}
}

/* Whose card and whose port: (guid, port) of two interfaces on functions of PCI devices. */
static void ports_and_functions_of_a_card_are_distinguished(void **state)
{
	static const struct {
		const char *fn[2], *dev_port[2], *physfn[2];
		bool same_card, same_port;
	} rows[] = {
		/* two functions, a port each */
		{ { "0000:03:00.0", "0000:03:00.1" }, { "0", "0" }, { NULL, NULL }, true, false },
		/* two ports on one function */
		{ { "0000:03:00.0", "0000:03:00.0" }, { "0", "1" }, { NULL, NULL }, true, false },
		/* dev_port and function never look alike */
		{ { "0000:03:00.1", "0000:03:00.0" }, { "0", "1" }, { NULL, NULL }, true, false },
		/* a virtual function and its physical one */
		{ { "0000:03:00.0", "0000:03:00.2" }, { "0", "0" }, { NULL, "0000:03:00.0" },
		  true, true },
		/* ... beyond the eighth: a device number of its own */
		{ { "0000:03:00.0", "0000:03:01.4" }, { "0", "0" }, { NULL, "0000:03:00.0" },
		  true, true },
		/* virtual functions of two ports */
		{ { "0000:03:00.4", "0000:03:00.5" }, { "0", "0" },
		  { "0000:03:00.0", "0000:03:00.1" }, true, false },
		/* a virtual function passed through to us: its own word is all there is */
		{ { "0000:03:00.4", "0000:03:00.5" }, { "0", "0" }, { NULL, NULL }, true, false },
		/* other cards */
		{ { "0000:03:00.0", "0000:03:01.0" }, { "0", "0" }, { NULL, NULL }, false, true },
		{ { "0000:03:00.0", "0000:04:00.0" }, { "0", "0" }, { NULL, NULL }, false, true },
		{ { "0000:03:00.0", "10000:03:00.0" }, { "0", "0" }, { NULL, NULL }, false, true },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		for (int j = 0; j < 2; j++) {
			char dir[128], name[8], link[128];

			snprintf(name, sizeof(name), "eth%d", j);
			snprintf(dir, sizeof(dir), BRIDGE "%s", rows[i].fn[j]);
			put_device(dir, "pci");
			put_netdev(name, dir);
			put_net(name, "dev_port", rows[i].dev_port[j]);
			if (!rows[i].physfn[j])
				continue;
			snprintf(link, sizeof(link), "../%s", rows[i].physfn[j]);
			put(at("sys/devices/" BRIDGE "%s/vendor", rows[i].physfn[j]), "0x15b3");
			put_link(at("sys/devices/%s/physfn", dir), link);
		}
		assert_int_equal(find(two, "", AF_INET), 2);
		for (int j = 0; j < 2; j++)
			assert_string_equal(strrchr(devs[j].pci_path, '/') + 1, rows[i].fn[j]);
		assert_int_equal(devs[0].guid == devs[1].guid, rows[i].same_card);
		assert_int_equal(devs[0].port == devs[1].port, rows[i].same_port);
		teardown(state);
		setup(state);
	}
}

static void ports_are_small_numbers(void **state)
{
	(void)state;
	put_device(BRIDGE "0000:03:00.0", "pci");
	put_device(BRIDGE "0000:03:00.1", "pci");
	put_netdev("eth0", BRIDGE "0000:03:00.1");
	put_netdev("eth1", BRIDGE "0000:03:00.0");
	put_net("eth1", "dev_port", "2");
	assert_int_equal(find(two, "", AF_INET), 2);
	assert_int_equal(devs[0].port, 1);
	assert_int_equal(devs[1].port, 16);
}

/* Where `device` leads when it is not PCI itself. */
static void only_what_pci_made_is_pci(void **state)
{
	static const struct {
		const char *dir, *bus, *pci_path;
	} rows[] = {
		{ "pci0000:00/0000:00:03.0/virtio2", "virtio",
		  "/sys/devices/pci0000:00/0000:00:03.0" },
		{ "pci0000:00/0000:00:03.0/mlx5_core.sf.4", "auxiliary",
		  "/sys/devices/pci0000:00/0000:00:03.0" },
		{ "pci0000:00/0000:00:03.0/vdpa0", "vdpa", "/sys/devices/pci0000:00/0000:00:03.0" },
		{ "pci0000:00/0000:00:03.0/1-1", "usb", "" },
		{ "platform/a003e00.virtio_mmio/virtio0", "virtio", "" },
		{ "platform/soc-ethernet", "platform", "" },
		{ "vmbus/net-uuid", "vmbus", "" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		put_device("pci0000:00/0000:00:03.0", "pci");
		put_device("platform/a003e00.virtio_mmio", "platform");
		put_device(rows[i].dir, rows[i].bus);
		put_netdev("eth0", rows[i].dir);
		put_net("eth0", "address", "02:fc:00:00:00:01");
		put_net("eth0", "speed", "-1");
		assert_int_equal(find(one, "", AF_INET), 1);
		assert_string_equal(devs[0].pci_path, rows[i].pci_path);
		assert_int_equal(devs[0].guid == 0x02fc00000001, !*rows[i].pci_path);
		assert_false(devs[0].speed_known);
		assert_int_equal(devs[0].speed_mbps, 10000);
		teardown(state);
		setup(state);
	}
}

static void a_device_that_leads_nowhere_is_not_pci(void **state)
{
	char outside[] = "/sys";

	(void)state;
	put_net("eth0", "mtu", "1500");
	put_link(at("sys/class/net/eth0/device"), "../nowhere");
	assert_int_equal(find(one, "", AF_INET), 1);
	assert_string_equal(devs[0].pci_path, "");
	put_link(at("sys/class/net/eth0/device"), outside);
	assert_int_equal(find(one, "", AF_INET), 1);
	assert_string_equal(devs[0].pci_path, "");
	/* On a bus called pci, but with no PCI address. */
	put_device("pci0000:00/odd", "pci");
	put_link(at("sys/class/net/eth0/device"), "../../../devices/pci0000:00/odd");
	assert_int_equal(find(one, "", AF_INET), 1);
	assert_string_equal(devs[0].pci_path, "");
}

static void a_path_too_long_to_keep_is_none(void **state)
{
	char dir[BRAID_NETDEV_PATH + 64] = "pci0000:00";

	(void)state;
	while (strlen(dir) < BRAID_NETDEV_PATH)
		strcat(dir, "/0000:00:01.0");
	put_device(dir, "pci");
	put_netdev("eth0", dir);
	assert_int_equal(find(one, "", AF_INET), 1);
	assert_string_equal(devs[0].pci_path, "");
	assert_true(devs[0].guid != 0);
}

static void speed_is_known_or_guessed(void **state)
{
	static const struct {
		const char *text;
		int speed;
		bool known;
	} rows[] = {
		{ "1000", 1000, true },
		{ "800000", 800000, true },
		{ "10", 10, true },
		{ "-1", 10000, false },
		{ "0", 10000, false },
		{ "", 10000, false },
		{ "unknown", 10000, false },
		{ "65535", 10000, false },
		{ "4294967295", 10000, false },
		{ "2147483647", 10000, false },
		{ "99999999999999999999", 10000, false },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		put_net("eth0", "speed", rows[i].text);
		assert_int_equal(find(one, "", AF_INET), 1);
		assert_int_equal(devs[0].speed_mbps, rows[i].speed);
		assert_int_equal(devs[0].speed_known, rows[i].known);
	}
}

/* Two cards, each with a port in bond0; vlan7 on the bond, vlan8 on eth2. */
static void put_bonded_machine(void)
{
	put_device(BRIDGE "0000:03:00.0", "pci");
	put_device(BRIDGE "0000:04:00.0", "pci");
	put_device(BRIDGE "0000:05:00.1", "pci");
	put_netdev("eth0", BRIDGE "0000:03:00.0");
	put_netdev("eth1", BRIDGE "0000:04:00.0");
	put_netdev("eth2", BRIDGE "0000:05:00.1");
	put_net("eth0", "speed", "25000");
	put_net("eth1", "speed", "25000");
	put_net("eth2", "speed", "40000");
	put_netdev("bond0", "virtual");
	put_net("bond0", "bonding/slaves", "eth0 eth1");
	put_net("bond0", "bonding/mode", "802.3ad 4");
	put_lower("bond0", "eth0");
	put_lower("bond0", "eth1");
	put_netdev("vlan7", "virtual");
	put_lower("vlan7", "bond0");
	put_netdev("vlan8", "virtual");
	put_lower("vlan8", "eth2");
}

static const struct fake bonded[] = {
	{ "bond0", UP, { "10.0.0.1" } },
	{ "eth0", UP | IFF_SLAVE, { NULL } },
	{ "eth1", UP | IFF_SLAVE, { NULL } },
	{ "eth2", UP, { "10.0.1.1" } },
	{ "vlan7", UP, { "10.0.7.1" } },
	{ "vlan8", UP, { "10.0.8.1" } },
	{ NULL, 0, { NULL } },
};

static void what_stands_on_others_has_their_speed_and_card(void **state)
{
	(void)state;
	put_bonded_machine();
	assert_string_equal(found_names(find(bonded, "", AF_INET)), "bond0 eth2 vlan7 vlan8");
	assert_int_equal(devs[0].speed_mbps, 50000);
	assert_true(devs[0].speed_known);
	assert_int_equal(devs[1].speed_mbps, 40000);
	assert_int_equal(devs[2].speed_mbps, 50000);
	assert_int_equal(devs[3].speed_mbps, 40000);
	assert_string_equal(devs[0].pci_path, "/sys/devices/" BRIDGE "0000:03:00.0");
	assert_string_equal(devs[2].pci_path, devs[0].pci_path);
	assert_string_equal(devs[3].pci_path, devs[1].pci_path);
	assert_true(devs[2].guid == devs[0].guid && devs[2].port == devs[0].port);
	assert_true(devs[3].guid == devs[1].guid && devs[3].port == devs[1].port);
	assert_int_equal(devs[3].port, 1);
	assert_true(devs[0].guid != devs[1].guid);
}

static void a_bonds_speed_depends_on_its_mode_and_slaves(void **state)
{
	static const struct {
		const char *mode, *own, *eth0, *eth1;
		int speed;
		bool known;
	} rows[] = {
		{ "balance-rr 0", "-1", "25000", "25000", 50000, true },
		{ "balance-rr 0", "40000", "25000", "25000", 40000, true },
		{ "active-backup 1", "-1", "25000", "10000", 25000, true },
		{ "active-backup 1", "-1", "-1", "10000", 10000, true },
		{ "802.3ad 4", "-1", "25000", "-1", 25000, true },
		{ "802.3ad 4", "-1", "-1", "-1", 10000, false },
		{ "802.3ad 4", "-1", "9999999", "9999999", 10000000, true },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		put_bonded_machine();
		put_net("bond0", "bonding/mode", rows[i].mode);
		put_net("bond0", "speed", rows[i].own);
		put_net("eth0", "speed", rows[i].eth0);
		put_net("eth1", "speed", rows[i].eth1);
		assert_int_equal(find(bonded, "=bond0", AF_INET), 1);
		assert_int_equal(devs[0].speed_mbps, rows[i].speed);
		assert_int_equal(devs[0].speed_known, rows[i].known);
	}
}

static void a_bond_without_slaves_and_a_bridge_stand_for_themselves(void **state)
{
	static const struct fake fakes[] = {
		{ "bond1", UP, { "10.0.0.1" } }, { "br0", UP, { "10.0.1.1" } },
		{ "br1", UP, { "10.0.2.1" } }, { NULL, 0, { NULL } },
	};

	(void)state;
	put_bonded_machine();
	put_netdev("bond1", "virtual");
	put_net("bond1", "bonding/slaves", "");
	put_net("bond1", "address", "02:00:00:00:00:b1");
	put_netdev("br0", "virtual");
	put_lower("br0", "eth2");
	put_netdev("br1", "virtual");
	put_lower("br1", "eth2");
	put_lower("br1", "eth1");
	put_net("br1", "address", "02:00:00:00:00:b2");
	assert_int_equal(find(fakes, "b", AF_INET), 3);
	assert_string_equal(devs[0].pci_path, "");
	assert_true(devs[0].guid == 0x0200000000b1);
	assert_string_equal(devs[1].pci_path, "/sys/devices/" BRIDGE "0000:05:00.1");
	assert_int_equal(devs[1].speed_mbps, 40000);
	assert_string_equal(devs[2].pci_path, "");
	assert_true(devs[2].guid == 0x0200000000b2);
	assert_false(devs[2].speed_known);
}

/* Azure: the interface with the address is on VMBus, the virtual function is its lower one. */
static void a_paravirtual_interface_leads_to_the_function_behind_it(void **state)
{
	static const struct fake fakes[] = {
		{ "eth0", UP, { "10.0.0.1" } }, { "enP1s1", UP | IFF_SLAVE, { NULL } },
		{ NULL, 0, { NULL } },
	};

	(void)state;
	put_device("vmbus/net-uuid", "vmbus");
	put_netdev("eth0", "vmbus/net-uuid");
	put_device("vmbus/pci-uuid/pci0001:00/0001:00:02.0", "pci");
	put_netdev("enP1s1", "vmbus/pci-uuid/pci0001:00/0001:00:02.0");
	put_net("enP1s1", "speed", "50000");
	put_lower("eth0", "enP1s1");
	assert_string_equal(found_names(find(fakes, "", AF_INET)), "eth0");
	assert_string_equal(devs[0].pci_path,
			    "/sys/devices/vmbus/pci-uuid/pci0001:00/0001:00:02.0");
	assert_int_equal(devs[0].speed_mbps, 50000);
}

static void interfaces_that_stand_on_each_other_end_the_search(void **state)
{
	(void)state;
	put_netdev("eth0", "virtual");
	put_netdev("eth1", "virtual");
	put_lower("eth0", "eth1");
	put_lower("eth1", "eth0");
	assert_int_equal(find(two, "", AF_INET), 2);
	assert_false(devs[0].speed_known);
	assert_string_equal(devs[1].pci_path, "");
}

static void without_pci_the_guid_is_the_hardware_address_or_a_made_up_one(void **state)
{
	static const struct {
		const char *address;
		uint64_t guid;		/* 0: any but 0 */
	} rows[] = {
		{ "02:42:ac:11:00:02", 0x0242ac110002 },
		{ "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:12:34:56",
		  0x0002c90300123456 },
		{ "00:00:00:00:00:00", 0 },
		{ "", 0 },
		{ "no address", 0 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		put_net("eth0", "address", rows[i].address);
		assert_int_equal(find(two, "", AF_INET), 2);
		if (rows[i].guid)
			assert_true(devs[0].guid == rows[i].guid);
		assert_true(devs[0].guid != 0 && devs[1].guid != 0);
		assert_true(devs[0].guid != devs[1].guid);
	}
}

static void sysfs_of_another_network_namespace_is_ignored(void **state)
{
	(void)state;
	put_device(BRIDGE "0000:03:00.0", "pci");
	put_netdev("eth0", BRIDGE "0000:03:00.0");
	put_net("eth0", "speed", "25000");
	put_net("eth0", "ifindex", "17");
	assert_int_equal(find(two, "", AF_INET), 2);
	assert_string_equal(devs[0].pci_path, "");
	assert_false(devs[0].speed_known);
	assert_true(devs[0].guid != 0);
	put_net("eth0", "ifindex", "1");
	assert_int_equal(find(two, "", AF_INET), 2);
	assert_true(devs[0].speed_known);
}

static void a_machine_without_sysfs_still_has_interfaces(void **state)
{
	static const struct fake fakes[] = {
		{ "ppp0", UP, { "10.0.0.1" } }, { "lo", LO, { "127.0.0.1" } },
		{ NULL, 0, { NULL } },
	};

	(void)state;
	assert_string_equal(found(find(fakes, "ppp,lo", AF_INET)), "ppp0 10.0.0.1, lo 127.0.0.1");
	assert_true(devs[1].loopback && !devs[0].loopback);
	assert_int_equal(devs[0].speed_mbps, 10000);
	assert_true(devs[0].guid != 0 && devs[0].guid != devs[1].guid);
}

static void a_sysroot_may_be_reached_through_a_link(void **state)
{
	char link[128];

	(void)state;
	put_device(BRIDGE "0000:03:00.0", "pci");
	put_netdev("eth0", BRIDGE "0000:03:00.0");
	snprintf(link, sizeof(link), "%s/other", root);
	put_link(link, root);
	net.fakes = one;
	assert_int_equal(braid_netdev_find("", AF_INET, link, devs, DEVS_MAX, NULL, 0), 1);
	assert_string_equal(devs[0].pci_path, "/sys/devices/" BRIDGE "0000:03:00.0");
}

static void a_pci_address_is_parsed_or_refused(void **state)
{
	static const struct {
		const char *text;
		int err;
		struct braid_pci_addr addr;
	} rows[] = {
		{ "0000:03:00.1", 0, { 0, 3, 0, 1 } },
		{ "0001:ff:1f.7", 0, { 1, 255, 31, 7 } },
		{ "10000:e1:00.0", 0, { 0x10000, 0xe1, 0, 0 } },
		{ "0000:FF:0A.0", 0, { 0, 255, 10, 0 } },
		{ "", -EINVAL, { 0 } },
		{ "0000:03:00", -EINVAL, { 0 } },
		{ "0000:03:00.", -EINVAL, { 0 } },
		{ "0000:03:00.8", -EINVAL, { 0 } },
		{ "0000:03:20.0", -EINVAL, { 0 } },
		{ "0000:03:00.0.0", -EINVAL, { 0 } },
		{ "0000:103:00.0", -EINVAL, { 0 } },
		{ "0000: 3:00.0", -EINVAL, { 0 } },
		{ "0x00:03:00.0", -EINVAL, { 0 } },
		{ "-000:03:00.0", -EINVAL, { 0 } },
		{ "virtio2", -EINVAL, { 0 } },
		{ "pci0000:00", -EINVAL, { 0 } },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct braid_pci_addr addr = { 0, 0, 0, 0 };

		assert_int_equal(braid_pci_parse(rows[i].text, &addr), rows[i].err);
		assert_int_equal(addr.domain, rows[i].addr.domain);
		assert_int_equal(addr.bus, rows[i].addr.bus);
		assert_int_equal(addr.dev, rows[i].addr.dev);
		assert_int_equal(addr.fn, rows[i].addr.fn);
	}
}

static void this_machine_has_interfaces_or_a_reason(void **state)
{
	static const int families[] = { AF_UNSPEC, AF_INET, AF_INET6 };
	int n;

	(void)state;
	net.fakes = NULL;
	for (size_t f = 0; f < COUNT(families); f++) {
		n = braid_netdev_find("", families[f], "", devs, DEVS_MAX, why, sizeof(why));
		assert_true(n >= 0);
		assert_int_equal(n == 0, strncmp(why, "no usable", 9) == 0);
		for (int i = 0; i < n; i++) {
			assert_true(devs[i].guid != 0);
			assert_true(devs[i].speed_mbps > 0);
			assert_int_equal(devs[i].ifindex, if_nametoindex(devs[i].name));
			if (devs[i].pci_path[0])
				assert_int_equal(access(devs[i].pci_path, F_OK), 0);
			for (int j = 0; j < i; j++)
				assert_string_not_equal(devs[i].name, devs[j].name);
		}
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_plain_nic_is_described),
		T(a_list_gives_a_number_for_a_port),
		T(ports_and_functions_of_a_card_are_distinguished),
		T(ports_are_small_numbers),
		T(only_what_pci_made_is_pci),
		T(a_device_that_leads_nowhere_is_not_pci),
		T(a_path_too_long_to_keep_is_none),
		T(speed_is_known_or_guessed),
		T(what_stands_on_others_has_their_speed_and_card),
		T(a_bonds_speed_depends_on_its_mode_and_slaves),
		T(a_bond_without_slaves_and_a_bridge_stand_for_themselves),
		T(a_paravirtual_interface_leads_to_the_function_behind_it),
		T(interfaces_that_stand_on_each_other_end_the_search),
		T(without_pci_the_guid_is_the_hardware_address_or_a_made_up_one),
		T(sysfs_of_another_network_namespace_is_ignored),
		T(a_machine_without_sysfs_still_has_interfaces),
		T(a_sysroot_may_be_reached_through_a_link),
		T(a_pci_address_is_parsed_or_refused),
		T(this_machine_has_interfaces_or_a_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
