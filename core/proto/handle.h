/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * handle.h - the 128 bytes that listen() fills and NCCL's bootstrap carries to the dialler.
 *
 * They hold the id and the token of the listen comm, and the addresses of its process.  The dialler
 * keeps the state of its attempt in its own copy of the handle.
 */
#ifndef BRAID_PROTO_HANDLE_H
#define BRAID_PROTO_HANDLE_H

#include <stdint.h>

#include "core/proto/common.h"

#define BRAID_HANDLE_MAGIC 0x4c48444941524221ull	/* "!BRAIDHL" */

enum {
	BRAID_HANDLE_SIZE = 128,
	BRAID_HANDLE_MORE = 6,
};

struct braid_handle_state {		/* the dialler's own; zero when the handle arrives */
	uint32_t slot;			/* index + 1 */
	uint32_t gen;
	uint64_t nonce;
};

struct braid_handle {
	uint16_t least, most;		/* wire versions */
	uint16_t place;			/* the listener's braid_self.place; 0: not sent */
	uint16_t dev;			/* the listener's device index */
	uint64_t listen_id;
	uint8_t process[BRAID_ID_SIZE];
	uint8_t token[BRAID_KEY_SIZE];
	uint16_t port;
	uint8_t has4, has6;
	uint8_t addr4[4];
	uint8_t addr6[16];
	uint8_t more4[BRAID_HANDLE_MORE][4];	/* ends at 0.0.0.0; with has6 only two */
	struct braid_handle_state state;
};

void braid_handle_pack(const struct braid_handle *h, void *to);
/* 0; -EPROTO not a Braid handle; -EPROTONOSUPPORT no common version (*ret is filled then);
 * -EBADMSG damaged. */
int braid_handle_unpack(const void *from, struct braid_handle *ret);
void braid_handle_put_state(void *handle, const struct braid_handle_state *s);

#endif
