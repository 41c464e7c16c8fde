/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * setup.h - the matrix of faults of set-up: at each step of making a connection, each fault, at each
 * end, over each carrier.
 *
 * A case is two ends (setup_end.c), which call the plugin as NCCL does, and a relay between them
 * (setup_relay.c) that all connections of Braid's handshake go through.  The relay knows where each
 * message begins and ends.  So it brings the fault about at one step: it loses the message, keeps
 * it back, or doubles it, or something happens to a process before the message goes on.  The case
 * (setup_case.c) then asks of each end that is left: does the call that it is in end, or does a line
 * name peer, device and cause, by the deadline of docs/user/reliability.md?  Do close and finalize
 * end, whatever is half made?  Is nothing left behind, and does a new connection work?
 *
 * One-sided, a call only waits for what its own rank has posted.  Nothing tells a rank that waits
 * for a signal whether another means to send one, so no line of its own is asked of it, unless the
 * peer of an open connection is killed or stopped.
 */
#ifndef BRAID_TESTS_FAULTS_SETUP_H
#define BRAID_TESTS_FAULTS_SETUP_H

#include <string.h>

#include "tests/faults/witness.h"

enum { DIALS, ACCEPTS, ROLES };

enum step {				/* in their order; the message that passes, or has passed */
	AT_TCP,				/* the connection itself */
	AT_HELLO, AT_ANSWER, AT_PROOF,
	AT_ASK, AT_REPLY, AT_READY,	/* of carriers that are more than that connection */
	AT_OPEN, AT_OPENED,		/* the first frames: of carriers that are that connection */
	AT_DATA,			/* the connection is open; a message waits for its other half */
	STEPS,
};

enum what {
	NO_FAULT,
	/* the message: */
	LOST, LOST_ALWAYS, LATE, TOO_LATE, DOUBLED, RESET, RESET_ALWAYS,
	/* a process: */
	KILLED, STOPPED, PAUSED, STARVED, NO_MEMORY, NO_FILES,
	WHATS,
};

extern const char *const step_names[STEPS], *const what_names[WHATS], *const role_names[ROLES];

static inline bool of_process(enum what what)
{
	return what >= KILLED;
}

/* How far the ends are to go; each order includes those before it. */
enum order { TO_WAIT, TO_CONNECT, TO_TALK, TO_CLOSE, TO_RENEW };
/* How far an end has come. */
enum phase { IS_BORN, IS_READY, IS_CONNECTING, IS_OPEN, IS_DONE, IS_CLOSED, IS_ENDED };

struct left {				/* what an end holds of its process */
	unsigned fds, threads;
	long blocks;
};

struct role {
	struct end end;			/* what it logs, and how long its calls take */
	_Atomic int phase;		/* enum phase */
	_Atomic int entry;		/* enum call: what it waits for, ... */
	_Atomic uint64_t since_ns;	/* ... since then */
	_Atomic int error;		/* ncclResult_t: the first; then it has come to IS_DONE */
	_Atomic uint64_t done_ns;	/* when it came to IS_DONE */
	_Atomic bool no_memory;		/* asked for */
	_Atomic bool has_none;		/* and so it is */
	_Atomic bool for_word;		/* it waits for a signal, and for no operation of its own */
	struct left before, after;
	char broken[160];		/* what is wrong, in words; "": nothing */
};

struct show {				/* shared by the case and its ends */
	const char *plugin;
	bool puts;			/* in place of messages */
	bool counts_memory;
	long kept;			/* the carrier's */
	bool renews_first;		/* a new connection comes before finalize, not after */
	_Atomic int order;		/* enum order: for both ends, but ... */
	_Atomic int ordered[ROLES];	/* ... these go further */
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	_Atomic bool listens, relayed;	/* the handle is the listener's; it leads to the relay */
	_Alignas(16) uint8_t back[NCCL_NET_HANDLE_MAXSIZE];	/* puts: the dialler's */
	_Atomic bool listens_back;
	struct role role[ROLES];
};

/* The life of one end; never returns. */
_Noreturn void setup_end(struct show *show, unsigned who);

/* -- the relay: it moves when it is polled ---------------------------------------------------- */

struct relay {
	enum step step;			/* the fault: at which message, ... */
	enum what what;
	bool blobs;			/* ... of a handshake that has ASK, REPLY and READY */
	void (*strike)(void *arg);	/* of a process: called before that message goes on */
	void *arg;
	uint64_t late_ns, too_late_ns;
	uint64_t struck_ns;		/* when the fault came; 0: not yet */
	int listener, keeper;
	uint16_t port, to;		/* of the relay; of the listener behind it */
	struct pipe *pipes;
};

bool relay_opens(struct relay *r);
void relay_moves(struct relay *r, unsigned ms);	/* for at most so long */
void relay_hangs_up(struct relay *r);		/* the listener behind it is gone: so is its port */
void relay_ends(struct relay *r);

/* -- one case --------------------------------------------------------------------------------- */

struct carrier {
	const char *name;
	bool blobs;
	bool own_open;			/* OPEN and OPENED do not go over the handshake's connection */
	long kept;			/* blocks kept for the most queue pairs that were in use at a time */
	const char *env[8];		/* NAME=VALUE; @ is the build's directory */
	const char *needs;		/* a file below that directory; NULL: none */
};

static inline bool carrier_puts(const struct carrier *c)	/* in place of messages */
{
	return strncmp(c->name, "puts-", 5) == 0;
}

struct trial {
	const struct carrier *carrier;
	enum step step;
	enum what what;
	unsigned who;			/* the process that it happens to */
};

struct finding {			/* what came of a case */
	char verdict[12];		/* well, failed, skipped */
	char why[400];
	char how[ROLES][64];		/* how each end's wait ended */
	double took_s[ROLES];		/* and how long after the fault */
	double close_s;			/* the longest of close and finalize */
};

struct setup_options {
	const char *plugin;
	unsigned slow;
	int times;			/* a case fails at so many times a deadline */
	bool planted;			/* BRAID_STALL_WARN=0: nobody says for whom accept() waits */
	bool verbose;
};

/* In a process of its own; prints the logs of a case that failed. */
void setup_case(const struct trial *t, const struct setup_options *o, struct finding *ret);

#endif
