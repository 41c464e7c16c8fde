/* SPDX-License-Identifier: BSD-3-Clause */
/* grow.c - see grow.h. */
#include "verbs/grow.h"

#include <errno.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/units.h"
#include "verbs/qp.h"

enum {
	GROW_USES = 32,			/* signs of life and a rare message use fewer in ... */
	GROW_MS = 1000,
	MORE = BRAID_SLOTS_RX - BRAID_SLOTS_FEW,
};

static void grow_run(struct braid_job *job)
{
	struct braid_qp *w = braid_container(job, struct braid_qp, grow.job);

	errno = 0;
	if (!atomic_load(&w->gone))
		w->m->more = braid_slots_part(NULL, w->m->pd, MORE);
	if (!w->m->more && !atomic_load(&w->gone))
		braid_info("port %s, queue pair 0x%x: can't register %u receives: %s; it goes on "
			   "with %u", w->port->name, w->qpn, MORE,
			   strerror(errno ? errno : ENOMEM), BRAID_SLOTS_FEW);
	atomic_store(&w->grow.over, true);
	braid_qp_put(w);
}

static bool is_used(struct braid_qp *w)
{
	struct braid_grow *g = &w->grow;
	uint64_t now = braid_os->now_ns();

	if (!g->since_ns || braid_since(g->since_ns, now) >= GROW_MS * MS) {
		g->since_ns = now;
		g->since = w->slots;
	}
	return w->slots - g->since >= GROW_USES;
}

int braid_grow(struct braid_qp *w)
{
	struct braid_grow *g = &w->grow;

	if (!g->asked && is_used(w)) {
		g->asked = true;
		g->job = (struct braid_job){ .what = "to register receives", .run = grow_run };
		braid_qp_get(w);
		/* Not MAKE: nothing waits for it, and it must not delay a set-up. */
		braid_later(w->dev, BRAID_END, &g->job);
	}
	if (!g->asked || !atomic_load(&g->over))
		return 0;
	g->may = false;
	if (!w->m->more)
		return 0;
	g->repost = BRAID_REPOST;
	g->report_at = 0;
	return braid_qp_post_recv(w, braid_slots_chain(w->m->more)) ? -EIO : 0;
}

int braid_grow_now(struct braid_qp *w, bool posted)
{
	if (w->srq)
		return 0;
	w->m->more = braid_slots_part(w->port, w->m->pd, MORE);
	if (!w->m->more)
		return braid_qp_failed(w, "ibv_reg_mr", -ENOMEM);
	return !posted ? 0 :
	       braid_qp_failed(w, "ibv_post_recv",
			       braid_qp_post_recv(w, braid_slots_chain(w->m->more)));
}

void braid_grow_begin(struct braid_qp *w)
{
	w->grow.may = !w->srq && !w->m->more;
	w->grow.repost = w->grow.may ? 1 : BRAID_REPOST;
	w->grow.report_at = w->grow.may ? BRAID_SLOTS_FEW / 2 : BRAID_SLOTS_RX / 2;
}
