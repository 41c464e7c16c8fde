/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - every byte that crosses the network, and the handle that crosses NCCL's bootstrap.
 *
 * All integers are little-endian; docs/dev/wire.md states the same in prose.  Sizes are fixed, and
 * each pack has an unpack that checks: magic, version, length, then fields.  Nothing here knows
 * sockets, comms or keys.
 *
 * Version rule: a peer speaks every version from `least` to `most`; both ends take the highest
 * that both know; no common one: refused with a line that names both ranges.
 */
#ifndef BRAID_CORE_WIRE_H
#define BRAID_CORE_WIRE_H

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
	BRAID_CHUNK_ALIGN = 128,	/* LL128 lines never straddle two chunks */
	BRAID_EAGER_MAX = 1 << 20,
	BRAID_CHUNK_LEN_MAX = 1 << 30,
	BRAID_OPEN_SIZE = 48,
	BRAID_REASON_MAX = 256,
	BRAID_PATHS_MAX = 4,		/* members of a device made of several */
	BRAID_SETUP_SIZE = 1024,
	BRAID_BLOB_SIZE = 960,
	BRAID_IMM_WHOLE = 255,		/* for a chunk's number: all of a message */
};

#define BRAID_MSG_MAX (1ull << 38)	/* 256 chunks of 1 GiB; NCCL sends 1 GiB at most */

/* --- the handle ---------------------------------------------------------------------------- */

struct braid_handle_state {		/* the dialler's own; zero when it arrives */
	uint32_t slot;			/* index + 1 */
	uint32_t gen;
	uint64_t nonce;
};

struct braid_handle {
	uint16_t least, most;		/* wire versions */
	uint16_t flags;			/* where the listener is: braid_self.place; 0: not told */
	uint16_t dev;			/* the listener's device index */
	uint64_t listen_id;
	uint8_t process[BRAID_ID_SIZE];
	uint8_t token[BRAID_KEY_SIZE];
	uint16_t port;
	uint8_t has4, has6;
	uint8_t addr4[4];
	uint8_t addr6[16];
	uint8_t more4[BRAID_HANDLE_MORE][4];	/* 0.0.0.0 ends; only the first two with has6 */
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
	BRAID_HELLO_ALIVE,		/* whose link was dialled has lost all lanes: dial again */
};

enum braid_hello_status {
	BRAID_HELLO_OK,
	BRAID_HELLO_VERSION,		/* no version in common */
	BRAID_HELLO_CROSSED,		/* we dialled each other: wait for mine */
	BRAID_HELLO_NO_LISTEN,		/* that listen was closed */
	BRAID_HELLO_NO_LINK,		/* no such link (any more) */
	BRAID_HELLO_NO_TRANSPORT,	/* no transport in common */
	BRAID_HELLO_NO_ROOM,		/* no memory, or too many wait to be accepted (REFUSED) */
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
	uint16_t peer_dev;		/* the dialler's idea of the other's */
	int16_t traffic_class;
	uint16_t epoch;			/* how often this lane was opened before */
	uint32_t pid;
	uint32_t window;		/* eager bytes the sender of this hello grants */
	uint64_t ident;			/* LINK: listen id, in the answer link id; LANE: link id */
	uint8_t process[BRAID_ID_SIZE];
	uint8_t nonce[BRAID_NONCE_SIZE];
	uint8_t transports[BRAID_TRANSPORTS_MAX];	/* ids, best first; 0 ends */
	char host[BRAID_HOST_SIZE];	/* for people; always terminated */
	uint32_t frames;		/* LANE: received on this lane, ever */
	uint32_t first;			/* LANE: oldest that the sender of this hello still has */
	uint16_t port;			/* where the sender of this hello listens; 0: nowhere */
	struct braid_addr more[BRAID_PATHS_MAX - 1];	/* its other members' */
	uint8_t mac[BRAID_MAC_SIZE];
};

enum { BRAID_HELLO_SIGNED = BRAID_HELLO_SIZE - BRAID_MAC_SIZE };	/* bytes under the MAC */

