/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * machine.c - read the tree out of /sys.
 *
 * The real path of a PCI device is its chain of bridges:
 *
 *	/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:08.0/0000:05:00.0
 *	             host bridge, root port,  a switch's upstream and downstream port, device
 *
 * so every path that a GPU or NIC has becomes a chain of spots, shared where the beginnings are
 * the same, and the distance of two devices is where their chains part.
 *
 * A hypervisor that hides the tree puts devices on the root bus.  Real GPUs are behind a port, so
 * a GPU without one (and in a virtual machine anything without one) is `hidden`: that it shares a
 * host bridge with another device then says nothing, and at best their NUMA nodes are told.
 */
#include "topo/machine.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/sys.h"

enum {
	NETS_MAX = 1024,
	PORTS_MAX = 16,
	SPEED_MOST = 10000000,		/* Mb/s; as in netdev.c */
	SPEED_NONE_16 = 65535,
	NUMA_MOST = 4095,
	CPUINFO_LEN = 16384,
	CLASS_DISPLAY = 0x03,
	CLASS_ACCELERATOR = 0x12,
	VENDOR_NVIDIA = 0x10de,
	VENDOR_AMD = 0x1002,
};

struct net {				/* a network interface */
	char name[16];
	char pci[BRAID_MACHINE_PATH];	/* "": not on PCI */
	bool device;			/* stands for hardware, or for what poses as it */
	bool bond, slave, representor;
	bool taken;			/* an RDMA port has it */
};

struct reader {
	struct braid_machine *m;
	struct net *nets;
	unsigned n_nets;
	unsigned left_out;		/* devices beyond a table's most */
};

static const struct {
	const char *name, *words;
} distances[BRAID_DISTANCES] = {
	[BRAID_DISTANCE_SELF] = {"X", "itself"},
	[BRAID_DISTANCE_PIX] = {"PIX", "through at most one PCIe switch"},
	[BRAID_DISTANCE_PXB] = {"PXB", "through several PCIe switches, not through the CPU"},
	[BRAID_DISTANCE_PHB] = {"PHB", "through a PCIe host bridge, so through the CPU"},
	[BRAID_DISTANCE_NODE] = {"NODE", "within a NUMA node, between PCIe host bridges"},
	[BRAID_DISTANCE_SYS] = {"SYS", "between NUMA nodes"},
	[BRAID_DISTANCE_UNKNOWN] = {"?", "/sys does not tell"},
};

const char *braid_distance_name(enum braid_distance d)
{
	return distances[d].name;
}

const char *braid_distance_words(enum braid_distance d)
{
	return distances[d].words;
}

/* ------------------------------------------------------------------------------------- files */

__attribute__((format(printf, 3, 4)))
static bool sys_path(const struct braid_machine *m, char *ret, const char *fmt, ...)
{
	size_t head = strlen(m->root);
	va_list ap;
	int n;

	memcpy(ret, m->root, head);
	va_start(ap, fmt);
	n = vsnprintf(ret + head, PATH_MAX - head, fmt, ap);
	va_end(ap);
	return n >= 0 && (size_t)n < PATH_MAX - head;
}

static bool sys_number(const struct braid_machine *m, const char *dir, const char *file, long least,
		       long most, long *ret)
{
	char path[PATH_MAX];

	return sys_path(m, path, "%s/%s", dir, file) && braid_sys_number(path, least, most, ret);
}

static bool sys_line(const struct braid_machine *m, const char *dir, const char *file, char *ret,
		     size_t len)
{
	char path[PATH_MAX];

	return sys_path(m, path, "%s/%s", dir, file) && braid_sys_line(path, ret, len);
}

/* A directory of /sys/class and the like: false if there is none. */
static DIR *sys_dir(const struct braid_machine *m, const char *dir)
{
	char path[PATH_MAX];

	return sys_path(m, path, "%s", dir) ? opendir(path) : NULL;
}

