/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.h - GPU memory that a port reads and writes by itself (GPUDirect RDMA).
 *
 * There are several methods to register such memory, and a host may support none of them.  So
 * each is tried at init with GPU memory of our own: the NIC reads and writes it through a queue
 * pair to itself (the loop), and the driver's view of the memory must agree.  Buffers are then
 * registered by the methods that worked, tried in the same order.
 *
 * The loop also copies data between a GPU and our own memory, where data must pass through the CPU
 * after all.  And it flushes: an RDMA READ makes the writes before it visible.
 */
#ifndef BRAID_VERBS_GPU_H
#define BRAID_VERBS_GPU_H

#include <string.h>

#include "core/transport.h"
#include "verbs/port.h"

extern const struct braid_gpu braid_ibport_gpu;

/* Methods to register: by Data Direct or not, by an export for PCIe or not; nvidia-peermem. */
enum {
	BRAID_DIRECT_PCIE, BRAID_DIRECT, BRAID_DMABUF_PCIE, BRAID_DMABUF, BRAID_PEERMEM,
	BRAID_GPU_METHODS
};
enum {				/* sets of methods */
	BRAID_WITH_DIRECT = 1 << BRAID_DIRECT_PCIE | 1 << BRAID_DIRECT,
	BRAID_WITH_DMABUF = 1 << BRAID_DMABUF_PCIE | 1 << BRAID_DMABUF,
};
extern const char *const braid_gpu_method_name[BRAID_GPU_METHODS];
bool braid_gpu_method_is_direct(unsigned method);

enum { BRAID_FLUSH_READ, BRAID_FLUSH_GDRCOPY, BRAID_FLUSH_DRIVER };	/* for p->flush_by */

/* gpu_reg.c: register by that method; by the first that works for this memory. */
int braid_gpu_reg_by(struct braid_ibport *p, const struct braid_mem *mem, unsigned method,
		     struct braid_key *ret);
int braid_verbs_gpu_reg(struct braid_dev *dev, const struct braid_mem *mem,
			struct braid_key *ret);
/* Append "name: text" to the list in `why`; the second, the text of `err`, unless that is 0. */
void braid_gpu_note_text(char *why, size_t len, const char *name, const char *text);
static inline void braid_gpu_note(char *why, size_t len, const char *name, int err)
{
	braid_gpu_note_text(why, len, name, err ? strerror(-err) : "");
}

/* gpu_copy.c: members of struct braid_gpu.  Only copy_end waits, 10 ms at most. */
int braid_verbs_gpu_copy(struct braid_dev *dev, const struct braid_key *key,
			 struct braid_gpu_copy *c);
void braid_verbs_gpu_copy_end(struct braid_dev *dev, struct braid_gpu_copy *c);
int braid_verbs_gpu_flush(struct braid_dev *dev, const struct braid_key *key, char *at,
			  struct braid_gpu_flush *f);
/* Only for the probe: copies, and waits. */
int braid_verbs_gpu_copy_now(struct braid_ibport *p, const struct braid_key *key, char *at,
			     char *own, size_t len, bool to_gpu);

#endif
