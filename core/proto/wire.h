/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - every byte that crosses the network, and the handle that crosses NCCL's bootstrap.
 *
 * All integers are little-endian; docs/dev/wire.md states the same in prose.  Sizes are fixed, and
 * each pack has an unpack that checks: magic, version, length, then fields.  Nothing here knows
 * sockets, comms or keys.
 *
 * Version rule: a peer speaks every version from `least` to `most`.  Both ends use the highest
 * version in common.  If they have none, the link is refused with a line that names both ranges.
 */
#ifndef BRAID_PROTO_WIRE_H
#define BRAID_PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BRAID_WIRE_MAGIC 0x4c57444941524221ull	/* "!BRAIDWL" */
#define BRAID_SETUP_MAGIC 0x5553444941524221ull	/* "!BRAIDSU" */
#define BRAID_HANDLE_MAGIC 0x4c48444941524221ull	/* "!BRAIDHL" */

enum {
	BRAID_WIRE_LEAST = 1,
	BRAID_WIRE_MOST = 1,

	BRAID_HANDLE_SIZE = 128,
	BRAID_HANDLE_MORE = 6,
	BRAID_HELLO_SIZE = 256,
	BRAID_PROOF_SIZE = 64,
	BRAID_HDR_SIZE = 48,

	BRAID_ID_SIZE = 16,		/* a process */
	BRAID_KEY_SIZE = 32,		/* tokens, session keys */
	BRAID_MAC_SIZE = 32,
	BRAID_NONCE_SIZE = 32,
	BRAID_HOST_SIZE = 64,
	BRAID_LANES_MAX = 16,
	BRAID_TRANSPORTS_MAX = 8,

	BRAID_CHUNKS_MAX = 256,		/* of one message */
	BRAID_CHUNK_ALIGN = 128,	/* no line of NCCL's LL128 crosses two chunks */
	BRAID_EAGER_MAX = 1 << 20,
	BRAID_CHUNK_LEN_MAX = 1 << 30,
	BRAID_OPEN_SIZE = 48,
	BRAID_REASON_MAX = 256,
	BRAID_PATHS_MAX = 4,		/* members of a device made of several */
	BRAID_SETUP_SIZE = 1024,
	BRAID_BLOB_SIZE = 960,
	BRAID_IMM_WHOLE = 255,		/* in place of a chunk's number: a whole message */
};

#define BRAID_MSG_MAX (1ull << 38)	/* 256 chunks of 1 GiB; NCCL sends 1 GiB at most */

/* --- the handle ---------------------------------------------------------------------------- */

struct braid_handle_state {		/* the dialler's own; zero when the handle arrives */
	uint32_t slot;			/* index + 1 */
	uint32_t gen;
	uint64_t nonce;
};

struct braid_handle {
	uint16_t least, most;		/* wire versions */
	uint16_t flags;			/* the listener's place (braid_self.place); 0: not sent */
	uint16_t dev;			/* the listener's device index */
	uint64_t listen_id;
	uint8_t process[BRAID_ID_SIZE];
	uint8_t token[BRAID_KEY_SIZE];
	uint16_t port;
	uint8_t has4, has6;
	uint8_t addr4[4];
	uint8_t addr6[16];
	uint8_t more4[BRAID_HANDLE_MORE][4];	/* ends at 0.0.0.0; with has6 only two */
	struct braid_handle_state state;
};

void braid_handle_pack(const struct braid_handle *h, void *to);
/* 0; -EPROTO not a Braid handle; -EPROTONOSUPPORT no common version (*ret is filled then);
 * -EBADMSG damaged. */
int braid_handle_unpack(const void *from, struct braid_handle *ret);
void braid_handle_put_state(void *handle, const struct braid_handle_state *s);

/* --- the handshake ------------------------------------------------------------------------- */

enum braid_hello_kind {
	BRAID_HELLO_LINK = 1,		/* a new link */
	BRAID_HELLO_LANE,		/* a lane of a link: one more, or one that was lost */
	BRAID_HELLO_ALIVE,		/* the dialled end has lost all lanes: dial again */
};

