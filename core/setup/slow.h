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
 * Only the dialler dials.  The other end asks it to by a RENEW frame with tag 1, unless the dialler
 * is an older build that does not know that tag.
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
/* Get the lane another path.  It sends at `rate`, another lane at `fastest`, in bytes per ns. */
void braid_slow_leave(struct braid_lane *lane, double rate, double fastest, uint64_t now);
/*
 * A slow lane's new socket took connect_ms to connect.  True: so long that it probably waited in
 * the full queue of the same slow path, so dial another.
 */
bool braid_slow_refuses(struct braid_lane *lane, uint64_t connect_ms);

#endif
