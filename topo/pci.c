/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pci.c - follow sysfs links until they reach PCI.
 *
 * A device directory says by its `subsystem` link what bus it is on.  A network interface's
 * `device` is the PCI function itself for a plain NIC, but a child of it for virtio, vDPA and the
 * scalable functions of one (bus "auxiliary"), so we climb over these.  We do not climb over
 * other buses: a USB adapter is not the PCI card its host controller sits on.
 */
#include "topo/pci.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/sys.h"

static const char *const climbable[] = { "virtio", "vdpa", "auxiliary" };

int braid_pci_parse(const char *text, struct braid_pci_addr *ret)
{
	unsigned domain, bus, dev, fn;
	int used = 0;

	/* sscanf lets blanks, signs and 0x through; the set of letters keeps them out. */
	if (text[strspn(text, "0123456789abcdefABCDEF:.")] ||
	    sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &dev, &fn, &used) != 4 ||
	    text[used] || dev > 31 || fn > 7)
		return -EINVAL;
	ret->domain = domain;
	ret->bus = (uint8_t)bus;
	ret->dev = (uint8_t)dev;
	ret->fn = (uint8_t)fn;
	return 0;
}

/* realpath(sysroot/dir/name); ret holds PATH_MAX bytes. */
static int resolve(const char *sysroot, const char *dir, const char *name, char *ret)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s%s%s", sysroot, dir, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	return realpath(path, ret) ? 0 : -errno;
}

static bool is_climbable(const char *bus)
{
	for (size_t i = 0; i < sizeof(climbable) / sizeof(climbable[0]); i++) {
		if (strcmp(bus, climbable[i]) == 0)
			return true;
	}
	return false;
}

/* Cut dir, a real directory, to the first directory at or above it that is a PCI device. */
static int climb(char *dir)
{
	char bus[PATH_MAX];
	char *last;

	while ((last = strrchr(dir, '/')) && resolve("", dir, "/subsystem", bus) == 0) {
		const char *name = strrchr(bus, '/') + 1;

		if (strcmp(name, "pci") == 0)
			return 0;
		if (!is_climbable(name))
			break;
		*last = '\0';
	}
	return -ENOENT;
}

int braid_pci_find(const char *sysroot, const char *device, char *ret, size_t len)
{
	char root[PATH_MAX], dir[PATH_MAX];
	struct braid_pci_addr addr;
	const char *path;
	size_t root_len;
	int err;

	err = resolve(sysroot, "/", "", root);
	if (!err)
		err = resolve(sysroot, device, "", dir);
	if (!err)
		err = climb(dir);
	if (err)
		return err;
	root_len = strcmp(root, "/") == 0 ? 0 : strlen(root);
	path = dir + root_len;
	if (strncmp(dir, root, root_len) != 0 || *path != '/' ||
	    braid_pci_parse(strrchr(path, '/') + 1, &addr) < 0)
		return -ENOENT;
	if (strlen(path) >= len)
		return -ENAMETOOLONG;
	memcpy(ret, path, strlen(path) + 1);
	return 0;
}

int braid_pci_physfn(const char *sysroot, const char *path, struct braid_pci_addr *ret)
{
	char dir[PATH_MAX];
	const char *name = resolve(sysroot, path, "/physfn", dir) == 0 ? dir : path;

	name = strrchr(name, '/');
	return name ? braid_pci_parse(name + 1, ret) : -EINVAL;
}

/* The length of a path's beginning up to a root port, ".../pci0000:17/0000:17:00.0/"; 0: none. */
static size_t port_len(const char *dir)
{
	const char *p = dir;
	size_t hex;

	while ((p = strstr(p, "/pci"))) {
		p += 4;
		hex = strspn(p, "0123456789abcdef");
		if (hex >= 4 && p[hex] == ':')
			break;
	}
	p = p ? strchr(p, '/') : NULL;
	p = p ? strchr(p + 1, '/') : NULL;
	return p ? (size_t)(p + 1 - dir) : 0;
}

bool braid_pci_one_port(const char *sysroot, const char *path, const char *addr)
{
	char a[PATH_MAX], b[PATH_MAX];
	size_t len;

	if (resolve(sysroot, path, "", a) || resolve(sysroot, "/sys/bus/pci/devices/", addr, b))
		return false;
	len = port_len(a);
	return len && !strncmp(a, b, len);
}

bool braid_pci_cpus(const char *sysroot, const char *path, struct braid_cpus *ret)
{
	char file[PATH_MAX], text[PATH_MAX];

	return snprintf(file, sizeof(file), "%s%s/local_cpulist", sysroot, path) <
	       (int)sizeof(file) && braid_sys_line(file, text, sizeof(text)) && *text &&
	       braid_cpus_parse(text, ret) == 0;
}
