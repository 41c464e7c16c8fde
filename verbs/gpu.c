/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.c - see gpu.h. */
#include "verbs/gpu.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "gdr/bar.h"
#include "gdr/cuda.h"
#include "topo/pci.h"
#include "verbs/direct.h"
#include "verbs/mr.h"
#include "verbs/qp.h"

enum { DIRECT_PCIE, DIRECT, DMABUF_PCIE, DMABUF, PEERMEM, WAYS };
enum {				/* sets of them */
	WITH_DIRECT = 1 << DIRECT_PCIE | 1 << DIRECT,
	WITH_DMABUF = 1 << DMABUF_PCIE | 1 << DMABUF,
};

static const char *const way_name[WAYS] = { "direct-pcie", "direct", "pcie", "dmabuf", "peermem" };
static const char *const way_word[WAYS] = { "pcie", "dmabuf", "pcie", "dmabuf", "peermem" };

enum { FLUSH_READ, FLUSH_GDRCOPY, FLUSH_DRIVER };

enum {
	LOOP_BYTES = (BRAID_SLOTS_RX - 1) * BRAID_SLOT,	/* of a copy, which uses its slots */
	LOOP_FLUSHED = LOOP_BYTES,	/* the last slot: flushes read into it, nobody looks */
	LOOP_MS = 500,			/* then the loop has failed */
	LOOP_TRIES = 2,
	LOOP_REST_MS = 10000,
	LOOP_END_MS = 10,
	LOOP_COPY = 2,			/* work requests of a copy, for which flushes leave room */
	PROBE_BYTES = 2 << 20,		/* the unit that drivers pin */
	PROBE_AT = 4096 - 8,		/* across a page boundary */
	PROBE_LEN = 16,
	FLUSH_RUNS = 16,	/* of which the fastest counts */
	GPUS_TOLD = 16,		/* each has its own limit of log lines */
};

/* --- the loop ------------------------------------------------------------------------------ */

/* Drops the loop's queue pair, and with it every request in flight. */
static void loop_drop(struct braid_ibport *p, int err)
{
	struct braid_gpu_copy *c = p->copier;

	braid_qp_free(p->loop);
	p->loop = NULL;
	p->copier = NULL;
	if (c) {
		c->piece = 0;
		c->err = err;
	}
}

static void loop_run(struct braid_job *job)
{
	struct braid_ibport *p = braid_container(job, struct braid_ibport, make_loop);

	p->loop_new = NULL;
	p->loop_err = braid_qp_loop(p, p->loop_dev, &p->loop_new, NULL);
	atomic_store(&p->loop_made, true);
}

/* 0; -EAGAIN: the loop is being made; else it can't be made, or not in time. */
static int loop_up(struct braid_ibport *p)
{
	if (p->loop)
		return 0;
	if (!p->loop_makes) {
		p->make_loop = (struct braid_job){
			.what = "to make a queue pair to itself", .run = loop_run,
		};
		p->loop_makes = true;
		p->loop_since = braid_os->now_ns();
		atomic_store(&p->loop_made, false);
		braid_later(p->loop_dev, BRAID_MAKE, &p->make_loop);
	}
	if (!atomic_load(&p->loop_made))
		return braid_os->now_ns() - p->loop_since < LOOP_MS * UINT64_C(1000000) ?
			       -EAGAIN : -ETIMEDOUT;
	p->loop_makes = false;
	p->loop_base = p->loop_done = p->loop_posted;
	p->loop = p->loop_new;
	return p->loop_err;
}

/* Only at init: it waits. */
static int loop_wait_up(struct braid_ibport *p)
{
	int err;

	while ((err = loop_up(p)) == -EAGAIN)
		braid_yield();
	return err;
}

static void loop_moves(struct braid_ibport *p)
{
	p->loop_until = braid_os->now_ns() + LOOP_MS * UINT64_C(1000000);
}

/* The loop has failed: callers that have another way avoid it for a while. */
static void rest(struct braid_ibport *p)
{
	p->loop_rest = braid_os->now_ns() + LOOP_REST_MS * UINT64_C(1000000);
}

static bool is_resting(const struct braid_ibport *p)
{
	return braid_os->now_ns() < p->loop_rest;
}

