/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * silence.h - is the peer there?
 *
 * An end that has nothing to send sends ALIVE now and then.  A silent peer is reported after some
 * seconds, and counts as dead after BRAID_PEER_TIMEOUT.  If the peer's port refuses connections and
 * no lane is left, the peer's process has ended.  Called with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_SILENCE_H
#define BRAID_SETUP_SILENCE_H

#include <stdbool.h>
#include <stdint.h>

struct braid_link;

/* The link is up: silence counts from now. */
void braid_silence_start(struct braid_link *link, uint64_t now);
/* For how many ns nothing has come from the peer. */
uint64_t braid_silence(const struct braid_link *link, uint64_t now);
/* Note whether anything has come since the last call, and end the silence if so. */
void braid_silence_update(struct braid_link *link, uint64_t now);
/* Report a peer that has been silent for some seconds. */
void braid_silence_report(struct braid_link *link, uint64_t now);
bool braid_silence_is_reported(const struct braid_link *link);
/* Fail the link if its peer has gone.  True: it has. */
bool braid_silence_is_over(struct braid_link *link, uint64_t now);
/* Send ALIVE if nothing was sent for a while, so that the peer does not take us for dead. */
void braid_silence_send_alive(struct braid_link *link, uint64_t now);
/* The milliseconds until ALIVE may be due. */
unsigned braid_silence_alive_ms(const struct braid_link *link, uint64_t now);

#endif
