/* SPDX-License-Identifier: BSD-3-Clause */
/* frame.c - see frame.h. */
#include "core/proto/frame.h"

#include <errno.h>
#include <string.h>

#include "core/base/crc32c.h"
#include "core/proto/cursor.h"

static const struct {
	const char *name;
	uint32_t len_max;		/* payload */
	uint8_t flags;			/* flags that it may carry */
} frames[BRAID_F_MAX] = {
	[BRAID_F_EAGER]   = { "eager", BRAID_EAGER_MAX, BRAID_FLAG_CREDITED },
	[BRAID_F_START]   = { "start", 0, 0 },
	[BRAID_F_WANT]    = { "want", 0, 0 },
	[BRAID_F_CHUNK]   = { "chunk", BRAID_CHUNK_LEN_MAX, BRAID_FLAG_PLACED },
	[BRAID_F_CREDIT]  = { "credit", 4 * BRAID_PATHS_MAX, 0 },
	[BRAID_F_RETIRE]  = { "retire", 0, 0 },
	[BRAID_F_ACK]     = { "ack", 0, 0 },
	[BRAID_F_OPEN]    = { "open", BRAID_OPEN_SIZE, 0 },
	[BRAID_F_OPENED]  = { "opened", BRAID_OPEN_SIZE, 0 },
	[BRAID_F_REFUSED] = { "refused", 0, 0 },
	[BRAID_F_BYE]     = { "bye", 0, 0 },
	[BRAID_F_FAIL]    = { "fail", 0, 0 },
	[BRAID_F_LANES]   = { "lanes", 0, 0 },
	[BRAID_F_CLOSE]   = { "close", 0, 0 },
	[BRAID_F_DOWN]    = { "down", 0, 0 },
	[BRAID_F_ALIVE]   = { "alive", 0, 0 },
	[BRAID_F_VOID]    = { "void", 0, 0 },
	[BRAID_F_RENEW]   = { "renew", 0, 0 },
};

const char *braid_frame_name(unsigned type)
{
	return type < BRAID_F_MAX && frames[type].name ? frames[type].name : "unknown";
}

bool braid_short_unpack(const void *from, size_t n, uint32_t *ret)
{
	struct cursor c = { .r = from };

	if (n <= BRAID_SHORT_SIZE || get32(&c) != BRAID_SHORT)
		return false;
	*ret = get32(&c);
	return true;
}

/* All fields as they are, but the size of an EAGER. */
static void get_hdr(struct cursor *c, struct braid_hdr *ret)
{
	ret->type = get8(c);
	ret->flags = get8(c);
	ret->n = get16(c);
	ret->ack = get32(c);
	ret->lseq = get32(c);
	ret->comm = get32(c);
	ret->seq = get32(c);
	ret->tag = (int32_t)get32(c);
	ret->rseq = get32(c);
	ret->len = get32(c);
	ret->offset = get64(c);
}

/* Is each field in its range? */
static int check(const struct braid_hdr *h)
{
	if (h->type >= BRAID_F_MAX || !frames[h->type].name ||
	    h->flags & ~frames[h->type].flags || h->len > frames[h->type].len_max ||
	    h->size > BRAID_MSG_MAX ||
	    (h->offset > BRAID_MSG_MAX && h->type != BRAID_F_CREDIT))
		return -EBADMSG;
	if (h->type == BRAID_F_CREDIT && h->len % 4)
		return -EBADMSG;
	if ((h->type == BRAID_F_OPEN || h->type == BRAID_F_OPENED) && h->len != BRAID_OPEN_SIZE)
		return -EBADMSG;
	if (h->type == BRAID_F_CHUNK &&
	    (!h->len || h->n >= BRAID_CHUNKS_MAX || h->offset + h->len > h->size))
		return -EBADMSG;
	return 0;
}

int braid_hdr_unpack(const void *from, struct braid_hdr *ret)
{
	struct cursor c = { .r = from };

	get_hdr(&c, ret);
	if (ret->type == BRAID_F_EAGER) {
		if (get32(&c) != BRAID_SHORT || get32(&c) != braid_short(ret->comm, ret->seq))
			return -EBADMSG;
		ret->size = ret->len;
	} else {
		ret->size = get64(&c);
	}
	return check(ret);
}