static int loop_post(struct braid_ibport *p, enum ibv_wr_opcode opcode, char *own, size_t len,
		     const struct braid_key *key, char *at)
{
	struct ibv_sge sge = {
		(uint64_t)(uintptr_t)own, (uint32_t)len, p->loop->m->slots->mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = ++p->loop_posted, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uint64_t)(uintptr_t)at, .rkey = key->remote },
	};

	if (p->loop_done + 1 == p->loop_posted)
		loop_moves(p);
	return ibv_post_send(p->loop->qp, &wr, &bad) ? -EIO : 0;
}

/*
 * Finishes the piece that uses the slots, if it has completed.  Every caller of the loop does this,
 * so that a copy whose owner does not call again blocks no other.
 */
static void copier_look(struct braid_ibport *p)
{
	struct braid_gpu_copy *c = p->copier;

	if (!c || c->id > p->loop_done)
		return;
	if (!c->to_gpu)
		memcpy(c->own, p->loop->m->slots->rx, c->piece);
	c->at += c->piece;
	c->own += c->piece;
	c->len -= c->piece;
	c->piece = 0;
	c->tries = 0;
	p->copier = NULL;
}

/* Takes completions, which come in the order of posting.  On failure the loop is dropped. */
static int loop_poll(struct braid_ibport *p)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(p->loop->cq, 1, &wc)) > 0 && wc.status == IBV_WC_SUCCESS) {
		p->loop_done = wc.wr_id;
		loop_moves(p);
	}
	copier_look(p);
	if (!n && (p->loop_done == p->loop_posted || braid_os->now_ns() < p->loop_until))
		return 0;
	n = n ? -EIO : -ETIMEDOUT;
	loop_drop(p, n);
	return n;
}

/* Only for the probe: waits until everything posted has completed. */
static int loop_wait(struct braid_ibport *p)
{
	int err;

	do {
		err = loop_poll(p);
	} while (!err && p->loop_done != p->loop_posted);
	return err;
}

/* --- copies -------------------------------------------------------------------------------- */

/*
 * Posts one piece, from or to the slots.  A write into a GPU is followed by a read, which makes the
 * write visible there.
 */
static int piece_post(struct braid_ibport *p, const struct braid_key *key, struct braid_gpu_copy *c)
{
	char *rx = p->loop->m->slots->rx;
	int err;

	if (!c->to_gpu) {
		err = loop_post(p, IBV_WR_RDMA_READ, rx, c->piece, key, c->at);
	} else {
		memcpy(rx, c->own, c->piece);
		err = loop_post(p, IBV_WR_RDMA_WRITE, rx, c->piece, key, c->at);
		if (!err)
			err = loop_post(p, IBV_WR_RDMA_READ, rx, 1, key, c->at + c->piece - 1);
	}
	c->id = p->loop_posted;
	return err;
}

static int copy_post(struct braid_ibport *p, const struct braid_key *key, struct braid_gpu_copy *c)
{
	int err = loop_up(p);

	if (err)
		return err;
	c->tries++;
	c->piece = c->len < LOOP_BYTES ? c->len : LOOP_BYTES;
	p->copier = c;
	err = piece_post(p, key, c);
	if (err)
		loop_drop(p, err);	/* sets c->err */
	return -EAGAIN;
}

/*
 * The fault that ended the lanes' queue pairs may have ended the loop's too.  So a piece is tried a
 * second time, unless the loop timed out.
 */
static int copy_step(struct braid_ibport *p, const struct braid_key *key, struct braid_gpu_copy *c)
{
	int err;

	if (p->loop)
		loop_poll(p);		/* sets c->err if its piece has failed */
	if (!c->len)
		return 0;
	if (c->piece || p->copier)
		return -EAGAIN;
	if (!c->insist && is_resting(p))
		return -EHOSTDOWN;
	err = c->tries == LOOP_TRIES || c->err == -ETIMEDOUT ? c->err : copy_post(p, key, c);
	if (err != -EAGAIN)
		rest(p);
	return err;
}

/* Never waits for the lock: a probe or a set-up may hold it for longer than a call may take. */
static int gpu_copy(struct braid_dev *dev, const struct braid_key *key, struct braid_gpu_copy *c)
{
	struct braid_ibport *p = braid_ibport_of(dev);
	int err;

	if (pthread_mutex_trylock(&p->loop_lock))
		return -EAGAIN;
	err = copy_step(p, key, c);
	pthread_mutex_unlock(&p->loop_lock);
	return err;
}

