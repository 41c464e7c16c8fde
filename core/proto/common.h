/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common.h - what handle, hello and frames have in common: versions, sizes of ids, and limits.
 *
 * handle.h, hello.h and frame.h hold every byte that Braid sends.  All integers there are
 * little-endian; docs/dev/wire.md states the same in prose.  Sizes are fixed, and each pack has an
 * unpack that checks: magic, version, length, then fields.  None of them knows sockets, comms or
 * keys.
 *
 * Version rule: a peer speaks every version from `least` to `most`.  Both ends use the highest
 * version in common.  If they have none, the link is refused with a line that names both ranges.
 */
#ifndef BRAID_PROTO_COMMON_H
#define BRAID_PROTO_COMMON_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/self.h"

enum {
	BRAID_WIRE_LEAST = 1,
	BRAID_WIRE_MOST = 2,

	BRAID_KEY_SIZE = 32,		/* tokens, session keys */
	BRAID_MAC_SIZE = 32,

	BRAID_LANES_MAX = 16,
	BRAID_PATHS_MAX = 4,		/* members of a device made of several */
};

/* 0, or -EPROTONOSUPPORT: a peer with these versions and this library have none in common. */
static inline int braid_version_check(uint16_t least, uint16_t most)
{
	return least > most || most < BRAID_WIRE_LEAST || least > BRAID_WIRE_MOST ?
		       -EPROTONOSUPPORT : 0;
}

/* The version that two ends with these highest versions speak. */
static inline uint16_t braid_version_agreed(uint16_t ours, uint16_t theirs)
{
	return ours < theirs ? ours : theirs;
}

/* Is epoch a later than epoch b?  Version 1 sends the low 16 bits only. */
static inline bool braid_epoch_is_later(uint16_t version, uint32_t a, uint32_t b)
{
	return version < 2 ? (int16_t)(a - b) > 0 : (int32_t)(a - b) > 0;
}

#endif
