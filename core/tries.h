/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tries.h - a new link's dial goes through its ways, one after the other, until one works.
 *
 * Each gets its share of BRAID_CONNECT_TIMEOUT, more in each round.  An error that is the last word
 * at one address, such as a refusal, need not be so at another: the others are tried for some
 * seconds more.
 */
#ifndef BRAID_CORE_TRIES_H
#define BRAID_CORE_TRIES_H

#include <stdbool.h>
#include <stdint.h>

struct braid_conn;
struct braid_link;

/* For how long to wait for a connection, or, once that is there, for the peer's answer. */
uint64_t braid_tries_slice(const struct braid_link *link, bool bound, bool connected);
/*
 * A dial of it failed (`c` NULL: before there was a connection); final: for good, at that address.
 * True: it goes on, at link->dial_at_ns.
 */
bool braid_tries_go_on(struct braid_link *link, const struct braid_conn *c, int err, bool final,
		       uint64_t now);
/* The order in which they were tried, one line at INFO. */
void braid_tries_tell(const struct braid_link *link);

#endif
