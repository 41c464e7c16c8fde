/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * frame.h - the frames of a lane, once its handshake is over: a header, and payload.
 *
 * docs/dev/wire.md says what each frame means, and when it is sent.
 */
#ifndef BRAID_PROTO_FRAME_H
#define BRAID_PROTO_FRAME_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/proto/common.h"

enum {
	BRAID_HDR_SIZE = 48,
	BRAID_OPEN_SIZE = 48,

	BRAID_CHUNKS_MAX = 256,		/* of one message */
	BRAID_CHUNK_ALIGN = 128,	/* no line of NCCL's LL128 crosses two chunks */
	BRAID_EAGER_MAX = 1 << 20,
	BRAID_CHUNK_LEN_MAX = 1 << 30,
	BRAID_IMM_WHOLE = 255,		/* in place of a chunk's number: a whole message */
};

#define BRAID_MSG_MAX (1ull << 38)	/* 256 chunks of 1 GiB; NCCL sends 1 GiB at most */

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
	BRAID_F_OPENED,		/* the answer to OPEN: the same payload, with the peer's MAC */
	BRAID_F_REFUSED,	/* the comm is refused; n: enum braid_hello_status */
	BRAID_F_BYE,		/* the sender sends nothing more for this comm */
	BRAID_F_FAIL,		/* the sender's comm failed: n: errno; size, offset: two sizes */
	BRAID_F_LANES,		/* please dial until the link has n lanes */
	BRAID_F_CLOSE,		/* the sender sends nothing more on this link */
	BRAID_F_DOWN,		/* lane n, epoch rseq, is closed; `seq` frames were received */
	BRAID_F_ALIVE,		/* keepalive */
	BRAID_F_VOID,		/* replaces a frame whose memory was given back; FAIL follows */
	BRAID_F_RENEW,		/* please dial lane n, epoch rseq, again: see its tag */
	BRAID_F_MAX,
};

enum {
	BRAID_FLAG_CREDITED = 1,
	BRAID_FLAG_PLACED = 2,	/* the NIC wrote the payload to its place: none follows */
	BRAID_FLAG_UNSUMMED = 4,	/* sealed headers only: the payload has no checksum */
};

/*
 * DOWN with this tag: the count is final, but the sender's NIC may still write what was in flight.
 * rseq is then the complement of the epoch, so that an older peer ignores the frame.
 */
enum { BRAID_DOWN_WRITES = 1 };
/* RENEW with this tag: the lane's path is slow.  Only peers with BRAID_OPTION_PATHS know it. */
enum { BRAID_RENEW_SLOW = 1 };
/*
 * LANES with this tag, from the end that dials, which can't: please connect, for lane n.  Only
 * peers with BRAID_OPTION_REVERSE know it.
 */
enum { BRAID_LANES_CALL = 1 };

/*
 * ALIVE with this tag: seq is the CPU time of the sender's process, and rseq for how long its
 * service thread has waited for a CPU, both in ms and modulo 2^32.  An older peer ignores them.
 */
enum { BRAID_ALIVE_CPU = 1 };
/*
 * ALIVE's n: the sender has many links, and this one is at rest, so a sign of life each n seconds
 * will do, from both ends; this is the most.  0: each second, as an earlier build always wants.
 */
enum { BRAID_ALIVE_REST_S = 40 };

struct braid_hdr {
	uint8_t type, flags;
	uint16_t n;
	uint32_t ack;		/* frames received on this lane by the sender of this frame */
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
 * An EAGER's header ends in a short header, where others have the size.  A carrier that keeps
 * message boundaries may send it in place of the whole header, if that has no flags, the tag of
 * the comm's previous message, and nothing to acknowledge.
 */
enum { BRAID_SHORT_SIZE = 8, BRAID_SHORT = 0x80 };	/* SHORT: its first byte, no frame type */

/* The content of a short header.  As RDMA immediate data it replaces the whole header. */
static inline uint32_t braid_short(uint32_t comm, uint32_t seq)
{
	return comm << 16 | (uint16_t)seq;
}

struct braid_wire_short {		/* the 8 bytes of a short header on the wire */
	uint32_t mark, what;
} __attribute__((packed, may_alias));

static inline void braid_short_pack(uint32_t what, void *to)
{
	struct braid_wire_short *w = to;

	w->mark = htole32(BRAID_SHORT);
	w->what = htole32(what);
}

/* True: `from` is a short header with payload after it.  *ret: its content. */
bool braid_short_unpack(const void *from, size_t n, uint32_t *ret);

/* The 48 bytes of a header on the wire: little-endian, anywhere in memory. */
struct braid_wire_hdr {
	uint8_t type, flags;
	uint16_t n;
	uint32_t ack, lseq, comm, seq, tag, rseq, len;
	uint64_t offset;
	uint64_t size;			/* of an EAGER: a short header */
} __attribute__((packed, may_alias));

/*
 * Packed member by member, although on most machines one copy would do: that took longer, perhaps
 * because it waits for the stores of the members (store forwarding).
 */
static inline void braid_hdr_pack(const struct braid_hdr *h, void *to)
{
	struct braid_wire_hdr *w = to;

	w->type = h->type;
	w->flags = h->flags;
	w->n = htole16(h->n);
	w->ack = htole32(h->ack);
	w->lseq = htole32(h->lseq);
	w->comm = htole32(h->comm);
	w->seq = htole32(h->seq);
	w->tag = htole32((uint32_t)h->tag);
	w->rseq = htole32(h->rseq);
	w->len = htole32(h->len);
	w->offset = htole64(h->offset);
	if (h->type == BRAID_F_EAGER)
		braid_short_pack(braid_short(h->comm, h->seq), &w->size);
	else
		w->size = htole64(h->size);
}

/* Let n more bytes of payload follow an EAGER's packed header. */
static inline void braid_hdr_lengthen(void *hdr, uint32_t n)
{
	struct braid_wire_hdr *w = hdr;

	w->len = htole32(le32toh(w->len) + n);
}

/* 0 or -EBADMSG: unknown type or flag, a length or size beyond what its type may have. */
int braid_hdr_unpack(const void *from, struct braid_hdr *ret);
/* Read a header of our own, sealed or not: the fields that braid_hdr_pack() was given. */
void braid_hdr_read(const void *from, struct braid_hdr *ret);

/*
 * On a link with checksums headers are sealed before they are sent.  In place of lseq, which the
 * receiver knows, is the CRC32C of the header.  The payload's CRC32C is in bits that no frame with
 * payload needs: the upper 8 of n and the upper 24 of size.
 */
/* Seal a packed header, perhaps not for the first time.  `flags`: PLACED or UNSUMMED, if so now. */
void braid_hdr_seal(void *hdr, uint32_t lseq, uint8_t flags, uint32_t sum);
/*
 * braid_hdr_unpack() of a sealed header, which should be frame `lseq`.  *ret_sum: the payload's
 * CRC32C.  -EILSEQ: a bit of the header has changed, or it is another frame's.
 */
int braid_hdr_open(const void *from, uint32_t lseq, struct braid_hdr *ret, uint32_t *ret_sum);

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
	uint64_t connect;		/* number of the connect() that opens it; 0: not known */
};

void braid_keys_pack(const uint32_t *key, unsigned n, uint8_t *to);	/* 4 n bytes */
void braid_keys_unpack(const uint8_t *from, unsigned n, uint32_t *ret);

void braid_open_pack(const struct braid_open *o, uint8_t *to);
void braid_open_unpack(const uint8_t *from, struct braid_open *ret);

#endif
