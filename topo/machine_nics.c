/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * machine_nics.c - the NICs of a machine: its RDMA ports, and interfaces that belong to none.
 *
 * A bond's NIC stands where each of its members does.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/reader.h"

enum {
	SPEED_MOST = 10000000,		/* Mb/s; as in netdev_sys.c */
	SPEED_NONE_16 = 65535,
};

/* --- interfaces ---------------------------------------------------------------------------- */

static bool net_has(const struct braid_reader *r, const char *name, const char *file)
{
	char path[PATH_MAX], real[PATH_MAX];

	return braid_reader_path(r, path, "/sys/class/net/%s/%s", name, file) &&
	       realpath(path, real);
}

/* The kernel names a representor's port after the function that it represents: "pf0vf3". */
static bool is_representor(const struct braid_reader *r, const char *dir)
{
	char text[32];

	return braid_reader_line(r, dir, "phys_port_name", text, sizeof(text)) &&
	       strncmp(text, "pf", 2) == 0 && (strstr(text, "vf") || strstr(text, "sf"));
}

void braid_reader_nets(struct braid_reader *r)
{
	DIR *dir = braid_reader_dir(r, "/sys/class/net");
	const char *name;

	while (dir && (name = braid_reader_next(dir, sizeof(r->nets->name) - 1))) {
		struct braid_reader_net *n = &r->nets[r->n_nets];
		char device[PATH_MAX];

		if (r->n_nets == BRAID_NETS_MAX) {
			r->m->left_out++;
			continue;
		}
		*n = (struct braid_reader_net){ .bond = net_has(r, name, "bonding/slaves") };
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

static struct braid_reader_net *net_find(struct braid_reader *r, const char *name)
{
	for (unsigned i = 0; i < r->n_nets; i++) {
		if (strcmp(r->nets[i].name, name) == 0)
			return &r->nets[i];
	}
	return NULL;
}

static void nic_stand_on(struct braid_reader *r, struct braid_nic *nic, const char *pci)
{
	int spot = *pci ? braid_reader_spot(r, pci) : -1;
	char path[PATH_MAX], real[PATH_MAX];

	if (spot < 0)
		return;
	braid_machine_stand(r->m, nic, spot);
	nic->virtual_function = braid_reader_path(r, path, "%s/physfn", pci) &&
				realpath(path, real);
}

/* Attach the NIC to the spot of its interface, or to those of a bond's members. */
static void nic_stand_on_net(struct braid_reader *r, struct braid_nic *nic,
			     const struct braid_reader_net *net)
{
	char dir[PATH_MAX], text[16 * BRAID_NIC_SPOTS], *rest = text, *name;

	if (!net->bond) {
		nic_stand_on(r, nic, net->pci);
		return;
	}
	nic->bond = true;
	snprintf(dir, sizeof(dir), "/sys/class/net/%s/bonding", net->name);
	if (!braid_reader_line(r, dir, "slaves", text, sizeof(text)))
		return;
	while ((name = strtok_r(rest, " ", &rest))) {
		const struct braid_reader_net *slave = net_find(r, name);

		if (slave && !slave->bond)
			nic_stand_on(r, nic, slave->pci);
	}
}

static void net_facts(const struct braid_reader *r, const struct braid_reader_net *net,
		      struct braid_nic *nic)
{
	char dir[PATH_MAX], text[16];
	long v;

	snprintf(dir, sizeof(dir), "/sys/class/net/%s", net->name);
	if (!nic->speed_mbps && braid_reader_number(r, dir, "speed", 1, SPEED_MOST, &v) &&
	    v != SPEED_NONE_16)
		nic->speed_mbps = (int)v;
	if (nic->carrier == BRAID_CARRIER_UNKNOWN &&
	    braid_reader_line(r, dir, "operstate", text, sizeof(text)))
		nic->carrier = strcmp(text, "up") == 0 ? BRAID_CARRIER_UP :
			       strcmp(text, "unknown") == 0 ? BRAID_CARRIER_UNKNOWN :
							      BRAID_CARRIER_DOWN;
}

void braid_reader_net_nics(struct braid_reader *r)
{
	for (unsigned i = 0; i < r->n_nets; i++) {
		const struct braid_reader_net *net = &r->nets[i];
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

/* --- RDMA ports ---------------------------------------------------------------------------- */

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

/* The interface of a port: the one that the kernel names, else the one on the same PCI function. */
static struct braid_reader_net *port_net(struct braid_reader *r, const char *port_dir,
					 const char *pci, int port, bool single)
{
	char name[16], dir[PATH_MAX];
	long dev_port;

	if (braid_reader_line(r, port_dir, "gid_attrs/ndevs/0", name, sizeof(name)))
		return net_find(r, name);
	for (unsigned i = 0; i < r->n_nets && *pci; i++) {
		struct braid_reader_net *net = &r->nets[i];

		if (strcmp(net->pci, pci) != 0 || net->representor)
			continue;
		snprintf(dir, sizeof(dir), "/sys/class/net/%s", net->name);
		if (single || (braid_reader_number(r, dir, "dev_port", 0, 255, &dev_port) &&
			       dev_port + 1 == port))
			return net;
	}
	return NULL;
}

static void read_port(struct braid_reader *r, const char *device, const char *pci, int port,
		      bool single)
{
	struct braid_nic nic = { .rdma = true, .port = port };
	char dir[PATH_MAX], text[64];
	struct braid_reader_net *net;

	snprintf(nic.name, sizeof(nic.name), "%s:%d", device, port);
	snprintf(dir, sizeof(dir), "/sys/class/infiniband/%s/ports/%d", device, port);
	if (braid_reader_line(r, dir, "state", text, sizeof(text)))
		nic.carrier = strncmp(text, "4:", 2) == 0 ? BRAID_CARRIER_UP : BRAID_CARRIER_DOWN;
	if (nic.carrier != BRAID_CARRIER_DOWN &&
	    braid_reader_line(r, dir, "rate", text, sizeof(text)))
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

static void read_rdma(struct braid_reader *r, const char *device)
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
	dir = braid_reader_dir(r, path);
	while (dir && (name = braid_reader_next(dir, 2))) {
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

void braid_reader_rdma_nics(struct braid_reader *r)
{
	DIR *dir = braid_reader_dir(r, "/sys/class/infiniband");
	const char *name;

	while (dir && (name = braid_reader_next(dir, 63)))
		read_rdma(r, name);
	if (dir)
		closedir(dir);
}
