/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.c - see hca.h. */
#include "verbs/hca.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/param.h"
#include "topo/filter.h"
#include "verbs/gid.h"
#include "verbs/lib.h"

enum { LIST = 256 };

static struct {
	struct braid_netdev_filter filter;
	bool hit[BRAID_FILTER_NAMES];
	bool left;			/* at least one active port is wanted */
	unsigned all, active;		/* ports seen; ports that are active, but not wanted */
	char names[LIST], out[LIST];	/* their names */
} seen;

static void list_add(char *list, unsigned *n, const char *name)
{
	size_t at = strlen(list);

	++*n;
	if (at + strlen(name) + sizeof(", ...") < LIST)
		snprintf(list + at, LIST - at, "%s%s", at ? ", " : "", name);
	else if (at + sizeof(", ...") <= LIST && strcmp(list + at - 3, "...") != 0)
		snprintf(list + at, LIST - at, ", ...");
}

void braid_hca_begin(void)
{
	char name[BRAID_PARAM_VARIABLE];
	struct braid_gid_pref pref;

	if (braid_gid_pref_parse(AF_UNSPEC, braid_param.ib_addr_range, &pref))
		braid_warn("environment variable %s is '%.60s', which is ignored: it takes an "
			   "address and the bits of its subnet, such as 10.1.0.0/16 "
			   "[parameter-ignored]",
			   braid_param_variable("ib_addr_range", name), braid_param.ib_addr_range);
	memset(&seen, 0, sizeof(seen));
	braid_netdev_filter_parse(braid_param.ib_hca, &seen.filter, NULL, 0);
}

bool braid_hca_selects(struct ibv_context *ctx, unsigned num, int16_t *rail, int16_t *plane)
{
	const char *dev = ctx->device->name;
	bool takes = braid_netdev_port_match(&seen.filter, dev, num, rail, plane);
	struct ibv_port_attr attr = { .state = IBV_PORT_NOP };
	char name[96];

	snprintf(name, sizeof(name), "%s:%u", dev, num);
	list_add(seen.names, &seen.all, name);
	for (unsigned i = 0; i < seen.filter.n; i++)
		seen.hit[i] |= braid_filter_item_match(&seen.filter.item[i], dev, (int)num);
	if (!seen.filter.n || braid_ibv.query_port(ctx, (uint8_t)num, &attr) ||
	    attr.state != IBV_PORT_ACTIVE)
		return takes;
	if (takes)
		seen.left = true;
	else
		list_add(seen.out, &seen.active, name);
	return takes;
}

/* Is any port of that device wanted? */
static bool is_wanted(const char *dev)
{
	if (!seen.filter.n)
		return true;
	for (unsigned i = 0; i < seen.filter.n; i++) {
		if (braid_filter_item_match(&seen.filter.item[i], dev, -1))
			return !seen.filter.exclude || seen.filter.item[i].port > 0;
	}
	return seen.filter.exclude;
}

void braid_hca_closed(const struct ibv_device *dev, int err)
{
	for (unsigned i = 0; i < seen.filter.n; i++)
		seen.hit[i] |= braid_filter_item_match(&seen.filter.item[i], dev->name, -1);
	if ((err != EPERM && err != EACCES) || !is_wanted(dev->name))
		return;
	braid_warn("%s can't be used, since this process may not open it: %s. Give it "
		   "/dev/infiniband/%s: %s [device-not-opened]", dev->name, strerror(err),
		   dev->dev_name, err == EPERM ?
		   "a container must be started with that device, which its device control group "
		   "then allows" : "the file's owner and mode decide");
}

void braid_hca_end(void)
{
	char name[BRAID_PARAM_VARIABLE], missed[LIST];
	bool none = !seen.left && seen.active;

	braid_param_variable("ib_hca", name);
	if (!seen.all || !seen.filter.n)
		return;
	/* An excluded port need not exist: one setting may serve a cluster of different hosts. */
	if (!braid_filter_missed(&seen.filter, seen.hit, missed, sizeof(missed)))
		missed[0] = '\0';
	else if (seen.filter.exclude)
		braid_info("%s=%.200s: %s excludes no RDMA port; there are %s", name,
			   braid_param.ib_hca, missed, seen.names);
	else
		braid_warn("%s=%.200s: %s matches no RDMA port; there are %s%s [filter-unmatched]",
			   name, braid_param.ib_hca, missed, seen.names, none ?
			   ". No port is left, so RDMA is not used" : "");
	if (none && (!missed[0] || seen.filter.exclude))
		braid_warn("%s=%.200s leaves no active RDMA port, so RDMA is not used; it leaves "
			   "out %s. If that is meant, NCCL_IB_DISABLE=1 says so "
			   "[filter-leaves-none]",
			   name, braid_param.ib_hca, seen.out);
}