/* The next entry that is not hidden and not longer than most. */
static const char *next_name(DIR *dir, size_t most)
{
	struct dirent *e;

	while ((e = readdir(dir))) {
		if (e->d_name[0] != '.' && strlen(e->d_name) <= most)
			return e->d_name;
	}
	return NULL;
}

/* ------------------------------------------------------------------------------------- spots */

static bool is_host_bridge(const char *name)
{
	unsigned domain, bus;
	int used = 0;

	return strncmp(name, "pci", 3) == 0 && isxdigit((unsigned char)name[3]) &&
	       sscanf(name, "pci%8x:%2x%n", &domain, &bus, &used) == 2 && !name[used];
}

static int spot_find(const struct braid_machine *m, const char *path)
{
	for (unsigned i = 0; i < m->n_spots; i++) {
		if (strcmp(m->spots[i].path, path) == 0)
			return (int)i;
	}
	return -1;
}

/* The spot of the first `len` letters of path, whose last component is `name`; -1: no room. */
static int spot_get(struct braid_machine *m, int up, const char *path, size_t len, const char *name,
		    size_t name_len)
{
	struct braid_spot s = { .up = up, .depth = up < 0 ? 0 : m->spots[up].depth + 1 };
	long numa = -1;
	int there;

	memcpy(s.path, path, len);
	memcpy(s.name, name, name_len);
	there = spot_find(m, s.path);
	if (there >= 0)
		return there;
	if (m->n_spots == BRAID_MACHINE_SPOTS)
		return -1;
	sys_number(m, s.path, "numa_node", -1, NUMA_MOST, &numa);
	s.numa = (int)numa;
	if (s.numa < 0 && up >= 0)
		s.numa = m->spots[up].numa;
	m->spots[m->n_spots] = s;
	return (int)m->n_spots++;
}

/* The spot of a path that braid_pci_find() wrote; -1: no host bridge is in it, or no room. */
static int spot_of(struct reader *r, const char *path)
{
	struct braid_machine *m = r->m;
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
			spot = spot_get(m, spot, path, (size_t)(p - path), name, len);
		else if (spot >= 0)
			return -1;
		else
			continue;
		if (spot < 0) {
			r->left_out++;
			return -1;
		}
		if (m->spots[spot].depth > BRAID_SPOT_DEPTH)
			return -1;
	}
	return spot;
}

static int spot_of_device(struct reader *r, const char *device)
{
	char path[BRAID_MACHINE_PATH];

	if (braid_pci_find(r->m->root, device, path, sizeof(path)) < 0)
		return -1;
	return spot_of(r, path);
}

/* A host bridge has no numa_node of its own: that of what is under it.  One node is all nodes. */
static void settle_numa(struct braid_machine *m)
{
	unsigned with_cpus = 0;
	int only = -1;

	for (unsigned i = 0; i < m->n_numas; i++) {
		if (!braid_cpus_empty(&m->numas[i].cpus)) {
			with_cpus++;
			only = m->numas[i].id;
		}
	}
	for (unsigned i = 0; i < m->n_spots; i++) {
		struct braid_spot *s = &m->spots[i];

		if (s->numa < 0 && with_cpus == 1 && !m->is_virtual)
			s->numa = only;
		for (int up = s->up; s->numa >= 0 && up >= 0; up = m->spots[up].up) {
			if (m->spots[up].numa < 0)
				m->spots[up].numa = s->numa;
		}
	}
}

/* -------------------------------------------------------------------------------------- GPUs */

static bool is_gpu(const struct braid_machine *m, const char *dir, unsigned *ret_vendor)
{
	long class, vendor;

	if (!sys_number(m, dir, "class", 0, 0xffffff, &class) ||
	    !sys_number(m, dir, "vendor", 0, 0xffff, &vendor))
		return false;
	*ret_vendor = (unsigned)vendor;
	return (class >> 16 == CLASS_DISPLAY && vendor == VENDOR_NVIDIA) ||
	       ((class >> 16 == CLASS_DISPLAY || class >> 16 == CLASS_ACCELERATOR) &&
		vendor == VENDOR_AMD);
}

