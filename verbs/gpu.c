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
	LOOP_BYTES = (BRAID_SLOTS_RX - 1) * BRAID_SLOT,	/* of a copy: slots of the wire's */
	LOOP_FLUSHED = LOOP_BYTES,	/* the last slot: what flushes read, never looked at */
	LOOP_MS = 500,			/* a port that can't do it in that time can't */
	LOOP_TRIES = 2,
	LOOP_COPY = 2,			/* work requests of a copy, for which flushes leave room */
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
	if (p->loop)
		return 0;
	p->loop_base = p->loop_done = p->loop_posted;
	return braid_wire_loop(p, p->loop_dev, &p->loop);
}

static void loop_moves(struct braid_port *p)
{
	p->loop_until = braid_os->now_ns() + LOOP_MS * UINT64_C(1000000);
}

static int loop_post(struct braid_port *p, enum ibv_wr_opcode opcode, char *own, size_t len,
		     const struct braid_key *key, char *at)
{
	struct ibv_sge sge = { (uint64_t)(uintptr_t)own, (uint32_t)len, p->loop->m->rx_mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = ++p->loop_posted, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uint64_t)(uintptr_t)at, .rkey = key->remote },
	};

	if (p->loop_done + 1 == p->loop_posted)
		loop_moves(p);
	return ibv_post_send(p->loop->qp, &wr, &bad) ? -EIO : 0;
}

/* What is over by now, in the order in which it was posted.  On failure the loop is dropped. */
static int loop_poll(struct braid_port *p)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(p->loop->cq, 1, &wc)) > 0 && wc.status == IBV_WC_SUCCESS) {
		p->loop_done = wc.wr_id;
		loop_moves(p);
	}
	if (!n && (p->loop_done == p->loop_posted || braid_os->now_ns() < p->loop_until))
		return 0;
	loop_drop(p);
	return n ? -EIO : -ETIMEDOUT;
}

/* Until all that was posted is over. */
static int loop_wait(struct braid_port *p)
{
	int err;

	do {
		err = loop_poll(p);
	} while (!err && p->loop_done != p->loop_posted);
	return err;
}

/*
 * One piece, from or to the slots.  Into a GPU: a read after it brings the write before it in
 * front of whoever looks there.
 */
static int loop_move(struct braid_port *p, const struct braid_key *key, char *at, size_t len,
		     bool to_gpu)
{
	char *rx = p->loop->m->rx;
	int err;

	if (!to_gpu) {
		err = loop_post(p, IBV_WR_RDMA_READ, rx, len, key, at);
	} else {
		err = loop_post(p, IBV_WR_RDMA_WRITE, rx, len, key, at);
		if (!err)
			err = loop_post(p, IBV_WR_RDMA_READ, rx, 1, key, at + len - 1);
	}
	return err ? err : loop_wait(p);
}

static int loop_piece(struct braid_port *p, const struct braid_key *key, char *at, char *own,
		      size_t len, bool to_gpu)
{
	int err = loop_up(p);

	if (err)
		return err;
	if (to_gpu)
		memcpy(p->loop->m->rx, own, len);
	err = loop_move(p, key, at, len, to_gpu);
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

/* --- flush --------------------------------------------------------------------------------- */

static int flush_post(struct braid_port *p, const struct braid_key *key, char *at,
		      struct braid_gpu_flush *f)
{
	int err = loop_up(p);

	if (err)
		return err;
	if (p->loop_posted - p->loop_done + LOOP_COPY >= p->loop->sq_max)
		return -EAGAIN;
	f->tries++;
	f->err = -EIO;
	err = loop_post(p, IBV_WR_RDMA_READ, p->loop->m->rx + LOOP_FLUSHED, 1, key, at);
	f->id = p->loop_posted;
	if (err)
		loop_drop(p);
	return -EAGAIN;
}

/*
 * A read.  It is lost with its queue pair, which others may have found broken: whether it was over
 * before is not known once there is another one, and twice does no harm.
 */
static int flush_step(struct braid_port *p, const struct braid_key *key, char *at,
		      struct braid_gpu_flush *f)
{
	int err = p->loop ? loop_poll(p) : 0;

	if (f->id > p->loop_base) {
		if (f->id <= p->loop_done)
			return 0;
		if (p->loop)
			return -EAGAIN;
		if (err)
			f->err = err;
	}
	return f->tries == LOOP_TRIES ? f->err : flush_post(p, key, at, f);
}

/* A copy of somebody else's may have the loop for longer than a call may take. */
static int gpu_flush(struct braid_dev *dev, const struct braid_key *key, char *at,
		     struct braid_gpu_flush *f)
{
	struct braid_port *p = braid_port_of(dev);
	int err;

	if (pthread_mutex_trylock(&p->loop_lock))
		return -EAGAIN;
	err = flush_step(p, key, at, f);
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
	.flush = gpu_flush,
};