/* Gives the piece a moment to complete: dropping the queue pair aborts other callers' flushes. */
static void gpu_copy_end(struct braid_dev *dev, struct braid_gpu_copy *c)
{
	struct braid_ibport *p = braid_ibport_of(dev);
	uint64_t until = braid_os->now_ns() + LOOP_END_MS * UINT64_C(1000000);

	pthread_mutex_lock(&p->loop_lock);
	while (c->piece && braid_os->now_ns() < until)
		loop_poll(p);
	if (c->piece)
		loop_drop(p, -ECANCELED);
	pthread_mutex_unlock(&p->loop_lock);
}

/* Only for the probe: copies, and waits. */
static int copy_now(struct braid_ibport *p, const struct braid_key *key, char *at, char *own,
		    size_t len, bool to_gpu)
{
	struct braid_gpu_copy c = {
		.at = at, .own = own, .len = len, .to_gpu = to_gpu, .insist = true,
	};
	int err;

	do {
		err = copy_step(p, key, &c);
	} while (err == -EAGAIN);
	return err;
}

/* --- flush --------------------------------------------------------------------------------- */

static int flush_post(struct braid_ibport *p, const struct braid_key *key, char *at,
		      struct braid_gpu_flush *f)
{
	int err = loop_up(p);

	if (err)
		return err;
	if (p->loop_posted - p->loop_done + LOOP_COPY >= p->loop->sq_max)
		return -EAGAIN;
	f->tries++;
	f->err = -EIO;
	err = loop_post(p, IBV_WR_RDMA_READ, p->loop->m->slots->rx + LOOP_FLUSHED, 1, key, at);
	f->id = p->loop_posted;
	if (err)
		loop_drop(p, err);
	return -EAGAIN;
}

/*
 * Flushes by an RDMA READ.  It is lost with its queue pair, which another caller may have dropped.
 * Whether it had completed before is then unknown, so it is repeated, which does no harm.
 */
static int flush_step(struct braid_ibport *p, const struct braid_key *key, char *at,
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
	if (!f->insist && !f->tries && is_resting(p))
		return -EHOSTDOWN;
	err = f->tries == LOOP_TRIES ? f->err : flush_post(p, key, at, f);
	if (err != -EAGAIN)
		rest(p);
	return err;
}

/* Flushes without the NIC, if that was chosen.  False: no, or this GPU can't be flushed so. */
static bool flush_by_cpu(const struct braid_ibport *p, int gpu)
{
	return p->flush_by == FLUSH_GDRCOPY ? gpu == p->gpu_tried && braid_bar_read(gpu) :
	       p->flush_by == FLUSH_DRIVER && !braid_gpu_flush(gpu);
}

/* Never waits for the lock: another caller may hold it for longer than a call may take. */
static int gpu_flush(struct braid_dev *dev, const struct braid_key *key, char *at,
		     struct braid_gpu_flush *f)
{
	struct braid_ibport *p = braid_ibport_of(dev);
	int err;

	if (flush_by_cpu(p, key->gpu))
		return 0;
	if (pthread_mutex_trylock(&p->loop_lock))
		return -EAGAIN;
	err = flush_step(p, key, at, f);
	pthread_mutex_unlock(&p->loop_lock);
	return err;
}

/* --- ways to register ---------------------------------------------------------------------- */

/* Remote reads are for the loop: lanes' queue pairs do not allow them. */
enum {
	GPU_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
};

static int mr_key(struct ibv_mr *mr, int gpu, struct braid_key *ret)
{
	if (!mr)
		return errno ? -errno : -EIO;
	*ret = (struct braid_key){
		.mr = mr, .local = mr->lkey, .remote = mr->rkey, .gpu = gpu,
	};
	return 0;
}

static bool is_direct(unsigned way)
{
	return WITH_DIRECT & 1u << way;
}

static int reg_fd(struct braid_ibport *p, const struct braid_mem *mem, unsigned way, int fd,
		  uint64_t offset, struct braid_key *ret)
{
	uint64_t at = (uint64_t)(uintptr_t)mem->data;
	int access = (int)(GPU_ACCESS | braid_ibport_relaxed());
	struct ibv_mr *mr;

	if (!is_direct(way) && !braid_ibv.reg_dmabuf_mr)
		return -EOPNOTSUPP;
	errno = 0;
	mr = is_direct(way) ? braid_direct_reg(p->pd, offset, mem->size, at, fd, access) :
			      braid_ibv.reg_dmabuf_mr(p->pd, offset, mem->size, at, fd, access);
	return mr_key(mr, mem->gpu_index, ret);
}

