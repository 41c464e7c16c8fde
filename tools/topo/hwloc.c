/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hwloc.c - read the machine through hwloc: this one, or an XML file of another one.
 *
 * A spot is what hwloc calls a Bridge or a PCIDev; its parents are followed one by one, up to the
 * host bridge.  hwloc_get_common_ancestor_obj() is of no use here: bridges and devices have no
 * depths in its sense, and for two devices with unlike numbers of bridges above it runs off the
 * tree.  struct braid_machine computes the distances, as for a tree read from /sys.
 *
 * hwloc knows NVLink, which /sys does not, but lacks some facts of /sys: docs/user/topology.md.
 */
#include <errno.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/topo/topo.h"
#include "topo/machine_int.h"

struct reader {
	hwloc_topology_t topology;
	struct braid_machine *m;
};

/* -- spots -------------------------------------------------------------------------------- */

static bool is_pci(hwloc_obj_t o)
{
	return o->type == HWLOC_OBJ_PCI_DEVICE ||
	       (o->type == HWLOC_OBJ_BRIDGE &&
		o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI);
}

/* The PCI function of an OS device; NULL: it has none. */
static hwloc_obj_t pci_above(hwloc_obj_t o)
{
	while (o && o->type == HWLOC_OBJ_OS_DEVICE)
		o = o->parent;
	return o && o->type == HWLOC_OBJ_PCI_DEVICE ? o : NULL;
}

static void read_cpus(hwloc_const_bitmap_t set, struct braid_cpus *ret)
{
	char *text;

	if (hwloc_bitmap_list_asprintf(&text, set) < 0)
		return;
	braid_cpus_parse(text, ret);
	free(text);
}

/* The NUMA node in a set, or the first of several with the same CPUs; -1: none, or they differ. */
static int numa_of(const struct reader *r, hwloc_const_bitmap_t nodes)
{
	int first = hwloc_bitmap_first(nodes);
	hwloc_obj_t a, b;

	if (first < 0 || !(a = hwloc_get_numanode_obj_by_os_index(r->topology, (unsigned)first)))
		return -1;
	for (int i = first; i >= 0; i = hwloc_bitmap_next(nodes, i)) {
		b = hwloc_get_numanode_obj_by_os_index(r->topology, (unsigned)i);
		if (!b || !hwloc_bitmap_isequal(a->cpuset, b->cpuset))
			return -1;
	}
	return first <= BRAID_NUMA_MOST ? first : -1;
}

/* The CPUs next to a spot are those of its parent, unless that is the whole machine. */
static void read_near(const struct reader *r, hwloc_obj_t o, struct braid_spot *s)
{
	hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(r->topology, o);

	s->numa = numa_of(r, near->nodeset);
	if (near->parent)
		read_cpus(near->cpuset, &s->cpus);
}

static void read_pci(hwloc_obj_t o, struct braid_spot *s)
{
	const struct hwloc_pcidev_attr_s *pci = o->type == HWLOC_OBJ_PCI_DEVICE ?
						&o->attr->pcidev : &o->attr->bridge.upstream.pci;

	snprintf(s->name, sizeof(s->name), "%04x:%02x:%02x.%01x", pci->domain, pci->bus, pci->dev,
		 pci->func);
	s->class = (unsigned)pci->class_id << 8;
	s->vendor = pci->vendor_id;
	s->device = pci->device_id;
	s->sub_vendor = pci->subvendor_id;
	s->sub_device = pci->subdevice_id;
}

/* The spot of a bridge or PCI device; -1: no host bridge is above, or no room. */
static int spot_of(struct reader *r, hwloc_obj_t o)
{
	struct braid_spot s = { .up = -1 };
	const char *above = "";
	int n, there;

	if (is_pci(o)) {
		s.up = o->parent ? spot_of(r, o->parent) : -1;
		if (s.up < 0)
			return -1;
		above = r->m->spots[s.up].path;
		read_pci(o, &s);
	} else if (o->type == HWLOC_OBJ_BRIDGE) {
		snprintf(s.name, sizeof(s.name), "pci%04x:%02x",
			 o->attr->bridge.downstream.pci.domain,
			 o->attr->bridge.downstream.pci.secondary_bus);
	} else {
		return -1;
	}
	n = snprintf(s.path, sizeof(s.path), "%s/%s", above, s.name);
	if (n >= (int)sizeof(s.path))
		return -1;
	there = braid_machine_find(r->m, s.path);
	if (there >= 0)
		return there;
	read_near(r, o, &s);
	return braid_machine_add(r->m, &s);
}

/* -- GPUs and NICs ------------------------------------------------------------------------ */

