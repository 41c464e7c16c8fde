/* SPDX-License-Identifier: BSD-3-Clause */
/* hist.c - see hist.h. */
#include "core/base/hist.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"

BRAID_APART void braid_hist_note(struct braid_hist_live *h, uint64_t ns)
{
	struct braid_hist_cells *c = atomic_load_explicit(&h->cells, memory_order_relaxed);

	if (!c) {
		c = calloc(1, sizeof(*c));
		if (!c)
			return;
		atomic_store_explicit(&h->cells, c, memory_order_release);
	}
	braid_count(&c->n[braid_hist_bucket(ns)], 1);
	braid_count(&c->sum_ns, ns);
	if (ns > atomic_load_explicit(&c->max_ns, memory_order_relaxed))
		atomic_store_explicit(&c->max_ns, ns, memory_order_relaxed);
}

void braid_hist_read(const struct braid_hist_live *h, struct braid_hist *ret)
{
	const struct braid_hist_cells *c = atomic_load_explicit(&h->cells, memory_order_acquire);

	memset(ret, 0, sizeof(*ret));
	if (!c)
		return;
	for (unsigned i = 0; i < BRAID_HIST_BUCKETS; i++) {
		ret->n[i] = atomic_load_explicit(&c->n[i], memory_order_relaxed);
		ret->count += ret->n[i];
	}
	ret->sum_ns = atomic_load_explicit(&c->sum_ns, memory_order_relaxed);
	ret->max_ns = atomic_load_explicit(&c->max_ns, memory_order_relaxed);
}

void braid_hist_free(struct braid_hist_live *h)
{
	free(atomic_exchange(&h->cells, NULL));
}
