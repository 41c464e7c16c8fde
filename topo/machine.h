/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * machine.h - the machine as a tree: GPUs and NICs, the PCI bridges above them, NUMA nodes.
 *
 * Read once, from /sys or by hwloc; for tools, never on the data path.  What neither of them says
 * stays unknown: a distance is never guessed.
 */
#ifndef BRAID_TOPO_MACHINE_H
#define BRAID_TOPO_MACHINE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "topo/cpus.h"
#include "topo/pci.h"

enum {
	BRAID_MACHINE_GPUS = 64,
	BRAID_MACHINE_NICS = 256,
	BRAID_MACHINE_SPOTS = 4096,
	BRAID_MACHINE_NUMAS = 256,
	BRAID_MACHINE_NOTES = 8,
	BRAID_MACHINE_NOTE = 256,
	BRAID_MACHINE_PATH = 512,
	BRAID_SPOT_NAME = 24,
	BRAID_SPOT_DEPTH = 32,
	BRAID_NIC_NAME = 72,
	BRAID_NIC_SPOTS = 16,
};

/* NCCL's names, nearest first.  NCCL itself counts NODE as PHB. */
enum braid_distance {
	BRAID_DISTANCE_SELF,	/* X */
	BRAID_DISTANCE_NVL,	/* NVLink, direct or through its switches; of two GPUs */
	BRAID_DISTANCE_PIX,	/* at most one PCIe switch between */
	BRAID_DISTANCE_PXB,	/* several switches, but not the host bridge */
	BRAID_DISTANCE_PHB,	/* the same host bridge */
	BRAID_DISTANCE_NODE,	/* the same NUMA node, nothing nearer is known or shared */
	BRAID_DISTANCE_SYS,	/* another NUMA node */
	BRAID_DISTANCE_UNKNOWN,
	BRAID_DISTANCES,
};

struct braid_link {		/* of PCIe */
	double gts;			/* transfers a lane, 10^9/s; 0: unknown */
	unsigned width;			/* lanes; 0: unknown */
};

struct braid_spot {		/* a host bridge, a bridge or a device */
	int up;				/* the spot above; -1: this is a host bridge */
	unsigned depth;			/* 0: a host bridge */
	int numa;			/* -1: unknown */
	bool gpu, nic;
	unsigned class, vendor, device, sub_vendor, sub_device;		/* 0: unknown */
	struct braid_link most, now;	/* at the device's own end */
	struct braid_cpus cpus;		/* the CPUs next to it; empty: unknown */
	char name[BRAID_SPOT_NAME];	/* "pci0000:00", "0000:03:00.0" */
	char path[BRAID_MACHINE_PATH];	/* the names from the top down; spots are sorted by it */
};

struct braid_gpu {
	int spot;
	struct braid_pci_addr addr;
	unsigned vendor;		/* 0x10de, 0x1002 */
};

enum braid_carrier { BRAID_CARRIER_UNKNOWN, BRAID_CARRIER_UP, BRAID_CARRIER_DOWN };

struct braid_nic {			/* an RDMA port, or an interface that belongs to none */
	char name[BRAID_NIC_NAME];	/* as Braid calls the device: "mlx5_0:1", "eth0" */
	char netdev[16];		/* "" if there is none */
	bool rdma;
	int port;
	enum braid_carrier carrier;
	int speed_mbps;			/* 0: unknown */
	bool virtual_function;
	bool bond;
	unsigned n_spots;		/* 0: no PCI address; several: a bond of them */
	int spots[BRAID_NIC_SPOTS];
};

struct braid_numa {
	int id;
	struct braid_cpus cpus;		/* empty: memory alone */
};

struct braid_cpu_kind {
	const char *arch;		/* NCCL's name: "x86_64" */
	char vendor[64];		/* "GenuineIntel"; "": unknown */
	int family, model;		/* -1: unknown */
};

struct braid_machine {
	bool is_virtual;		/* runs under a hypervisor, as far as the machine shows */
	unsigned n_spots, n_gpus, n_nics, n_numas, n_notes;
	char direct[160];	/* PCI functions of Data Direct, while there is room; or "" */
	bool has_nvlink;
	bool nvlink[BRAID_MACHINE_GPUS][BRAID_MACHINE_GPUS];
	unsigned left_out;		/* devices for which the tables had no room */
	struct braid_cpu_kind cpu;
	struct braid_spot *spots;
	struct braid_gpu gpus[BRAID_MACHINE_GPUS];	/* by PCI address, as nvidia-smi has them */
	struct braid_nic nics[BRAID_MACHINE_NICS];	/* by PCI address and port; then the rest */
	struct braid_numa numas[BRAID_MACHINE_NUMAS];	/* by number */
	/* What could not be found out, and why. */
	char notes[BRAID_MACHINE_NOTES][BRAID_MACHINE_NOTE];
};

/*
 * root: "" or a directory that stands for /.  0 with *ret, to be freed; -ENOMEM; or -errno where
 * ROOT/sys can't be read.  A machine without GPU or NIC is no error.
 */
int braid_machine_read(const char *root, struct braid_machine **ret);
void braid_machine_free(struct braid_machine *m);

/* Between two spots; between GPUs and NICs, where the farthest member of a bond counts. */
enum braid_distance braid_machine_between(const struct braid_machine *m, int a, int b);
enum braid_distance braid_machine_gpu_nic(const struct braid_machine *m, unsigned gpu,
					  unsigned nic);
enum braid_distance braid_machine_nic_nic(const struct braid_machine *m, unsigned a, unsigned b);
enum braid_distance braid_machine_gpu_gpu(const struct braid_machine *m, unsigned a, unsigned b);
const char *braid_distance_name(enum braid_distance d);		/* "PIX"; "?" */
const char *braid_distance_words(enum braid_distance d);	/* as in the legend */

/* The CPUs next to a spot: its own list, or its NUMA node's; empty: unknown. */
void braid_machine_cpus(const struct braid_machine *m, int spot, struct braid_cpus *ret);

/* Does a spot's PCIe link run below what the device can do? */
bool braid_machine_is_slower(const struct braid_spot *s);
bool braid_machine_is_narrower(const struct braid_spot *s);

#endif
