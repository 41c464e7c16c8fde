/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.c - what a real training step sends: ResNet-50's gradients in PyTorch DDP's buckets.
 *
 * DDP fills buckets with gradients in the order in which backward yields them, last layer first.
 * A bucket is closed by the tensor that takes it to its limit: 1 MiB for the first, so that
 * sending starts early, 25 MiB for the others.
 */
#include "tools/perf/model.h"

#include <assert.h>
#include <stdbool.h>

enum { TENSORS = 161, PARAMS = 25557032, CLASSES = 1000 };
enum { FIRST_BYTES = 1 << 20, BUCKET_BYTES = 25 << 20 };

struct tensors {
	uint64_t params[TENSORS];
	unsigned n;
};

static void add(struct tensors *t, uint64_t params)
{
	assert(t->n < TENSORS);
	t->params[t->n++] = params;
}

/* A convolution and the two vectors of its batch norm. */
static void conv(struct tensors *t, uint64_t in, uint64_t out, uint64_t kernel)
{
	add(t, out * in * kernel * kernel);
	add(t, out);
	add(t, out);
}

static void bottleneck(struct tensors *t, uint64_t in, uint64_t width, bool first)
{
	conv(t, in, width, 1);
	conv(t, width, width, 3);
	conv(t, width, 4 * width, 1);
	if (first)
		conv(t, in, 4 * width, 1);	/* the shortcut's */
}

static void resnet50(struct tensors *t)
{
	static const unsigned blocks[] = { 3, 4, 6, 3 };
	uint64_t in = 64, width = 64;
	unsigned stage, b;

	conv(t, 3, 64, 7);
	for (stage = 0; stage < 4; stage++, width *= 2) {
		for (b = 0; b < blocks[stage]; b++) {
			bottleneck(t, in, width, b == 0);
			in = 4 * width;
		}
	}
	add(t, in * CLASSES);
	add(t, CLASSES);
}

void perf_resnet50(struct perf_model *ret)
{
	struct tensors t = { .n = 0 };
	uint64_t limit = FIRST_BYTES, *bucket;
	unsigned i;

	resnet50(&t);
	*ret = (struct perf_model){ .tensors = t.n, .buckets = 1 };
	bucket = ret->bucket_params;
	for (i = t.n; i-- > 0;) {
		if (*bucket * sizeof(float) >= limit) {
			assert(ret->buckets < PERF_BUCKETS_MAX);
			bucket = &ret->bucket_params[ret->buckets++];
			limit = BUCKET_BYTES;
		}
		*bucket += t.params[i];
		ret->params += t.params[i];
	}
	assert(ret->tensors == TENSORS && ret->params == PARAMS);
}
