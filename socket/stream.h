/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream.h - the stream engine: frames over a connected byte stream, for TCP and what looks like
 * it.  The members are those of struct braid_transport and keep its contract.
 */
#ifndef BRAID_SOCKET_STREAM_H
#define BRAID_SOCKET_STREAM_H

#include "core/lane.h"

struct braid_stream {
	struct braid_lane lane;		/* first */
	int fd;				/* its owner's: lane->fd, or a socket beside that one */
	uint8_t *stage;			/* what was read ahead of being understood */
	unsigned beg, end;		/* of it, not understood yet */
	bool big;			/* the last payload was: read headers, not ahead */
};

int braid_stream_attach(struct braid_lane *lane);
void braid_stream_detach(struct braid_lane *lane);
void braid_stream_close(struct braid_lane *lane);
int braid_stream_push(struct braid_lane *lane);
int braid_stream_poll(struct braid_lane *lane);

#endif
