/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hello.h - the messages of the handshake, before a connection becomes a lane.
 *
 * Each end sends a hello, and the dialler a proof.  Where the transport agreed on needs more than
 * the socket, each end describes its part of the lane in a set-up message.  core/setup/conn.c
 * has their order, core/proto/auth.h their MACs.
 */
#ifndef BRAID_PROTO_HELLO_H
#define BRAID_PROTO_HELLO_H

#include <stdint.h>

#include "core/proto/common.h"

#define BRAID_WIRE_MAGIC 0x4c57444941524221ull	/* "!BRAIDWL" */
#define BRAID_SETUP_MAGIC 0x5553444941524221ull	/* "!BRAIDSU" */

enum {
	BRAID_HELLO_SIZE = 256,
	BRAID_PROOF_SIZE = 64,
	BRAID_SETUP_SIZE = 1024,
	BRAID_BLOB_SIZE = 960,

	BRAID_NONCE_SIZE = 32,
	BRAID_TRANSPORTS_MAX = 8,
};

/* --- the hello ----------------------------------------------------------------------------- */

enum braid_hello_kind {
	BRAID_HELLO_LINK = 1,		/* a new link */
	BRAID_HELLO_LANE,		/* a lane of a link: one more, or one that was lost */
	BRAID_HELLO_ALIVE,		/* the dialled end has lost all lanes: dial again */
};

enum braid_hello_status {
	BRAID_HELLO_OK,
	BRAID_HELLO_VERSION,		/* no version in common */
	BRAID_HELLO_CROSSED,		/* both ends dialled: wait for the answerer's dial */
	BRAID_HELLO_NO_LISTEN,		/* that listen is closed */
	BRAID_HELLO_NO_LINK,		/* no such link, or no longer */
	BRAID_HELLO_NO_TRANSPORT,	/* no transport in common */
	BRAID_HELLO_NO_ROOM,		/* not now: no memory, or too many wait for accept */
	BRAID_HELLO_ENCRYPT,		/* one end requires encryption, the other has none */
	BRAID_HELLO_SECRET,		/* the ends have two secrets of the job, or one has none */
	BRAID_HELLO_STATUS_MAX,
};

enum braid_hello_option {		/* bits; both ends must know version 2 */
	BRAID_OPTION_ENCRYPT = 1,	/* the sender refuses a link that is not encrypted */
	BRAID_OPTION_CHECKSUM = 2,	/* it wants a checksum in each frame */
	BRAID_OPTION_KEEPS_KEY = 4,	/* it can't change the key by which it receives */
	BRAID_OPTION_SECRET = 8,	/* its key is mixed with a secret of the job */
	BRAID_OPTION_ONE_COMM = 16,	/* of OPENs of one connect() it takes the first */
	BRAID_OPTION_PATHS = 32,	/* it dials a lane whose path is slow again if asked */
	BRAID_OPTION_REVERSE = 64,	/* an ALIVE connection may become a lane, see wire.md */
};

struct braid_addr {
	uint8_t ip[16];			/* IPv6; IPv4 as ::ffff:a.b.c.d */
	uint16_t port;			/* 0: none */
};

struct braid_hello {			/* each end sends one; the dialler first */
	uint16_t least, most;		/* wire versions */
	uint8_t kind, status;
	uint8_t lane, lanes_max;
	uint16_t dev;			/* sender's device index */
	uint16_t peer_dev;		/* the peer's device index, as the dialler knows it */
	int16_t traffic_class;
	uint32_t epoch;			/* number of earlier openings of this lane */
	uint32_t pid;
	uint32_t window;		/* eager bytes that this hello's sender grants */
	uint64_t ident;			/* id of the link; in a dialler's LINK: of the listen */
	uint8_t process[BRAID_ID_SIZE];
	uint8_t nonce[BRAID_NONCE_SIZE];	/* version 2: an ephemeral X25519 public key */
	uint8_t transports[BRAID_TRANSPORTS_MAX];	/* ids, best first; 0 ends */
	char host[BRAID_HOST_SIZE];	/* for people; always terminated */
	uint8_t ciphers;		/* that the sender has: bits of enum braid_cipher */
	uint8_t options;		/* enum braid_hello_option */
	union {
		uint32_t hint;		/* M1, with BRAID_OPTION_SECRET: braid_auth_hint() */
		uint32_t corrupt;	/* M2 of a LANE: times that its sender found data changed */
	};
	uint32_t frames;		/* LANE: frames ever received on this lane */
	uint32_t first;			/* LANE: oldest frame that this hello's sender keeps */
	uint16_t port;			/* the listening port of this hello's sender; 0: none */
	struct braid_addr more[BRAID_PATHS_MAX - 1];	/* of the sender's other members */
	uint8_t mac[BRAID_MAC_SIZE];
};

enum { BRAID_HELLO_SIGNED = BRAID_HELLO_SIZE - BRAID_MAC_SIZE };	/* bytes under the MAC */
enum { BRAID_HELLO_HINT = 156 };		/* bytes before the hint */

void braid_hello_pack(const struct braid_hello *h, uint8_t *to);
/* 0, -EPROTO not Braid, -EPROTONOSUPPORT no common version (*ret is filled), -EBADMSG. */
int braid_hello_unpack(const uint8_t *from, struct braid_hello *ret);

/* --- set-up of a lane that needs more than a socket ------------------------------------------ */

struct braid_setup_msg {
	uint16_t err;			/* errno: set-up failed, use the socket; 0: success */
	uint8_t member;			/* which member of the sender's device is used */
	uint32_t rkey_epoch;		/* of the sender's link */
	uint8_t blob[BRAID_BLOB_SIZE];		/* the transport's */
	uint8_t mac[BRAID_MAC_SIZE];
};

enum { BRAID_SETUP_SIGNED = BRAID_SETUP_SIZE - BRAID_MAC_SIZE };

void braid_setup_pack(const struct braid_setup_msg *m, uint8_t *to);
int braid_setup_unpack(const uint8_t *from, struct braid_setup_msg *ret);	/* 0 or -EBADMSG */

#endif
