/* SPDX-License-Identifier: BSD-3-Clause */
/* attr.c - a port's attributes (LID, MTU, speed), read at init and before each lane. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "core/base/log.h"
#include "verbs/port.h"

/*
 * The offset of active_speed_ex in newer headers; in older ones the struct ends before it.  Speeds
 * above 100 Gbit/s a lane (XDR) do not fit into active_speed.
 */
enum { SPEED_EX_AT = 52 };

union attr {
	struct ibv_port_attr attr;
	uint8_t bytes[SPEED_EX_AT + sizeof(uint32_t)];
};

static int lanes_of(uint8_t width)
{
	return width == 1 ? 1 : width == 2 ? 4 : width == 4 ? 8 : width == 8 ? 12 :
	       width == 16 ? 2 : 1;
}

/* Mbit/s of one lane, by the code in IBTA's PortInfo.LinkSpeedActive. */
static int lane_mbps(unsigned speed)
{
	static const struct {
		unsigned code;
		int mbps;
	} rows[] = {
		{ 1, 2500 }, { 2, 5000 }, { 4, 10000 }, { 8, 10000 }, { 16, 14000 }, { 32, 25000 },
		{ 64, 50000 }, { 128, 100000 }, { 256, 200000 },
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].code == speed)
			return rows[i].mbps;
	}
	return 0;
}

/* ibv_query_port() fills only the fields of old versions; the context's query_port() fills all. */
static int query(const struct braid_ibport *p, union attr *ret)
{
	struct verbs_context *v = verbs_get_ctx_op(p->ctx, query_port);

	memset(ret, 0, sizeof(*ret));
	return v ? v->query_port(p->ctx, p->num, &ret->attr, sizeof(*ret)) :
		   braid_ibv.query_port(p->ctx, p->num, &ret->attr);
}

static void store_attr(struct braid_ibport *p, const struct ibv_port_attr *attr)
{
	atomic_store(&p->lid, attr->lid);
	atomic_store(&p->mtu, (unsigned)attr->active_mtu);
	atomic_store(&p->grh, attr->flags & IBV_QPF_GRH_REQUIRED);
}

/* The port's rate; for a bond the sum of both ports, if the driver reports that. */
static int speed_mbps(const struct braid_ibport *p, const union attr *a)
{
	uint64_t hundreds = 0;
	uint32_t speed;

	if (braid_ibv.query_port_speed &&
	    !braid_ibv.query_port_speed(p->ctx, p->num, &hundreds) && hundreds &&
	    hundreds <= INT_MAX / 100)
		return (int)hundreds * 100;
	memcpy(&speed, a->bytes + SPEED_EX_AT, sizeof(speed));
	if (!speed)
		speed = a->attr.active_speed;
	return lane_mbps(speed) * lanes_of(a->attr.active_width);
}

int braid_ibport_read(struct braid_ibport *p, struct ibv_port_attr *ret)
{
	union attr a;

	if (query(p, &a))
		return -EIO;
	*ret = a.attr;
	store_attr(p, ret);
	if (a.attr.state == IBV_PORT_ACTIVE)
		p->speed_mbps = speed_mbps(p, &a);
	return 0;
}

void braid_ibport_refresh(struct braid_ibport *p)
{
	unsigned lid = atomic_load(&p->lid), mtu = atomic_load(&p->mtu);
	union attr a;

	if (query(p, &a) || a.attr.state != IBV_PORT_ACTIVE)
		return;
	store_attr(p, &a.attr);
	if (lid != a.attr.lid || mtu != a.attr.active_mtu)
		braid_info("port %s: LID %u, MTU %u from now on", p->name, a.attr.lid,
			   128u << a.attr.active_mtu);
}
