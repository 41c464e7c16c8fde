/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stage.h - what one run of the fault runner is played on: memory that the run and its two ends
 * share, so that all of them see what has moved, whatever happens to the network between.
 *
 * An end is a process (traffic.c) that loads a plugin and keeps messages going both ways over
 * several comms; it can compute every byte that it is to receive.  A flow is one comm: its
 * sender is one end, its receiver the other.  The run (rows.c) opens the gates, brings the fault
 * about, and judges by what it finds here.  Handles travel here too.
 */
#ifndef BRAID_TESTS_FAULTS_STAGE_H
#define BRAID_TESTS_FAULTS_STAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "plugin/abi.h"

enum { END_A, END_B, ENDS };
enum { FLOWS_EACH_WAY = 3, FLOWS = FLOWS_EACH_WAY * ENDS, SLOTS_MAX = 32, CHILDREN_MAX = 16 };

/* Where log lines go. */
enum { STDIO_KEPT, STDIO_CLOSED, STDIO_FULL, STDIO_UNREAD, STDIO_MASK = 3, NO_LOGGER = 4 };

/* -- how long calls take ------------------------------------------------------------------ */

enum call {
	CALL_TEST, CALL_ISEND, CALL_IRECV, CALL_CONNECT, CALL_ACCEPT, CALL_CLOSE,
	CALL_LISTEN, CALL_REG, CALL_DEREG, CALL_FLUSH, CALL_FINALIZE, CALLS, CALL_NONE = CALLS,
};
extern const char *const call_names[CALLS];

/* Eight buckets per power of two of nanoseconds; one writer. */
struct spread {
	uint64_t n, max_ns;
	uint32_t bucket[8 * 48];
};

void spread_add(struct spread *s, uint64_t ns);
void spread_merge(struct spread *s, const struct spread *from);
uint64_t spread_at(const struct spread *s, double share);	/* ns; `share` of the calls took no longer */

struct timing {
	struct spread cpu;		/* of the calling thread */
	struct spread wall;		/* set-up and close: without the time it waited for a CPU */
};

/* -- the stage ---------------------------------------------------------------------------- */

enum state { ST_BORN, ST_LISTENING, ST_OPEN, ST_CLOSED, ST_ENDED };

struct end {
	_Atomic int state;		/* enum state, of this act */
	_Atomic int call;		/* enum call: the one it is in, since call_ns */
	_Atomic uint64_t call_ns;
	_Atomic uint64_t open_ns;	/* when all comms were connected */
	_Atomic uint64_t wrong;		/* messages with a wrong byte or size */
	_Atomic int error;		/* the first one: ncclResult_t */
	_Atomic int old_error;		/* connect()'s result for the old handle */
	_Atomic uint64_t error_ns, errors_ns;	/* when `error` came; when all flows had one */
	_Atomic uint64_t warn_ns;	/* the last WARN */
	_Atomic unsigned warns, forks, broken;
	_Atomic bool lacks_fusion;	/* the plugin has no makeVDevice(): skip the run */
	_Atomic int files;		/* descriptors below this were taken before the plugin came */
	_Atomic pid_t child[CHILDREN_MAX];
	_Atomic unsigned heap_answered;	/* the last heap_ask that it has answered */
	_Atomic uint64_t heap;		/* bytes allocated then */
	char text[256];			/* what is broken, in words */
	char warn[512];
	struct {
		_Atomic uint64_t posted, done;
		_Atomic int error;
	} half[FLOWS];			/* this end's half of each flow, to look into failures */
	struct timing timing[CALLS];
	_Atomic uint32_t log_len;
	char log[65536];		/* "seconds level text" lines since the run began */
};

struct flow {				/* flow f goes from A to B if f is even */
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	_Atomic bool listening;
	_Atomic uint64_t limit;		/* messages the sender will send; the receiver posts no more */
	_Atomic bool final;		/* the sender sends no more than `limit` */
	_Atomic uint64_t sent, received, bytes;
	_Atomic uint64_t last_ns;	/* when the last message had been received */
	_Atomic uint64_t gap_ns;	/* longest time without a message since the fault */
};

struct stage {
	/* set before the ends are forked */
	const char *plugin;
	int abi[ENDS];
	uint64_t seed, born_ns;
	unsigned slots;			/* in flight per flow */
	size_t max_size;
	bool whole;			/* all messages have that size */
	int devices[ENDS], dev[ENDS];	/* how many are fused; if one, its index */
	unsigned stdio;			/* STDIO_KEPT, ... */
	bool one_sided;			/* puts, signals and gets instead of messages */
	bool no_logger;			/* the plugin writes to stderr itself */
	_Alignas(16) uint8_t old[NCCL_NET_HANDLE_MAXSIZE];	/* an ended job's handle: END_A tries it */
	bool has_old;

	/* the run's orders */
	_Atomic bool go;		/* connect */
	_Atomic bool stop;		/* send no more; end when all has arrived */
	_Atomic bool last_act;		/* after closing, finalize and end */
	_Atomic unsigned act;		/* number of the act: connect, traffic, close */
	_Atomic bool errors_ok;		/* an error is no failure: the other end may be gone */
	_Atomic bool hold[ENDS];	/* post no receive */
	_Atomic bool idle;		/* send nothing for a while */
	_Atomic bool abort[ENDS];	/* close, whatever is in flight */
	_Atomic unsigned fork_ask[ENDS];	/* children to fork in all, each to live fork_ms */
	_Atomic unsigned fork_ms;
	_Atomic unsigned heap_ask;	/* raised: the ends count the bytes that they have allocated */
	_Atomic unsigned pace;		/* bytes a second that a flow may send; 0: any */
	_Atomic uint64_t fault_ns;	/* 0: not yet */

	struct end end[ENDS];
	struct flow flow[FLOWS];
};

static inline unsigned flow_sender(unsigned f)
{
	return f % 2 ? END_B : END_A;
}

uint64_t now_ns(void);
uint64_t mix(uint64_t a, uint64_t b);		/* a good hash of two numbers */

/* The life of one end; never returns. */
_Noreturn void traffic_end(struct stage *st, unsigned who);

#endif
