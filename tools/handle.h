/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * handle.h - the bytes of a Braid handle, for those who change one (docs/dev/wire.md).
 *
 * core/proto/handle.c is the first writing of them.  This second one does not use it, so that the
 * fuzzer and braid validate notice if the layout changes.
 */
#ifndef BRAID_TOOLS_HANDLE_H
#define BRAID_TOOLS_HANDLE_H

#include <stdint.h>

enum {
	HANDLE_AT_VERSIONS = 8,		/* the least and the most */
	HANDLE_AT_TOKEN = 40,
	HANDLE_TOKEN_SIZE = 32,
	HANDLE_AT_CHECK = 104,
};

/* Make the check right again: FNV-1a of all bytes before it, little-endian. */
static inline void handle_put_check(uint8_t *handle)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (unsigned i = 0; i < HANDLE_AT_CHECK; i++)
		h = (h ^ handle[i]) * 0x100000001b3ull;
	for (unsigned i = 0; i < 8; i++)
		handle[HANDLE_AT_CHECK + i] = (uint8_t)(h >> 8 * i);
}

#endif
