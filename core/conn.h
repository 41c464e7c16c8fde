/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conn.h - the handshake: how a TCP connection proves that it belongs to a link.
 *
 * One row per state in conn.c; the dialler sends first on every connection.  Nothing here waits:
 * braid_conn_step() moves as far as the socket allows.  What a hello names (a listen, a link) is
 * looked up by whoever owns the tables, through two upward calls.
 */
#ifndef BRAID_CORE_CONN_H
#define BRAID_CORE_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/list.h"
#include "core/transport.h"
#include "core/wire.h"

struct braid_link;
struct braid_lane;
struct braid_dev;

enum braid_conn_state {
	BRAID_CONN_CONNECT, BRAID_CONN_TX_HELLO, BRAID_CONN_RX_ANSWER, BRAID_CONN_TX_PROOF,
	BRAID_CONN_ASK_SETUP, BRAID_CONN_RX_ANSWERED, BRAID_CONN_WAIT_READY, BRAID_CONN_TX_READY,
	BRAID_CONN_RX_HELLO, BRAID_CONN_ADMIT, BRAID_CONN_TX_ANSWER, BRAID_CONN_RX_PROOF,
	BRAID_CONN_RX_ASKED, BRAID_CONN_ANSWER_SETUP, BRAID_CONN_RX_READY, BRAID_CONN_WAIT,
	BRAID_CONN_UP,
	BRAID_CONN_STATES,
};

struct braid_conn {
	struct braid_list node;		/* the owner's */
	int fd;
	bool dialler;
	bool known;			/* the other end has shown that it knows the key */
	enum braid_conn_state state;
	unsigned done;			/* bytes of the present message */
	uint64_t deadline_ns;
	struct braid_dev *dev;
	struct braid_dev *met;		/* of its members, the one whose socket it is */
	struct braid_link *link;	/* dialler: whose; accepter, LANE: found by admit */
	struct braid_lane *lane;	/* of them, one that had a socket before */
	unsigned path;			/* dialler: of the link's, the one taken */
	unsigned way;			/* of its ways, that one */
	bool bound;			/* the socket is bound to its interface */
	uint8_t key[BRAID_KEY_SIZE];
	uint8_t m1[BRAID_HELLO_SIZE], m2[BRAID_HELLO_SIZE], proof[BRAID_PROOF_SIZE];
	struct braid_hello mine, theirs;
	char addr[64];			/* of the other end, for people */
	struct braid_addr from;		/* accepter: the same; a socket that is reset has none */
	const struct braid_transport *tr;	/* agreed upon; NULL: no lane comes of it */
	const struct braid_transport *refused;	/* before that one, and can't be had */
	struct braid_setup setup;
	struct sockaddr_storage to;	/* setup.to */
	struct braid_setup_msg mine_setup, their_setup;
	uint8_t msg[BRAID_SETUP_SIZE];
	bool shutting;			/* the lane that it is for is being closed */
	bool making;			/* c->tr has begun to make what msg is to tell */
	bool packed;			/* msg is to be sent, not made */
	bool answered;			/* somebody is there: its deadline is later */
	bool patient;			/* its deadline is that of a set-up */
	bool revoked;			/* what was set up has been taken back */
	uint64_t polled;		/* the owner's */
	uint64_t ready_by_ns;		/* 0, or else what is set up can't be had */
};

/* Prepare one on a socket: the dialler's may still be connecting. c->mine is filled by the owner
 * (all but versions, identity, nonce and MAC); for the dialler c->key as well. */
void braid_conn_init(struct braid_conn *c, int fd, bool dialler);

/*
 * 0: up, the session key is braid_conn_session()'s; -EAGAIN: wait for *ret_events; otherwise the
 * connection is to be closed: -EALREADY it is revoked, -EPROTO not Braid, -EPROTONOSUPPORT no
 * common version, -EACCES a wrong key, -EREMOTEIO refused (c->theirs.status says why), or what
 * the socket said.
 */
int braid_conn_step(struct braid_conn *c, uint32_t *ret_events);
/* What is set up goes at once, the rest at the next step, which says -EALREADY. */
void braid_conn_revoke(struct braid_conn *c);
void braid_conn_drop(struct braid_conn *c);	/* what c->tr had made and no lane has taken */
void braid_conn_session(const struct braid_conn *c, uint8_t *ret);

/*
 * Upward, accepting end: fill c->key, c->link and c->mine for the hello in c->theirs.
 * -EACCES: no such thing, -EALREADY: not yet: say nothing; otherwise the answer's status is in
 * c->mine.
 * Called once, before any key is checked.
 */
int braid_conn_find(struct braid_conn *c);
/*
 * The key fits: last word on the answer (both ends may be dialling each other).  0, or -EAGAIN: the
 * lane that it is for is being closed, call again; -EALREADY: a later dial is here.
 */
int braid_conn_admit(struct braid_conn *c);
/*
 * Upward, dialling end: connected; last word on c->mine.  0, -EAGAIN as above, or -EALREADY: no
 * need any more.
 */
int braid_conn_ready(struct braid_conn *c);
/* Upward: prepare c->setup and c->mine_setup, but for the blob; an errno there declines. */
void braid_conn_setup(struct braid_conn *c);
/* Instead of what c->tr would set up; after the hellos. */
bool braid_conn_socket_will_do(const struct braid_conn *c);
/* It waits for what no socket tells of. */
bool braid_conn_polls(const struct braid_conn *c);

#endif
