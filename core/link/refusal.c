/* SPDX-License-Identifier: BSD-3-Clause */
/* refusal.c - see refusal.h. */
#include "core/link/refusal.h"

#include <errno.h>
#include <stdlib.h>

#include "core/link/link.h"
#include "core/proto/frame.h"

struct braid_refusals {
	unsigned first, n;		/* a ring */
	struct {
		uint32_t comm;
		uint16_t code;
	} at[BRAID_REFUSALS_MAX];
};

int braid_refusal_add(struct braid_link *link, uint32_t comm, uint16_t code)
{
	struct braid_refusals *r = link->refusals;
	unsigned i;

	if (!r) {
		r = calloc(1, sizeof(*r));
		if (!r)
			return -ENOMEM;
		link->refusals = r;
	}
	if (r->n == BRAID_REFUSALS_MAX)
		return -EBADMSG;
	i = (r->first + r->n++) % BRAID_REFUSALS_MAX;
	r->at[i].comm = comm;
	r->at[i].code = code;
	return 0;
}

bool braid_refusal_tell(struct braid_link *link)
{
	struct braid_refusals *r = atomic_load_explicit(&link->refusals, memory_order_relaxed);

	if (!r)
		return true;
	while (r->n) {
		struct braid_hdr h = {
			.type = BRAID_F_REFUSED, .comm = r->at[r->first].comm,
			.n = r->at[r->first].code,
		};

		if (!braid_link_ctl(link, &h, NULL))
			return false;
		r->first = (r->first + 1) % BRAID_REFUSALS_MAX;
		r->n--;
	}
	braid_refusal_free(link);
	return true;
}

void braid_refusal_free(struct braid_link *link)
{
	free(link->refusals);
	link->refusals = NULL;
}
