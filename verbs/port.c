/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * port.c - finding ports at init, and the device that each belongs to.
 *
 * A port is used if it is wanted and active, and if the device has what at least one lane needs.
 * The reasons why others are not used are gathered into one line.
 */
#include "verbs/port.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "topo/netdev.h"
#include "topo/pci.h"
#include "verbs/cm.h"
#include "verbs/events.h"
#include "verbs/hca.h"
#include "verbs/mr.h"
#include "verbs/qp.h"

enum { VENDOR_SIW = 0x626d74 };		/* the vendor_id of soft-iWARP: "bmt", no IEEE number */

/* --- which device a port belongs to -------------------------------------------------------- */

static struct braid_dev *dev_of_gids(const struct braid_ibport *p, struct braid_dev *table,
				     unsigned count)
{
	struct braid_gid gids[BRAID_GIDS_MAX];
	unsigned n = braid_ibport_gids(p, gids, BRAID_GIDS_MAX);

	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < count; k++) {
			const struct braid_netdev *net = &table[k].net;
			char addr[64], text[64];

			braid_gid_text(gids[i].raw, text, sizeof(text));
			snprintf(addr, sizeof(addr), "%s", table[k].addr);
			if (!table[k].port[BRAID_TRANSPORT_VERBS] && !gids[i].foreign &&
			    (gids[i].ifindex ? gids[i].ifindex == net->ifindex :
					       !strcmp(addr, text)))
				return &table[k];
		}
	}
	return NULL;
}

/* Adds a device with the first interface's address, but with a PCI card and a name of its own. */
static struct braid_dev *dev_add(const struct braid_ibport *p, struct braid_dev *table,
				 unsigned *count, unsigned max)
{
	struct braid_dev *dev = &table[*count];
	char device[PATH_MAX];

	if (*count == max || !*count)
		return NULL;
	*dev = table[0];
	memset(dev->port, 0, sizeof(dev->port));
	dev->port[BRAID_TRANSPORT_TCP] = dev;
	dev->index = (*count)++;
	dev->member[0] = dev;
	snprintf(device, sizeof(device), "%s/device", p->ctx->device->ibdev_path);
	if (braid_pci_find("", device, dev->net.pci_path, sizeof(dev->net.pci_path)))
		dev->net.pci_path[0] = '\0';
	dev->net.guid = 0;
	for (unsigned i = 0; i < 8; i++)
		dev->net.guid = dev->net.guid << 8 | (uint8_t)p->name[i % strlen(p->name)];
	dev->net.port = p->num;
	return dev;
}

static void give_port(struct braid_ibport *p, struct braid_dev *dev, int16_t rail, int16_t plane)
{
	dev->rail = rail;
	dev->plane = plane;
	dev->port[BRAID_TRANSPORT_VERBS] = p;
	snprintf(dev->net.name, sizeof(dev->net.name), "%.*s", (int)sizeof(dev->net.name) - 1,
		 p->name);
	if (p->speed_mbps) {
		dev->net.speed_mbps = p->speed_mbps;
		dev->net.speed_known = true;
	}
}

/* --- finding ports ------------------------------------------------------------------------- */

struct notes {				/* why ports are not used, in one line */
	char *text;
	size_t len;
	char device[IBV_SYSFS_NAME_MAX], why[256];	/* ports first..last have this reason */
	unsigned first, last;		/* 0: none */
};

static void add_note(struct notes *s, const char *name, const char *text)
{
	size_t at = strlen(s->text);

	if (at + 1 < s->len)
		snprintf(s->text + at, s->len - at, "%s%s %s", at ? "; " : "", name, text);
}

static void note_row(struct notes *s)
{
	char name[BRAID_PORT_NAME + 8];

	if (!s->first)
		return;
	snprintf(name, sizeof(name), s->last > s->first ? "%s:%u-%u" : "%s:%u", s->device, s->first,
		 s->last);
	add_note(s, name, s->why);
	s->first = 0;
}

