/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.c - see gpu.h. */
#include "verbs/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/os.h"
#include "core/param.h"
#include "gdr/cuda.h"
#include "verbs/wire.h"

enum { DMABUF_PCIE, DMABUF, PEERMEM, WAYS };

static const char *const way_name[WAYS] = { "pcie", "dmabuf", "peermem" };

enum {
	LOOP_BYTES = BRAID_SLOTS_RX * BRAID_SLOT,	/* of our own memory: the wire's slots */
	LOOP_MS = 500,			/* a port that can't do it in that time can't */
	PROBE_BYTES = 2 << 20,		/* the unit that drivers pin */
	PROBE_AT = 4096 - 8,		/* over a page's end */
	PROBE_LEN = 16,
};

/* --- the loop ------------------------------------------------------------------------------ */

static void loop_drop(struct braid_port *p)
{
	braid_wire_free(p->loop);
	p->loop = NULL;
}

static int loop_up(struct braid_port *p)
{
	return p->loop ? 0 : braid_wire_loop(p, p->loop_dev, &p->loop);
}

/* Until the last of the work requests posted is over. */
static int loop_wait(struct braid_wire *w, uint64_t last)
{
	uint64_t end = braid_os->now_ns() + LOOP_MS * UINT64_C(1000000);
	struct ibv_wc wc;

	for (;;) {
		int n = ibv_poll_cq(w->cq, 1, &wc);

		if (n < 0 || (n && wc.status != IBV_WC_SUCCESS))
			return -EIO;
		if (n && wc.wr_id == last)
			return 0;
		if (!n && braid_os->now_ns() > end)
			return -ETIMEDOUT;
	}
}

/*
 * One piece, from or to the slots.  Into a GPU: a read after it brings the write before it in
 * front of whoever looks there.
 */
static int loop_move(struct braid_wire *w, const struct braid_key *key, char *at, size_t len,
		     bool to_gpu)
{
	struct ibv_sge sge[2] = {
		{ (uint64_t)(uintptr_t)w->m->rx, (uint32_t)len, w->m->rx_mr->lkey },
		{ (uint64_t)(uintptr_t)w->m->rx, 1, w->m->rx_mr->lkey },
	};
	struct ibv_send_wr wr[2] = { 0 }, *bad;
	unsigned n = to_gpu ? 2 : 1;

	for (unsigned i = 0; i < n; i++) {
		wr[i] = (struct ibv_send_wr){
			.wr_id = ++w->sq_posted, .sg_list = &sge[i], .num_sge = 1,
			.opcode = to_gpu && !i ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
			.send_flags = IBV_SEND_SIGNALED, .next = i + 1 < n ? &wr[1] : NULL,
		};
		wr[i].wr.rdma.remote_addr = (uint64_t)(uintptr_t)(i ? at + len - 1 : at);
		wr[i].wr.rdma.rkey = key->remote;
	}
	return ibv_post_send(w->qp, wr, &bad) ? -EIO : loop_wait(w, w->sq_posted);
}

static int loop_piece(struct braid_port *p, const struct braid_key *key, char *at, char *own,
		      size_t len, bool to_gpu)
{
	int err = loop_up(p);

	if (err)
		return err;
	if (to_gpu)
		memcpy(p->loop->m->rx, own, len);
	err = loop_move(p->loop, key, at, len, to_gpu);
	if (err)
		loop_drop(p);
	else if (!to_gpu)
		memcpy(own, p->loop->m->rx, len);
	return err;
}

static int loop_copy(struct braid_port *p, const struct braid_key *key, char *at, char *own,
		     size_t len, bool to_gpu)
{
	while (len) {
		size_t n = len < LOOP_BYTES ? len : LOOP_BYTES;
		bool fresh = !p->loop;
		int err = loop_piece(p, key, at, own, n, to_gpu);

		/* What ended the lanes' queue pairs may have ended this one too, since. */
		if (err && !fresh)
			err = loop_piece(p, key, at, own, n, to_gpu);
		if (err)
			return err;
		at += n;
		own += n;
		len -= n;
	}
	return 0;
}