enum braid_hello_status {
	BRAID_HELLO_OK,
	BRAID_HELLO_VERSION,		/* no version in common */
	BRAID_HELLO_CROSSED,		/* both ends dialled: wait for my dial */
	BRAID_HELLO_NO_LISTEN,		/* that listen is closed */
	BRAID_HELLO_NO_LINK,		/* no such link, or no longer */
	BRAID_HELLO_NO_TRANSPORT,	/* no transport in common */
	BRAID_HELLO_NO_ROOM,		/* no memory, or too many wait for accept (REFUSED) */
	BRAID_HELLO_STATUS_MAX,
};

struct braid_addr {
	uint8_t ip[16];			/* IPv6; IPv4 as ::ffff:a.b.c.d */
	uint16_t port;			/* 0: none */
};

struct braid_hello {			/* each end sends one; the dialler first */
	uint16_t least, most;
	uint8_t kind, status;
	uint8_t lane, lanes_max;
	uint16_t dev;			/* sender's device index */
	uint16_t peer_dev;		/* the peer's device index, as the dialler knows it */
	int16_t traffic_class;
	uint16_t epoch;			/* number of earlier openings of this lane */
	uint32_t pid;
	uint32_t window;		/* eager bytes that this hello's sender grants */
	uint64_t ident;			/* LINK: listen id, in the answer link id; LANE: link id */
	uint8_t process[BRAID_ID_SIZE];
	uint8_t nonce[BRAID_NONCE_SIZE];
	uint8_t transports[BRAID_TRANSPORTS_MAX];	/* ids, best first; 0 ends */
	char host[BRAID_HOST_SIZE];	/* for people; always terminated */
	uint32_t frames;		/* LANE: frames ever received on this lane */
	uint32_t first;			/* LANE: oldest frame that this hello's sender keeps */
	uint16_t port;			/* the listening port of this hello's sender; 0: none */
	struct braid_addr more[BRAID_PATHS_MAX - 1];	/* of the sender's other members */
	uint8_t mac[BRAID_MAC_SIZE];
};

enum { BRAID_HELLO_SIGNED = BRAID_HELLO_SIZE - BRAID_MAC_SIZE };	/* bytes under the MAC */

void braid_hello_pack(const struct braid_hello *h, uint8_t *to);
/* 0, -EPROTO not Braid, -EPROTONOSUPPORT no common version (*ret is filled), -EBADMSG. */
int braid_hello_unpack(const uint8_t *from, struct braid_hello *ret);

/* --- set-up of a lane that needs more than a socket ------------------------------------------ */

struct braid_setup_msg {
	uint16_t err;			/* errno: set-up failed, use the socket; 0: success */
	uint8_t member;			/* the member of the sender's device in use */
	uint32_t rkey_epoch;			/* the sender's link->rkey_epoch */
	uint8_t blob[BRAID_BLOB_SIZE];		/* the transport's */
	uint8_t mac[BRAID_MAC_SIZE];
};

enum { BRAID_SETUP_SIGNED = BRAID_SETUP_SIZE - BRAID_MAC_SIZE };

void braid_setup_pack(const struct braid_setup_msg *m, uint8_t *to);
int braid_setup_unpack(const uint8_t *from, struct braid_setup_msg *ret);	/* 0 or -EBADMSG */

/* --- frames -------------------------------------------------------------------------------- */