static void note_port(struct notes *s, const char *device, unsigned num, const char *text)
{
	bool row = s->first && s->last + 1 == num && !strcmp(s->device, device) &&
		   !strcmp(s->why, text);

	if (!row)
		note_row(s);
	if (!row)
		s->first = num;
	s->last = num;
	snprintf(s->device, sizeof(s->device), "%s", device);
	snprintf(s->why, sizeof(s->why), "%s", text);
}

/* NULL if the device's limits allow at least one lane, else why not.  So no lane fails later. */
static const char *port_room(struct braid_ibport *p, const struct ibv_device_attr *dev)
{
	static char why[160];
	struct ibv_mr *mr;
	char *lane;

	p->sq_max = BRAID_WR_TX;
	if ((unsigned)dev->max_qp_wr < p->sq_max)
		p->sq_max = (unsigned)dev->max_qp_wr;
	if ((unsigned)dev->max_cqe < p->sq_max + BRAID_SLOTS_RX)
		p->sq_max = (unsigned)dev->max_cqe - BRAID_SLOTS_RX;
	if (dev->max_cqe < BRAID_SLOTS_RX || p->sq_max < BRAID_WR_TX_LEAST) {
		snprintf(why, sizeof(why), "takes %d work requests a queue pair and %d completions "
			 "a queue; a lane needs %d and %d", dev->max_qp_wr, dev->max_cqe,
			 BRAID_SLOTS_RX, BRAID_SLOTS_RX + BRAID_WR_TX_LEAST);
		return why;
	}
	if (p->max_msg < BRAID_SLOT) {
		snprintf(why, sizeof(why), "takes messages of at most %u bytes; a lane needs %d",
			 p->max_msg, BRAID_SLOT);
		return why;
	}
	lane = calloc(BRAID_SLOTS_RX, BRAID_SLOT);
	mr = lane ? braid_ibport_own(p, p->pd, lane, BRAID_SLOTS_RX * BRAID_SLOT,
				     IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (mr)
		braid_ibv.dereg_mr(mr);
	free(lane);
	return mr ? NULL : "may not pin the memory of a single lane";
}

/* Sets and logs how many registrations the user's memory may take; a quarter is left for lanes. */
static void set_mr_max(struct braid_dev *dev, const struct braid_ibport *p, int max_mr)
{
	struct rlimit lim = { RLIM_INFINITY, RLIM_INFINITY };
	char memlock[64] = "no memlock limit";

	dev->mr_max = (unsigned)(max_mr - max_mr / 4);
	getrlimit(RLIMIT_MEMLOCK, &lim);
	if (lim.rlim_cur != RLIM_INFINITY)
		snprintf(memlock, sizeof(memlock), "memlock limit %llu KiB",
			 (unsigned long long)lim.rlim_cur / 1024);
	braid_info("verbs: %s has %d registrations for all processes; of the user's memory there "
		   "will be at most %lld; %s%s%s", p->name, max_mr, braid_param.mr_max ?
		   (long long)braid_param.mr_max : (long long)dev->mr_max, memlock,
		   braid_srq_used(p) ? "; receives are shared" : "", braid_param.rdma_strict ?
		   "; BRAID_RDMA_STRICT: no peer gets a key of the user's memory, and each queue "
		   "pair has a protection domain of its own" : "");
}

/* NULL if the port has the partition key that the user asks for, else why not. */
static const char *pkey_missing(const struct braid_ibport *p, unsigned entries)
{
	static char why[160];
	int index = (int)braid_param.ib_pkey;
	__be16 key = 0;

	if (p->fabric == BRAID_FABRIC_IWARP || !index)
		return NULL;
	if ((unsigned)index < entries && !braid_ibv.query_pkey(p->ctx, p->num, index, &key) && key)
		return NULL;
	snprintf(why, sizeof(why), "is not used: partition key index %d is not in the port's "
		 "table, or empty (%u entries); BRAID_IB_PKEY or NCCL_IB_PKEY asks for it", index,
		 entries);
	braid_warn("port %s %s [no-pkey]", p->name, why);
	return why;
}

static const char *port_fill(struct braid_ibport *p)
{
	struct ibv_port_attr attr = { 0 };

	if (braid_ibport_read(p, &attr))
		return "can't be queried";
	if (attr.state != IBV_PORT_ACTIVE)
		return "is not active";
	p->fabric = p->ctx->device->transport_type == IBV_TRANSPORT_IWARP ? BRAID_FABRIC_IWARP :
		    attr.link_layer == IBV_LINK_LAYER_ETHERNET ? BRAID_FABRIC_ROCE :
								 BRAID_FABRIC_IB;
	if (p->fabric == BRAID_FABRIC_IB && !attr.lid)
		return "has no LID: is a subnet manager running?";
	p->max_msg = attr.max_msg_sz ? attr.max_msg_sz : UINT32_MAX;
	p->pkey_index = (uint16_t)braid_param.ib_pkey;
	return pkey_missing(p, attr.pkey_tbl_len);
}

static void device_close(struct ibv_context *ctx)
{
	braid_os->note(ctx->cmd_fd, false);
	braid_os->note(ctx->async_fd, false);
	braid_ibv.close_device(ctx);
}

/* A port that may be used, or NULL with why not. */
static struct braid_ibport *port_new(struct ibv_context *ctx, uint8_t num,
				   const char **why)
{
	struct braid_ibport *p = calloc(1, sizeof(*p));

	*why = "no memory";
	if (!p)
		return NULL;
	p->ctx = ctx;
	p->num = num;
	pthread_mutex_init(&p->loop_lock, NULL);
	pthread_mutex_init(&p->srq_lock, NULL);
	braid_bounces_init(&p->bounces);
	snprintf(p->name, sizeof(p->name), "%s:%u", ctx->device->name, num);
	*why = port_fill(p);
	if (*why) {
		free(p);
		return NULL;
	}
	return p;
}

static struct braid_dev *place(struct braid_ibport *p, struct braid_dev *table, unsigned *count,
			       unsigned max, const char **why)
{
	struct braid_dev *dev;

	switch (p->fabric) {
	case BRAID_FABRIC_IWARP:
		*why = "has no interface among those that are used";
		return braid_cm_find(p, table, *count, why);
	case BRAID_FABRIC_ROCE:
		*why = "has no GID of an interface that is used";
		return dev_of_gids(p, table, *count);
	default:
		*why = "is one too many";
		dev = dev_of_gids(p, table, *count);
		return dev ? dev : dev_add(p, table, count, max);
	}
}

/* The port, which now has its device; or NULL with why not. */
static struct braid_ibport *port_open(struct ibv_context *ctx, uint8_t num,
				    const struct ibv_device_attr *attr, struct braid_dev *table,
				    unsigned *count, unsigned max, struct braid_dev **ret_dev,
				    const char **why)
{
	struct braid_ibport *p = port_new(ctx, num, why);
	unsigned before = *count;

	*ret_dev = p ? place(p, table, count, max, why) : NULL;
	if (*ret_dev) {
		p->siw = attr->vendor_id == VENDOR_SIW;
		p->pd = braid_ibv.alloc_pd(p->ctx);
		*why = p->pd ? port_room(p, attr) : "can't have a protection domain";
	}
	if (*ret_dev && !*why)
		return p;
	*count = before;
	if (p && p->pd)
		braid_ibv.dealloc_pd(p->pd);
	if (p)
		braid_cm_forget(p);
	free(p);
	return NULL;
}

/* Reads that a queue pair has at once.  None if no peer gets a key. */
static uint8_t most_reads(int most)
{
	if (most <= 0 || braid_param.rdma_strict)
		return 0;
	return most < BRAID_READS_MAX ? (uint8_t)most : BRAID_READS_MAX;
}

static void port_use(struct braid_ibport *p, struct braid_dev *dev,
		     const struct ibv_device_attr *attr, struct notes *notes)
{
	char why[160];

	p->srq_max = braid_ibv.create_srq && braid_ibv.destroy_srq && attr->max_srq > 0 ?
			     (unsigned)attr->max_srq_wr : 0;
	p->reads_in = most_reads(attr->max_qp_rd_atom);
	p->reads_out = most_reads(attr->max_qp_init_rd_atom);
	set_mr_max(dev, p, attr->max_mr);
	p->imm = p->fabric != BRAID_FABRIC_IWARP &&
		 braid_qp_proves_imm(p, dev, why, sizeof(why));
	if (!p->imm && p->fabric != BRAID_FABRIC_IWARP)
		note_port(notes, p->ctx->device->name, p->num, why);
	braid_ibport_watch(p);
}

/* EFA and usNIC have no reliable connections (RC): their transport is one of its own. */
static bool has_rc(const struct ibv_device *dev)
{
	return dev->transport_type == IBV_TRANSPORT_IB ||
	       dev->transport_type == IBV_TRANSPORT_IWARP;
}

static unsigned ports_of(struct ibv_context *ctx, struct braid_dev *table, unsigned *count,
			 unsigned max, struct notes *notes)
{
	char variable[BRAID_PARAM_VARIABLE], left_out[BRAID_PARAM_VARIABLE + 32];
	const char *name = ctx->device->name;
	struct ibv_device_attr attr = { 0 };
	unsigned used = 0;

	if (braid_ibv.query_device(ctx, &attr)) {
		add_note(notes, name, "can't be queried");
		return 0;
	}
	snprintf(left_out, sizeof(left_out), "is left out by %s",
		 braid_param_variable("ib_hca", variable));
	for (unsigned num = 1; num <= attr.phys_port_cnt; num++) {
		const char *reason = left_out;
		struct braid_ibport *p = NULL;
		struct braid_dev *dev;
		int16_t rail, plane;

		if (braid_hca_selects(ctx, num, &rail, &plane))
			p = port_open(ctx, (uint8_t)num, &attr, table, count, max, &dev, &reason);
		if (!p) {
			note_port(notes, name, num, reason);
			continue;
		}
		give_port(p, dev, rail, plane);
		port_use(p, dev, &attr, notes);
		used += p->ctx == ctx;
	}
	note_row(notes);
	return used;
}

int braid_ibport_probe(struct braid_dev *table, unsigned *count, unsigned max, char *why,
		       size_t len)
{
	struct notes notes = { .text = why, .len = len };
	struct ibv_device **list;
	int n = 0;

	if (braid_param.ib_disable) {
		char name[BRAID_PARAM_VARIABLE];

		snprintf(why, len, "%s is set", braid_param_variable("ib_disable", name));
		return 0;
	}
	if (braid_ibv_load(why, len))
		return 0;
	list = braid_ibv.get_device_list(&n);
	if (!list || !n)
		add_note(&notes, "libibverbs", "knows no RDMA device");
	braid_hca_begin();
	for (int i = 0; list && i < n; i++) {
		struct ibv_context *ctx;

		if (!has_rc(list[i])) {
			add_note(&notes, list[i]->name, "has no RC queue pairs, which verbs "
				 "needs: its transport is neither InfiniBand, RoCE nor iWARP (EFA "
				 "is such a one)");
			continue;
		}
		ctx = braid_ibv.open_device(list[i]);
		if (!ctx) {
			int err = errno;

			add_note(&notes, list[i]->name, strerror(err));
			braid_hca_closed(list[i], err);
			continue;
		}
		braid_ibport_adopt(ctx);
		if (!ports_of(ctx, table, count, max, &notes))
			device_close(ctx);
	}
	braid_hca_end();
	if (list)
		braid_ibv.free_device_list(list);
	if (braid_ibport_any())
		braid_info("fork: pinned memory survives it by %s", braid_ibv_fork());
	return 0;
}