static void read_gpu(struct reader *r, const char *name)
{
	struct braid_machine *m = r->m;
	struct braid_gpu gpu = { .spot = -1 };
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "/sys/bus/pci/devices/%s", name);
	if (braid_pci_parse(name, &gpu.addr) < 0 || !is_gpu(m, dir, &gpu.vendor))
		return;
	if (m->n_gpus == BRAID_MACHINE_GPUS) {
		r->left_out++;
		return;
	}
	gpu.spot = spot_of_device(r, dir);
	if (gpu.spot >= 0)
		m->spots[gpu.spot].gpu = true;
	m->gpus[m->n_gpus++] = gpu;
}

static uint64_t addr_key(const struct braid_pci_addr *a)
{
	return (uint64_t)a->domain << 24 | (uint64_t)a->bus << 16 | (uint64_t)a->dev << 8 | a->fn;
}

static int compare_addr(const struct braid_pci_addr *a, const struct braid_pci_addr *b)
{
	uint64_t x = addr_key(a), y = addr_key(b);

	return x < y ? -1 : x > y;
}

static int compare_gpus(const void *a, const void *b)
{
	return compare_addr(&((const struct braid_gpu *)a)->addr,
			    &((const struct braid_gpu *)b)->addr);
}

static void read_gpus(struct reader *r)
{
	DIR *dir = sys_dir(r->m, "/sys/bus/pci/devices");
	const char *name;

	while (dir && (name = next_name(dir, BRAID_SPOT_NAME - 1)))
		read_gpu(r, name);
	if (dir)
		closedir(dir);
	qsort(r->m->gpus, r->m->n_gpus, sizeof(r->m->gpus[0]), compare_gpus);
}

/* -------------------------------------------------------------------------------- interfaces */

static bool net_has(const struct braid_machine *m, const char *name, const char *file)
{
	char path[PATH_MAX], real[PATH_MAX];

	return sys_path(m, path, "/sys/class/net/%s/%s", name, file) && realpath(path, real);
}

/* The kernel names them after the function that they stand for: "pf0vf3". */
static bool is_representor(const struct braid_machine *m, const char *dir)
{
	char text[32];

	return sys_line(m, dir, "phys_port_name", text, sizeof(text)) &&
	       strncmp(text, "pf", 2) == 0 && (strstr(text, "vf") || strstr(text, "sf"));
}

static void read_nets(struct reader *r)
{
	const struct braid_machine *m = r->m;
	DIR *dir = sys_dir(m, "/sys/class/net");
	const char *name;

	while (dir && (name = next_name(dir, sizeof(r->nets->name) - 1))) {
		struct net *n = &r->nets[r->n_nets];
		char device[PATH_MAX];

		if (r->n_nets == NETS_MAX) {
			r->left_out++;
			continue;
		}
		*n = (struct net){ .bond = net_has(m, name, "bonding/slaves") };
		memcpy(n->name, name, strlen(name));
		snprintf(device, sizeof(device), "/sys/class/net/%s", name);
		n->device = net_has(m, name, "device");
		n->slave = net_has(m, name, "bonding_slave");
		n->representor = is_representor(m, device);
		strcat(device, "/device");
		if (braid_pci_find(m->root, device, n->pci, sizeof(n->pci)) < 0)
			n->pci[0] = '\0';
		if (n->device || n->bond)
			r->n_nets++;
	}
	if (dir)
		closedir(dir);
}

static struct net *net_find(struct reader *r, const char *name)
{
	for (unsigned i = 0; i < r->n_nets; i++) {
		if (strcmp(r->nets[i].name, name) == 0)
			return &r->nets[i];
	}
	return NULL;
}