static int reg_export(struct braid_ibport *p, const struct braid_mem *mem, unsigned way,
		      struct braid_key *ret)
{
	bool pcie = way == DIRECT_PCIE || way == DMABUF_PCIE;
	uint64_t offset;
	int fd, err = braid_gpu_export(mem->data, mem->size, pcie, &fd, &offset);

	if (err)
		return err;
	err = reg_fd(p, mem, way, fd, offset, ret);
	close(fd);
	return err;
}

static int reg_peermem(struct braid_ibport *p, const struct braid_mem *mem, struct braid_key *ret)
{
	errno = 0;
	return mr_key(braid_ibport_reg_user(p, mem->data, mem->size, GPU_ACCESS), mem->gpu_index,
		      ret);
}

static int reg_way(struct braid_ibport *p, const struct braid_mem *mem, unsigned way,
		   struct braid_key *ret)
{
	return way == PEERMEM ? reg_peermem(p, mem, ret) : reg_export(p, mem, way, ret);
}

static void note_text(char *why, size_t len, const char *name, const char *text)
{
	size_t at = strlen(why);

	if (at + 1 < len)
		snprintf(why + at, len - at, "%s%s%s%s", at ? ", " : "", name, *text ? ": " : "",
			 text);
}

static void note(char *why, size_t len, const char *name, int err)
{
	note_text(why, len, name, err ? strerror(-err) : "");
}

static void tell_not(const struct braid_ibport *p, const struct braid_mem *mem, const char *why)
{
	char which[80] = "a GPU that the driver does not name";

	if (mem->gpu_index >= 0)
		snprintf(which, sizeof(which), "GPU %d (CUDA's number)%s", mem->gpu_index,
			 mem->gpu_index == p->gpu_tried ? "" :
			 ", which is not the one that was tried at init");
	braid_warn("port %s: can't register %zu bytes of %s: %s; docs/user/gpu.md says what each "
		   "needs [gpu-not-registered]",
		   p->name, mem->size, which, why);
}

/*
 * Is the caller's DMA-BUF to be tried before that way?  How it was exported is not known here, so
 * it is tried once before each pair of ways, if the probe found one of the two to work.
 */
static bool takes_theirs(const struct braid_ibport *p, unsigned way)
{
	return (way == DIRECT_PCIE && p->gpu_ways & WITH_DIRECT) ||
	       (way == DMABUF_PCIE && p->gpu_ways & WITH_DMABUF);
}

/* By the caller's DMA-BUF, if there is one, and by the ways that the probe found to work. */
static int gpu_reg(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret)
{
	static struct braid_log_gate gate[GPUS_TOLD];
	struct braid_ibport *p = braid_ibport_of(dev);
	char why[256] = "";
	int err = -EOPNOTSUPP;

	for (unsigned way = 0; way < WAYS; way++) {
		if (mem->fd >= 0 && takes_theirs(p, way)) {
			err = reg_fd(p, mem, way, mem->fd, mem->offset, ret);
			if (!err)
				return 0;
			note(why, sizeof(why), is_direct(way) ? "NCCL's DMA-BUF, direct" :
								"NCCL's DMA-BUF", err);
		}
		if (!(p->gpu_ways & 1u << way))
			continue;
		err = reg_way(p, mem, way, ret);
		if (!err)
			return 0;
		note(why, sizeof(why), way_name[way], err);
	}
	if (braid_log_gate_open(&gate[(unsigned)mem->gpu_index % GPUS_TOLD], braid_os->now_ns()))
		tell_not(p, mem, why);
	return err;
}

/* --- does it work? ------------------------------------------------------------------------- */

/* The NIC must read what the driver has written, and the other way round. */
static int prove(struct braid_ibport *p, char *gpu, const struct braid_key *key)
{
	static const char one[PROBE_LEN] = "what a GPU has", two[PROBE_LEN] = "what a NIC says";
	char *at = gpu + PROBE_AT, got[PROBE_LEN] = "", copy[PROBE_LEN];
	int err = braid_gpu_write(at, one, PROBE_LEN);

	if (!err)
		err = copy_now(p, key, at, got, PROBE_LEN, false);
	if (!err && memcmp(got, one, PROBE_LEN) != 0)
		return -EBADMSG;
	memcpy(copy, two, PROBE_LEN);
	if (!err)
		err = copy_now(p, key, at, copy, PROBE_LEN, true);
	if (!err)
		err = braid_gpu_read(got, at, PROBE_LEN);
	return err ? err : memcmp(got, two, PROBE_LEN) ? -EBADMSG : 0;
}

