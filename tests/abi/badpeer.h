/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * badpeer.h - a peer that has proved itself and then sends what it must not.
 *
 * Damaged memory, another build, a hand-made library: the token is right and the bytes are wrong.
 * Either a frame does no harm, or it ends the link with an error that says so.  Nothing is written
 * outside of a message's place, no call waits, and other comms of the process go on.
 */
#ifndef BRAID_TESTS_ABI_BADPEER_H
#define BRAID_TESTS_ABI_BADPEER_H

#include "tests/lib/hostile.h"

enum { ROOM = 4096, TAG = 7, LARGE = 1 << 20 };

#define MOST (1ull << 38)		/* a message is no larger */

/* -- the plugin, with a listen and a good pair beside it ---------------------------------- */

struct scene {
	struct net *net;
	struct pair good;		/* works, whatever the bad peers do */
	void *listen;
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct braid_handle to;
	uint64_t seed;
};

void scene_up(struct abi *t, struct scene *s);
void scene_lives(struct scene *s);	/* the good pair still works */
void scene_down(struct scene *s);

/* -- a bad sender ------------------------------------------------------------------------- */

struct bad {				/* it sends, the plugin receives */
	struct speaker sp;
	void *recv;
	struct buf buf;
	struct op op;			/* a receive of ROOM bytes, not posted yet */
};

void bad_in(struct scene *s, struct bad *b);
void bad_out(struct scene *s, struct bad *b);
void bad_turns(struct bad *b, unsigned ms);	/* calls test() for a while, or until it is done */
void untouched(const struct bad *b);		/* nothing was written into the buffer */

/* A good message, number `seq` of its comm. */
struct braid_hdr eager(uint32_t seq, uint32_t len);
bool say_eager(struct speaker *sp, uint32_t seq, uint32_t len, uint64_t seed);
/* Asks for a credit for message `seq`, and gets it. */
void get_credit(struct speaker *sp, uint32_t seq, uint64_t size, struct braid_hdr *ret);

/* -- a bad receiver ----------------------------------------------------------------------- */

struct taker {				/* the plugin dialled it, and sends */
	struct speaker sp;
	struct braid_handle to;
	int listener;
	void *send;
	uint32_t comm;
	struct buf buf;
	struct op op;			/* a posted send */
};

void taker_listens(struct taker *k, uint8_t *handle);
/* The plugin dials, opens a comm and waits for the answer. */
void taker_meets(struct scene *s, struct taker *k, uint8_t *handle);
void taker_opens(struct scene *s, struct taker *k, uint8_t *handle);	/* listens and meets */
void taker_in(struct scene *s, struct taker *k, size_t size);		/* the comm is open */
void taker_out(struct scene *s, struct taker *k);

#endif