static void nic_stand_on(struct reader *r, struct braid_nic *nic, const char *pci)
{
	int spot = *pci ? spot_of(r, pci) : -1;
	char path[PATH_MAX], real[PATH_MAX];

	for (unsigned i = 0; i < nic->n_spots; i++) {
		if (nic->spots[i] == spot)
			return;
	}
	if (spot < 0 || nic->n_spots == BRAID_NIC_SPOTS)
		return;
	nic->spots[nic->n_spots++] = spot;
	r->m->spots[spot].nic = true;
	nic->virtual_function = sys_path(r->m, path, "%s/physfn", pci) && realpath(path, real);
}

/* An interface's own place, or those of a bond's members. */
static void nic_stand_on_net(struct reader *r, struct braid_nic *nic, const struct net *net)
{
	char dir[PATH_MAX], text[16 * BRAID_NIC_SPOTS], *rest = text, *name;

	if (!net->bond) {
		nic_stand_on(r, nic, net->pci);
		return;
	}
	nic->bond = true;
	snprintf(dir, sizeof(dir), "/sys/class/net/%s/bonding", net->name);
	if (!sys_line(r->m, dir, "slaves", text, sizeof(text)))
		return;
	while ((name = strtok_r(rest, " ", &rest))) {
		const struct net *slave = net_find(r, name);

		if (slave && !slave->bond)
			nic_stand_on(r, nic, slave->pci);
	}
}

static void net_facts(const struct braid_machine *m, const struct net *net, struct braid_nic *nic)
{
	char dir[PATH_MAX], text[16];
	long v;

	snprintf(dir, sizeof(dir), "/sys/class/net/%s", net->name);
	if (!nic->speed_mbps && sys_number(m, dir, "speed", 1, SPEED_MOST, &v) &&
	    v != SPEED_NONE_16)
		nic->speed_mbps = (int)v;
	if (nic->carrier == BRAID_CARRIER_UNKNOWN &&
	    sys_line(m, dir, "operstate", text, sizeof(text)))
		nic->carrier = strcmp(text, "up") == 0 ? BRAID_CARRIER_UP :
			       strcmp(text, "unknown") == 0 ? BRAID_CARRIER_UNKNOWN :
							      BRAID_CARRIER_DOWN;
}

/* To be printed and written into documents: no control characters, nothing beyond ASCII. */
static void make_plain(char *name)
{
	for (; *name; name++) {
		if (*name < ' ' || *name > '~')
			*name = '?';
	}
}

static void nic_add(struct reader *r, struct braid_nic *nic)
{
	make_plain(nic->name);
	make_plain(nic->netdev);
	if (r->m->n_nics == BRAID_MACHINE_NICS)
		r->left_out++;
	else
		r->m->nics[r->m->n_nics++] = *nic;
}

static void nics_of_nets(struct reader *r)
{
	for (unsigned i = 0; i < r->n_nets; i++) {
		const struct net *net = &r->nets[i];
		struct braid_nic nic = { .port = 1 };

		if (net->taken || net->slave || net->representor)
			continue;
		memcpy(nic.name, net->name, sizeof(net->name));
		memcpy(nic.netdev, net->name, sizeof(net->name));
		nic_stand_on_net(r, &nic, net);
		net_facts(r->m, net, &nic);
		nic_add(r, &nic);
	}
}

/* -------------------------------------------------------------------------------- RDMA ports */

/* "100 Gb/sec (4X EDR)" in Mb/s, else 0. */
static int parse_rate(const char *text)
{
	char *end;
	double gbps;

	if (!isdigit((unsigned char)*text))
		return 0;
	gbps = strtod(text, &end);
	if (strncmp(end, " Gb/sec", 7) != 0 || !(gbps > 0 && gbps <= SPEED_MOST / 1000))
		return 0;
	return (int)(gbps * 1000);
}

/* The interface of a port: the kernel's word, or the one on the same function. */
static struct net *port_net(struct reader *r, const char *port_dir, const char *pci, int port,
			    bool single)
{
	char name[16], dir[PATH_MAX];
	long dev_port;

	if (sys_line(r->m, port_dir, "gid_attrs/ndevs/0", name, sizeof(name)))
		return net_find(r, name);
	for (unsigned i = 0; i < r->n_nets && *pci; i++) {
		struct net *net = &r->nets[i];

		if (strcmp(net->pci, pci) != 0 || net->representor)
			continue;
		snprintf(dir, sizeof(dir), "/sys/class/net/%s", net->name);
		if (single || (sys_number(r->m, dir, "dev_port", 0, 255, &dev_port) &&
			       dev_port + 1 == port))
			return net;
	}
	return NULL;
}

