/* SPDX-License-Identifier: BSD-3-Clause */
/* frame.c - see frame.h. */
#include "core/proto/frame.h"

#include <errno.h>
#include <string.h>

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

int braid_hdr_unpack(const void *from, struct braid_hdr *ret)
{
	struct cursor c = { .r = from };

	ret->type = get8(&c);
	ret->flags = get8(&c);
	ret->n = get16(&c);
	ret->ack = get32(&c);
	ret->lseq = get32(&c);
	ret->comm = get32(&c);
	ret->seq = get32(&c);
	ret->tag = (int32_t)get32(&c);
	ret->rseq = get32(&c);
	ret->len = get32(&c);
	ret->offset = get64(&c);
	if (ret->type == BRAID_F_EAGER) {
		if (get32(&c) != BRAID_SHORT || get32(&c) != braid_short(ret->comm, ret->seq))
			return -EBADMSG;
		ret->size = ret->len;
	} else {
		ret->size = get64(&c);
	}
	if (ret->type >= BRAID_F_MAX || !frames[ret->type].name ||
	    ret->flags & ~frames[ret->type].flags || ret->len > frames[ret->type].len_max ||
	    ret->size > BRAID_MSG_MAX ||
	    (ret->offset > BRAID_MSG_MAX && ret->type != BRAID_F_CREDIT))
		return -EBADMSG;
	if (ret->type == BRAID_F_CREDIT && ret->len % 4)
		return -EBADMSG;
	if ((ret->type == BRAID_F_OPEN || ret->type == BRAID_F_OPENED) &&
	    ret->len != BRAID_OPEN_SIZE)
		return -EBADMSG;
	if (ret->type == BRAID_F_CHUNK &&
	    (!ret->len || ret->n >= BRAID_CHUNKS_MAX || ret->offset + ret->len > ret->size))
		return -EBADMSG;
	return 0;
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
}

void braid_open_unpack(const uint8_t *from, struct braid_open *ret)
{
	struct cursor c = { .r = from };

	ret->listen_id = get64(&c);
	get_bytes(&c, ret->mac, sizeof(ret->mac));
}
