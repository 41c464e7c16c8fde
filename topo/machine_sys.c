/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * machine_sys.c - read the machine out of /sys.
 *
 * The real path of a PCI device is its chain of bridges:
 *
 *	/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:08.0/0000:05:00.0
 *	             host bridge, root port,  a switch's upstream and downstream port, device
 *
 * so every path that a GPU or NIC has becomes a chain of spots.  The contents of a tree are not
 * trusted: every number has an upper limit, and every link has to stay inside the root.
 */
#include "topo/machine.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/machine_int.h"
#include "topo/sys.h"

enum {
	NETS_MAX = 1024,
	SPEED_MOST = 10000000,		/* Mb/s; as in netdev.c */
	SPEED_NONE_16 = 65535,
	CPUINFO_LEN = 16384,
	CLASS_MOST = 0xffffff,
	ID_MOST = 0xffff,
	WIDTH_MOST = 32,
	GTS_MOST = 1024,
	VENDOR_MELLANOX = 0x15b3,
	DEVICE_DIRECT = 0x2100,
};

struct net {				/* a network interface */
	char name[16];
	char pci[BRAID_MACHINE_PATH];	/* "": not on PCI */
	bool device;			/* has a device below: hardware, or emulated */
	bool bond, slave, representor;
	bool taken;			/* an RDMA port has it */
};

struct reader {
	char root[PATH_MAX];
	struct braid_machine *m;
	struct net *nets;
	unsigned n_nets;
};

/* ------------------------------------------------------------------------------------- files */

__attribute__((format(printf, 3, 4)))
static bool sys_path(const struct reader *r, char *ret, const char *fmt, ...)
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

static bool sys_number(const struct reader *r, const char *dir, const char *file, long least,
		       long most, long *ret)
{
	char path[PATH_MAX];

	return sys_path(r, path, "%s/%s", dir, file) && braid_sys_number(path, least, most, ret);
}

static bool sys_line(const struct reader *r, const char *dir, const char *file, char *ret,
		     size_t len)
{
	char path[PATH_MAX];

	return sys_path(r, path, "%s/%s", dir, file) && braid_sys_line(path, ret, len);
}

/* A directory of /sys/class and the like: false if there is none. */
static DIR *sys_dir(const struct reader *r, const char *dir)
{
	char path[PATH_MAX];

	return sys_path(r, path, "%s", dir) ? opendir(path) : NULL;
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

/* A number of a spot; 0: unknown. */
static unsigned number_of(const struct reader *r, const char *dir, const char *file, long most)
{
	long v;

	return sys_number(r, dir, file, 0, most, &v) ? (unsigned)v : 0;
}

/* From "16.0 GT/s PCIe" and "16"; values such as "Unknown" and 255 leave it unknown. */
static struct braid_link link_of(const struct reader *r, const char *dir, const char *when)
{
	struct braid_link link = { .gts = 0 };
	char file[32], text[32], *end;

	snprintf(file, sizeof(file), "%s_link_speed", when);
	if (sys_line(r, dir, file, text, sizeof(text)) && isdigit((unsigned char)*text)) {
		link.gts = strtod(text, &end);
		if (strncmp(end, " GT/s", 5) != 0 || !(link.gts > 0 && link.gts <= GTS_MOST))
			link.gts = 0;
	}
	snprintf(file, sizeof(file), "%s_link_width", when);
	link.width = number_of(r, dir, file, ID_MOST);
	if (link.width > WIDTH_MOST)
		link.width = 0;
	return link;
}

static void read_spot(const struct reader *r, struct braid_spot *s)
{
	long numa = -1;

	sys_number(r, s->path, "numa_node", -1, BRAID_NUMA_MOST, &numa);
	s->numa = (int)numa;
	s->class = number_of(r, s->path, "class", CLASS_MOST);
	s->vendor = number_of(r, s->path, "vendor", ID_MOST);
	s->device = number_of(r, s->path, "device", ID_MOST);
	s->sub_vendor = number_of(r, s->path, "subsystem_vendor", ID_MOST);
	s->sub_device = number_of(r, s->path, "subsystem_device", ID_MOST);
	s->most = link_of(r, s->path, "max");
	s->now = link_of(r, s->path, "current");
	braid_pci_cpus(r->root, s->path, &s->cpus);
}

/* The spot of the first `len` letters of path, whose last component is `name`; -1: no room. */
static int spot_get(struct reader *r, int up, const char *path, size_t len, const char *name)
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
static int spot_of(struct reader *r, const char *path)
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

static int spot_of_device(struct reader *r, const char *device)
{
	char path[BRAID_MACHINE_PATH];

	if (braid_pci_find(r->root, device, path, sizeof(path)) < 0)
		return -1;
	return spot_of(r, path);
}

/* -------------------------------------------------------------------------------------- GPUs */

static void read_gpu(struct reader *r, const char *name)
{
	struct braid_gpu gpu = { .spot = -1 };
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "/sys/bus/pci/devices/%s", name);
	gpu.vendor = number_of(r, dir, "vendor", ID_MOST);
	if (braid_pci_parse(name, &gpu.addr) < 0 ||
	    !braid_machine_is_gpu(number_of(r, dir, "class", CLASS_MOST), gpu.vendor))
		return;
	gpu.spot = spot_of_device(r, dir);
	braid_machine_add_gpu(r->m, &gpu);
}

