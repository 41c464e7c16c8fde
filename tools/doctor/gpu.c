/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.c - GPUs: the driver, and how a NIC can access their memory. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor.h"

enum { NVIDIA = 0x10de };

static unsigned nvidias(struct doctor *d)
{
	const struct braid_machine *m = doctor_machine(d);
	unsigned n = 0;

	for (unsigned i = 0; i < m->n_gpus; i++)
		n += m->gpus[i].vendor == NVIDIA;
	return n;
}

static bool none(struct doctor *d)
{
	if (nvidias(d))
		return false;
	doctor_skip(d, "no NVIDIA GPU");
	return true;
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10 ..." */
static bool driver_line(struct doctor *d, char *ret, size_t len)
{
	return sys_line(d, ret, len, "/proc/driver/nvidia/version");
}

/* The first word with a dot that begins with a digit. */
static const char *driver_version(const char *line, char *ret, size_t len)
{
	for (const char *p = line; *p; p += strspn(p, " ")) {
		size_t n = strcspn(p, " ");

		if (*p >= '0' && *p <= '9' && memchr(p, '.', n)) {
			snprintf(ret, len, "%.*s", (int)n, p);
			return ret;
		}
		p += n;
	}
	return "?";
}

static void driver(struct doctor *d)
{
	char line[TEXT_LEN], version[NAME_LEN];

	if (none(d))
		return;
	if (!driver_line(d, line, sizeof(line))) {
		doctor_find(d, LEVEL_FAIL, "%u NVIDIA GPUs are there, but no driver is loaded",
			    nvidias(d));
		doctor_mend(d, "sudo modprobe nvidia");
		return;
	}
	doctor_fact(d, "nvidia driver", "%s", driver_version(line, version, sizeof(version)));
	doctor_ok(d, "driver %s", driver_version(line, version, sizeof(version)));
}

static void device_files(struct doctor *d)
{
	struct names all;
	unsigned n = 0;

	if (none(d))
		return;
	sys_names(d, &all, "/dev");
	for (unsigned i = 0; i < all.n; i++)
		n += strncmp(all.name[i], "nvidia", 6) == 0 && all.name[i][6] >= '0' &&
		     all.name[i][6] <= '9';
	if (n >= nvidias(d)) {
		doctor_ok(d, "%u GPUs have a device file", n);
		return;
	}
	doctor_find(d, n ? LEVEL_NOTE : LEVEL_FAIL, "of %u GPUs %u have a device file", nvidias(d),
		    n);
	if (doctor_in_container(d))
		doctor_mend_container(d, "--gpus all", "ask for nvidia.com/gpu");
	else
		doctor_mend(d, "sudo nvidia-modprobe -u");
}

/* A NIC accesses a GPU's memory by DMA-BUF (open modules, Linux 5.12) or by nvidia_peermem. */
static void direct(struct doctor *d)
{
	char line[TEXT_LEN] = "", release[TEXT_LEN] = "";
	const struct rdma_port *ports;
	int major = 0, minor = 0;
	bool open, peermem;

	if (none(d))
		return;
	if (!doctor_ports(d, &ports)) {
		doctor_skip(d, "no RDMA device");
		return;
	}
	driver_line(d, line, sizeof(line));
	sys_line(d, release, sizeof(release), "/proc/sys/kernel/osrelease");
	sscanf(release, "%d.%d", &major, &minor);
	open = strstr(line, "Open Kernel Module") && major * 1000 + minor >= 5012;
	peermem = sys_has(d, "/sys/module/nvidia_peermem") ||
		  sys_has(d, "/sys/kernel/mm/memory_peers/nv_mem/version");
	doctor_fact(d, "gpu memory", open ? peermem ? "DMA-BUF, peermem" : "DMA-BUF" :
		    peermem ? "peermem" : "none");
	if (open || peermem) {
		doctor_ok(d, "NICs get at GPU memory by %s", open ? "DMA-BUF" : "nvidia_peermem");
		return;
	}
	doctor_find(d, LEVEL_FAIL, "NICs can't get at GPU memory: no DMA-BUF (it takes the open "
		    "kernel modules and Linux 5.12), no nvidia_peermem");
	doctor_mend(d, "sudo modprobe nvidia-peermem");
}

static void dmabuf(struct doctor *d)
{
	const struct rdma_port *ports;
	char line[TEXT_LEN];
	long long on;

	if (none(d))
		return;
	if (!doctor_ports(d, &ports)) {
		doctor_skip(d, "no RDMA device");
	} else if (!driver_line(d, line, sizeof(line))) {
		doctor_skip(d, "no driver");
	} else if (!strstr(line, "Open Kernel Module")) {
		doctor_find(d, LEVEL_NOTE, "the driver's modules are not the open ones, so there "
			    "is no DMA-BUF");
		doctor_mend_install(d, "nvidia-open", "nvidia-open");
	} else if (env_number(d, "NCCL_DMABUF_ENABLE", &on) && !on) {
		doctor_find(d, LEVEL_NOTE, "NCCL_DMABUF_ENABLE=0 turns DMA-BUF off");
		doctor_mend_set(d, "NCCL_DMABUF_ENABLE", NULL);
	} else {
		doctor_ok(d, "the driver's open modules have DMA-BUF");
	}
}

static void gdrcopy(struct doctor *d)
{
	if (none(d))
		return;
	if (sys_has(d, "/sys/module/gdrdrv")) {
		if (sys_may(d, "/dev/gdrdrv")) {
			doctor_ok(d, "GDRCopy's driver is loaded");
			return;
		}
		doctor_find(d, LEVEL_NOTE, "/dev/gdrdrv may not be opened");
		if (doctor_in_container(d))
			doctor_mend_container(d, "--device=/dev/gdrdrv", "mount /dev/gdrdrv");
		else
			doctor_mend(d, "sudo chmod 0666 /dev/gdrdrv");
		return;
	}
	doctor_find(d, LEVEL_NOTE, "GDRCopy's driver is not loaded");
	doctor_mend(d, "sudo modprobe gdrdrv");
}

static void library(struct doctor *d)
{
	if (none(d) || !doctor_lacks_library(d, "libcuda", "GPUs"))
		return;
	if (doctor_in_container(d))
		doctor_mend_container(d, "--gpus all", "ask for nvidia.com/gpu");
	else
		doctor_mend(d, "sudo ldconfig   # or install the driver's libraries");
}

const struct check doctor_gpu[] = {
	{ "gpu-driver", "The GPUs' driver", "Without it there is no CUDA, and no NCCL", driver },
	{ "gpu-files", "Device files of the GPUs",
	  "A program sees only the GPUs whose file it can open", device_files },
	{ "gpu-direct", "NICs and GPU memory",
	  "Each byte is copied through the CPU's memory: a fraction of the bandwidth", direct },
	{ "gpu-dmabuf", "DMA-BUF",
	  "The newer way of the two, and the only one for memory of CUDA's virtual kind", dmabuf },
	{ "gpu-gdrcopy", "GDRCopy",
	  "What NICs wrote is made visible to a GPU by a read of theirs, which takes longer",
	  gdrcopy },
	{ "gpu-library", "libcuda", "NCCL can't use the GPUs", library },
	{ NULL, NULL, NULL, NULL },
};