static int gpu_copy(struct braid_dev *dev, const struct braid_key *key, char *at, void *own,
		    size_t len, bool to_gpu)
{
	struct braid_port *p = braid_port_of(dev);
	int err;

	pthread_mutex_lock(&p->loop_lock);
	err = loop_copy(p, key, at, own, len, to_gpu);
	pthread_mutex_unlock(&p->loop_lock);
	return err;
}

/* --- ways to tell a NIC -------------------------------------------------------------------- */

static unsigned access_of(void)
{
	/* Reading is the loop's: lanes' queue pairs allow none. */
	unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	if (braid_ibv.reg_mr_iova2 && braid_param.ib_pci_relaxed_ordering)
		access |= IBV_ACCESS_RELAXED_ORDERING;
	return access;
}

static int mr_key(struct ibv_mr *mr, struct braid_key *ret)
{
	if (!mr)
		return errno ? -errno : -EIO;
	*ret = (struct braid_key){ .mr = mr, .local = mr->lkey, .remote = mr->rkey };
	return 0;
}

static int reg_fd(struct braid_port *p, const struct braid_mem *mem, int fd, uint64_t offset,
		  struct braid_key *ret)
{
	if (!braid_ibv.reg_dmabuf_mr)
		return -EOPNOTSUPP;
	errno = 0;
	return mr_key(braid_ibv.reg_dmabuf_mr(p->pd, offset, mem->size,
					      (uint64_t)(uintptr_t)mem->data, fd,
					      (int)access_of()), ret);
}

static int reg_export(struct braid_port *p, const struct braid_mem *mem, bool pcie,
		      struct braid_key *ret)
{
	uint64_t offset;
	int fd, err = braid_gpu_export(mem->data, mem->size, pcie, &fd, &offset);

	if (err)
		return err;
	err = reg_fd(p, mem, fd, offset, ret);
	close(fd);
	return err;
}

static int reg_peermem(struct braid_port *p, const struct braid_mem *mem, struct braid_key *ret)
{
	errno = 0;
	if (braid_ibv.reg_mr_iova2)
		return mr_key(braid_ibv.reg_mr_iova2(p->pd, mem->data, mem->size,
						     (uint64_t)(uintptr_t)mem->data, access_of()),
			      ret);
	return mr_key(braid_ibv.reg_mr(p->pd, mem->data, mem->size, (int)access_of()), ret);
}

static int reg_way(struct braid_port *p, const struct braid_mem *mem, unsigned way,
		   struct braid_key *ret)
{
	return way == PEERMEM ? reg_peermem(p, mem, ret) :
				reg_export(p, mem, way == DMABUF_PCIE, ret);
}

/* Is it among those that BRAID_GPU names? */
static bool is_wanted(const char *name)
{
	size_t len = strlen(name);

	for (const char *p = braid_param.gpu; *p; p += strcspn(p, ","), p += *p == ',') {
		if (strcspn(p, ",") == len && !strncmp(p, name, len))
			return true;
	}
	return false;
}

static void note(char *why, size_t len, const char *name, int err)
{
	size_t at = strlen(why);

	if (at + 1 < len)
		snprintf(why + at, len - at, "%s%s%s%s", at ? ", " : "", name, err ? ": " : "",
			 err ? strerror(-err) : "");
}

