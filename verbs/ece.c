/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ece.c - enhanced connection establishment: options that both ends' drivers know of (such as
 * selective repeat) and agree on before the queue pairs are connected.
 *
 * The dialler offers what its driver has; the accepter asks its own for that, and answers with what
 * that has taken; the dialler asks for the answer.  An end that knows none of it says nothing.
 */
#include "core/param.h"
#include "verbs/wire.h"

static bool is_wanted(void)
{
	return braid_param.ib_ece && braid_ibv.query_ece && braid_ibv.set_ece;
}

void braid_ece_tell(const struct braid_wire *w, struct braid_wire_blob *b)
{
	struct ibv_ece e = { 0 };

	if (!is_wanted() || !w->qp || braid_ibv.query_ece(w->qp, &e) || e.comp_mask)
		return;
	b->ece_vendor = e.vendor_id;
	b->ece_options = e.options;
}

void braid_ece_take(struct braid_wire *w, const struct braid_wire_blob *peer)
{
	struct ibv_ece e = { .vendor_id = peer->ece_vendor, .options = peer->ece_options };

	/* One of another vendor's is refused, and nothing is lost. */
	w->ece = is_wanted() && peer->ece_vendor && !braid_ibv.set_ece(w->qp, &e);
}