/* Note the Data Direct function of a ConnectX-8: no NIC itself, and /sys does not name its NIC. */
static void read_direct(struct reader *r, const char *name)
{
	char dir[PATH_MAX], *all = r->m->direct;
	size_t at = strlen(all);

	snprintf(dir, sizeof(dir), "/sys/bus/pci/devices/%s", name);
	if (number_of(r, dir, "vendor", ID_MOST) == VENDOR_MELLANOX &&
	    number_of(r, dir, "device", ID_MOST) == DEVICE_DIRECT)
		snprintf(all + at, sizeof(r->m->direct) - at, "%s%s", at ? ", " : "", name);
}

static void read_cards(struct reader *r)
{
	DIR *dir = sys_dir(r, "/sys/bus/pci/devices");
	const char *name;

	while (dir && (name = next_name(dir, BRAID_SPOT_NAME - 1))) {
		read_gpu(r, name);
		read_direct(r, name);
	}
	if (dir)
		closedir(dir);
}

/* -------------------------------------------------------------------------------- interfaces */

static bool net_has(const struct reader *r, const char *name, const char *file)
{
	char path[PATH_MAX], real[PATH_MAX];

	return sys_path(r, path, "/sys/class/net/%s/%s", name, file) && realpath(path, real);
}

/* The kernel names a representor's port after the function that it represents: "pf0vf3". */
static bool is_representor(const struct reader *r, const char *dir)
{
	char text[32];

	return sys_line(r, dir, "phys_port_name", text, sizeof(text)) &&
	       strncmp(text, "pf", 2) == 0 && (strstr(text, "vf") || strstr(text, "sf"));
}

