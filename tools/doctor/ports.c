/* SPDX-License-Identifier: BSD-3-Clause */
/* ports.c - the RDMA ports, as /sys lists them. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor_int.h"

static void port_read(struct doctor *d, const char *dev, const char *num)
{
	struct rdma_port *p = &d->ports[d->n_ports];
	char text[TEXT_LEN], pci[NAME_LEN];

	*p = (struct rdma_port){ .num = atoi(num) };
	snprintf(p->dev, sizeof(p->dev), "%s", dev);
	snprintf(p->name, sizeof(p->name), "%.60s:%d", dev, p->num);
	snprintf(p->dir, sizeof(p->dir), "/sys/class/infiniband/%s/ports/%s", dev, num);
	if (sys_line(d, text, sizeof(text), "/sys/class/infiniband/%s/node_type", dev))
		p->iwarp = strstr(text, "RNIC") != NULL;
	if (sys_line(d, text, sizeof(text), "%s/link_layer", p->dir))
		p->roce = !p->iwarp && strcmp(text, "Ethernet") == 0;
	p->active = sys_line(d, text, sizeof(text), "%s/state", p->dir) && strstr(text, "ACTIVE");
	sys_line(d, p->netdev, sizeof(p->netdev), "%s/gid_attrs/ndevs/0", p->dir);
	p->soft = !sys_link(d, pci, sizeof(pci), "/sys/class/infiniband/%s/device", dev) ||
		  !sys_has(d, "/sys/class/infiniband/%s/device/vendor", dev);
	d->n_ports++;
}

unsigned doctor_ports(struct doctor *d, const struct rdma_port **ret)
{
	struct names devs, nums;

	if (!d->ports) {
		d->ports = calloc(PORTS_MAX, sizeof(*d->ports));
		sys_names(d, &devs, "/sys/class/infiniband");
		for (unsigned i = 0; d->ports && i < devs.n; i++) {
			sys_names(d, &nums, "/sys/class/infiniband/%s/ports", devs.name[i]);
			for (unsigned k = 0; k < nums.n && d->n_ports < PORTS_MAX; k++)
				port_read(d, devs.name[i], nums.name[k]);
		}
	}
	*ret = d->ports;
	return d->n_ports;
}

bool next_port(struct doctor *d, unsigned *i, const struct rdma_port **ret)
{
	const struct rdma_port *ports;

	if (*i >= doctor_ports(d, &ports))
		return false;
	*ret = &ports[(*i)++];
	return true;
}

bool no_port(struct doctor *d)
{
	const struct rdma_port *ports;

	if (doctor_ports(d, &ports))
		return false;
	doctor_skip(d, "no RDMA device");
	return true;
}
