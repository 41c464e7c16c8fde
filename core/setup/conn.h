/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conn.h - the handshake: how a TCP connection proves that it belongs to a link.
 *
 * One row per state in conn.c; the dialler sends first on every connection.  Nothing here waits:
 * braid_conn_step() moves as far as the socket allows.  What a hello names (a listen, a link) is
 * looked up by the owner of the handshake, in the functions of struct braid_conn_owner.
 */
#ifndef BRAID_SETUP_CONN_H
#define BRAID_SETUP_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/list.h"
#include "core/transport.h"
#include "core/proto/hello.h"

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

struct braid_conn;

/* The calls by which a handshake asks its owner.  They are made with the owner's lock held. */
struct braid_conn_owner {
	/*
	 * Accepting end: fill c->key, c->link and c->mine for the hello in c->theirs.  Called
	 * once, before any key is checked.  0: send the answer with the status in c->mine.
	 * -EACCES, there is no such thing, or -EALREADY, not yet: close without an answer.
	 */
	int (*find)(struct braid_conn *c);
	/*
	 * Accepting end: the key fits; decide on the answer (both ends may be dialling each other).
	 * 0; -EAGAIN: the lane's old carrier is still being closed, call again; -EALREADY: a later
	 * dial is here.
	 */
	int (*admit)(struct braid_conn *c);
	/* Accepting end, may be NULL: the answer has left, and the proof will take a while. */
	void (*greeted)(struct braid_conn *c);
	/*
	 * Dialling end: connected; complete c->mine.  0, -EAGAIN as above, or -EALREADY: the
	 * connection is not needed any more.
	 */
	int (*ready)(struct braid_conn *c);
	/* Dialling end, may be NULL: the peer has answered.  0, or -EALREADY as above. */
	int (*answered)(struct braid_conn *c);
	/* Prepare c->setup and c->mine_setup, all but the blob; an errno in the latter declines. */
	void (*setup)(struct braid_conn *c);
	/* The handshake is over; err 0: it has succeeded.  The caller closes and frees the rest. */
	void (*done)(struct braid_conn *c, int err, uint64_t now);
};

struct braid_conn {
	struct braid_list node;		/* all handshakes */
	const struct braid_conn_owner *owner;
	int fd;
	bool dialler;
	bool known;			/* the peer's MAC shows that it knows the key */
	enum braid_conn_state state;
	unsigned done;			/* bytes of the present message */
	uint64_t deadline_ns, began_ns;
	struct braid_dev *dev;
	struct braid_dev *met;		/* the member of dev whose socket it is */
	struct braid_link *link;	/* dialler: the link that dials; accepter: see find() */
	struct braid_lane *lane;	/* the lane of link that had a socket before, or NULL */
	unsigned path;			/* dialler: index of the link's path taken */
	unsigned way;			/* index of the way taken on that path */
	bool bound;			/* the socket is bound to its interface */
	bool reversed;			/* dialler: the other end has made the connection */
	uint16_t version;		/* agreed on; 0: not yet */
	uint16_t must_be;		/* the version that the peer is known to speak; or 0 */
	uint8_t *key;			/* core/base/secret.h, as the next one */
	uint8_t *secret;		/* of the public key in mine.nonce */
	uint8_t m1[BRAID_HELLO_SIZE], m2[BRAID_HELLO_SIZE], proof[BRAID_PROOF_SIZE];
	struct braid_hello mine, theirs;
	char addr[64];			/* the other end's address, for logs */
	struct braid_addr from;		/* accepter: the same, in case the socket is reset */
	const struct braid_transport *tr;	/* agreed on; NULL: no lane is to be made */
	const struct braid_transport *refused;	/* agreed on before tr, and declined */
	struct braid_setup setup;
	struct sockaddr_storage to;	/* setup.to points here */
	struct braid_setup_msg mine_setup, their_setup;
	uint8_t msg[BRAID_SETUP_SIZE];
	bool shutting;			/* the old carrier of `lane` is being closed */
	bool making;			/* c->tr is still making the set-up for msg */
	bool packed;			/* msg is complete and being sent */
	bool answered;			/* TCP connected: the deadline was moved once */
	bool patient;			/* the deadline is that of a set-up */
	bool revoked;			/* braid_conn_revoke() was called */
	uint32_t events;		/* for which its socket is watched */
	bool helped;			/* a caller moves it: see braid_handshake_help() */
	uint64_t polled;		/* the last round of braid_handshakes_poll() */
	uint64_t ready_by_ns;		/* when the set-up is given up; 0: not waiting for it */
};

/*
 * Prepare a handshake on a socket; a dialler's may still be connecting.  The owner fills c->mine,
 * all but versions, identity, nonce and MAC; for a dialler c->key and c->must_be as well.  0 or a
 * negative errno.  The caller calls braid_conn_forget_keys() in the end.
 */
int braid_conn_init(struct braid_conn *c, int fd, bool dialler,
		    const struct braid_conn_owner *owner);
void braid_conn_forget_keys(struct braid_conn *c);	/* wipe and free them */

/*
 * 0: up, and braid_conn_session() works.  -EAGAIN: wait for *ret_events.  Else close the socket:
 * -EALREADY (revoked), -EPROTO (not Braid), -EPROTONOSUPPORT (no common version), -EACCES (wrong
 * key), -EKEYREJECTED (refused by somebody who knows the token, for its secret is another), -ENOKEY
 * (they differ on encryption), -EREMOTEIO (refused: c->theirs.status says why), or the socket's
 * error.
 */
int braid_conn_step(struct braid_conn *c, uint32_t *ret_events);
/* Drop at once what c->tr has set up; the next step returns -EALREADY. */
void braid_conn_revoke(struct braid_conn *c);
void braid_conn_drop(struct braid_conn *c);	/* free what c->tr made and no lane took */
void braid_conn_session(const struct braid_conn *c, uint8_t *ret);

/* After the hellos: has the peer set that option?  enum braid_hello_option. */
static inline bool braid_conn_peer_has(const struct braid_conn *c, unsigned option)
{
	return c->version >= 2 && c->theirs.options & option;
}

/* After the hellos: may the socket carry the lane in place of c->tr? */
bool braid_conn_socket_will_do(const struct braid_conn *c);
/* Must the handshake be polled, as it waits for something that raises no event on its socket? */
bool braid_conn_polls(const struct braid_conn *c);

#endif
