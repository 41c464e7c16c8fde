/* SPDX-License-Identifier: BSD-3-Clause */
/* model.h - a real model, for the ddp pattern: ResNet-50. */
#ifndef BRAID_TOOLS_PERF_MODEL_H
#define BRAID_TOOLS_PERF_MODEL_H

#include <stdint.h>

enum { PERF_BUCKETS_MAX = 64 };

struct perf_model {
	unsigned tensors;
	uint64_t params;
	unsigned buckets;
	uint64_t bucket_params[PERF_BUCKETS_MAX];	/* in the order they are sent */
};

/* ResNet-50's parameters in DDP's buckets. */
void perf_resnet50(struct perf_model *ret);

#endif
