/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.c - opening and querying NICs, protection domains, address handles; and fork.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct fctx *ctxs;
static pthread_mutex_t ctxs_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- opened ------------------------------------------------------------------------------------- */

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len);

/* A forked child has none of our threads, and its slots in the fabric stay the parent's. */
static void in_child(void)
{
	for (struct fctx *c = ctxs; c; c = c->next)
		c->dead = true;
	pthread_mutex_init(&ctxs_lock, NULL);
	devs_forked();
	mr_forked();
	calls_forked();
}

static void register_fork(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

bool ctx_is_dead(struct ibv_context *ctx)
{
	struct fctx *c = to_ctx(ctx);

	if (!c->dead && !atomic_load(&fab_get()->dev[c->dev->index].fatal))
		return false;
	errno = EIO;
	return true;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct fdev *d = TO(fdev, device);
	struct fctx *c;
	int nic;

	if (call_fails(CALL_SETUP, __func__))
		return NULL;
	if (atomic_load(&fab_get()->dev[d->index].fatal)) {
		errno = EIO;
		return NULL;
	}
	pthread_once(&once, register_fork);
	nic = fab_nic_take(d->index);
	c = calloc(1, sizeof(*c));
	if (nic < 0 || !c) {
		free(c);
		errno = ENOMEM;
		return NULL;
	}
	c->dev = d;
	c->nic = (unsigned)nic;
	c->ev_last = &c->ev_first;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->gone, NULL);
	pthread_mutex_init(&c->ev_lock, NULL);
	pthread_cond_init(&c->ev_acked, NULL);
	for (uint32_t p = 0; p < d->nports; p++)
		c->events_seen[p] = atomic_load(&fab_port(PORT_ID(d->index, p + 1))->events);
	c->vctx.sz = sizeof(struct verbs_context);
	c->vctx.query_port = query_port;
	c->vctx.context.device = device;
	c->vctx.context.ops.poll_cq = poll_cq;
	c->vctx.context.ops.req_notify_cq = req_notify_cq;
	c->vctx.context.ops.post_send = post_send;
	c->vctx.context.ops.post_recv = post_recv;
	c->vctx.context.ops.post_srq_recv = post_srq_recv;
	c->vctx.context.cmd_fd = -1;
	c->vctx.context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	c->vctx.context.num_comp_vectors = (int)d->vectors;
	pthread_mutex_init(&c->vctx.context.mutex, NULL);
	c->vctx.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	if (c->vctx.context.async_fd < 0 || nic_start(c)) {
		int err = errno;

		if (c->vctx.context.async_fd >= 0)
			close(c->vctx.context.async_fd);
		fab_nic_give(c->nic);
		free(c);
		errno = err;
		return NULL;
	}
	pthread_mutex_lock(&ctxs_lock);
	c->next = ctxs;
	ctxs = c;
	pthread_mutex_unlock(&ctxs_lock);
	atomic_fetch_add(&live_ctx, 1);
	return &c->vctx.context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct fctx *c = to_ctx(context);
	bool busy;

	call_takes(context, __func__);
	if (!c->dead) {
		pthread_mutex_lock(&c->lock);
		busy = c->pds || c->cqs || c->channels;
		pthread_mutex_unlock(&c->lock);
		if (busy)
			return EBUSY;
		nic_stop(c);
	}
	pthread_mutex_lock(&ctxs_lock);
	for (struct fctx **p = &ctxs; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			break;
		}
	pthread_mutex_unlock(&ctxs_lock);
	close(context->async_fd);
	while (c->ev_first) {
		struct fevent *e = c->ev_first;

		c->ev_first = e->next;
		free(e);
	}
	if (!c->dead)
		fab_nic_give(c->nic);
	free(c);
	atomic_fetch_sub(&live_ctx, 1);
	return 0;
}

