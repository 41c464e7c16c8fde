/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * actor.h - one end of the stage: its life is in traffic.c, and how it speaks to the plugin in
 * messages.c (isend, irecv) or in puts.c (one-sided operations).
 */
#ifndef BRAID_TESTS_FAULTS_ACTOR_H
#define BRAID_TESTS_FAULTS_ACTOR_H

#include "tests/faults/witness.h"

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

struct slot {
	void *req[2];
	uint64_t k, posted;		/* k + 1 of the message it was filled for, and posted for */
};

struct stream {				/* this end's half of a flow */
	unsigned f;
	struct flow *flow;
	bool sends;
	void *listen, *comm, *mr;
	uint8_t *mem;
	struct slot slot[SLOTS_MAX];
	uint64_t posted, done;
	uint64_t due_ns;		/* before that the sender posts nothing: stage.pace */
	ncclResult_t error;
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];	/* the other end's */
	bool has_handle;
	void *words;			/* puts.c: the registration of `word` */
	_Atomic uint64_t word[2];	/* puts.c: messages that came; slots that are free again */
};

struct group {				/* puts.c: a communicator, which carries a flow each way */
	void *coll, *ctx;
};

struct actor {
	struct stage *st;
	struct end *end;
	unsigned who;
	const struct way *way;
	struct net *net;		/* messages.c */
	struct rma *rma;		/* puts.c, as are the next two */
	void *rma_ctx;
	struct group group[FLOWS_EACH_WAY];
	int dev;
	struct stream stream[FLOWS];
	size_t slot_size;
	unsigned act, forks;
	uint64_t chance, idle_since, last_error_ns;
};

/* What differs between messages and one-sided operations. */
struct way {
	void (*take)(struct actor *a);			/* loads the plugin, or gives up */
	ncclResult_t (*end)(struct actor *a);		/* finalizes and unloads it */
	ncclResult_t (*listen)(struct actor *a, struct stream *s);	/* the handle: s->flow's */
	/* Connects with a handle of a job that is over; true: it knows the result. */
	bool (*try_old)(struct actor *a, uint8_t *handle, ncclResult_t *ret);
	void (*open)(struct actor *a, struct stream *s);	/* once; s->comm when it is open */
	bool (*step)(struct actor *a, struct stream *s);	/* true: something happened */
	ncclResult_t (*again)(struct actor *a, struct stream *s);	/* an operation after an error */
	ncclResult_t (*close_listen)(struct actor *a, struct stream *s);
	ncclResult_t (*dereg)(struct actor *a, struct stream *s);
	ncclResult_t (*close)(struct actor *a, struct stream *s);
};

extern const struct way way_messages, way_puts;

/* Print what is broken, for the run's verdict; only the first call prints. */
void broken(struct actor *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void give_up(struct actor *a);

uint8_t *slot_mem(struct actor *a, struct stream *s, uint64_t k);
/* Spoils the slot and what follows it, so that a message must write each byte and no more. */
void slot_spoil(struct actor *a, struct stream *s, uint64_t k);
/* Checks the bytes of message k, and counts it. */
void arrived(struct actor *a, struct stream *s, uint64_t k, int got);
/* Notes a flow's error.  Every later call of its comm must return the same error. */
void failed(struct actor *a, struct stream *s, ncclResult_t res);
/* The sender has posted so many bytes. */
void paced(struct actor *a, struct stream *s, size_t size);
/* May the sender post, or the receiver take, another message? */
bool may_post(struct actor *a, struct stream *s);
void told(struct actor *a, const struct stream *s);	/* the stage, of how far it is */

#endif