static void read_port(struct reader *r, const char *device, const char *pci, int port, bool single)
{
	struct braid_nic nic = { .rdma = true, .port = port };
	char dir[PATH_MAX], text[64];
	struct net *net;

	snprintf(nic.name, sizeof(nic.name), "%s:%d", device, port);
	snprintf(dir, sizeof(dir), "/sys/class/infiniband/%s/ports/%d", device, port);
	if (sys_line(r->m, dir, "state", text, sizeof(text)))
		nic.carrier = strncmp(text, "4:", 2) == 0 ? BRAID_CARRIER_UP : BRAID_CARRIER_DOWN;
	if (nic.carrier != BRAID_CARRIER_DOWN && sys_line(r->m, dir, "rate", text, sizeof(text)))
		nic.speed_mbps = parse_rate(text);
	net = port_net(r, dir, pci, port, single);
	if (net) {
		net->taken = true;
		memcpy(nic.netdev, net->name, sizeof(net->name));
		nic_stand_on_net(r, &nic, net);
		net_facts(r->m, net, &nic);
	}
	if (!nic.n_spots)
		nic_stand_on(r, &nic, pci);
	nic_add(r, &nic);
}

static void read_rdma(struct reader *r, const char *device)
{
	char path[PATH_MAX], pci[BRAID_MACHINE_PATH];
	bool ports[PORTS_MAX + 1] = { false };
	unsigned n = 0;
	const char *name;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", device);
	if (braid_pci_find(r->m->root, path, pci, sizeof(pci)) < 0)
		pci[0] = '\0';
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports", device);
	dir = sys_dir(r->m, path);
	while (dir && (name = next_name(dir, 2))) {
		int port = atoi(name);

		if (port < 1 || port > PORTS_MAX || ports[port])
			continue;
		ports[port] = true;
		n++;
	}
	if (dir)
		closedir(dir);
	for (int port = 1; port <= PORTS_MAX; port++) {
		if (ports[port])
			read_port(r, device, pci, port, n == 1);
	}
}

static void nics_of_rdma(struct reader *r)
{
	DIR *dir = sys_dir(r->m, "/sys/class/infiniband");
	const char *name;

	while (dir && (name = next_name(dir, 63)))
		read_rdma(r, name);
	if (dir)
		closedir(dir);
}

struct nic_key {
	bool placed;
	struct braid_pci_addr addr;
	struct braid_nic nic;
};

static int compare_nics(const void *a, const void *b)
{
	const struct nic_key *x = a, *y = b;
	int d;

	if (x->placed != y->placed)
		return x->placed ? -1 : 1;
	d = compare_addr(&x->addr, &y->addr);
	if (!d)
		d = x->nic.port - y->nic.port;
	return d ? d : strcmp(x->nic.name, y->nic.name);
}

static int sort_nics(struct braid_machine *m)
{
	struct nic_key *keys = calloc(m->n_nics + 1, sizeof(*keys));

	if (!keys)
		return -ENOMEM;
	for (unsigned i = 0; i < m->n_nics; i++) {
		keys[i].nic = m->nics[i];
		keys[i].placed = m->nics[i].n_spots > 0 &&
				 braid_pci_parse(m->spots[m->nics[i].spots[0]].name,
						 &keys[i].addr) == 0;
	}
	qsort(keys, m->n_nics, sizeof(*keys), compare_nics);
	for (unsigned i = 0; i < m->n_nics; i++)
		m->nics[i] = keys[i].nic;
	free(keys);
	return 0;
}

/* ------------------------------------------------------------------------------------- order */

