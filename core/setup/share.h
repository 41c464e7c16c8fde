/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * share.h - how much of the CPUs each end's process gets: a silent peer may be stopped, or starved.
 *
 * While it is silent nobody can tell which.  But each ALIVE announces the CPU time that the process
 * has used, and how long its service thread was ready to run and waited for a CPU.  So once the
 * peer is heard again, or while it is late, the log says which: a process whose thread waited is
 * starved, and one whose thread did not was stopped.  Called with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_SHARE_H
#define BRAID_SETUP_SHARE_H

#include <stdint.h>

struct braid_hdr;
struct braid_link;

/* Each tick: read this process's own share.  asleep_ns: it did not run for so long, or 0. */
void braid_share_tick(uint64_t asleep_ns, uint64_t now);
/* Put what was last read into an ALIVE. */
void braid_share_announce(struct braid_hdr *h);
/* Each tick: note what the peer has announced, and log why it was silent once that is known. */
void braid_share_note(struct braid_link *link, uint64_t now);
/* A silence that was reported is over. */
void braid_share_heard(struct braid_link *link, uint64_t silent_ms, uint64_t now);
/* What the peer uses of a CPU and waits for one, in percent; -1: not known.  Without any lock. */
void braid_share_get(const struct braid_link *link, int *ret_used, int *ret_queued);
/* A clause for a peer that is late, "; its process used ...", or "". */
enum { BRAID_SHARE_TEXT = 160 };
const char *braid_share_text(const struct braid_link *link, char ret[BRAID_SHARE_TEXT]);

#endif
