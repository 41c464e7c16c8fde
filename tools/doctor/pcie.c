/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pcie.c - how GPUs and NICs are connected: their links, ACS and IOMMU between them, and NUMA nodes
 * of devices and of this process.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "topo/choose.h"
#include "topo/netdev.h"

enum { CONFIG_LEN = 4096, CAP_FIRST = 0x100, CAP_ACS = 0x0d, ACS_CONTROL = 6,
       ACS_TURNS = 0x1c };		/* requests, completions, upstream forwarding: redirected */

/* The i-th spot that is a GPU or a NIC; NULL: no more. */
static const struct braid_spot *device(struct doctor *d, unsigned i)
{
	const struct braid_machine *m = doctor_machine(d);

	for (unsigned k = 0; k < m->n_spots; k++)
		if ((m->spots[k].gpu || m->spots[k].nic) && i-- == 0)
			return &m->spots[k];
	return NULL;
}

/* "NIC mlx5_0:1 (0000:3b:00.0)" */
static const char *label(struct doctor *d, const struct braid_spot *s)
{
	static char text[BRAID_NIC_NAME + BRAID_SPOT_NAME + 16];
	const struct braid_machine *m = doctor_machine(d);
	const char *name = "";

	for (unsigned i = 0; i < m->n_nics && !*name; i++)
		for (unsigned k = 0; k < m->nics[i].n_spots; k++)
			if (&m->spots[m->nics[i].spots[k]] == s)
				name = m->nics[i].name;
	snprintf(text, sizeof(text), "%s %s%s%s%s", s->gpu ? "GPU" : "NIC", name, *name ? " (" : "",
		 s->name, *name ? ")" : "");
	return text;
}

static bool none(struct doctor *d)
{
	if (device(d, 0))
		return false;
	doctor_skip(d, "no GPU or NIC on PCI");
	return true;
}

/* An idle GPU may slow its link down by itself. */
static void speed(struct doctor *d)
{
	const struct braid_spot *s;

	if (none(d))
		return;
	for (unsigned i = 0; (s = device(d, i)); i++) {
		if (!(s->now.gts > 0)) {
			doctor_skip(d, "%s: /sys does not say how fast its link is", label(d, s));
			continue;
		}
		if (!braid_machine_is_slower(s)) {
			doctor_ok(d, "%s: %g GT/s", label(d, s), s->now.gts);
			continue;
		}
		doctor_find(d, s->gpu ? LEVEL_NOTE : LEVEL_WARN,
			    "%s runs at %g of %g GT/s%s", label(d, s), s->now.gts, s->most.gts,
			    s->gpu ? "; it may be asleep" : "");
		doctor_mend(d, "sudo lspci -vvs %s | grep LnkSta   # slot, riser, BIOS", s->name);
	}
}

static void width(struct doctor *d)
{
	const struct braid_spot *s;

	if (none(d))
		return;
	for (unsigned i = 0; (s = device(d, i)); i++) {
		if (!s->now.width) {
			doctor_skip(d, "%s: /sys does not say how many lanes its link has",
				    label(d, s));
			continue;
		}
		if (!braid_machine_is_narrower(s)) {
			doctor_ok(d, "%s: x%u", label(d, s), s->now.width);
			continue;
		}
		doctor_find(d, LEVEL_WARN, "%s has x%u of x%u lanes", label(d, s), s->now.width,
			    s->most.width);
		doctor_mend(d, "sudo lspci -vvs %s | grep LnkSta   # reseat, slot, riser", s->name);
	}
}

/* The Gbit/s that a link can carry; 0: unknown. */
static double carries(const struct braid_link *l)
{
	return l->gts * l->width * (l->gts >= 64 ? 0.98 : l->gts >= 8 ? 128.0 / 130 : 0.8);
}

static void enough(struct doctor *d)
{
	const struct braid_machine *m = doctor_machine(d);
	bool seen = false;

	for (unsigned i = 0; i < m->n_nics; i++) {
		const struct braid_nic *nic = &m->nics[i];
		const struct braid_spot *s = nic->n_spots ? &m->spots[nic->spots[0]] : NULL;
		double can = s ? carries(&s->now) : 0;

		if (can <= 0 || !nic->speed_mbps || nic->bond)
			continue;
		seen = true;
		if (can * 1000 >= nic->speed_mbps * 0.9) {
			doctor_ok(d, "%s has %g Gbit/s, its PCIe link %.0f", nic->name,
				  nic->speed_mbps / 1000.0, can);
			continue;
		}
		doctor_find(d, LEVEL_WARN, "%s has %g Gbit/s, but its PCIe link carries only %.0f",
			    nic->name, nic->speed_mbps / 1000.0, can);
		doctor_mend(d, "sudo lspci -vvs %s | grep -e LnkCap -e LnkSta   # another slot",
			    s->name);
	}
	if (!seen)
		doctor_skip(d, "no NIC whose speed and PCIe link are known");
}