static int compare_paths(const void *a, const void *b, void *arg)
{
	const struct braid_machine *m = arg;

	return strcmp(m->spots[*(const int *)a].path, m->spots[*(const int *)b].path);
}

static int moved(const int *to, int spot)
{
	return spot < 0 ? -1 : to[spot];
}

/*
 * Directories are read in any order: sort the spots by path, which leaves each behind the one above
 * it, so that the same machine always gives the same documents.
 */
static int sort_spots(struct braid_machine *m)
{
	struct braid_spot *sorted = calloc(m->n_spots + 1, sizeof(*sorted));
	int *from = calloc(m->n_spots + 1, sizeof(*from));
	int *to = calloc(m->n_spots + 1, sizeof(*to));
	int err = sorted && from && to ? 0 : -ENOMEM;

	for (unsigned i = 0; !err && i < m->n_spots; i++)
		from[i] = (int)i;
	if (!err)
		qsort_r(from, m->n_spots, sizeof(*from), compare_paths, m);
	for (unsigned i = 0; !err && i < m->n_spots; i++) {
		sorted[i] = m->spots[from[i]];
		to[from[i]] = (int)i;
		sorted[i].up = moved(to, sorted[i].up);
	}
	for (unsigned i = 0; !err && i < m->n_gpus; i++)
		m->gpus[i].spot = moved(to, m->gpus[i].spot);
	for (unsigned i = 0; !err && i < m->n_nics; i++) {
		for (unsigned k = 0; k < m->nics[i].n_spots; k++)
			m->nics[i].spots[k] = to[m->nics[i].spots[k]];
	}
	if (!err) {
		free(m->spots);
		m->spots = sorted;
		sorted = NULL;
	}
	free(sorted);
	free(from);
	free(to);
	return err;
}

/* ------------------------------------------------------------------------------ CPUs and NUMA */

static int compare_numas(const void *a, const void *b)
{
	return ((const struct braid_numa *)a)->id - ((const struct braid_numa *)b)->id;
}

static void read_numas(struct reader *r)
{
	struct braid_machine *m = r->m;
	DIR *dir = sys_dir(m, "/sys/devices/system/node");
	const char *name;

	while (dir && (name = next_name(dir, 8))) {
		struct braid_numa *numa = &m->numas[m->n_numas];
		char path[PATH_MAX], text[8 * BRAID_MACHINE_PATH] = "";
		int used = 0;

		if (sscanf(name, "node%4d%n", &numa->id, &used) != 1 || name[used] || numa->id < 0)
			continue;
		if (m->n_numas == BRAID_MACHINE_NUMAS) {
			r->left_out++;
			continue;
		}
		snprintf(path, sizeof(path), "/sys/devices/system/node/%s", name);
		numa->cpus = (struct braid_cpus){ .bits = { 0 } };
		if (sys_line(m, path, "cpulist", text, sizeof(text)))
			braid_cpus_parse(text, &numa->cpus);
		m->n_numas++;
	}
	if (dir)
		closedir(dir);
	qsort(m->numas, m->n_numas, sizeof(m->numas[0]), compare_numas);
}

/* x86 has a CPU flag for it; Xen a directory. */
static bool runs_virtual(const struct braid_machine *m)
{
	char path[PATH_MAX], text[CPUINFO_LEN], *flags, *word;

	if (sys_path(m, path, "/sys/hypervisor/type") && braid_sys_line(path, text, sizeof(text)))
		return true;
	if (!sys_path(m, path, "/proc/cpuinfo") || braid_sys_read(path, text, sizeof(text)) < 0)
		return false;
	flags = strstr(text, "\nflags");
	if (!flags)
		return false;
	flags[1 + strcspn(flags + 1, "\n")] = '\0';
	word = strstr(flags, " hypervisor");
	return word && (word[11] == ' ' || !word[11]);
}