static void read_gpus(struct reader *r)
{
	hwloc_obj_t o = NULL;

	while ((o = hwloc_get_next_pcidev(r->topology, o))) {
		const struct hwloc_pcidev_attr_s *pci = &o->attr->pcidev;
		struct braid_gpu gpu = {
			.vendor = pci->vendor_id,
			.addr = { pci->domain, pci->bus, pci->dev, pci->func },
		};

		if (!braid_machine_is_gpu((unsigned)pci->class_id << 8, pci->vendor_id))
			continue;
		gpu.spot = spot_of(r, o);
		braid_machine_add_gpu(r->m, &gpu);
	}
}

static bool is_os(hwloc_obj_t o, hwloc_obj_osdev_type_t type)
{
	return o->type == HWLOC_OBJ_OS_DEVICE && o->attr->osdev.type == type && o->name;
}

/* The state of an RDMA port, "4" if it is active; NULL: no such port. */
static const char *port_state(hwloc_obj_t rdma, int port)
{
	char key[16];

	snprintf(key, sizeof(key), "Port%dState", port);
	return hwloc_obj_get_info_by_name(rdma, key);
}

/* Whether `net` is the interface of a port of `rdma`: on the same function, which may have two. */
static bool is_of_port(hwloc_obj_t net, hwloc_obj_t rdma, int port)
{
	const char *number = hwloc_obj_get_info_by_name(net, "Port");

	return pci_above(net) && pci_above(net) == pci_above(rdma) &&
	       (!port_state(rdma, 2) || (number && atoi(number) == port));
}

static void add_nic(struct reader *r, hwloc_obj_t o, struct braid_nic *nic)
{
	hwloc_obj_t pci = pci_above(o);

	braid_machine_stand(r->m, nic, pci ? spot_of(r, pci) : -1);
	braid_machine_add_nic(r->m, nic);
}

static void read_ports(struct reader *r, hwloc_obj_t rdma)
{
	for (int port = 1; port <= BRAID_PORTS_MAX; port++) {
		const char *state = port_state(rdma, port);
		struct braid_nic nic = { .rdma = true, .port = port };
		hwloc_obj_t net = NULL;

		if (!state)
			continue;
		nic.carrier = atoi(state) == 4 ? BRAID_CARRIER_UP : BRAID_CARRIER_DOWN;
		snprintf(nic.name, sizeof(nic.name), "%.63s:%d", rdma->name, port);
		while ((net = hwloc_get_next_osdev(r->topology, net))) {
			if (!is_os(net, HWLOC_OBJ_OSDEV_NETWORK) || !is_of_port(net, rdma, port))
				continue;
			snprintf(nic.netdev, sizeof(nic.netdev), "%.15s", net->name);
			break;
		}
		add_nic(r, rdma, &nic);
	}
}

/* Is `net` the interface of an RDMA port already? */
static bool is_taken(const struct braid_machine *m, const char *net)
{
	for (unsigned i = 0; i < m->n_nics; i++) {
		if (strcmp(m->nics[i].netdev, net) == 0)
			return true;
	}
	return false;
}

static void read_nics(struct reader *r)
{
	hwloc_obj_t o = NULL;

	while ((o = hwloc_get_next_osdev(r->topology, o))) {
		if (is_os(o, HWLOC_OBJ_OSDEV_OPENFABRICS))
			read_ports(r, o);
	}
	while ((o = hwloc_get_next_osdev(r->topology, o))) {
		struct braid_nic nic = { .port = 1 };

		if (!is_os(o, HWLOC_OBJ_OSDEV_NETWORK) || is_taken(r->m, o->name))
			continue;
		snprintf(nic.name, sizeof(nic.name), "%.15s", o->name);
		snprintf(nic.netdev, sizeof(nic.netdev), "%.15s", o->name);
		add_nic(r, o, &nic);
	}
}

/* -- NVLink ------------------------------------------------------------------------------- */

/* The GPU of an object; -1: it has none, such as a switch. */
static int gpu_of(const struct reader *r, hwloc_obj_t o)
{
	const struct hwloc_pcidev_attr_s *pci;

	o = o && o->type != HWLOC_OBJ_PCI_DEVICE ? pci_above(o) : o;
	if (!o)
		return -1;
	pci = &o->attr->pcidev;
	for (unsigned i = 0; i < r->m->n_gpus; i++) {
		const struct braid_pci_addr *a = &r->m->gpus[i].addr;

		if (a->domain == pci->domain && a->bus == pci->bus && a->dev == pci->dev &&
		    a->fn == pci->func)
			return (int)i;
	}
	return -1;
}