/* -- between devices ---------------------------------------------------------------------- */

static unsigned little(const char *config, size_t len, size_t at, unsigned bytes)
{
	unsigned v = 0;

	for (unsigned i = 0; i < bytes && at + i < len; i++)
		v |= (unsigned)(unsigned char)config[at + i] << (8 * i);
	return v;
}

/* The control word of a bridge's ACS; -1: it has none. */
static int acs_of(const char *config, size_t len)
{
	size_t at = CAP_FIRST;

	for (unsigned turns = 0; at >= CAP_FIRST && at + 8 <= len && turns < 256; turns++) {
		unsigned head = little(config, len, at, 4);

		if ((head & 0xffff) == CAP_ACS)
			return (int)little(config, len, at + ACS_CONTROL, 2);
		at = head >> 20;
	}
	return -1;
}

/* Is a GPU or a NIC below the bridge? */
static bool is_above_any(const struct braid_machine *m, unsigned bridge)
{
	for (unsigned i = 0; i < m->n_spots; i++) {
		if (!m->spots[i].gpu && !m->spots[i].nic)
			continue;
		for (int up = m->spots[i].up; up >= 0; up = m->spots[up].up)
			if (up == (int)bridge)
				return true;
	}
	return false;
}

/* Without root only the first 64 bytes can be read, and ACS lies behind them. */
static void acs(struct doctor *d)
{
	const struct braid_machine *m = doctor_machine(d);
	unsigned seen = 0, hidden = 0;

	if (!m->n_gpus) {
		doctor_skip(d, "no GPU");
		return;
	}
	for (unsigned i = 0; i < m->n_spots; i++) {
		const struct braid_spot *s = &m->spots[i];
		size_t len = 0;
		char *config;
		int control;

		if (s->gpu || s->nic || !s->depth || !is_above_any(m, i))
			continue;
		config = sys_text(d, &len, "/sys/bus/pci/devices/%s/config", s->name);
		control = config ? acs_of(config, len) : -1;
		hidden += config && len <= 64;
		seen += config && len > 64;
		free(config);
		if (control < 0 || !(control & ACS_TURNS))
			continue;
		doctor_find(d, LEVEL_WARN, "the bridge %s sends what goes between devices through "
			    "the CPU (ACS)", s->name);
		doctor_mend(d, "sudo setpci -s %s ECAP_ACS+6.w=0000   # until reboot; never where "
			    "guests have devices: it parts them", s->name);
	}
	if (!seen)
		doctor_skip(d, hidden ? "only root may read it: sudo braid doctor --only pcie-acs" :
			    "no bridge can be read");
	else
		doctor_ok(d, "ACS of %u bridges was read", seen);
}

static void iommu(struct doctor *d)
{
	const struct braid_spot *s;
	char type[NAME_LEN];
	bool seen = false;

	if (!doctor_machine(d)->n_gpus) {
		doctor_skip(d, "no GPU");
		return;
	}
	for (unsigned i = 0; (s = device(d, i)); i++) {
		if (!sys_line(d, type, sizeof(type), "/sys/bus/pci/devices/%s/iommu_group/type",
			      s->name))
			continue;
		seen = true;
		if (strcmp(type, "identity") == 0) {
			doctor_ok(d, "%s goes past the IOMMU", label(d, s));
			continue;
		}
		doctor_find(d, LEVEL_WARN, "the IOMMU translates what %s reads and writes (%s)",
			    label(d, s), type);
		if (sys_has(d, "/etc/redhat-release"))
			doctor_mend(d, "sudo grubby --update-kernel=ALL --args=iommu=pt   # then "
				    "reboot");
		else
			doctor_mend(d, "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' "
				    "/etc/default/grub && sudo update-grub   # then reboot");
	}
	if (!seen)
		doctor_ok(d, "no IOMMU is at work");
}

