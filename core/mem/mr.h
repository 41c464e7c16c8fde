/* SPDX-License-Identifier: BSD-3-Clause */
/* mr.h - the user's registered memory, and the address and keys of a receive's buffer. */
#ifndef BRAID_MEM_MR_H
#define BRAID_MEM_MR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/list.h"
#include "core/proto/common.h"
#include "core/transport.h"

struct braid_mrc;
struct braid_stage;

struct braid_mr {			/* registered user memory, and its keys */
	struct braid_list node;		/* in its owner's list */
	struct braid_dev *dev;
	char *data;
	size_t size;
	bool gpu;			/* the CPU must not touch it */
	struct braid_key key[BRAID_PATHS_MAX];	/* by member; mr NULL: not registered there */
	struct braid_mrc *cached[BRAID_PATHS_MAX];	/* core/mem/mrcache.c */
	struct braid_stage *stage;	/* GPU: for copies by the driver; NULL: not possible */
	const char *stage_why;		/* NULL `stage`: the driver call that failed */
	int stage_err;			/* and its negative errno */
};

struct braid_place {			/* where the sender's NIC writes: a receive's buffer */
	uint64_t addr;
	uint32_t rkey_epoch;			/* of the receiver's link, in the credit */
	unsigned nkeys;			/* 0: the NIC can't write there */
	uint32_t key[BRAID_PATHS_MAX];	/* of each of the receiver's members */
};

#endif