/* --- sealed headers ------------------------------------------------------------------------ */

enum {
	SUM_IN_N = 8, SUM_IN_SIZE = 24,	/* bits of the payload's checksum */
	SEAL_FLAGS = BRAID_FLAG_PLACED | BRAID_FLAG_UNSUMMED,
};

#define N_MASK ((1u << (16 - SUM_IN_N)) - 1)
#define SIZE_MASK ((1ull << (64 - SUM_IN_SIZE)) - 1)

void braid_hdr_read(const void *from, struct braid_hdr *ret)
{
	struct cursor c = { .r = from };

	get_hdr(&c, ret);
	ret->size = ret->type == BRAID_F_EAGER ? ret->len : get64(&c);
	ret->flags &= (uint8_t)~SEAL_FLAGS;
	if (ret->len) {
		ret->n &= N_MASK;
		ret->size &= SIZE_MASK;
	}
}

/* The checksum of a header, with `lseq` in the place of the checksum. */
static uint32_t hdr_sum(const void *hdr, uint32_t lseq)
{
	struct braid_wire_hdr w;

	memcpy(&w, hdr, sizeof(w));
	w.lseq = htole32(lseq);
	return braid_crc32c(0, &w, sizeof(w));
}

void braid_hdr_seal(void *hdr, uint32_t lseq, uint8_t flags, uint32_t sum)
{
	struct braid_wire_hdr *w = hdr;

	w->flags = (uint8_t)((w->flags & ~SEAL_FLAGS) | flags);
	if (w->len) {
		uint64_t size = w->type == BRAID_F_EAGER ? le32toh(w->len) : le64toh(w->size);

		w->n = htole16((uint16_t)((le16toh(w->n) & N_MASK) | sum << (16 - SUM_IN_N)));
		w->size = htole64((size & SIZE_MASK) |
				  (uint64_t)(sum >> SUM_IN_N) << (64 - SUM_IN_SIZE));
	}
	w->lseq = htole32(hdr_sum(hdr, lseq));
}

int braid_hdr_open(const void *from, uint32_t lseq, struct braid_hdr *ret, uint32_t *ret_sum)
{
	const struct braid_wire_hdr *w = from;
	int err;

	if (le32toh(w->lseq) != hdr_sum(from, lseq))
		return -EILSEQ;
	*ret_sum = 0;
	if (w->len)
		*ret_sum = (uint32_t)(le16toh(w->n) >> (16 - SUM_IN_N)) |
			   (uint32_t)(le64toh(w->size) >> (64 - SUM_IN_SIZE)) << SUM_IN_N;
	braid_hdr_read(from, ret);
	ret->lseq = lseq;
	ret->flags |= w->flags & BRAID_FLAG_PLACED;
	err = check(ret);
	ret->flags |= w->flags & BRAID_FLAG_UNSUMMED;
	return err;
}

bool braid_frames_lack(const void *from, size_t n, struct braid_hdr *ret)
{
	const char *p = from;
	size_t at = 0;

	while (n - at >= BRAID_HDR_SIZE && !braid_hdr_unpack(p + at, ret)) {
		at += BRAID_HDR_SIZE;
		if (braid_hdr_follows(ret) > n - at)
			return at == n;
		at += braid_hdr_follows(ret);
	}
	return false;
}

void braid_keys_pack(const uint32_t *key, unsigned n, uint8_t *to)
{
	struct cursor c = { .w = to };

	for (unsigned i = 0; i < n; i++)
		put32(&c, key[i]);
}

void braid_keys_unpack(const uint8_t *from, unsigned n, uint32_t *ret)
{
	struct cursor c = { .r = from };

	for (unsigned i = 0; i < n; i++)
		ret[i] = get32(&c);
}

void braid_open_pack(const struct braid_open *o, uint8_t *to)
{
	struct cursor c = { .w = to };

	memset(to, 0, BRAID_OPEN_SIZE);
	put64(&c, o->listen_id);
	put_bytes(&c, o->mac, sizeof(o->mac));
	put64(&c, o->connect);
}

void braid_open_unpack(const uint8_t *from, struct braid_open *ret)
{
	struct cursor c = { .r = from };

	ret->listen_id = get64(&c);
	get_bytes(&c, ret->mac, sizeof(ret->mac));
	ret->connect = get64(&c);
}
