/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comms.h - two ends, a comm between them, and short words for what a case does with it.
 *
 * For tests of core/msg that go frame by frame: frames are held until a case delivers them, over
 * the null transport (tests/lib/pair.h).  test_match.c tries every order of events; a case with
 * this file tries one, and names the frames that must be on the wire.  Include cmocka.h first.
 */
#ifndef BRAID_TESTS_COMMS_H
#define BRAID_TESTS_COMMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/lib/pair.h"

enum { K = 1024, BIG = 200 * K, A = 0, B = 1 };		/* A sends to B, mostly */

extern struct null_pair pair;
extern struct braid_comm *cs, *cr;	/* send comm at A, receive comm at B */

/* Setups: one lane; three lanes; one lane with no window beyond the comm's floor. */
int setup(void **state);
int setup_lanes(void **state);
int setup_floor(void **state);
int teardown(void **state);
/* Creates both ends with that configuration; the setups call it. */
void start(const struct null_config *config);

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define CASE_LANES(f) cmocka_unit_test_setup_teardown(f, setup_lanes, teardown)
#define CASE_FLOOR(f) cmocka_unit_test_setup_teardown(f, setup_floor, teardown)

char *message(size_t size, char seed);	/* to be freed */
struct braid_req *isend(struct braid_comm *c, const void *data, size_t size, int tag);
struct braid_req *irecv(struct braid_comm *c, void *data, size_t size, int tag);
bool done(struct braid_req *req);
/* Is it done after a few more calls, when the rest of a burst is no longer expected? */
bool settled(struct braid_req *req);
int error_of(struct braid_req *req);
int size_of(struct braid_req *req);	/* it must be done */

/* The header of the next frame that end `from` sent on lane 0; it must have that type. */
struct braid_hdr next_frame(unsigned from, enum braid_frame type);
struct braid_hdr pass_frame(unsigned from, enum braid_frame type);	/* and deliver it */
void assert_no_frame(unsigned from);

/* Polls both ends and delivers all frames until the requests are done; no service thread runs. */
void run(struct braid_req *a, struct braid_req *b);
void one_message(size_t size, int tag);		/* from posting to done, and compare it */
/* Sends a large message, so that later receives send credits unasked; leaves no frame behind. */
void make_large(void);
/* Posts the comm's second receive, with tag 1; its credit is on the wire. */
struct braid_req *credited(char *to, size_t room);
void close_both(void);

#endif