static uint64_t now(void)
{
	return braid_os->now_ns();
}

/* Measures a flush by the NIC. */
static int time_read(struct braid_ibport *p, char *gpu, const struct braid_key *key)
{
	int err = 0;

	for (unsigned i = 0; i < FLUSH_RUNS && !err; i++) {
		uint64_t start = now();

		err = loop_post(p, IBV_WR_RDMA_READ, p->loop->m->slots->rx + LOOP_FLUSHED, 1, key,
				gpu);
		if (!err)
			err = loop_wait(p);
		if (!err && now() - start < p->flush_ns)
			p->flush_ns = now() - start;
	}
	if (err)
		loop_drop(p, err);
	return err;
}

static int try_way(struct braid_ibport *p, void *gpu, unsigned way)
{
	struct braid_mem mem = { .data = gpu, .size = PROBE_BYTES, .gpu = true, .fd = -1,
				 .gpu_index = p->gpu_tried };
	struct braid_key key;
	int err = reg_way(p, &mem, way, &key);

	if (err)
		return err;
	err = prove(p, gpu, &key);
	if (!err)
		err = time_read(p, gpu, &key);
	braid_ibv.dereg_mr(key.mr);
	return err;
}

/*
 * May a read by the CPU be the flush?  PCIe keeps the NIC's writes, its completion and the CPU's
 * read in order below one switch; above it, the order depends on the host.  A read by the NIC is
 * always ordered, since it takes the same path as the NIC's writes.
 */
static bool may_look(const struct braid_ibport *p, const struct braid_dev *dev)
{
	char addr[32];

	return !braid_bar_virtual() && !braid_gpu_pci(p->gpu_tried, addr, sizeof(addr)) &&
	       braid_pci_one_port("", dev->net.pci_path, addr);
}

static bool by_gdrcopy(struct braid_ibport *p, const struct braid_dev *dev, char *why, size_t len)
{
	bool forced = !strcmp(braid_param.gpu_flush_by, "gdrcopy");
	uint64_t best = UINT64_MAX;

	if (!forced && p->gpu_ways & WITH_DIRECT) {
		snprintf(why, len, "the NIC writes by another PCIe function than its own");
		return false;
	}
	if (!forced && !may_look(p, dev)) {
		snprintf(why, len, "not seen to be below one PCIe switch with it");
		return false;
	}
	if (braid_bar_open(p->gpu_tried, why, len))
		return false;
	for (unsigned i = 0; i < FLUSH_RUNS; i++) {
		uint64_t start = now();

		if (!braid_bar_read(p->gpu_tried)) {
			snprintf(why, len, "its window is gone");
			return false;
		}
		best = now() - start < best ? now() - start : best;
	}
	snprintf(why, len, "%.1f us", (double)best / 1000);
	return forced || best < p->flush_ns;
}

/*
 * Chooses the fastest valid way, once.  The driver's flush may wait for a GPU's kernel, so it is
 * used only if the user asks for it.
 */
static void choose_flush(struct braid_ibport *p, const struct braid_dev *dev, char *ret, size_t len)
{
	double ns = (double)p->flush_ns;
	char said[128], other[160] = "";
	int err;

	p->flush_by = FLUSH_READ;
	if (!strcmp(braid_param.gpu_flush_by, "driver")) {
		err = braid_gpu_can_flush(p->gpu_tried);
		if (!err) {
			p->flush_by = FLUSH_DRIVER;
			snprintf(ret, len, "the driver; by the NIC %.1f us", ns / 1000);
			return;
		}
		snprintf(other, sizeof(other), "; the driver: %s", strerror(-err));
	} else if (strcmp(braid_param.gpu_flush_by, "read") != 0) {
		if (by_gdrcopy(p, dev, said, sizeof(said))) {
			p->flush_by = FLUSH_GDRCOPY;
			snprintf(ret, len, "GDRCopy, %s; by the NIC %.1f us", said, ns / 1000);
			return;
		}
		snprintf(other, sizeof(other), "; GDRCopy: %s", said);
	}
	snprintf(ret, len, "the NIC, %.1f us%s", ns / 1000, other);
}