void braid_hello_pack(const struct braid_hello *h, uint8_t *to);
/* 0, -EPROTO not Braid, -EPROTONOSUPPORT no common version (*ret is filled), -EBADMSG. */
int braid_hello_unpack(const uint8_t *from, struct braid_hello *ret);

/* --- set-up of a lane that needs more than a socket ------------------------------------------ */

struct braid_setup_msg {
	uint16_t err;			/* an errno: it can't be had, use the socket; 0: it can */
	uint8_t member;			/* of the sender's device, whose it is */
	uint32_t grant;			/* the sender's link->grant */
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
	BRAID_F_WANT,		/* message seq (tag, size) waits for a credit */
	BRAID_F_CHUNK,		/* bytes [offset, offset + len) of what goes to rseq; n: number */
	BRAID_F_CREDIT,		/* receive rseq (tag) is posted with room for size bytes; with a
				 * payload: at offset, under grant seq, with a key per member */
	BRAID_F_RETIRE,		/* messages seq .. seq + n - 1 met receives without a credit */
	BRAID_F_ACK,		/* lane n has received `seq` frames (home's count rides in ack) */
	BRAID_F_OPEN,		/* a new comm: payload is struct braid_open */
	BRAID_F_OPENED,		/* the answer: the same, with the other MAC */
	BRAID_F_REFUSED,	/* n: enum braid_hello_status */
	BRAID_F_BYE,		/* nothing more of this comm comes from here */
	BRAID_F_FAIL,		/* the comm failed here: n is an errno, size and offset two sizes */
	BRAID_F_LANES,		/* please let the link have n lanes */
	BRAID_F_CLOSE,		/* nothing more comes on this link */
	BRAID_F_DOWN,		/* lane n, epoch rseq, is closed after `seq` frames; or see below */
	BRAID_F_ALIVE,		/* nothing else to say */
	BRAID_F_VOID,		/* in place of a frame whose memory was taken back: it has failed */
	BRAID_F_MAX,
};

enum {
	BRAID_FLAG_CREDITED = 1,
	BRAID_FLAG_PLACED = 2,	/* the payload is in its place already: none follows */
};

/*
 * DOWN with this tag: the count is final, but the sender's NIC may still write what was under way.
 * rseq is the complement of the epoch then: an older peer takes it for another epoch's.
 */
enum { BRAID_DOWN_WRITES = 1 };

struct braid_hdr {
	uint8_t type, flags;
	uint16_t n;
	uint32_t ack;		/* frames the sender of this one has received on this lane */
	uint32_t lseq;		/* number of this frame on its lane, from 0 */
	uint32_t comm;
	uint32_t seq;		/* of the message in its comm, from 0 */
	int32_t tag;
	uint32_t rseq;		/* of the receive in its comm, from 0 */
	uint32_t len;		/* of the payload behind this header */
	uint64_t offset;
	uint64_t size;		/* of the message, or room */
};

/*
 * An EAGER's header ends with a short header, in place of the size, which is its length.  That
 * alone will do where messages have ends, for one without flags whose tag is that of its comm's
 * message before; it acknowledges nothing.  The same 32 bits are immediate data where that can be
 * had, and no header at all.
 */
enum { BRAID_SHORT_SIZE = 8, BRAID_SHORT = 0x80 };	/* its first byte, which no type has */

static inline uint32_t braid_short(uint32_t comm, uint32_t seq)
{
	return comm << 16 | (uint16_t)seq;
}

void braid_short_pack(uint32_t what, void *to);
/* Is that a short header, and something behind it?  *ret: what it says. */
bool braid_short_unpack(const void *from, size_t n, uint32_t *ret);

void braid_hdr_pack(const struct braid_hdr *h, void *to);
/* 0 or -EBADMSG: unknown type or flag, a length or size beyond what its type may have. */
int braid_hdr_unpack(const void *from, struct braid_hdr *ret);
/* How many bytes of payload follow the header. */
static inline uint32_t braid_hdr_follows(const struct braid_hdr *h)
{
	return h->flags & BRAID_FLAG_PLACED ? 0 : h->len;
}

/* Of n bytes of frames, does the last lack its payload and nothing else?  *ret: its header. */
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
