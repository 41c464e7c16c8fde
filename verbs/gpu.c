/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.c - see gpu.h.  The probe: which methods to register work here, and which flush is fastest.
 */
#include "verbs/gpu.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "gdr/bar.h"
#include "gdr/cuda.h"
#include "topo/pci.h"
#include "verbs/direct.h"
#include "verbs/loop.h"
#include "verbs/qp.h"

enum {
	PROBE_BYTES = 2 << 20,		/* the unit that drivers pin */
	PROBE_AT = 4096 - 8,		/* across a page boundary */
	PROBE_LEN = 16,
	FLUSH_RUNS = 16,		/* of which the fastest counts */
};

/* What BRAID_GPU calls each method. */
static const char *const method_word[BRAID_GPU_METHODS] = {
	"pcie", "dmabuf", "pcie", "dmabuf", "peermem",
};

/* The NIC must read what the driver has written, and the other way round. */
static int prove(struct braid_ibport *p, char *gpu, const struct braid_key *key)
{
	static const char one[PROBE_LEN] = "what a GPU has", two[PROBE_LEN] = "what a NIC says";
	char *at = gpu + PROBE_AT, got[PROBE_LEN] = "", copy[PROBE_LEN];
	int err = braid_gpu_write(at, one, PROBE_LEN);

	if (!err)
		err = braid_verbs_gpu_copy_now(p, key, at, got, PROBE_LEN, false);
	if (!err && memcmp(got, one, PROBE_LEN) != 0)
		return -EBADMSG;
	memcpy(copy, two, PROBE_LEN);
	if (!err)
		err = braid_verbs_gpu_copy_now(p, key, at, copy, PROBE_LEN, true);
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

		err = braid_loop_post(p, IBV_WR_RDMA_READ,
				      p->loop->m->slots->rx + BRAID_LOOP_FLUSHED, 1, key, gpu);
		if (!err)
			err = braid_loop_wait(p);
		if (!err && now() - start < p->flush_ns)
			p->flush_ns = now() - start;
	}
	if (err)
		braid_loop_drop(p, err);
	return err;
}

static int try_method(struct braid_ibport *p, void *gpu, unsigned method)
{
	struct braid_mem mem = { .data = gpu, .size = PROBE_BYTES, .gpu = true, .fd = -1,
				 .gpu_index = p->gpu_tried };
	struct braid_key key;
	int err = braid_gpu_reg_by(p, &mem, method, &key);

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
static bool cpu_read_flushes(const struct braid_ibport *p, const struct braid_dev *dev)
{
	char addr[32];

	return !braid_bar_virtual() && !braid_gpu_pci(p->gpu_tried, addr, sizeof(addr)) &&
	       braid_pci_one_port("", dev->net.pci_path, addr);
}

static bool by_gdrcopy(struct braid_ibport *p, const struct braid_dev *dev, char *why, size_t len)
{
	bool forced = !strcmp(braid_param.gpu_flush_by, "gdrcopy");
	uint64_t best = UINT64_MAX;

	if (!forced && p->gpu_methods & BRAID_WITH_DIRECT) {
		snprintf(why, len, "the NIC writes by another PCIe function than its own");
		return false;
	}
	if (!forced && !cpu_read_flushes(p, dev)) {
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
 * Chooses the fastest valid flush, once.  The driver's flush may wait for a GPU's kernel, so it is
 * used only if the user asks for it.
 */
static void choose_flush(struct braid_ibport *p, const struct braid_dev *dev, char *ret, size_t len)
{
	double ns = (double)p->flush_ns;
	char text[128], other[160] = "";
	int err;

	p->flush_by = BRAID_FLUSH_READ;
	if (!strcmp(braid_param.gpu_flush_by, "driver")) {
		err = braid_gpu_can_flush(p->gpu_tried);
		if (!err) {
			p->flush_by = BRAID_FLUSH_DRIVER;
			snprintf(ret, len, "the driver; by the NIC %.1f us", ns / 1000);
			return;
		}
		snprintf(other, sizeof(other), "; the driver: %s", strerror(-err));
	} else if (strcmp(braid_param.gpu_flush_by, "read") != 0) {
		if (by_gdrcopy(p, dev, text, sizeof(text))) {
			p->flush_by = BRAID_FLUSH_GDRCOPY;
			snprintf(ret, len, "GDRCopy, %s; by the NIC %.1f us", text, ns / 1000);
			return;
		}
		snprintf(other, sizeof(other), "; GDRCopy: %s", text);
	}
	snprintf(ret, len, "the NIC, %.1f us%s", ns / 1000, other);
}

static void note_flush(struct braid_ibport *p, char *why, size_t len)
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
	char text[128];
	int err;

	if (!braid_param.ib_data_direct)
		return false;
	err = braid_direct_find(p->ctx, path, path_len, text, sizeof(text));
	if (err && err != -ENODEV)
		braid_gpu_note_text(why, len, "direct", text);
	return !err;
}

/*
 * Sets the PCI function that NCCL is to take for the NIC: that of Data Direct, or the NIC's own if
 * /sys lacks it.
 */
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

/* Tries every method to register at init, so that one that fails is known before it is needed. */
static void try_all(struct braid_ibport *p, char *why, size_t len)
{
	int mode = braid_gpu_enter();
	char path[PATH_MAX];
	struct braid_gpu_mem what;
	unsigned methods = 0;
	bool direct;
	void *gpu;
	int err = braid_gpu_alloc(PROBE_BYTES, &gpu);

	if (err) {
		braid_gpu_note(why, len, "no memory of the GPU to try it with", err);
		braid_gpu_leave(mode);
		return;
	}
	p->flush_ns = UINT64_MAX;
	p->gpu_tried = braid_gpu_query(gpu, PROBE_BYTES, &what) ? -1 : what.gpu;
	direct = has_direct(p, path, sizeof(path), why, len);
	for (unsigned method = 0; method < BRAID_GPU_METHODS; method++) {
		if (!braid_param_lists(braid_param.gpu, method_word[method]) ||
		    (braid_gpu_method_is_direct(method) && !direct))
			continue;
		err = try_method(p, gpu, method);
		if (!err)
			methods |= 1u << method;
		braid_gpu_note(why, len, braid_gpu_method_name[method], err);
	}
	p->gpu_methods = methods;
	if (methods & BRAID_WITH_DIRECT)
		place_direct(p->loop_dev, path, why, len);
	if (methods && braid_param.gpu_flush)
		note_flush(p, why, len);
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
	err = braid_loop_wait_up(p);
	if (!err)
		try_all(p, why, len);
	else if (p->fabric == BRAID_FABRIC_IWARP)
		snprintf(why, len, "iWARP has no queue pair to itself, which the flush needs");
	else
		braid_gpu_note(why, len, "no queue pair to itself", err);
	if (!p->gpu_methods && p->loop)
		braid_loop_drop(p, 0);
	pthread_mutex_unlock(&p->loop_lock);
	return (p->gpu_methods ? BRAID_GPU_REG : 0) |
	       (p->gpu_methods & (BRAID_WITH_DIRECT | BRAID_WITH_DMABUF) ? BRAID_GPU_DMABUF : 0) |
	       (p->gpu_methods & BRAID_WITH_DIRECT ? BRAID_GPU_DIRECT : 0);
}

const struct braid_gpu braid_ibport_gpu = {
	.probe = gpu_probe,
	.reg = braid_verbs_gpu_reg,
	.copy = braid_verbs_gpu_copy,
	.copy_end = braid_verbs_gpu_copy_end,
	.flush = braid_verbs_gpu_flush,
};