void braid_machine_cpus(const struct braid_machine *m, int spot, struct braid_cpus *ret)
{
	*ret = (struct braid_cpus){ .bits = { 0 } };
	if (spot < 0 || braid_pci_cpus(m->root, m->spots[spot].path, ret))
		return;
	for (unsigned i = 0; i < m->n_numas; i++) {
		if (m->numas[i].id == m->spots[spot].numa)
			*ret = m->numas[i].cpus;
	}
}

bool braid_machine_attr(const struct braid_machine *m, int spot, const char *file, char *ret,
			size_t len)
{
	return sys_line(m, m->spots[spot].path, file, ret, len);
}

/* ----------------------------------------------------------------------------------- distance */

static bool is_hidden(const struct braid_machine *m, int spot)
{
	return m->spots[spot].depth <= 1 && (m->spots[spot].gpu || m->is_virtual);
}

/* The deepest spot that both chains have; -1: none. */
static int meet(const struct braid_machine *m, int a, int b)
{
	while (a != b) {
		if (a < 0 || b < 0)
			return -1;
		if (m->spots[a].depth > m->spots[b].depth)
			a = m->spots[a].up;
		else if (m->spots[a].depth < m->spots[b].depth)
			b = m->spots[b].up;
		else
			a = m->spots[a].up, b = m->spots[b].up;
	}
	return a;
}

enum braid_distance braid_machine_between(const struct braid_machine *m, int a, int b)
{
	unsigned depth, most;
	bool hidden;
	int at;

	if (a < 0 || b < 0)
		return BRAID_DISTANCE_UNKNOWN;
	if (a == b)
		return BRAID_DISTANCE_SELF;
	at = meet(m, a, b);
	if (at >= 0 && m->spots[at].depth > 0) {
		/* Below the switch where they meet each has the port it hangs on, or more. */
		depth = m->spots[at].depth;
		most = m->spots[a].depth;
		if (m->spots[b].depth > most)
			most = m->spots[b].depth;
		return most <= depth + 2 ? BRAID_DISTANCE_PIX : BRAID_DISTANCE_PXB;
	}
	hidden = is_hidden(m, a) || is_hidden(m, b);
	if (at >= 0 && !hidden)
		return BRAID_DISTANCE_PHB;
	if (m->spots[a].numa < 0 || m->spots[b].numa < 0)
		return BRAID_DISTANCE_UNKNOWN;
	return m->spots[a].numa == m->spots[b].numa ? BRAID_DISTANCE_NODE : BRAID_DISTANCE_SYS;
}

static enum braid_distance nic_spot(const struct braid_machine *m, const struct braid_nic *nic,
				    int spot)
{
	enum braid_distance most = BRAID_DISTANCE_SELF, d;

	for (unsigned i = 0; i < nic->n_spots; i++) {
		d = braid_machine_between(m, nic->spots[i], spot);
		if (d > most)
			most = d;
	}
	return nic->n_spots ? most : BRAID_DISTANCE_UNKNOWN;
}

enum braid_distance braid_machine_gpu_nic(const struct braid_machine *m, unsigned gpu, unsigned nic)
{
	return nic_spot(m, &m->nics[nic], m->gpus[gpu].spot);
}

/* Two NICs of one PCI function, such as its two ports, are as near as two of its functions. */
enum braid_distance braid_machine_nic_nic(const struct braid_machine *m, unsigned a, unsigned b)
{
	const struct braid_nic *nic = &m->nics[b];
	enum braid_distance most = BRAID_DISTANCE_PIX, d;

	if (a == b)
		return BRAID_DISTANCE_SELF;
	for (unsigned i = 0; i < nic->n_spots; i++) {
		d = nic_spot(m, &m->nics[a], nic->spots[i]);
		if (d > most)
			most = d;
	}
	return nic->n_spots ? most : BRAID_DISTANCE_UNKNOWN;
}

enum braid_distance braid_machine_gpu_gpu(const struct braid_machine *m, unsigned a, unsigned b)
{
	return a == b ? BRAID_DISTANCE_SELF :
			braid_machine_between(m, m->gpus[a].spot, m->gpus[b].spot);
}