/* The caller's DMA-BUF, if it has one, then what the probe has seen to work. */
static int gpu_reg(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret)
{
	static struct braid_log_gate gate;
	struct braid_port *p = braid_port_of(dev);
	char why[256] = "";
	int err = -EOPNOTSUPP;

	if (mem->fd >= 0 && dev->gpu & BRAID_GPU_DMABUF) {
		err = reg_fd(p, mem, mem->fd, mem->offset, ret);
		if (!err)
			return 0;
		note(why, sizeof(why), "NCCL's DMA-BUF", err);
	}
	for (unsigned way = 0; way < WAYS; way++) {
		if (!(p->gpu_ways & 1u << way))
			continue;
		err = reg_way(p, mem, way, ret);
		if (!err)
			return 0;
		note(why, sizeof(why), way_name[way], err);
	}
	if (braid_log_gate_open(&gate, braid_os->now_ns()))
		braid_warn("port %s: can't register %zu bytes of a GPU (%s); docs/gpu.md says what "
			   "each needs", p->name, mem->size, why);
	return err;
}

/* --- does it work? ------------------------------------------------------------------------- */

/* What the driver writes the NIC reads, and the other way round. */
static int prove(struct braid_port *p, char *gpu, const struct braid_key *key)
{
	static const char one[PROBE_LEN] = "what a GPU has", two[PROBE_LEN] = "what a NIC says";
	char *at = gpu + PROBE_AT, got[PROBE_LEN] = "", copy[PROBE_LEN];
	int err = braid_gpu_write(at, one, PROBE_LEN);

	if (!err)
		err = loop_copy(p, key, at, got, PROBE_LEN, false);
	if (!err && memcmp(got, one, PROBE_LEN) != 0)
		return -EBADMSG;
	memcpy(copy, two, PROBE_LEN);
	if (!err)
		err = loop_copy(p, key, at, copy, PROBE_LEN, true);
	if (!err)
		err = braid_gpu_read(got, at, PROBE_LEN);
	return err ? err : memcmp(got, two, PROBE_LEN) ? -EBADMSG : 0;
}

static int try_way(struct braid_port *p, void *gpu, unsigned way)
{
	struct braid_mem mem = { .data = gpu, .size = PROBE_BYTES, .gpu = true, .fd = -1 };
	struct braid_key key;
	int err = reg_way(p, &mem, way, &key);

	if (err)
		return err;
	err = prove(p, gpu, &key);
	braid_ibv.dereg_mr(key.mr);
	return err;
}

/* Every way, so that what does not work is known before it is needed. */
static unsigned try_all(struct braid_port *p, char *why, size_t len)
{
	int mode = braid_gpu_enter();
	unsigned ways = 0;
	void *gpu;
	int err = braid_gpu_alloc(PROBE_BYTES, &gpu);

	if (err) {
		note(why, len, "no memory of the GPU to try it with", err);
		braid_gpu_leave(mode);
		return 0;
	}
	for (unsigned way = 0; way < WAYS; way++) {
		if (!is_wanted(way_name[way]))
			continue;
		err = try_way(p, gpu, way);
		if (!err)
			ways |= 1u << way;
		note(why, len, way_name[way], err);
	}
	braid_gpu_free(gpu);
	braid_gpu_leave(mode);
	return ways;
}

static unsigned gpu_probe(struct braid_dev *dev, char *why, size_t len)
{
	struct braid_port *p = braid_port_of(dev);
	int err;

	if (is_wanted("none")) {
		snprintf(why, len, "BRAID_GPU has none");
		return 0;
	}
	pthread_mutex_lock(&p->loop_lock);
	p->loop_dev = dev;
	err = loop_up(p);
	if (!err)
		p->gpu_ways = try_all(p, why, len);
	else if (p->fabric == BRAID_FABRIC_IWARP)
		snprintf(why, len, "iWARP has no queue pair to itself, which the flush needs");
	else
		note(why, len, "no queue pair to itself", err);
	if (!p->gpu_ways && p->loop)
		loop_drop(p);
	pthread_mutex_unlock(&p->loop_lock);
	return (p->gpu_ways ? BRAID_GPU_REG : 0) |
	       (p->gpu_ways & (1u << DMABUF_PCIE | 1u << DMABUF) ? BRAID_GPU_DMABUF : 0);
}

const struct braid_gpu braid_port_gpu = {
	.probe = gpu_probe,
	.reg = gpu_reg,
	.copy = gpu_copy,
};