/* --- asking ------------------------------------------------------------------------------------- */

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct fdev *d = to_ctx(context)->dev;

	call_takes(context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return errno;
	*attr = (struct ibv_device_attr){
		.fw_ver = "0.0.1", .node_guid = htobe64(d->guid), .sys_image_guid = htobe64(d->guid),
		.max_mr_size = UINT64_C(1) << 40, .page_size_cap = 4096,
		.vendor_id = d->has_sigpipe ? 0x626d74 : 0xfa4e,
		.vendor_part_id = 1 + (uint32_t)d->kind, .hw_ver = 1,
		.max_qp = (int)d->max.max_qp, .max_qp_wr = (int)d->max.max_wr,
		.device_cap_flags = d->kind == KIND_IWARP ? 0 : IBV_DEVICE_RC_RNR_NAK_GEN,
		.max_sge = (int)d->max.max_sge,
		.max_sge_rd = d->kind == KIND_IWARP ? 1 : (int)d->max.max_sge,
		.max_cq = (int)d->max.max_cq, .max_cqe = (int)d->max.max_cqe, .max_mr = (int)d->max.max_mr,
		.max_pd = 1024, .max_qp_rd_atom = (int)d->max.max_rd,
		.max_res_rd_atom = (int)(d->max.max_rd * d->max.max_qp),
		.max_qp_init_rd_atom = (int)d->max.max_rd, .atomic_cap = IBV_ATOMIC_NONE, .max_ah = 1024,
		.max_srq = d->has_srq ? (int)d->max.max_srq : 0,
		.max_srq_wr = d->has_srq ? (int)d->max.max_wr : 0,
		.max_srq_sge = d->has_srq ? (int)d->max.max_sge : 0,
		.max_pkeys = (uint16_t)d->npkeys, .local_ca_ack_delay = 15, .phys_port_cnt = (uint8_t)d->nports,
	};
	return 0;
}

enum { SPEED_AT = 52 };

static enum ibv_mtu mtu_enum(uint32_t mtu)
{
	return mtu >= 4096 ? IBV_MTU_4096 : mtu >= 2048 ? IBV_MTU_2048 : mtu >= 1024 ? IBV_MTU_1024 :
	       mtu >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	/* width and speed codes: the first row that is fast enough is used */
	static const struct {
		uint32_t gbps;
		uint8_t width, speed;
		uint32_t more;		/* active_speed_ex: what does not fit into 8 bits */
	} rates[] = {
		{ 10, 2, 1, 0 }, { 25, 1, 32, 0 }, { 40, 2, 4, 0 }, { 56, 2, 16, 0 }, { 100, 2, 32, 0 },
		{ 200, 2, 64, 0 }, { 400, 2, 128, 128 }, { UINT32_MAX, 2, 128, 256 },
	};
	struct fdev *d = to_ctx(context)->dev;
	struct ibv_port_attr a = { 0 };
	struct fab_port *p;
	unsigned i = 0;

	call_takes(context, "ibv_query_port");
	if (call_fails(CALL_SETUP, "ibv_query_port") || ctx_is_dead(context))
		return errno;
	if (port < 1 || port > d->nports)
		return EINVAL;
	p = fab_port(PORT_ID(d->index, port));
	while (d->speed > rates[i].gbps)
		i++;
	a.state = atomic_load(&p->up) ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a.max_mtu = IBV_MTU_4096;
	a.active_mtu = mtu_enum(atomic_load(&p->mtu));
	a.gid_tbl_len = d->kind == KIND_IWARP ? 1 : GIDS_MAX;
	a.max_msg_sz = d->max.max_msg;
	a.flags = d->has_grh ? IBV_QPF_GRH_REQUIRED : 0;
	a.pkey_tbl_len = (uint16_t)d->npkeys;
	a.lid = (uint16_t)atomic_load(&p->lid);
	a.sm_lid = d->kind == KIND_IB;
	a.max_vl_num = 1;
	a.subnet_timeout = 18;
	a.active_width = rates[i].width;
	a.active_speed = rates[i].speed;
	a.phys_state = atomic_load(&p->up) ? 5 : 3;
	a.link_layer = d->kind == KIND_IB ? IBV_LINK_LAYER_INFINIBAND :
		       d->kind == KIND_EFA ? IBV_LINK_LAYER_UNSPECIFIED : IBV_LINK_LAYER_ETHERNET;
	if (d->kind == KIND_ROCEV1 || d->kind == KIND_ROCEV2)
		a.port_cap_flags = IBV_PORT_IP_BASED_GIDS;
	memset(attr, 0, len);
	memcpy(attr, &a, len < sizeof(a) ? len : sizeof(a));
	if (len >= SPEED_AT + sizeof(rates[i].more))	/* active_speed_ex, of rdma-core 61 */
		memcpy((char *)attr + SPEED_AT, &rates[i].more, sizeof(rates[i].more));
	return 0;
}

EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *ret);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *ret)
{
	const struct fdev *d = to_ctx(context)->dev;

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return errno;
	if (port < 1 || port > d->nports)
		return EINVAL;
	*ret = UINT64_C(10) * d->effective;
	return d->effective ? 0 : EOPNOTSUPP;
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

static int gid_get(struct ibv_context *context, uint32_t port, uint32_t index, struct fab_gid *ret)
{
	struct fdev *d = to_ctx(context)->dev;

	if (port < 1 || port > d->nports || index >= GIDS_MAX)
		return EINVAL;
	fab_lock();
	*ret = fab_port(PORT_ID(d->index, port))->gid[index];
	fab_unlock();
	return 0;
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct fab_gid g;

	call_takes(context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return -1;
	if (index < 0 || gid_get(context, port, (uint32_t)index, &g)) {
		errno = EINVAL;
		return -1;
	}
	*gid = g.gid;			/* an empty entry is all zeros */
	return 0;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
			     struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry e;
	struct fab_gid g;
	int err;

	call_takes(context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return errno;
	if (flags)
		return EOPNOTSUPP;
	err = gid_get(context, port, index, &g);
	if (err)
		return err;
	if (!g.used)
		return ENODATA;
	e = (struct ibv_gid_entry){ g.gid, index, port, g.type, g.ifindex };
	memcpy(entry, &e, size < sizeof(e) ? size : sizeof(e));
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				    size_t max, uint32_t flags, size_t size)
{
	struct fdev *d = to_ctx(context)->dev;
	size_t n = 0;

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return -errno;
	if (flags || size < sizeof(*entries))
		return -EINVAL;
	for (uint32_t port = 1; port <= d->nports; port++)
		for (uint32_t i = 0; i < GIDS_MAX && n < max; i++) {
			struct fab_gid g;

			if (!gid_get(context, port, i, &g) && g.used)
				entries[n++] = (struct ibv_gid_entry){ g.gid, i, port, g.type, g.ifindex };
		}
	return (ssize_t)n;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	struct fdev *d = to_ctx(context)->dev;

	call_takes(context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return -1;
	if (port < 1 || port > d->nports || index < 0 || (uint32_t)index >= d->npkeys) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(d->pkey[index]);
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	struct fdev *d = to_ctx(context)->dev;

	for (uint32_t i = 0; port >= 1 && port <= d->nports && i < d->npkeys; i++)
		if (d->pkey[i] == be16toh(pkey))
			return (int)i;
	errno = EINVAL;
	return -1;
}

/* --- protection domains, address handles -------------------------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct fctx *c = to_ctx(context);
	struct fpd *pd;

	call_takes(context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return NULL;
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->ibv.context = context;
	pthread_mutex_lock(&c->lock);
	pd->ibv.handle = c->pds++;
	pthread_mutex_unlock(&c->lock);
	atomic_fetch_add(&live_pd, 1);
	return &pd->ibv;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct fpd *pd = TO(fpd, ibv);
	struct fctx *c = to_ctx(ibv->context);

	call_takes(ibv->context, __func__);
	if (atomic_load(&pd->users))
		return EBUSY;
	if (!c->dead) {
		pthread_mutex_lock(&c->lock);
		c->pds--;
		pthread_mutex_unlock(&c->lock);
	}
	free(pd);
	atomic_fetch_sub(&live_pd, 1);
	return 0;
}

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct fdev *d = to_ctx(pd->context)->dev;
	struct fab_gid g = { 0 };
	struct ibv_ah *ah;

	call_takes(pd->context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(pd->context))
		return NULL;
	errno = EINVAL;
	if (attr->port_num < 1 || attr->port_num > d->nports)
		return NULL;
	if (d->kind == KIND_IWARP || !d->has_ah) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if ((d->kind == KIND_IB ? !attr->dlid || attr->dlid == 0xffff : !attr->is_global) ||
	    (d->has_grh && !attr->is_global))
		return NULL;
	if (attr->is_global && (gid_get(pd->context, attr->port_num, attr->grh.sgid_index, &g) || !g.used))
		return NULL;
	/* RoCE resolves the address now, and fails if no port has it */
	if (d->kind != KIND_IB) {
		uint32_t net = fab_get()->dev[d->index].net, id;

		fab_lock();
		id = fab_find_gid(&attr->grh.dgid, g.type, net, PORT_NONE);
		fab_unlock();
		if (id == PORT_NONE) {
			errno = ETIMEDOUT;
			return NULL;
		}
	}
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	ah->context = pd->context;
	ah->pd = pd;
	atomic_fetch_add(&TO(fpd, pd)->users, 1);
	atomic_fetch_add(&live_ah, 1);
	return ah;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	call_takes(ah->context, __func__);
	atomic_fetch_sub(&TO(fpd, ah->pd)->users, 1);
	free(ah);
	atomic_fetch_sub(&live_ah, 1);
	return 0;
}

/* --- faults ---------------------------------------------------------------------------------------- */

static bool srq_break(struct fqp *qp)
{
	struct fsrq *s = TO(fsrq, qp->ibv.srq);
	bool used;

	if (!s)
		return false;
	pthread_mutex_lock(&qp->lock);
	if (!atomic_exchange(&s->broken, true))
		ctx_event(qp->ctx, IBV_EVENT_SRQ_ERR, s, 0);
	used = qp->ibv.state != IBV_QPS_RESET && qp->ibv.state != IBV_QPS_ERR;
	if (used)
		qp_error(qp);
	pthread_mutex_unlock(&qp->lock);
	return used;
}

/* Calls `change` for each queue pair of this process; returns how many it changed. */
static long change_all(bool (*change)(struct fqp *qp))
{
	long n = 0;

	pthread_mutex_lock(&ctxs_lock);
	for (struct fctx *c = ctxs; c; c = c->next)
		for (unsigned i = 0; i < QPS_MAX; i++) {
			struct fqp *qp = qp_get(c, i);

			if (!qp)
				continue;
			n += change(qp);
			qp_put(qp);
		}
	pthread_mutex_unlock(&ctxs_lock);
	return n;
}

long srqs_break(void)
{
	return change_all(srq_break);
}

static bool cqs_of_break(struct fqp *qp)
{
	bool some;

	pthread_mutex_lock(&qp->lock);
	some = cq_break(TO(fcq, qp->ibv.send_cq));
	pthread_mutex_unlock(&qp->lock);
	return some;
}

/* Breaks all completion queues that queue pairs of this process use. */
long cqs_break(void)
{
	return change_all(cqs_of_break);
}

/* --- fork ----------------------------------------------------------------------------------------- */

static atomic_bool fork_ready;

EXPORT int ibv_fork_init(void)
{
	if (call_fails(CALL_SETUP, __func__))
		return errno;
	fork_ready = true;
	return 0;
}

/* BRAID_TEST_FAKE_FORK=unneeded: a kernel that copies pinned pages for the child. */
EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	const char *env = getenv("BRAID_TEST_FAKE_FORK");

	if (env && !strcmp(env, "unneeded"))
		return IBV_FORK_UNNEEDED;
	return fork_ready ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}
