/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queue.h - the queue of frames of one lane, whose link's lock is held, and a wire that takes as many
 * of its bytes as a case likes.
 */
#ifndef BRAID_TESTS_UNIT_QUEUE_H
#define BRAID_TESTS_UNIT_QUEUE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/link/lane_io.h"
#include "core/link/link.h"

enum { RING = 4096, FRAMES = 16, STREAM_MAX = 1 << 16, SENDS = 8, IOV = 64, TEXT = 68 };

extern struct fixture {
	struct braid_link link;
	struct braid_lane lane;
	struct braid_xfer send[SENDS];
	atomic_bool done[SENDS];
	char want[STREAM_MAX];		/* what the peer must see */
	size_t nwant;
	char got[STREAM_MAX];
	size_t ngot;
	uint32_t queued;
} f;
extern const char text[TEXT];

int setup(void **state);
int teardown(void **state);

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* Send i, a part of which every frame is. */
struct braid_xfer *send_of(unsigned i, unsigned parts, unsigned comm);
bool is_done(unsigned i);
/* Queue a frame, and note what it must look like; its ack is ours to know at hand-out. */
void add(const char *copy, const char *ext, size_t len, struct braid_xfer *owner);
/* One each without payload, with one that is copied, and with one that is not; and again. */
void five_frames(void);
/* The piece that braid_lane_next() gives a byte stream. */
struct braid_piece gather(struct iovec *iov, int max, size_t budget);
/* The wire takes at most n bytes of that piece. */
size_t move(size_t n, int max, size_t budget);
/* The wire has taken what was queued, byte for byte. */
void assert_stream(void);

#endif
