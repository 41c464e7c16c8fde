/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * path.h - the paths from here to a peer: from which of our interfaces, to which of its addresses.
 *
 * A plain device has one path.  A fused device (NIC fusion) has one for each of its members, paired
 * with the peer's members by subnet; lane i prefers path i modulo their number.  A path that failed
 * is avoided for a while, longer each time that it fails again soon.  Then its lanes return to it.
 *
 * The paths of a link are changed with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_PATH_H
#define BRAID_SETUP_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/dev.h"
#include "core/link/paths.h"
#include "core/setup/ways.h"
#include "core/proto/handle.h"
#include "core/proto/hello.h"

struct braid_conn;
struct braid_link;

/* Make the first path, to the addresses in a peer's handle.  No IP version in common: no ways. */
void braid_path_first(struct braid_link *link, const struct braid_handle *to);
/* Make all paths to the peer's addresses: `at`, where it was reached, and those in its hello. */
void braid_paths_all(struct braid_link *link, const struct braid_addr *at,
		     const struct braid_hello *theirs);
/* Fill our hello with the port of `met`, and the addresses and ports of our other members. */
void braid_paths_announce(struct braid_dev *dev, const struct braid_dev *met,
			  struct braid_hello *h);

/* The address to dial now; returns its length.  0: no IP version in common. */
socklen_t braid_path_sockaddr(const struct braid_path *p, struct sockaddr_storage *ret);
/* That address as text: it names the peer of a new link until the peer's hello has come. */
void braid_path_text(const struct braid_link *link, unsigned path, char *ret, size_t len);
/* The address of the peer's member, for a transport's own connections. */
void braid_path_member(const struct braid_path *p, struct sockaddr_storage *ret);
/*
 * A dial by one of a path's ways worked (err 0), or failed.  True: it failed and no other way is
 * left to try, so the path itself is to blame.
 */
bool braid_path_dialled(struct braid_link *link, const struct braid_conn *c, int err, uint64_t now);

/* The path that a lane should use now. */
unsigned braid_path_for(const struct braid_link *link, unsigned lane, uint64_t now);
/* The path does not work; or it works again. */
void braid_path_bad(struct braid_link *link, unsigned path, uint64_t now);
void braid_path_good(struct braid_link *link, unsigned path, uint64_t now);
/* Log a WARN for each path that has been bad for some seconds while others work. */
void braid_paths_report(struct braid_link *link, uint64_t now);
/*
 * A transport better than sockets failed on the path: only sockets use it for a while, at least
 * least_s seconds.  worse: not just a port that is down; failing again soon doubles the time.
 */
void braid_path_plain(struct braid_link *link, unsigned path, bool worse, unsigned least_s,
		      uint64_t now);
/*
 * Data was changed on its way over the path.  If that happens again and again the path is left: for
 * 10 s, twice as long each time that it happens again soon.  Returns for how many seconds, or 0.
 * better: by a transport better than sockets, in whose place sockets use the path meanwhile.
 */
unsigned braid_path_corrupt(struct braid_link *link, unsigned path, bool better, uint64_t now);

#endif