static void read_nets(struct reader *r)
{
	DIR *dir = sys_dir(r, "/sys/class/net");
	const char *name;

	while (dir && (name = next_name(dir, sizeof(r->nets->name) - 1))) {
		struct net *n = &r->nets[r->n_nets];
		char device[PATH_MAX];

		if (r->n_nets == NETS_MAX) {
			r->m->left_out++;
			continue;
		}
		*n = (struct net){ .bond = net_has(r, name, "bonding/slaves") };
		memcpy(n->name, name, strlen(name));
		snprintf(device, sizeof(device), "/sys/class/net/%s", name);
		n->device = net_has(r, name, "device");
		n->slave = net_has(r, name, "bonding_slave");
		n->representor = is_representor(r, device);
		strcat(device, "/device");
		if (braid_pci_find(r->root, device, n->pci, sizeof(n->pci)) < 0)
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

	if (spot < 0)
		return;
	braid_machine_stand(r->m, nic, spot);
	nic->virtual_function = sys_path(r, path, "%s/physfn", pci) && realpath(path, real);
}

/* Attach the NIC to the spot of its interface, or to those of a bond's members. */
static void nic_stand_on_net(struct reader *r, struct braid_nic *nic, const struct net *net)
{
	char dir[PATH_MAX], text[16 * BRAID_NIC_SPOTS], *rest = text, *name;

	if (!net->bond) {
		nic_stand_on(r, nic, net->pci);
		return;
	}
	nic->bond = true;
	snprintf(dir, sizeof(dir), "/sys/class/net/%s/bonding", net->name);
	if (!sys_line(r, dir, "slaves", text, sizeof(text)))
		return;
	while ((name = strtok_r(rest, " ", &rest))) {
		const struct net *slave = net_find(r, name);

		if (slave && !slave->bond)
			nic_stand_on(r, nic, slave->pci);
	}
}

static void net_facts(const struct reader *r, const struct net *net, struct braid_nic *nic)
{
	char dir[PATH_MAX], text[16];
	long v;

	snprintf(dir, sizeof(dir), "/sys/class/net/%s", net->name);
	if (!nic->speed_mbps && sys_number(r, dir, "speed", 1, SPEED_MOST, &v) &&
	    v != SPEED_NONE_16)
		nic->speed_mbps = (int)v;
	if (nic->carrier == BRAID_CARRIER_UNKNOWN &&
	    sys_line(r, dir, "operstate", text, sizeof(text)))
		nic->carrier = strcmp(text, "up") == 0 ? BRAID_CARRIER_UP :
			       strcmp(text, "unknown") == 0 ? BRAID_CARRIER_UNKNOWN :
							      BRAID_CARRIER_DOWN;
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
		net_facts(r, net, &nic);
		braid_machine_add_nic(r->m, &nic);
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

/* The interface of a port: the one that the kernel names, or else the one on the same function. */
static struct net *port_net(struct reader *r, const char *port_dir, const char *pci, int port,
			    bool single)
{
	char name[16], dir[PATH_MAX];
	long dev_port;

	if (sys_line(r, port_dir, "gid_attrs/ndevs/0", name, sizeof(name)))
		return net_find(r, name);
	for (unsigned i = 0; i < r->n_nets && *pci; i++) {
		struct net *net = &r->nets[i];

		if (strcmp(net->pci, pci) != 0 || net->representor)
			continue;
		snprintf(dir, sizeof(dir), "/sys/class/net/%s", net->name);
		if (single || (sys_number(r, dir, "dev_port", 0, 255, &dev_port) &&
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
	if (sys_line(r, dir, "state", text, sizeof(text)))
		nic.carrier = strncmp(text, "4:", 2) == 0 ? BRAID_CARRIER_UP : BRAID_CARRIER_DOWN;
	if (nic.carrier != BRAID_CARRIER_DOWN && sys_line(r, dir, "rate", text, sizeof(text)))
		nic.speed_mbps = parse_rate(text);
	net = port_net(r, dir, pci, port, single);
	if (net) {
		net->taken = true;
		memcpy(nic.netdev, net->name, sizeof(net->name));
		nic_stand_on_net(r, &nic, net);
		net_facts(r, net, &nic);
	}
	if (!nic.n_spots)
		nic_stand_on(r, &nic, pci);
	braid_machine_add_nic(r->m, &nic);
}

static void read_rdma(struct reader *r, const char *device)
{
	char path[PATH_MAX], pci[BRAID_MACHINE_PATH];
	bool ports[BRAID_PORTS_MAX + 1] = { false };
	unsigned n = 0;
	const char *name;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", device);
	if (braid_pci_find(r->root, path, pci, sizeof(pci)) < 0)
		pci[0] = '\0';
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports", device);
	dir = sys_dir(r, path);
	while (dir && (name = next_name(dir, 2))) {
		int port = atoi(name);

		if (port < 1 || port > BRAID_PORTS_MAX || ports[port])
			continue;
		ports[port] = true;
		n++;
	}
	if (dir)
		closedir(dir);
	for (int port = 1; port <= BRAID_PORTS_MAX; port++) {
		if (ports[port])
			read_port(r, device, pci, port, n == 1);
	}
}

static void nics_of_rdma(struct reader *r)
{
	DIR *dir = sys_dir(r, "/sys/class/infiniband");
	const char *name;

	while (dir && (name = next_name(dir, 63)))
		read_rdma(r, name);
	if (dir)
		closedir(dir);
}

/* ------------------------------------------------------------------------------ CPUs and NUMA */

static void read_numas(struct reader *r)
{
	DIR *dir = sys_dir(r, "/sys/devices/system/node");
	const char *name;

	while (dir && (name = next_name(dir, 8))) {
		struct braid_numa numa = { .id = -1 };
		char path[PATH_MAX], text[8 * BRAID_MACHINE_PATH] = "";
		int used = 0;

		if (sscanf(name, "node%4d%n", &numa.id, &used) != 1 || name[used] || numa.id < 0)
			continue;
		snprintf(path, sizeof(path), "/sys/devices/system/node/%s", name);
		if (sys_line(r, path, "cpulist", text, sizeof(text)))
			braid_cpus_parse(text, &numa.cpus);
		braid_machine_add_numa(r->m, &numa);
	}
	if (dir)
		closedir(dir);
}

/* The value of "key : value" at the head of /proc/cpuinfo. */
static bool cpuinfo(const char *text, const char *key, char *ret, size_t len)
{
	size_t key_len = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		const char *value = line += *line == '\n';

		if (strncmp(line, key, key_len) != 0)
			continue;
		value += key_len + strspn(value + key_len, " \t");
		if (*value != ':')
			continue;
		value += 1 + strspn(value + 1, " \t");
		snprintf(ret, len, "%.*s", (int)strcspn(value, "\n"), value);
		return true;
	}
	return false;
}

/* x86 has a CPU flag for a hypervisor; Xen a directory. */
static bool has_flag(const char *flags)
{
	const char *word = strstr(flags, "hypervisor");

	return word && (word == flags || word[-1] == ' ') && (word[10] == ' ' || !word[10]);
}

void braid_machine_cpu(struct braid_machine *m, const char *root)
{
	char path[PATH_MAX + 32], text[CPUINFO_LEN], value[CPUINFO_LEN];
	struct braid_cpu_kind *cpu = &m->cpu;

	snprintf(path, sizeof(path), "%s/sys/hypervisor/type", root);
	m->is_virtual = braid_sys_line(path, text, sizeof(text));
	snprintf(path, sizeof(path), "%s/proc/cpuinfo", root);
	if (braid_sys_read(path, text, sizeof(text)) < 0)
		*text = '\0';
	if (cpuinfo(text, "flags", value, sizeof(value)) && has_flag(value))
		m->is_virtual = true;
	if (cpuinfo(text, "vendor_id", cpu->vendor, sizeof(cpu->vendor)))
		cpu->arch = "x86_64";
	else
		cpu->arch = cpuinfo(text, "cpu", value, sizeof(value)) ? "ppc64" : "arm64";
	cpu->family = cpuinfo(text, "cpu family", value, sizeof(value)) ? atoi(value) : -1;
	cpu->model = cpuinfo(text, "model", value, sizeof(value)) ? atoi(value) : -1;
}

/* --------------------------------------------------------------------------------------- read */

static int read_all(struct reader *r)
{
	DIR *dir = sys_dir(r, "/sys");

	if (!dir)
		return -errno;
	closedir(dir);
	braid_machine_cpu(r->m, r->root);
	read_numas(r);
	read_cards(r);
	read_nets(r);
	nics_of_rdma(r);
	nics_of_nets(r);
	return braid_machine_settle(r->m);
}

int braid_machine_read(const char *root, struct braid_machine **ret)
{
	struct reader r = { .m = NULL };
	int err;

	if (strlen(root) >= sizeof(r.root))
		return -ENAMETOOLONG;
	strcpy(r.root, root);
	r.nets = calloc(NETS_MAX + 1, sizeof(*r.nets));
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
