/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_netdev.c - what netdev.h and pci.h promise, on machines that are made up.
 *
 * The list of interfaces comes from getifaddrs(), which the linker wraps
 * (-Wl,--wrap=getifaddrs,--wrap=freeifaddrs): a table of struct fake becomes the list, in the
 * kernel's order, which is a link entry per interface, then IPv4, then IPv6.  /sys and /proc are
 * a tree in a temporary directory with the links that the kernel makes.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* nftw */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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
#include "topo/netdev.h"
#include "topo/pci.h"

enum {
	FAKES_MAX = 16,
	ADDRS_MAX = 10,
	ENTRIES_MAX = FAKES_MAX * (ADDRS_MAX + 1),
	DEVS_MAX = 16,
	WHY_LEN = 512,
	UP = IFF_UP | IFF_RUNNING,
	LO = UP | IFF_LOOPBACK,
};

struct fake {
	const char *name;
	unsigned flags;
	const char *addrs[ADDRS_MAX];
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct fake full[] = {
	{ "lo", LO, { "127.0.0.1", "::1" } },
	{ "docker0", UP, { "172.17.0.1" } },
	{ "virbr0", UP, { "192.168.122.1" } },
	{ "eth0", UP, { "10.0.0.1" } },
	{ "eth1", UP, { "10.0.1.1" } },
	{ "ib0", UP, { "10.0.2.1" } },
	{ "ibs2", UP, { "10.0.3.1" } },
	{ NULL, 0, { NULL } },
};

static const struct fake one[] = { { "eth0", UP, { "10.0.0.1" } }, { NULL, 0, { NULL } } };

/* ------------------------------------------------------------------------------- getifaddrs */

static const char *at(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *path, const char *text);

int __wrap_getifaddrs(struct ifaddrs **ret);
void __wrap_freeifaddrs(struct ifaddrs *list);
int __real_getifaddrs(struct ifaddrs **ret);
void __real_freeifaddrs(struct ifaddrs *list);

static struct {
	const struct fake *fakes;	/* NULL: this machine's own */
	int err;
	int lists_out;			/* given and not freed */
	int lists, ready_at;		/* given ever; the one with which IPv6 addresses are ready */
} net;

static struct ifaddrs entries[ENTRIES_MAX];
static union {
	struct sockaddr sa;
	struct sockaddr_ll ll;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
} addrs[ENTRIES_MAX], masks[ENTRIES_MAX];

static void put_mask(uint8_t *to, int bits)
{
	for (int i = 0; i < bits; i++)
		to[i / 8] |= (uint8_t)(0x80 >> i % 8);
}

/* "10.0.0.1/24", or without a mask. */
static void entry_address(size_t n, int family, const char *text)
{
	const char *slash = strchr(text, '/');
	char ip[64];

	snprintf(ip, sizeof(ip), "%.*s", (int)strcspn(text, "/"), text);
	memset(&masks[n], 0, sizeof(masks[n]));
	masks[n].sa.sa_family = (sa_family_t)family;
	if (slash)
		entries[n].ifa_netmask = &masks[n].sa;
	if (family == AF_INET) {
		assert_int_equal(inet_pton(AF_INET, ip, &addrs[n].in.sin_addr), 1);
		put_mask((uint8_t *)&masks[n].in.sin_addr, slash ? atoi(slash + 1) : 0);
	} else {
		assert_int_equal(inet_pton(AF_INET6, ip, &addrs[n].in6.sin6_addr), 1);
		put_mask((uint8_t *)&masks[n].in6.sin6_addr, slash ? atoi(slash + 1) : 0);
	}
}

static size_t entry_add(size_t n, const struct fake *f, sa_family_t family, const char *text)
{
	assert_true(n < ENTRIES_MAX);
	memset(&addrs[n], 0, sizeof(addrs[n]));
	entries[n] = (struct ifaddrs){
		.ifa_name = (char *)(uintptr_t)f->name, .ifa_flags = f->flags,
		.ifa_addr = family ? &addrs[n].sa : NULL,
	};
	if (n)
		entries[n - 1].ifa_next = &entries[n];
	addrs[n].sa.sa_family = family;
	if (family == AF_PACKET)
		addrs[n].ll.sll_ifindex = (int)(f - net.fakes) + 1;
	else if (family)
		entry_address(n, family, text);
	return n + 1;
}

static size_t entries_of_family(size_t n, sa_family_t family)
{
	for (const struct fake *f = net.fakes; f->name; f++) {
		for (int i = 0; i < ADDRS_MAX && f->addrs[i]; i++) {
			if ((strchr(f->addrs[i], ':') ? AF_INET6 : AF_INET) == family)
				n = entry_add(n, f, family, f->addrs[i]);
		}
	}
	return n;
}

int __wrap_getifaddrs(struct ifaddrs **ret)
{
	size_t n = 0;

	if (++net.lists == net.ready_at)
		put(at("proc/net/if_inet6"), "");
	if (net.err) {
		errno = net.err;
		return -1;
	}
	if (!net.fakes)
		return __real_getifaddrs(ret);
	for (const struct fake *f = net.fakes; f->name; f++) {
		if (!strchr(f->name, ':'))
			n = entry_add(n, f, strncmp(f->name, "ppp", 3) ? AF_PACKET : 0, NULL);
	}
	n = entries_of_family(n, AF_INET);
	n = entries_of_family(n, AF_INET6);
	net.lists_out++;
	*ret = n ? entries : NULL;
	return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *list)
{
	if (net.fakes)
		net.lists_out--;
	else
		__real_freeifaddrs(list);
}

/* ------------------------------------------------------------------------------------- tree */

static char root[64];

static void make_dirs(const char *path)
{
	char part[PATH_MAX];

	for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
		assert_true(mkdir(part, 0700) == 0 || errno == EEXIST);
	}
}

