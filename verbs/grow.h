/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grow.h - receives of a lane's own: few while it is idle, all once it is used.
 *
 * Memory for BRAID_SLOTS_RX slots is half a MiB, registered: too much for each of thousands of
 * links, of which most are idle at a time.  So a lane begins with BRAID_SLOTS_FEW, and its set-up
 * message says so.  It gets the others once it has used GROW_USES slots within a second:
 *
 *	used so much ---> a job registers memory ---> the next message that comes finds that done:
 *	posts the others ---> writes the new window into the peer's memory ---> the peer uses them
 *
 * So the peer learns of a slot only after that has been posted.  The lane keeps what it has got,
 * since receives that are posted can be taken back only with their queue pair.  If no memory can be
 * registered, it stays with few.  A peer whose set-up message shows that it does not know this gets
 * all before its first message.
 *
 * With few slots, each is posted again at once, and half of them are reported at a time.  What a
 * sender needs comes by a WRITE, which takes no slot.  So it is never stuck, however few they are.
 */
#ifndef BRAID_VERBS_GROW_H
#define BRAID_VERBS_GROW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/mem/later.h"

struct braid_qp;

struct braid_grow {			/* guarded by the link's lock */
	unsigned repost;		/* of its own slots, posted again together */
	unsigned report_at;		/* unreported slots with which counts are written; 0: now,
					 * and the window with them */
	bool may;			/* it has few, and may get the others */
	bool asked;			/* a job registers them, or has done so */
	atomic_bool over;		/* the job is */
	struct braid_job job;
	uint64_t since_ns;
	uint32_t since;			/* slots used by then */
};

/* The window as the peer writes it: a number and its complement. */
static inline uint32_t braid_window_word(uint32_t n)
{
	return n | (n ^ 0xffff) << 16;
}

/* The lane opens, and has been set up with these slots. */
void braid_grow_begin(struct braid_qp *w);
/* Only while w->grow.may: slots have been used and posted again.  0 or -EIO. */
int braid_grow(struct braid_qp *w);
/*
 * At set-up, in its job: gets all slots, unless they are shared.  posted: the first are posted, so
 * post the others, too.  0 or a negative errno.
 */
int braid_grow_now(struct braid_qp *w, bool posted);

#endif