static void tell_flush(struct braid_ibport *p, char *why, size_t len)
{
	char by[256];
	size_t at = strlen(why);

	choose_flush(p, p->loop_dev, by, sizeof(by));
	if (at + 1 < len)
		snprintf(why + at, len - at, "; flush by %s", by);
}

/* The log says nothing of the usual case: a NIC without Data Direct (-ENODEV). */
static bool has_direct(struct braid_ibport *p, char *path, size_t path_len, char *why, size_t len)
{
	char said[128];
	int err;

	if (!braid_param.ib_data_direct)
		return false;
	err = braid_direct_find(p->ctx, path, path_len, said, sizeof(said));
	if (err && err != -ENODEV)
		note_text(why, len, "direct", said);
	return !err;
}

/* Sets the PCI function that NCCL is to see as the NIC's: the NIC's own if /sys lacks the other. */
static void place_direct(struct braid_dev *dev, const char *path, char *why, size_t len)
{
	size_t at = strlen(why);
	int err = braid_pci_find("", path, dev->direct, sizeof(dev->direct));

	if (err)
		dev->direct[0] = '\0';
	if (at + 1 < len)
		snprintf(why + at, len - at, "; Data Direct's PCI function is %s%s%s",
			 err ? path : dev->direct, err ? ": " : "", err ? strerror(-err) : "");
}

/* Tries every way, so that one that does not work is known before it is needed. */
static void try_all(struct braid_ibport *p, char *why, size_t len)
{
	int mode = braid_gpu_enter();
	char path[PATH_MAX];
	struct braid_gpu_mem what;
	unsigned ways = 0;
	bool direct;
	void *gpu;
	int err = braid_gpu_alloc(PROBE_BYTES, &gpu);

	if (err) {
		note(why, len, "no memory of the GPU to try it with", err);
		braid_gpu_leave(mode);
		return;
	}
	p->flush_ns = UINT64_MAX;
	p->gpu_tried = braid_gpu_look(gpu, PROBE_BYTES, &what) ? -1 : what.gpu;
	direct = has_direct(p, path, sizeof(path), why, len);
	for (unsigned way = 0; way < WAYS; way++) {
		if (!braid_param_lists(braid_param.gpu, way_word[way]) ||
		    (is_direct(way) && !direct))
			continue;
		err = try_way(p, gpu, way);
		if (!err)
			ways |= 1u << way;
		note(why, len, way_name[way], err);
	}
	p->gpu_ways = ways;
	if (ways & WITH_DIRECT)
		place_direct(p->loop_dev, path, why, len);
	if (ways && braid_param.gpu_flush)
		tell_flush(p, why, len);
	braid_gpu_free(gpu);
	braid_gpu_leave(mode);
}

static unsigned gpu_probe(struct braid_dev *dev, char *why, size_t len)
{
	struct braid_ibport *p = braid_ibport_of(dev);
	int err;

	if (braid_param_lists(braid_param.gpu, "none")) {
		snprintf(why, len, "BRAID_GPU has none");
		return 0;
	}
	pthread_mutex_lock(&p->loop_lock);
	p->loop_dev = dev;
	err = loop_wait_up(p);
	if (!err)
		try_all(p, why, len);
	else if (p->fabric == BRAID_FABRIC_IWARP)
		snprintf(why, len, "iWARP has no queue pair to itself, which the flush needs");
	else
		note(why, len, "no queue pair to itself", err);
	if (!p->gpu_ways && p->loop)
		loop_drop(p, 0);
	pthread_mutex_unlock(&p->loop_lock);
	return (p->gpu_ways ? BRAID_GPU_REG : 0) |
	       (p->gpu_ways & (WITH_DIRECT | WITH_DMABUF) ? BRAID_GPU_DMABUF : 0) |
	       (p->gpu_ways & WITH_DIRECT ? BRAID_GPU_DIRECT : 0);
}

const struct braid_gpu braid_ibport_gpu = {
	.probe = gpu_probe,
	.reg = gpu_reg,
	.copy = gpu_copy,
	.copy_end = gpu_copy_end,
	.flush = gpu_flush,
};
