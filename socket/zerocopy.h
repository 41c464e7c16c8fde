/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zerocopy.h - large payloads leave from the user's memory, without a copy (MSG_ZEROCOPY).
 *
 * The kernel then reads that memory until the peer's host has acknowledged the bytes, as a NIC does
 * over RDMA, and the same rules hold.  A send is done once the peer has acknowledged its frames.
 * Memory that is taken back before that waits until the kernel has let go of it: the connection is
 * aborted, and a job of core/mem/later.h collects the kernel's notifications.
 * docs/decisions/0019-sends-without-a-copy.md says why that is enough.
 */
#ifndef BRAID_SOCKET_ZEROCOPY_H
#define BRAID_SOCKET_ZEROCOPY_H

#include <stddef.h>
#include <sys/types.h>

struct braid_lane;
struct braid_zerocopy;

/* A lane's new socket is to send so: NULL if it can't, and then all is copied as ever. */
struct braid_zerocopy *braid_zerocopy_new(struct braid_lane *lane);
/*
 * As send() of n bytes, which stay where they are until the peer has acknowledged their frame.
 * Where the kernel has no room for that, they are copied.  Called without a lock.
 */
ssize_t braid_zerocopy_send(struct braid_lane *lane, struct braid_zerocopy *z, const void *p,
			    size_t n);
/* Read the notifications that have come.  They raise EPOLLERR until they are read. */
void braid_zerocopy_collect(struct braid_lane *lane, struct braid_zerocopy *z);
/*
 * If the kernel may still read payloads that the peer has not acknowledged, abort the connection.
 * braid_stops_past() says when the kernel has let go of them.
 */
void braid_zerocopy_fence(struct braid_lane *lane, struct braid_zerocopy *z);
/* Close the lane's socket, if it has one, once the kernel has let go of what was fenced. */
void braid_zerocopy_close(struct braid_lane *lane, struct braid_zerocopy *z);

#endif
