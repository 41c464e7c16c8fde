/* SPDX-License-Identifier: BSD-3-Clause */
/* netdevs.c - see netdevs.h. */
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

const struct fake full[] = {
	{ "lo", LO, { "127.0.0.1", "::1" } },
	{ "docker0", UP, { "172.17.0.1" } },
	{ "virbr0", UP, { "192.168.122.1" } },
	{ "eth0", UP, { "10.0.0.1" } },
	{ "eth1", UP, { "10.0.1.1" } },
	{ "ib0", UP, { "10.0.2.1" } },
	{ "ibs2", UP, { "10.0.3.1" } },
	{ NULL, 0, { NULL } },
};

const struct fake one[] = { { "eth0", UP, { "10.0.0.1" } }, { NULL, 0, { NULL } } };

/* ------------------------------------------------------------------------------- getifaddrs */

int __wrap_getifaddrs(struct ifaddrs **ret);
void __wrap_freeifaddrs(struct ifaddrs *list);
int __real_getifaddrs(struct ifaddrs **ret);
void __real_freeifaddrs(struct ifaddrs *list);

struct fake_net net;

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

char root[64];

static void make_dirs(const char *path)
{
	char part[PATH_MAX];

	for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
		assert_true(mkdir(part, 0700) == 0 || errno == EEXIST);
	}
}

const char *at(const char *fmt, ...)
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

void put(const char *path, const char *text)
{
	FILE *f;

	make_dirs(path);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "%s\n", text);
	fclose(f);
}

void put_link(const char *path, const char *target)
{
	make_dirs(path);
	unlink(path);
	assert_int_equal(symlink(target, path), 0);
}

/* A device directory under sys/devices, on a bus; with as many "../" as it is deep. */
void put_device(const char *dir, const char *bus)
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
void put_netdev(const char *name, const char *dir)
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

void put_net(const char *name, const char *file, const char *text)
{
	put(at("sys/class/net/%s/%s", name, file), text);
}

/* Makes `upper` an interface on top of `lower`. */
void put_lower(const char *upper, const char *lower)
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

int setup(void **state)
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

int teardown(void **state)
{
	(void)state;
	nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return net.lists_out ? -1 : 0;
}

/* ------------------------------------------------------------------------------------- find */

struct braid_netdev devs[DEVS_MAX];
char why[WHY_LEN];

int find(const struct fake *fakes, const char *filter, int family)
{
	net.fakes = fakes;
	memset(devs, 0x5a, sizeof(devs));
	memset(why, 'w', sizeof(why));
	return braid_netdev_find(filter, family, root, devs, DEVS_MAX, why, sizeof(why));
}

const char *found(int n)
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

const char *found_names(int n)
{
	static char text[1024];
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < n; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? " " : "",
					 devs[i].name);
	return text;
}
