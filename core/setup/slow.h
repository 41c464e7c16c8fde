/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slow.h - lanes whose path is slow get another path.
 *
 * Switches and routers hash a connection's addresses and ports to one of several paths.  One of
 * these may be slow: a bad cable, or many other flows.  The end that sends sees it: a lane that had
 * bytes in flight got fewer of them acknowledged per second than other lanes.  If its rate over a
 * second is below half of the median of its link's lanes, or an eighth of the fastest, it is
 * dialled again from another port.  It carries data until then, and nothing is lost.
 *
 * Only the dialler dials; the other end asks by a RENEW frame with tag 1, if the peer knows it.
 *
 * Each try that does not help doubles the pause before the next.  After five of them the lane is
 * left alone for minutes: its NIC or the peer may be slow, which no path can mend.
 *
 * Called by the service thread, with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_SLOW_H
#define BRAID_SETUP_SLOW_H

#include <stdbool.h>
#include <stdint.h>

struct braid_lane;
struct braid_link;

/* Compare the lanes' rates, at most once in a quarter of a second. */
void braid_slow_tick(struct braid_link *link, uint64_t now);
/* The lane has that rate in bytes per ns, another has `most`: it is to take another path. */
void braid_slow_leave(struct braid_lane *lane, double rate, double most, uint64_t now);
/*
 * A slow lane's new socket took so long to connect.  True: its path looks as bad as the old one,
 * whose queue is full, so dial another.
 */
bool braid_slow_refuses(struct braid_lane *lane, uint64_t connect_ms);

#endif