static const char *at(const char *fmt, ...)
{
	static char path[4][PATH_MAX];
	static unsigned turn;
	char *ret = path[turn++ % 4];
	va_list ap;
	int n;

	n = snprintf(ret, PATH_MAX, "%s/", root);
	va_start(ap, fmt);
	vsnprintf(ret + n, (size_t)(PATH_MAX - n), fmt, ap);
	va_end(ap);
	return ret;
}

static void put(const char *path, const char *text)
{
	FILE *f;

	make_dirs(path);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "%s\n", text);
	fclose(f);
}

static void put_link(const char *path, const char *target)
{
	make_dirs(path);
	unlink(path);
	assert_int_equal(symlink(target, path), 0);
}

/* A device directory under sys/devices, on a bus; with as many "../" as it is deep. */
static void put_device(const char *dir, const char *bus)
{
	char target[PATH_MAX] = "../../";	/* out of sys/devices/X */

	for (const char *p = dir; (p = strchr(p, '/')); p++)
		strcat(target, "../");
	strcat(target, "bus/");
	strcat(target, bus);
	put(at("sys/bus/%s/x", bus), "");
	put_link(at("sys/devices/%s/subsystem", dir), target);
}

/* An interface on a device; the device's directory is the one of its name in sys/devices. */
static void put_netdev(const char *name, const char *dir)
{
	const char *last = strrchr(dir, '/');

	put(at("sys/devices/%s/net/%s/mtu", dir, name), "1500");
	put_link(at("sys/class/net/%s", name), at("sys/devices/%s/net/%s", dir, name));
	if (strncmp(dir, "virtual", 7) != 0) {
		char target[PATH_MAX];

		snprintf(target, sizeof(target), "../../../%s", last + 1);
		put_link(at("sys/devices/%s/net/%s/device", dir, name), target);
	}
}

static void put_net(const char *name, const char *file, const char *text)
{
	put(at("sys/class/net/%s/%s", name, file), text);
}

/* `upper` stands on `lower`. */
static void put_lower(const char *upper, const char *lower)
{
	put_link(at("sys/class/net/%s/lower_%s", upper, lower), "../../../../class/net/x");
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int setup(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	memset(&net, 0, sizeof(net));
	snprintf(root, sizeof(root), "%.40s/braid-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(root))
		return -1;
	put(at("proc/sys/kernel/random/boot_id"), "11111111-2222-3333-4444-555555555555");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return net.lists_out ? -1 : 0;
}

/* ------------------------------------------------------------------------------------- find */

static struct braid_netdev devs[DEVS_MAX];
static char why[WHY_LEN];

static int find(const struct fake *fakes, const char *filter, int family)
{
	net.fakes = fakes;
	memset(devs, 0x5a, sizeof(devs));
	memset(why, 'w', sizeof(why));
	return braid_netdev_find(filter, family, root, devs, DEVS_MAX, why, sizeof(why));
}

/* "eth0 10.0.0.1, eth1 fe80::1%2" */
static const char *found(int n)
{
	static char text[1024];
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < n; i++) {
		const union braid_netdev_addr *a = &devs[i].addr;
		char addr[INET6_ADDRSTRLEN], scope[16] = "";

		if (a->sa.sa_family == AF_INET) {
			inet_ntop(AF_INET, &a->in.sin_addr, addr, sizeof(addr));
		} else {
			assert_int_equal(a->sa.sa_family, AF_INET6);
			inet_ntop(AF_INET6, &a->in6.sin6_addr, addr, sizeof(addr));
			if (a->in6.sin6_scope_id)
				snprintf(scope, sizeof(scope), "%%%u", a->in6.sin6_scope_id);
		}
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s%s",
					 i ? ", " : "", devs[i].name, addr, scope);
	}
	return text;
}

/* The names only. */
static const char *found_names(int n)
{
	static char text[1024];
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < n; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? " " : "",
					 devs[i].name);
	return text;
}

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
		/* What NCCL takes for parts of names, and can have one meaning only. */
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

/* All addresses of the first that was found, in their order. */
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
	net.ready_at = 2;		/* it is ready as soon as somebody has looked twice */
	assert_string_equal(found(find(fakes, "", AF_UNSPEC)), "eth0 2001:db8::1");
	assert_int_equal(net.lists, 3);
	/* It never is: what there is must do, in the end. */
	put(at("proc/net/if_inet6"),
	    "20010db8000000000000000000000001 02 40 00 c0     eth0");
	net.ready_at = 0;
	assert_string_equal(found(find(fakes, "", AF_UNSPEC)), "eth0 fe80::1%1");
	/* Another version will do meanwhile. */
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

/* ------------------------------------------------------------------------------------ sysfs */

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

static void a_list_says_a_number_of_a_port(void **state)
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
static void ports_and_functions_of_a_card_are_told_apart(void **state)
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

static void sysfs_of_another_network_namespace_is_not_believed(void **state)
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
		T(a_plain_nic_is_described),
		T(a_list_says_a_number_of_a_port), T(ports_and_functions_of_a_card_are_told_apart),
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
		T(sysfs_of_another_network_namespace_is_not_believed),
		T(a_machine_without_sysfs_still_has_interfaces),
		T(a_sysroot_may_be_reached_through_a_link),
		T(a_pci_address_is_parsed_or_refused),
		T(this_machine_has_interfaces_or_a_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