enum braid_frame {
	BRAID_F_EAGER = 1,	/* a whole message: seq, tag, len; with rseq if CREDITED */
	BRAID_F_START,		/* message seq goes into receive rseq: size; chunks follow */
	BRAID_F_WANT,		/* RTS: message seq (tag, size) waits for a credit */
	BRAID_F_CHUNK,		/* chunk n: bytes [offset, offset + len) of receive rseq */
	BRAID_F_CREDIT,		/* CTS: receive rseq (tag) is posted with room for size bytes; with
				 * payload: address offset, rkey epoch seq, each member's key */
	BRAID_F_RETIRE,		/* messages seq .. seq + n - 1 met receives without a credit */
	BRAID_F_ACK,		/* lane n has received `seq` frames (home's count rides in ack) */
	BRAID_F_OPEN,		/* a new comm: payload is struct braid_open */
	BRAID_F_OPENED,		/* the answer: the same payload, with the peer's MAC */
	BRAID_F_REFUSED,	/* n: enum braid_hello_status */
	BRAID_F_BYE,		/* the sender sends nothing more for this comm */
	BRAID_F_FAIL,		/* the comm failed here: n: errno; size, offset: two sizes */
	BRAID_F_LANES,		/* please dial until the link has n lanes */
	BRAID_F_CLOSE,		/* the sender sends nothing more on this link */
	BRAID_F_DOWN,		/* lane n, epoch rseq, is closed; `seq` frames were received */
	BRAID_F_ALIVE,		/* keepalive */
	BRAID_F_VOID,		/* replaces a frame whose memory was given back; FAIL follows */
	BRAID_F_MAX,
};

enum {
	BRAID_FLAG_CREDITED = 1,
	BRAID_FLAG_PLACED = 2,	/* the NIC wrote the payload to its place: none follows */
};

/*
 * DOWN with this tag: the count is final, but the sender's NIC may still write what was in flight.
 * rseq is then the complement of the epoch, so that an older peer ignores the frame.
 */
enum { BRAID_DOWN_WRITES = 1 };

struct braid_hdr {
	uint8_t type, flags;
	uint16_t n;
	uint32_t ack;		/* frames the sender of this one has received on this lane */
	uint32_t lseq;		/* number of this frame on its lane, from 0 */
	uint32_t comm;
	uint32_t seq;		/* number of the message in its comm, from 0 */
	int32_t tag;
	uint32_t rseq;		/* number of the receive in its comm, from 0 */
	uint32_t len;		/* of the payload behind this header */
	uint64_t offset;
	uint64_t size;		/* of the message, or room of the receive */
};

/*
 * The short header ends an EAGER's header, in place of the size, which equals len.  It may replace
 * the header if the carrier keeps message boundaries, there are no flags, and the tag is that of
 * the comm's previous message; it acknowledges nothing.
 */
enum { BRAID_SHORT_SIZE = 8, BRAID_SHORT = 0x80 };	/* its first byte, which is no frame type */

/* The content of a short header.  As RDMA immediate data it replaces the whole header. */
static inline uint32_t braid_short(uint32_t comm, uint32_t seq)
{
	return comm << 16 | (uint16_t)seq;
}

void braid_short_pack(uint32_t what, void *to);
/* True: `from` is a short header with payload after it.  *ret: its content. */
bool braid_short_unpack(const void *from, size_t n, uint32_t *ret);

void braid_hdr_pack(const struct braid_hdr *h, void *to);
/* 0 or -EBADMSG: unknown type or flag, a length or size beyond what its type may have. */
int braid_hdr_unpack(const void *from, struct braid_hdr *ret);
/* How many bytes of payload follow the header. */
static inline uint32_t braid_hdr_follows(const struct braid_hdr *h)
{
	return h->flags & BRAID_FLAG_PLACED ? 0 : h->len;
}

/* True: of n bytes of frames, only the last one's payload is missing.  *ret: its header. */
bool braid_frames_lack(const void *from, size_t n, struct braid_hdr *ret);
const char *braid_frame_name(unsigned type);

struct braid_open {
	uint64_t listen_id;
	uint8_t mac[BRAID_MAC_SIZE];	/* braid_auth_open(), in the answer braid_auth_opened() */
};

void braid_keys_pack(const uint32_t *key, unsigned n, uint8_t *to);	/* 4 n bytes */
void braid_keys_unpack(const uint8_t *from, unsigned n, uint32_t *ret);

void braid_open_pack(const struct braid_open *o, uint8_t *to);
void braid_open_unpack(const uint8_t *from, struct braid_open *ret);

#endif
