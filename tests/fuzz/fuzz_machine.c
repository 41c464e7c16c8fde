/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_machine.c - a /sys tree of two GPUs and some NICs, whose files say anything.  Input: what
 * the files of a list have in them, separated by zero bytes.
 *
 * Whatever they say, the machine that is read hangs together: the tree is one, distances are the
 * same both ways, every GPU has a NIC, names can be printed.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topo/choose.h"
#include "topo/machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PCI "/sys/devices/pci0000:00/0000:00:01.0/"

static const char *const files[] = {
	PCI "0000:01:00.0/class", PCI "0000:01:00.0/vendor", PCI "0000:01:00.0/numa_node",
	PCI "0000:01:00.0/local_cpulist", "/proc/cpuinfo", "/sys/devices/system/node/node1/cpulist",
	PCI "0000:02:00.0/infiniband/ib_0/ports/1/rate",
	PCI "0000:02:00.0/infiniband/ib_0/ports/1/state",
	PCI "0000:02:00.0/infiniband/ib_0/ports/1/gid_attrs/ndevs/0",
	PCI "0000:02:00.0/net/eth0/speed", PCI "0000:02:00.0/net/eth0/operstate",
	PCI "0000:02:00.0/net/eth0/dev_port", PCI "0000:02:00.0/net/eth0/phys_port_name",
	"/sys/class/net/bond0/bonding/slaves",
};
enum { FILES = sizeof(files) / sizeof(files[0]) };

static char root[64];

static void make_dirs(const char *path)
{
	char full[512];

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		mkdir(full, 0700);
		*p = '/';
	}
}

static void make_link(const char *path, const char *target)
{
	char full[512], to[512];

	make_dirs(path);
	snprintf(full, sizeof(full), "%s%s", root, path);
	snprintf(to, sizeof(to), "%s%s", root, target);
	assert(symlink(to, full) == 0);
}

static void write_file(const char *path, const void *data, size_t size)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	f = fopen(full, "w");
	assert(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

/* Most files are as they were in the run before. */
static void write_changed(unsigned i, const uint8_t *data, size_t size)
{
	static uint8_t *was[FILES];
	static size_t was_size[FILES];

	if (was[i] && was_size[i] == size && memcmp(was[i], data, size) == 0)
		return;
	write_file(files[i], data, size);
	free(was[i]);
	was[i] = malloc(size + 1);
	assert(was[i]);
	memcpy(was[i], data, size);
	was_size[i] = size;
}

static void remove_tree(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	assert(system(command) == 0);
}

/* A second GPU and a second NIC, of which nothing varies, and two interfaces to make a bond of. */
static void make_tree(void)
{
	snprintf(root, sizeof(root), "/tmp/braid-fuzz-machine.XXXXXX");
	assert(mkdtemp(root));
	atexit(remove_tree);
	for (unsigned i = 0; i < FILES; i++)
		make_dirs(files[i]);
	make_dirs("/sys/bus/pci/x");
	make_dirs("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/x");
	make_link("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/subsystem", "/sys/bus/pci");
	write_file("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/class", "0x030200", 8);
	write_file("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/vendor", "0x10de", 6);
	make_link(PCI "0000:01:00.0/subsystem", "/sys/bus/pci");
	make_link(PCI "0000:02:00.0/subsystem", "/sys/bus/pci");
	make_link("/sys/bus/pci/devices/0000:01:00.0", PCI "0000:01:00.0");
	make_link("/sys/bus/pci/devices/0000:81:00.0",
		  "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0");
	make_link("/sys/class/infiniband/ib_0", PCI "0000:02:00.0/infiniband/ib_0");
	make_link(PCI "0000:02:00.0/infiniband/ib_0/device", PCI "0000:02:00.0");
	make_link("/sys/class/net/eth0", PCI "0000:02:00.0/net/eth0");
	make_link(PCI "0000:02:00.0/net/eth0/device", PCI "0000:02:00.0");
	make_link("/sys/class/net/eth1/device",
		  "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0");
}

static void check_names(const struct braid_machine *m)
{
	for (unsigned i = 0; i < m->n_nics; i++) {
		assert(*m->nics[i].name);
		for (const char *p = m->nics[i].name; *p; p++)
			assert(*p >= ' ' && *p <= '~');
		assert(strlen(m->nics[i].netdev) < sizeof(m->nics[i].netdev));
		assert(m->nics[i].speed_mbps >= 0);
	}
	for (unsigned i = 0; i < m->n_notes; i++)
		assert(strlen(m->notes[i]) < BRAID_MACHINE_NOTE);
}

static void check_tree(const struct braid_machine *m)
{
	for (unsigned i = 0; i < m->n_spots; i++) {
		const struct braid_spot *s = &m->spots[i];

		assert(s->up < (int)i && s->numa >= -1);
		assert(s->up < 0 ? s->depth == 0 : m->spots[s->up].depth + 1 == s->depth);
		for (unsigned k = 0; k < m->n_spots; k++) {
			enum braid_distance d = braid_machine_between(m, (int)i, (int)k);

			assert(d == braid_machine_between(m, (int)k, (int)i));
			assert((d == BRAID_DISTANCE_SELF) == (i == k));
		}
	}
	for (unsigned i = 0; i < m->n_nics; i++) {
		for (unsigned k = 0; k < m->nics[i].n_spots; k++)
			assert(m->nics[i].spots[k] >= 0 &&
			       (unsigned)m->nics[i].spots[k] < m->n_spots);
	}
}

static void check_choices(const struct braid_machine *m)
{
	static struct braid_choice c;
	char why[8192];

	for (unsigned g = 0; g < m->n_gpus; g++) {
		braid_choose(m, m->n_gpus, g, &c);
		assert(c.n > 0 && c.n <= c.n_near && c.turn < c.sharers);
		for (unsigned i = 0; i < c.n; i++) {
			assert(!c.left_out[c.nics[i]]);
			assert(braid_machine_gpu_nic(m, g, c.nics[i]) == c.distance);
		}
		assert(braid_choice_explain(m, g, &c, why, sizeof(why)) < sizeof(why));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct braid_machine *m;

	if (!*root)
		make_tree();
	if (!size)
		data = (const uint8_t *)"";
	for (unsigned i = 0; i < FILES; i++) {
		const uint8_t *end = size ? memchr(data, '\0', size) : NULL;
		size_t len = end ? (size_t)(end - data) : size;

		write_changed(i, data, len);
		data += len + !!end;
		size -= len + !!end;
	}
	assert(braid_machine_read(root, &m) == 0);
	assert(m->n_gpus == 1 || m->n_gpus == 2);
	assert(m->n_nics > 0);
	check_names(m);
	check_tree(m);
	check_choices(m);
	braid_machine_free(m);
	return 0;
}