static void errors(struct doctor *d)
{
	static const char *const kinds[] = { "aer_dev_fatal", "aer_dev_nonfatal",
					     "aer_dev_correctable" };
	const struct braid_spot *s;
	bool seen = false;
	const char *at;

	if (none(d))
		return;
	for (unsigned i = 0; (s = device(d, i)); i++) {
		for (unsigned k = 0; k < 3; k++) {
			char *text = sys_text(d, NULL, "/sys/bus/pci/devices/%s/%s", s->name,
					      kinds[k]);
			long long n;

			at = text ? strstr(text, "TOTAL_ERR") : NULL;
			at = at ? strchr(at, ' ') : NULL;
			n = at ? strtoll(at, NULL, 10) : 0;
			seen |= at != NULL;
			free(text);
			if (n <= (k == 2 ? 1000 : 0))
				continue;
			doctor_find(d, LEVEL_WARN, "%s: %lld errors of PCIe (%s)", label(d, s), n,
				    kinds[k] + strlen("aer_dev_"));
			doctor_mend(d, "sudo dmesg | grep -i aer   # reseat, slot, riser");
		}
	}
	if (seen)
		doctor_ok(d, "errors of PCIe were counted");
	else
		doctor_skip(d, "the kernel does not count errors of PCIe");
}

/* -- NUMA --------------------------------------------------------------------------------- */

static void gpu_nic(struct doctor *d)
{
	const struct braid_machine *m = doctor_machine(d);
	struct braid_choice *c;

	if (!m->n_gpus || !m->n_nics) {
		doctor_skip(d, m->n_gpus ? "no NIC" : "no GPU");
		return;
	}
	c = malloc(sizeof(*c));
	for (unsigned i = 0; c && i < m->n_gpus; i++) {
		braid_choose(m, m->n_gpus, i, c);
		if (c->distance == BRAID_DISTANCE_SYS) {
			doctor_find(d, LEVEL_WARN, "GPU%u has no NIC on its NUMA node: the nearest "
				    "is %s", i, m->nics[c->nics[0]].name);
			doctor_mend(d, "braid topo --explain %u   # another slot for a NIC", i);
		} else if (c->distance == BRAID_DISTANCE_UNKNOWN) {
			doctor_find(d, LEVEL_NOTE, "how near NICs are to GPU%u is not known", i);
		} else {
			doctor_ok(d, "GPU%u and %s: %s", i, m->nics[c->nics[0]].name,
				  braid_distance_name(c->distance));
		}
	}
	free(c);
}

/* Does NCCL_IB_HCA leave that NIC out? */
static bool left_out(struct doctor *d, const struct braid_nic *nic)
{
	const char *name, *text = env_param(d, "ib_hca", &name);
	const struct rdma_port *p;
	struct braid_netdev_filter f;
	unsigned n = text ? doctor_ports(d, &p) : 0;

	if (!text || braid_netdev_filter_parse(text, &f, NULL, 0))
		return false;
	for (; n; n--, p++) {
		if (!strcmp(p->name, nic->name))
			return !braid_netdev_port_match(&f, p->dev, (unsigned)p->num, NULL, NULL);
	}
	return false;
}

/* CPUs near all NICs that are up and may be used; of RDMA NICs, if there are any. */
static bool near_nics(struct doctor *d, struct braid_cpus *ret, int *ret_node, const char **ret_nic)
{
	const struct braid_machine *m = doctor_machine(d);
	bool rdma = false, found = false;

	*ret = (struct braid_cpus){ .bits = { 0 } };
	for (unsigned i = 0; i < m->n_nics; i++)
		rdma |= m->nics[i].rdma && m->nics[i].carrier != BRAID_CARRIER_DOWN;
	for (unsigned i = 0; i < m->n_nics; i++) {
		const struct braid_nic *nic = &m->nics[i];
		struct braid_cpus cpus;

		if (nic->carrier == BRAID_CARRIER_DOWN || nic->rdma != rdma || !nic->n_spots ||
		    left_out(d, nic))
			continue;
		braid_machine_cpus(m, nic->spots[0], &cpus);
		if (braid_cpus_empty(&cpus))
			continue;
		braid_cpus_add(ret, &cpus);
		if (!found) {
			*ret_node = m->spots[nic->spots[0]].numa;
			*ret_nic = nic->name;
		}
		found = true;
	}
	return found;
}

static void binding(struct doctor *d)
{
	char path[NAME_LEN], text[1024], list[128];
	struct braid_cpus own, near;
	const char *nic = "";
	int node = 0;

	if (doctor_machine(d)->n_numas < 2) {
		doctor_skip(d, "one NUMA node");
		return;
	}
	snprintf(path, sizeof(path), "%s/status", sys_proc(d));
	if (!sys_field(d, path, "Cpus_allowed_list", text, sizeof(text)) ||
	    braid_cpus_parse(text, &own) < 0 || !near_nics(d, &near, &node, &nic)) {
		doctor_skip(d, "which CPUs are near the NICs is not known");
		return;
	}
	braid_cpus_keep(&own, &near);
	if (!braid_cpus_empty(&own)) {
		doctor_ok(d, "this process may run near the NICs");
		return;
	}
	braid_cpus_format(&near, list, sizeof(list));
	doctor_find(d, LEVEL_WARN, "wrong NUMA node: this process runs on CPUs %.60s alone, %s is "
		    "near %.60s (node %d)", text, nic, list, node);
	doctor_mend(d, "numactl --cpunodebind=%d --membind=%d COMMAND", node, node);
}