/* Have objects i and k a link, or each a link to the same switch: an object that is no GPU? */
static bool has_link(const struct reader *r, const struct hwloc_distances_s *d, unsigned i,
		     unsigned k)
{
	unsigned n = d->nbobjs;

	if (d->values[i * n + k])
		return true;
	for (unsigned s = 0; s < n; s++) {
		if (gpu_of(r, d->objs[s]) < 0 && d->values[i * n + s] && d->values[s * n + k])
			return true;
	}
	return false;
}

/* hwloc reports bandwidths, not the number of links: note only which GPUs are linked. */
static void read_nvlink(struct reader *r)
{
	struct hwloc_distances_s *d;
	unsigned n = 1;

	if (hwloc_distances_get_by_name(r->topology, "NVLinkBandwidth", &n, &d, 0) < 0 || !n)
		return;
	for (unsigned i = 0; i < d->nbobjs; i++) {
		for (unsigned k = 0; k < d->nbobjs; k++) {
			int a = gpu_of(r, d->objs[i]), b = gpu_of(r, d->objs[k]);

			if (a >= 0 && b >= 0 && a != b && has_link(r, d, i, k))
				braid_machine_nvlink(r->m, (unsigned)a, (unsigned)b);
		}
	}
	hwloc_distances_release(r->topology, d);
}

/* -- the machine -------------------------------------------------------------------------- */

static void read_numas(struct reader *r)
{
	hwloc_obj_t o = NULL;

	while ((o = hwloc_get_next_obj_by_type(r->topology, HWLOC_OBJ_NUMANODE, o))) {
		struct braid_numa numa = { .id = (int)o->os_index };

		if (numa.id < 0 || numa.id > BRAID_NUMA_MOST)
			continue;
		read_cpus(o->cpuset, &numa.cpus);
		braid_machine_add_numa(r->m, &numa);
	}
}

static int info_number(hwloc_obj_t o, const char *key)
{
	const char *text = hwloc_obj_get_info_by_name(o, key);

	return text ? atoi(text) : -1;
}

/* hwloc's XML does not record whether the machine is virtual. */
static void read_cpu(struct reader *r)
{
	struct braid_cpu_kind *cpu = &r->m->cpu;
	hwloc_obj_t o = hwloc_get_next_obj_by_type(r->topology, HWLOC_OBJ_PACKAGE, NULL);
	const char *vendor = o ? hwloc_obj_get_info_by_name(o, "CPUVendor") : NULL;
	const char *arch = hwloc_obj_get_info_by_name(hwloc_get_root_obj(r->topology),
						      "Architecture");

	cpu->arch = arch && strcmp(arch, "aarch64") == 0 ? "arm64" :
		    arch && strncmp(arch, "ppc64", 5) == 0 ? "ppc64" : "x86_64";
	snprintf(cpu->vendor, sizeof(cpu->vendor), "%s", vendor ? vendor : "");
	cpu->family = o ? info_number(o, "CPUFamilyNumber") : -1;
	cpu->model = o ? info_number(o, "CPUModelNumber") : -1;
}

/* Load the topology of a file, or of this machine, without waking GPUs up. */
static int load(const char *file, hwloc_topology_t *ret)
{
	static const char *const unwanted[] = { "cuda", "opencl", "gl" };
	hwloc_topology_t t;
	int err = 0;

	if (hwloc_topology_init(&t) < 0)
		return -ENOMEM;
	for (unsigned i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++)
		hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
					      unwanted[i]);
	hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_ALL);
	hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
	errno = 0;
	if ((file && hwloc_topology_set_xml(t, file) < 0) || hwloc_topology_load(t) < 0)
		err = errno ? -errno : -EINVAL;
	if (err)
		hwloc_topology_destroy(t);
	else
		*ret = t;
	return err;
}

/* hwloc trusts a well-formed file, and may crash on it: let a child read it first. */
static int try(const char *file)
{
	hwloc_topology_t t;
	int status;
	pid_t pid;

	if (access(file, R_OK))
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid)
		_exit(!freopen("/dev/null", "w", stderr) || load(file, &t) ? 1 : 0);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EINVAL;
}

int topo_hwloc(const char *file, struct braid_machine **ret)
{
	struct reader r = { .m = NULL };
	int err = file ? try(file) : 0;

	if (!err)
		err = load(file, &r.topology);
	if (err)
		return err;
	err = braid_machine_new(&r.m);
	if (!err) {
		if (file)
			read_cpu(&r);
		else
			braid_machine_cpu(r.m, "");
		read_numas(&r);
		read_gpus(&r);
		read_nics(&r);
		err = braid_machine_settle(r.m);
	}
	if (!err)
		read_nvlink(&r);
	hwloc_topology_destroy(r.topology);
	if (err)
		braid_machine_free(r.m);
	else
		*ret = r.m;
	return err;
}
