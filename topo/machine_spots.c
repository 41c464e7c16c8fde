/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * machine_spots.c - files below a root, and the spots of PCI devices.
 *
 * The real path of a PCI device is its chain of bridges:
 *
 *	/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:08.0/0000:05:00.0
 *	             host bridge, root port,  a switch's upstream and downstream port, device
 *
 * so every path that a GPU or NIC has becomes a chain of spots.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/reader.h"
#include "topo/sys.h"

enum { WIDTH_MOST = 32, GTS_MOST = 1024 };

bool braid_reader_path(const struct braid_reader *r, char *ret, const char *fmt, ...)
{
	size_t head = strlen(r->root);
	va_list ap;
	int n;

	memcpy(ret, r->root, head);
	va_start(ap, fmt);
	n = vsnprintf(ret + head, PATH_MAX - head, fmt, ap);
	va_end(ap);
	return n >= 0 && (size_t)n < PATH_MAX - head;
}

bool braid_reader_number(const struct braid_reader *r, const char *dir, const char *file,
			 long least, long most, long *ret)
{
	char path[PATH_MAX];

	return braid_reader_path(r, path, "%s/%s", dir, file) &&
	       braid_sys_number(path, least, most, ret);
}

bool braid_reader_line(const struct braid_reader *r, const char *dir, const char *file, char *ret,
		       size_t len)
{
	char path[PATH_MAX];

	return braid_reader_path(r, path, "%s/%s", dir, file) && braid_sys_line(path, ret, len);
}

/* Opens a directory of /sys/class and the like; NULL: there is none. */
DIR *braid_reader_dir(const struct braid_reader *r, const char *dir)
{
	char path[PATH_MAX];

	return braid_reader_path(r, path, "%s", dir) ? opendir(path) : NULL;
}

/* The next entry that is not hidden and not longer than most. */
const char *braid_reader_next(DIR *dir, size_t most)
{
	struct dirent *e;

	while ((e = readdir(dir))) {
		if (e->d_name[0] != '.' && strlen(e->d_name) <= most)
			return e->d_name;
	}
	return NULL;
}

static bool is_host_bridge(const char *name)
{
	unsigned domain, bus;
	int used = 0;

	return strncmp(name, "pci", 3) == 0 && isxdigit((unsigned char)name[3]) &&
	       sscanf(name, "pci%8x:%2x%n", &domain, &bus, &used) == 2 && !name[used];
}

/* The number in a file of a spot's directory; 0: unknown. */
unsigned braid_reader_number_of(const struct braid_reader *r, const char *dir, const char *file,
				long most)
{
	long v;

	return braid_reader_number(r, dir, file, 0, most, &v) ? (unsigned)v : 0;
}

/* Reads files such as "16.0 GT/s PCIe" and "16"; "Unknown" and 255 leave the value unknown. */
static struct braid_link link_of(const struct braid_reader *r, const char *dir, const char *when)
{
	struct braid_link link = { .gts = 0 };
	char file[32], text[32], *end;

	snprintf(file, sizeof(file), "%s_link_speed", when);
	if (braid_reader_line(r, dir, file, text, sizeof(text)) && isdigit((unsigned char)*text)) {
		link.gts = strtod(text, &end);
		if (strncmp(end, " GT/s", 5) != 0 || !(link.gts > 0 && link.gts <= GTS_MOST))
			link.gts = 0;
	}
	snprintf(file, sizeof(file), "%s_link_width", when);
	link.width = braid_reader_number_of(r, dir, file, BRAID_ID_MOST);
	if (link.width > WIDTH_MOST)
		link.width = 0;
	return link;
}

static void read_spot(const struct braid_reader *r, struct braid_spot *s)
{
	long numa = -1;

	braid_reader_number(r, s->path, "numa_node", -1, BRAID_NUMA_MOST, &numa);
	s->numa = (int)numa;
	s->class = braid_reader_number_of(r, s->path, "class", BRAID_CLASS_MOST);
	s->vendor = braid_reader_number_of(r, s->path, "vendor", BRAID_ID_MOST);
	s->device = braid_reader_number_of(r, s->path, "device", BRAID_ID_MOST);
	s->sub_vendor = braid_reader_number_of(r, s->path, "subsystem_vendor", BRAID_ID_MOST);
	s->sub_device = braid_reader_number_of(r, s->path, "subsystem_device", BRAID_ID_MOST);
	s->most = link_of(r, s->path, "max");
	s->now = link_of(r, s->path, "current");
	braid_pci_cpus(r->root, s->path, &s->cpus);
}

/* The spot of the first `len` characters of path, which end with `name`; -1: no room. */
static int spot_get(struct braid_reader *r, int up, const char *path, size_t len, const char *name)
{
	struct braid_spot s = { .up = up };
	int there;

	memcpy(s.path, path, len);
	there = braid_machine_find(r->m, s.path);
	if (there >= 0)
		return there;
	snprintf(s.name, sizeof(s.name), "%s", name);
	read_spot(r, &s);
	return braid_machine_add(r->m, &s);
}

/* The spot of a path that braid_pci_find() wrote; -1: no host bridge is in it, or no room. */
int braid_reader_spot(struct braid_reader *r, const char *path)
{
	const char *p = path;
	int spot = -1;

	while (*p) {
		const char *name = ++p;
		char text[BRAID_SPOT_NAME];
		struct braid_pci_addr addr;
		size_t len = strcspn(name, "/");

		p += len;
		if (len >= sizeof(text)) {
			if (spot >= 0)
				return -1;
			continue;
		}
		memcpy(text, name, len);
		text[len] = '\0';
		if (is_host_bridge(text) ||
		    (spot >= 0 && braid_pci_parse(text, &addr) == 0))
			spot = spot_get(r, spot, path, (size_t)(p - path), text);
		else if (spot >= 0)
			return -1;
		else
			continue;
		if (spot < 0)
			return -1;
	}
	return spot;
}

int braid_reader_spot_of_device(struct braid_reader *r, const char *device)
{
	char path[BRAID_MACHINE_PATH];

	if (braid_pci_find(r->root, device, path, sizeof(path)) < 0)
		return -1;
	return braid_reader_spot(r, path);
}