static void known(struct doctor *d)
{
	const struct braid_machine *m = doctor_machine(d);
	const struct braid_spot *s;

	if (m->n_numas < 2) {
		doctor_skip(d, "one NUMA node");
		return;
	}
	if (none(d))
		return;
	for (unsigned i = 0; (s = device(d, i)); i++) {
		if (s->numa >= 0) {
			doctor_ok(d, "%s is on node %d", label(d, s), s->numa);
			continue;
		}
		doctor_find(d, LEVEL_NOTE, "the firmware does not tell the NUMA node of %s",
			    label(d, s));
		doctor_mend(d, "sudo dmidecode -s bios-version   # a newer BIOS may tell");
	}
}

/* NICs whose interrupts all go to CPUs of another node. */
static void irqs(struct doctor *d)
{
	const struct braid_machine *m = doctor_machine(d);
	struct names all;
	bool seen = false;

	if (m->n_numas < 2) {
		doctor_skip(d, "one NUMA node");
		return;
	}
	for (unsigned i = 0; i < m->n_nics; i++) {
		const struct braid_nic *nic = &m->nics[i];
		const char *pci = nic->n_spots ? m->spots[nic->spots[0]].name : "";
		struct braid_cpus near, to;
		unsigned n = 0, far = 0;
		char text[1024];

		if (!*pci || nic->carrier == BRAID_CARRIER_DOWN)
			continue;
		braid_machine_cpus(m, nic->spots[0], &near);
		sys_names(d, &all, "/sys/bus/pci/devices/%s/msi_irqs", pci);
		for (unsigned k = 0; k < all.n && !braid_cpus_empty(&near); k++) {
			if (!sys_line(d, text, sizeof(text), "/proc/irq/%s/smp_affinity_list",
				      all.name[k]) || braid_cpus_parse(text, &to) < 0)
				continue;
			braid_cpus_keep(&to, &near);
			n++;
			far += braid_cpus_empty(&to);
		}
		seen |= n > 0;
		if (n && far * 2 > n) {
			doctor_find(d, LEVEL_WARN, "%u of %u interrupts of %s go to CPUs of "
				    "another NUMA node", far, n, nic->name);
			doctor_mend(d, "sudo systemctl restart irqbalance   # or "
				    "set_irq_affinity.sh %s",
				    *nic->netdev ? nic->netdev : nic->name);
		} else if (n) {
			doctor_ok(d, "interrupts of %s go to CPUs near it", nic->name);
		}
	}
	if (!seen)
		doctor_skip(d, "no interrupts of a NIC are known");
}

const struct check doctor_pcie[] = {
	{ "pcie-speed", "Speed of PCIe links",
	  "The link was negotiated down: a bad slot, riser or setting; bandwidth halves each time",
	  speed },
	{ "pcie-width", "Width of PCIe links",
	  "Lanes are missing: a bad contact, or a slot with fewer; bandwidth goes with them",
	  width },
	{ "pcie-bandwidth", "PCIe links beside the NICs' speeds",
	  "The NIC can't be fed: its port's speed is never reached", enough },
	{ "pcie-acs", "ACS of PCIe bridges",
	  "Traffic between GPU and NIC goes up to the CPU and back: slow, or local protection "
	  "errors", acs },
	{ "pcie-iommu", "The IOMMU",
	  "Each access of a GPU by a NIC is translated: slow, or not possible at all", iommu },
	{ "pcie-errors", "Errors of PCIe", "A bad contact, riser or card", errors },
	{ "numa-gpu-nic", "A NIC near each GPU",
	  "All of that GPU's traffic crosses the link between the processors", gpu_nic },
	{ "numa-binding", "CPUs near the NICs",
	  "Each poll and copy crosses the link between the processors", binding },
	{ "numa-known", "NUMA nodes of the devices", "Nothing can be placed well", known },
	{ "numa-interrupts", "Interrupts of the NICs",
	  "Packets are handled on the far processor", irqs },
	{ NULL, NULL, NULL, NULL },
};
