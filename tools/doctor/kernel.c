/* SPDX-License-Identifier: BSD-3-Clause */
/* kernel.c - the kernel: its version, RDMA modules and device files, and slow wake-ups. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor.h"

static const char rdma_in_pod[] = "ask for the resource of the RDMA device plugin";

/* PCI vendors whose NICs have RDMA, with the module that provides it. */
static const struct {
	unsigned vendor;
	const char *driver;		/* of the NIC, as /sys has it */
	const char *module;
} makers[] = {
	{ 0x15b3, "mlx5_core", "mlx5_ib" },
	{ 0x15b3, "mlx4_core", "mlx4_ib" },
	{ 0x14e4, "bnxt_en", "bnxt_re" },
	{ 0x8086, "ice", "irdma" },
	{ 0x8086, "i40e", "irdma" },
	{ 0x1425, "cxgb4", "iw_cxgb4" },
	{ 0x1077, "qede", "qedr" },
	{ 0x1dd8, "ionic", "ionic_rdma" },
};

static void version(struct doctor *d)
{
	const struct braid_machine *m = doctor_machine(d);
	char text[TEXT_LEN];
	int major = 0, minor = 0;

	if (!sys_line(d, text, sizeof(text), "/proc/sys/kernel/osrelease") ||
	    sscanf(text, "%d.%d", &major, &minor) != 2) {
		doctor_skip(d, "/proc/sys/kernel/osrelease can't be read");
		return;
	}
	doctor_fact(d, "kernel", "%s", text);
	if (major * 1000 + minor < 5004) {
		doctor_find(d, LEVEL_WARN, "Linux %s is older than 5.4", text);
		doctor_mend_install(d, "linux-image-generic", "kernel");
	} else if (m->n_gpus && major * 1000 + minor < 5012) {
		doctor_find(d, LEVEL_NOTE, "Linux %s has no DMA-BUF for RDMA, which 5.12 has",
			    text);
	} else {
		doctor_ok(d, "Linux %s", text);
	}
}

static void modules(struct doctor *d)
{
	const struct iface *f;
	unsigned n = doctor_ifaces(d, &f), found = 0;
	char text[NAME_LEN];
	long long vendor;

	for (unsigned i = 0; i < n; i++) {
		if (!sys_number(d, &vendor, "/sys/class/net/%s/device/vendor", f[i].name) ||
		    !sys_link(d, text, sizeof(text), "/sys/class/net/%s/device/driver",
			      f[i].name))
			continue;
		for (unsigned k = 0; k < sizeof(makers) / sizeof(makers[0]); k++) {
			if (makers[k].vendor != vendor || strcmp(makers[k].driver, text) != 0)
				continue;
			found++;
			if (sys_has(d, "/sys/class/net/%s/device/infiniband", f[i].name) ||
			    sys_has(d, "/sys/class/net/%s/device/physfn", f[i].name)) {
				doctor_ok(d, "%s has its RDMA device", f[i].name);
				continue;
			}
			doctor_find(d, LEVEL_WARN,
				    "%s (%s) can have RDMA, but has no RDMA device", f[i].name,
				    text);
			doctor_mend(d, "sudo modprobe %s", makers[k].module);
		}
	}
	if (!found)
		doctor_skip(d, "no interface whose driver is known to have RDMA");
}

static void uverbs(struct doctor *d)
{
	const struct rdma_port *ports;
	struct names all;

	if (!doctor_ports(d, &ports)) {
		doctor_skip(d, "no RDMA device");
		return;
	}
	sys_names(d, &all, "/sys/class/infiniband_verbs");
	for (unsigned i = 0, any = 0; i <= all.n; i++) {
		if (i == all.n && !any) {
			doctor_find(d, LEVEL_FAIL, "programs can't use the RDMA devices: the "
				    "module ib_uverbs is not loaded");
			doctor_mend(d, "sudo modprobe ib_uverbs");
		}
		if (i == all.n)
			return;
		if (strncmp(all.name[i], "uverbs", 6) != 0)
			continue;
		any++;
		if (!sys_has(d, "/dev/infiniband/%s", all.name[i])) {
			doctor_find(d, LEVEL_FAIL, "/dev/infiniband/%s is not there", all.name[i]);
			if (doctor_in_container(d))
				doctor_mend_container(d, "--device=/dev/infiniband", rdma_in_pod);
			else
				doctor_mend(d, "sudo udevadm trigger "
					    "--subsystem-match=infiniband_verbs");
		} else if (!sys_may(d, "/dev/infiniband/%s", all.name[i])) {
			doctor_find(d, LEVEL_FAIL, "/dev/infiniband/%s may not be opened by this "
				    "user", all.name[i]);
			doctor_mend(d, "sudo chmod 0666 /dev/infiniband/%s", all.name[i]);
		} else {
			doctor_ok(d, "/dev/infiniband/%s can be opened", all.name[i]);
		}
	}
}

static void rdma_cm(struct doctor *d)
{
	const struct rdma_port *ports;
	unsigned n = doctor_ports(d, &ports), iwarp = 0;

	for (unsigned i = 0; i < n; i++)
		iwarp += ports[i].iwarp;
	if (!n) {
		doctor_skip(d, "no RDMA device");
	} else if (sys_may(d, "/dev/infiniband/rdma_cm")) {
		doctor_ok(d, "/dev/infiniband/rdma_cm can be opened");
	} else {
		doctor_find(d, iwarp ? LEVEL_FAIL : LEVEL_NOTE,
			    "/dev/infiniband/rdma_cm can't be opened%s",
			    iwarp ? ", and iWARP connects by it" : "; only iWARP needs it");
		if (doctor_in_container(d))
			doctor_mend_container(d, "--device=/dev/infiniband", rdma_in_pod);
		else
			doctor_mend(d, "sudo modprobe rdma_ucm");
	}
}

