/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loop.h - the loop: a port's queue pair to itself, by which the NIC reads and writes GPU memory
 * that the CPU can't reach.
 *
 * Copies and flushes of all callers share the loop.  All functions need p->loop_lock.  If a caller
 * finds the loop failed, it drops the queue pair, and the next caller has a job make a new one.
 */
#ifndef BRAID_VERBS_LOOP_H
#define BRAID_VERBS_LOOP_H

#include "verbs/port.h"
#include "verbs/recv.h"

enum {
	BRAID_LOOP_BYTES = (BRAID_SLOTS_RX - 1) * BRAID_SLOT,	/* the most of a copy at a time */
	BRAID_LOOP_FLUSHED = BRAID_LOOP_BYTES,	/* flushes read into this last slot, unused */
};

/* 0: the loop is ready; -EAGAIN: a job is making it; else making it failed or took too long. */
int braid_loop_up(struct braid_ibport *p);
int braid_loop_wait_up(struct braid_ibport *p);	/* the same, and waits: only at init */
/* Drops the loop's queue pair, and with it every request in flight. */
void braid_loop_drop(struct braid_ibport *p, int err);

/* The loop has failed: callers that have another method avoid it for a while. */
void braid_loop_avoid(struct braid_ibport *p);
bool braid_loop_is_avoided(const struct braid_ibport *p);

/* Posts a request between `own`, in the loop's slots, and `at`, in memory of `key`.  0 or -EIO. */
int braid_loop_post(struct braid_ibport *p, enum ibv_wr_opcode opcode, char *own, size_t len,
		    const struct braid_key *key, char *at);
/* Polls completions, which come in the order of posting.  On failure the loop is dropped. */
int braid_loop_poll(struct braid_ibport *p);
int braid_loop_wait(struct braid_ibport *p);	/* for all completions: only at init */

#endif
