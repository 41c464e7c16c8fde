/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.h - what a transport's NIC does with memory of GPUs. */
#ifndef BRAID_GPU_H
#define BRAID_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct braid_dev;
struct braid_key;
struct braid_mem;

enum {				/* what a NIC can do with GPU memory */
	BRAID_GPU_REG = 1,	/* reg() accepts it */
	BRAID_GPU_DMABUF = 2,	/* reg() accepts it as a DMA-BUF */
	BRAID_GPU_DIRECT = 4,	/* data and completions take different paths: always flush */
};

struct braid_gpu_flush {		/* one flush; the transport owns all but `insist` */
	bool insist;			/* false: return -EHOSTDOWN if a recent flush failed */
	uint64_t id;
	unsigned tries;
	int err;
};

struct braid_gpu_copy {			/* one copy from or to GPU memory */
	char *at, *own;			/* next byte to copy: its GPU address; its host address */
	size_t len;
	bool to_gpu;
	bool insist;			/* false: return -EHOSTDOWN if a recent copy failed */
	size_t piece;			/* bytes in flight, set by the transport; 0: none */
	uint64_t id;
	unsigned tries;
	int err;
};

/* GPU memory.  Any thread may make these calls, also with a link's lock held. */
struct braid_gpu {
	/*
	 * At init, in a thread with a context of the GPU driver: returns which of BRAID_GPU_* were
	 * seen to work on that device.  `why` gets one line on what was tried.
	 */
	unsigned (*probe)(struct braid_dev *dev, char *why, size_t len);
	int (*reg)(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret);
	/*
	 * Copy registered GPU memory.  The copy sees what the NIC wrote there before.  0: done;
	 * -EAGAIN: call again with the same `c`; else it failed, and nothing is in flight.
	 */
	int (*copy)(struct braid_dev *dev, const struct braid_key *key, struct braid_gpu_copy *c);
	/* Abandon a copy: on return nothing of it is in flight. */
	void (*copy_end)(struct braid_dev *dev, struct braid_gpu_copy *c);
	/*
	 * Make the NIC's earlier writes to that memory visible to the GPU.  0: they are; -EAGAIN:
	 * call again with the same `f`; else it failed.  The caller zeroes *f before the first call
	 * and may drop it at any time.
	 */
	int (*flush)(struct braid_dev *dev, const struct braid_key *key, char *at,
		     struct braid_gpu_flush *f);
};

#endif
