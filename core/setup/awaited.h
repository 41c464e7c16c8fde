/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * awaited.h - what an accept() waits for, once it has waited for BRAID_STALL_WARN seconds.
 *
 * accept() never fails for want of a peer: the rank that is to connect may only be late.  So a WARN
 * says how long it has waited, and for whom: which peer came last and what became of it, or that
 * none came.  While the wait goes on, it is repeated after each six times BRAID_STALL_WARN.
 */
#ifndef BRAID_SETUP_AWAITED_H
#define BRAID_SETUP_AWAITED_H

#include <stdbool.h>
#include <stdint.h>

struct braid_conn;
struct braid_dev;

/* Of a listen.  Its lock guards all but since_ns and next_ns, which only accept() uses. */
struct braid_awaited {
	uint64_t since_ns, next_ns;	/* accept() waits since then; the next WARN is due */
	uint64_t came_ns;		/* when a peer last came; 0: none has */
	char who[160], why[480];	/* that peer, and what became of it */
	uint32_t link;			/* number of the link that it made; 0: none */
};

/* A handshake for the listen is over, with an error or as that link; its peer is known. */
void braid_awaited_came(struct braid_awaited *w, const struct braid_conn *c, int err,
			uint32_t link, uint64_t now);
/* accept() has found nothing.  True: it is to report that now. */
bool braid_awaited_is_due(struct braid_awaited *w);
/* Write the report.  Takes braid_svc.lock; `w` is the caller's copy. */
void braid_awaited_report(const struct braid_awaited *w, const struct braid_dev *dev,
			  uint64_t listen_id);

#endif