static void numa_balancing(struct doctor *d)
{
	const struct braid_machine *m = doctor_machine(d);
	long long on;

	if (m->n_numas < 2) {
		doctor_skip(d, "one NUMA node");
	} else if (!sys_number(d, &on, "/proc/sys/kernel/numa_balancing")) {
		doctor_skip(d, "the kernel has no NUMA balancing");
	} else if (on) {
		doctor_find(d, LEVEL_WARN, "the kernel moves pages between NUMA nodes by itself");
		doctor_mend(d, "sudo sysctl -w kernel.numa_balancing=0");
	} else {
		doctor_ok(d, "pages stay on their NUMA node");
	}
}

static void governor(struct doctor *d)
{
	static const char dir[] = "/sys/devices/system/cpu/cpu0/cpufreq";
	char text[NAME_LEN], driver[NAME_LEN] = "";

	if (!sys_line(d, text, sizeof(text), "%s/scaling_governor", dir)) {
		doctor_skip(d, "the kernel does not set the CPUs' frequency");
		return;
	}
	sys_line(d, driver, sizeof(driver), "%s/scaling_driver", dir);
	doctor_fact(d, "cpu governor", "%s", text);
	if (strcmp(text, "powersave") == 0) {
		/* With these drivers the hardware chooses anyway. */
		doctor_find(d, strstr(driver, "pstate") ? LEVEL_NOTE : LEVEL_WARN,
			    "the CPUs' frequency governor is powersave (%s)", driver);
		doctor_mend(d, "sudo cpupower frequency-set -g performance");
	} else {
		doctor_ok(d, "the CPUs' frequency governor is %s", text);
	}
}

static void clocksource(struct doctor *d)
{
	static const char dir[] = "/sys/devices/system/clocksource/clocksource0";
	char text[NAME_LEN], all[TEXT_LEN];

	if (!sys_line(d, text, sizeof(text), "%s/current_clocksource", dir)) {
		doctor_skip(d, "%s can't be read", dir);
	} else if (strcmp(text, "hpet") == 0 || strcmp(text, "acpi_pm") == 0 ||
		   strcmp(text, "jiffies") == 0 || strcmp(text, "refined-jiffies") == 0) {
		doctor_find(d, LEVEL_WARN, "the clock is %s, slow to read", text);
		if (sys_line(d, all, sizeof(all), "%s/available_clocksource", dir) &&
		    strstr(all, "tsc"))
			doctor_mend(d, "echo tsc | sudo tee %s/current_clocksource", dir);
		else
			doctor_mend(d, "sudo dmesg | grep -i tsc   # why the kernel does not offer "
				    "it");
	} else {
		doctor_ok(d, "the clock is %s", text);
	}
}

static void virtual(struct doctor *d)
{
	const struct braid_machine *m = doctor_machine(d);

	if (!m->is_virtual) {
		doctor_ok(d, "no hypervisor");
		return;
	}
	doctor_find(d, LEVEL_NOTE, "this is a virtual machine: its PCI tree and NUMA nodes may be "
		    "made up");
	if (m->n_gpus && !env_get(d, "NCCL_TOPO_FILE"))
		doctor_mend(d, "braid topo   # if it lacks what is there: NCCL_TOPO_FILE=FILE, the "
		    "provider's for this machine");
}

static void maps(struct doctor *d)
{
	long long n;

	if (!sys_number(d, &n, "/proc/sys/vm/max_map_count")) {
		doctor_skip(d, "/proc/sys/vm/max_map_count can't be read");
	} else if (n < 65530) {
		doctor_find(d, LEVEL_WARN, "a process may have only %lld mappings", n);
		doctor_mend(d, "sudo sysctl -w vm.max_map_count=262144");
	} else {
		doctor_ok(d, "a process may have %lld mappings", n);
	}
}

const struct check doctor_kernel[] = {
	{ "kernel-version", "The kernel's version",
	  "Older kernels lack what Braid and GPUs use: copy-on-fork of pinned memory, DMA-BUF",
	  version },
	{ "kernel-modules", "RDMA modules for the NICs there are",
	  "The NIC can do RDMA, but nothing offers it to programs, so all goes over TCP", modules },
	{ "kernel-uverbs", "Device files for RDMA",
	  "Without them libibverbs finds no device, and all goes over TCP", uverbs },
	{ "kernel-rdma-cm", "RDMA's connection manager",
	  "iWARP connects by it alone, and UCX likes to", rdma_cm },
	{ "kernel-numa", "NUMA balancing",
	  "Pages that move are unmapped for a while: stalls of GPUs and NICs", numa_balancing },
	{ "kernel-governor", "The CPUs' frequency",
	  "Slow clocks make every message slower, first of all small ones", governor },
	{ "kernel-clock", "The clock",
	  "Pollers ask for the time all the time; of this clock that takes microseconds",
	  clocksource },
	{ "kernel-virtual", "A hypervisor",
	  "NCCL chooses NICs by distances that may not be real", virtual },
	{ "kernel-maps", "Mappings of a process",
	  "GPU programs map much; beyond the limit mmap fails with \"cannot allocate memory\"",
	  maps },
	{ NULL, NULL, NULL, NULL },
};
