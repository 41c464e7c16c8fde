/* SPDX-License-Identifier: BSD-3-Clause */
/* machine_sys.c - read the machine out of /sys: GPUs, NUMA nodes, and in what order all is read. */
#include "topo/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/reader.h"

enum {
	VENDOR_MELLANOX = 0x15b3,
	DEVICE_DIRECT = 0x2100,
};

static void read_gpu(struct braid_reader *r, const char *name)
{
	struct braid_gpu gpu = { .spot = -1 };
	char dir[PATH_MAX];
	unsigned class;

	snprintf(dir, sizeof(dir), "/sys/bus/pci/devices/%s", name);
	class = braid_reader_number_of(r, dir, "class", BRAID_CLASS_MOST);
	gpu.vendor = braid_reader_number_of(r, dir, "vendor", BRAID_ID_MOST);
	if (braid_pci_parse(name, &gpu.addr) < 0 || !braid_machine_is_gpu(class, gpu.vendor))
		return;
	gpu.spot = braid_reader_spot_of_device(r, dir);
	braid_machine_add_gpu(r->m, &gpu);
}

/* Note a ConnectX-8's Data Direct function: it is no NIC itself, and /sys does not name its NIC. */
static void read_direct(struct braid_reader *r, const char *name)
{
	char dir[PATH_MAX], *all = r->m->direct;
	size_t at = strlen(all);

	snprintf(dir, sizeof(dir), "/sys/bus/pci/devices/%s", name);
	if (braid_reader_number_of(r, dir, "vendor", BRAID_ID_MOST) == VENDOR_MELLANOX &&
	    braid_reader_number_of(r, dir, "device", BRAID_ID_MOST) == DEVICE_DIRECT)
		snprintf(all + at, sizeof(r->m->direct) - at, "%s%s", at ? ", " : "", name);
}

static void read_cards(struct braid_reader *r)
{
	DIR *dir = braid_reader_dir(r, "/sys/bus/pci/devices");
	const char *name;

	while (dir && (name = braid_reader_next(dir, BRAID_SPOT_NAME - 1))) {
		read_gpu(r, name);
		read_direct(r, name);
	}
	if (dir)
		closedir(dir);
}

static void read_numas(struct braid_reader *r)
{
	DIR *dir = braid_reader_dir(r, "/sys/devices/system/node");
	const char *name;

	while (dir && (name = braid_reader_next(dir, 8))) {
		struct braid_numa numa = { .id = -1 };
		char path[PATH_MAX], text[8 * BRAID_MACHINE_PATH] = "";
		int used = 0;

		if (sscanf(name, "node%4d%n", &numa.id, &used) != 1 || name[used] || numa.id < 0)
			continue;
		snprintf(path, sizeof(path), "/sys/devices/system/node/%s", name);
		if (braid_reader_line(r, path, "cpulist", text, sizeof(text)))
			braid_cpus_parse(text, &numa.cpus);
		braid_machine_add_numa(r->m, &numa);
	}
	if (dir)
		closedir(dir);
}

static int read_all(struct braid_reader *r)
{
	DIR *dir = braid_reader_dir(r, "/sys");

	if (!dir)
		return -errno;
	closedir(dir);
	braid_machine_cpu(r->m, r->root);
	read_numas(r);
	read_cards(r);
	braid_reader_nets(r);
	braid_reader_rdma_nics(r);
	braid_reader_net_nics(r);
	return braid_machine_settle(r->m);
}

int braid_machine_read(const char *root, struct braid_machine **ret)
{
	struct braid_reader r = { .m = NULL };
	int err;

	if (strlen(root) >= sizeof(r.root))
		return -ENAMETOOLONG;
	strcpy(r.root, root);
	r.nets = calloc(BRAID_NETS_MAX + 1, sizeof(*r.nets));
	err = r.nets ? braid_machine_new(&r.m) : -ENOMEM;
	if (!err)
		err = read_all(&r);
	free(r.nets);
	if (err)
		braid_machine_free(r.m);
	else
		*ret = r.m;
	return err;
}
