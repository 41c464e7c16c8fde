/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ece.c - enhanced connection establishment: options that both ends' drivers know of (such as
 * selective repeat) and agree on before the queue pairs are connected.
 *
 * The dialler offers its driver's options.  The accepter sets these on its own queue pair and
 * answers with those that its driver took; the dialler then sets these.  An end without ECE sends
 * no options.
 */
#include "core/base/param.h"
#include "verbs/qp.h"

static bool is_wanted(void)
{
	return braid_param.ib_ece && braid_ibv.query_ece && braid_ibv.set_ece;
}

void braid_ece_pack(const struct braid_qp *w, struct braid_qp_blob *b)
{
	struct ibv_ece e = { 0 };

	if (!is_wanted() || !w->qp || braid_ibv.query_ece(w->qp, &e) || e.comp_mask)
		return;
	b->ece_vendor = e.vendor_id;
	b->ece_options = e.options;
}

void braid_ece_apply(struct braid_qp *w, const struct braid_qp_blob *peer)
{
	struct ibv_ece e = { .vendor_id = peer->ece_vendor, .options = peer->ece_options };

	/* Options of another vendor are refused, and the queue pair works without them. */
	w->ece = is_wanted() && peer->ece_vendor && !braid_ibv.set_ece(w->qp, &e);
}
