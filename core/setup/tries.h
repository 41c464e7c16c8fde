/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tries.h - a new link's dial goes through its ways, one after the other, until one works.
 *
 * Each way gets a share of BRAID_CONNECT_TIMEOUT, a larger one in each round.  An error that is
 * final at one address, such as a refusal, need not be final for the link: the other addresses are
 * tried for some seconds more.
 */
#ifndef BRAID_SETUP_TRIES_H
#define BRAID_SETUP_TRIES_H

#include <stdbool.h>
#include <stdint.h>

struct braid_conn;
struct braid_link;

/* How long to wait for TCP to connect or, if `connected`, for the peer's answer: ns. */
uint64_t braid_tries_slice(const struct braid_link *link, bool bound, bool connected);
/* How long the answer to an OPEN may take before a link that proves nothing is in doubt: ns. */
uint64_t braid_tries_patience(void);
/*
 * A dial of the link failed (`c` NULL: before there was a connection).  final: trying this address
 * again is no use.  True: the next dial is due at link->dial.at_ns.
 */
bool braid_tries_go_on(struct braid_link *link, const struct braid_conn *c, int err, bool final,
		       uint64_t now);
/* One INFO line: the ways in the order in which they were tried, and their errors. */
void braid_tries_log(const struct braid_link *link);

#endif