/* -------------------------------------------------------------------------------------- notes */

__attribute__((format(printf, 2, 3)))
static void note(struct braid_machine *m, const char *fmt, ...)
{
	va_list ap;

	if (m->n_notes == BRAID_MACHINE_NOTES)
		return;
	va_start(ap, fmt);
	vsnprintf(m->notes[m->n_notes++], BRAID_MACHINE_NOTE, fmt, ap);
	va_end(ap);
}

/* "GPU0, GPU1 and 6 more"; false if `is` holds for none. */
static bool name_all(const struct braid_machine *m, const char *kind, unsigned n,
		     bool (*is)(const struct braid_machine *m, unsigned i), char *ret, size_t len)
{
	enum { NAMED = 8 };
	unsigned found = 0;
	size_t used = 0;

	for (unsigned i = 0; i < n; i++) {
		if (is(m, i) && found++ < NAMED)
			used += (size_t)snprintf(ret + used, len - used, "%s%s%u",
						 found > 1 ? ", " : "", kind, i);
	}
	if (found > NAMED)
		snprintf(ret + used, len - used, " and %u more", found - NAMED);
	return found > 0;
}

static bool gpu_is_hidden(const struct braid_machine *m, unsigned i)
{
	return m->gpus[i].spot < 0 || is_hidden(m, m->gpus[i].spot);
}

static bool gpu_has_no_numa(const struct braid_machine *m, unsigned i)
{
	return m->gpus[i].spot >= 0 && m->spots[m->gpus[i].spot].numa < 0;
}

static bool nic_has_no_pci(const struct braid_machine *m, unsigned i)
{
	return m->nics[i].n_spots == 0;
}

static void write_notes(struct reader *r)
{
	struct braid_machine *m = r->m;
	char who[160];

	if (m->is_virtual)
		note(m, "this is a virtual machine: /sys shows the PCI tree of its hypervisor's "
		     "making");
	if (name_all(m, "GPU", m->n_gpus, gpu_is_hidden, who, sizeof(who)))
		note(m, "%s: no PCIe port is shown above, as where a hypervisor hides the tree: "
		     "what is near is not told", who);
	if (name_all(m, "GPU", m->n_gpus, gpu_has_no_numa, who, sizeof(who)))
		note(m, "%s: the NUMA node is not told", who);
	if (name_all(m, "NIC", m->n_nics, nic_has_no_pci, who, sizeof(who)))
		note(m, "%s: no PCI address", who);
	if (r->left_out)
		note(m, "%u devices left out: more than this program has room for", r->left_out);
}

/* --------------------------------------------------------------------------------------- read */

static int read_all(struct reader *r)
{
	DIR *dir = sys_dir(r->m, "/sys");
	int err = dir ? 0 : -errno;

	if (err)
		return err;
	closedir(dir);
	r->m->is_virtual = runs_virtual(r->m);
	read_numas(r);
	read_gpus(r);
	read_nets(r);
	nics_of_rdma(r);
	nics_of_nets(r);
	err = sort_spots(r->m);
	settle_numa(r->m);
	if (!err)
		err = sort_nics(r->m);
	write_notes(r);
	return err;
}

int braid_machine_read(const char *root, struct braid_machine **ret)
{
	struct reader r = { .m = calloc(1, sizeof(*r.m)),
			    .nets = calloc(NETS_MAX + 1, sizeof(*r.nets)) };
	int err = -ENOMEM;

	if (r.m && strlen(root) < sizeof(r.m->root)) {
		strcpy(r.m->root, root);
		r.m->spots = calloc(BRAID_MACHINE_SPOTS, sizeof(*r.m->spots));
		if (r.m->spots && r.nets)
			err = read_all(&r);
	} else if (r.m) {
		err = -ENAMETOOLONG;
	}
	free(r.nets);
	if (err)
		braid_machine_free(r.m);
	else
		*ret = r.m;
	return err;
}

void braid_machine_free(struct braid_machine *m)
{
	if (m)
		free(m->spots);
	free(m);
}
