/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream.h - the stream engine: frames over a connected byte stream, for TCP and SMC.  Its
 * functions are members of struct braid_transport and keep its contract.
 */
#ifndef BRAID_SOCKET_STREAM_H
#define BRAID_SOCKET_STREAM_H

#include "core/link/lane_io.h"
#include "socket/sealed.h"

struct braid_zerocopy;

struct braid_stream {
	struct braid_lane lane;		/* first */
	int fd;				/* owned by the transport: lane->fd, or a second socket */
	char *stage;				/* bytes read ahead, to be parsed */
	unsigned beg, end;		/* the part of it that is not parsed yet */
	bool again;			/* the link or a GPU was busy: call braid_rx_bytes() again,
					 * even if no bytes are staged */
	struct braid_zerocopy *zerocopy;	/* NULL: all that it sends is copied */
	uint8_t cipher;			/* enum braid_cipher, in both directions; 0: plain bytes */
	struct braid_seal seal;
	struct braid_unseal unseal;
};

/* Encrypt both directions if lane->keys says so: 0 or -ENOMEM.  For lane_open(). */
int braid_stream_encrypt(struct braid_lane *lane);
int braid_stream_attach(struct braid_lane *lane);
void braid_stream_detach(struct braid_lane *lane);
void braid_stream_close(struct braid_lane *lane);
int braid_stream_push(struct braid_lane *lane);
int braid_stream_poll(struct braid_lane *lane);

#endif
