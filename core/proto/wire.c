/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.c - pack and unpack.  Offsets are written out once, in the order of the bytes: a cursor
 * walks them, so that the two directions read alike and a test can pin both with golden bytes.
 */
#include "core/proto/wire.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

struct cursor {
	uint8_t *w;
	const uint8_t *r;
};

#define PUT(BITS)								\
	static void put##BITS(struct cursor *c, uint##BITS##_t v)		\
	{									\
		v = htole##BITS(v);						\
		memcpy(c->w, &v, sizeof(v));					\
		c->w += sizeof(v);						\
	}									\
	static uint##BITS##_t get##BITS(struct cursor *c)			\
	{									\
		uint##BITS##_t v;						\
										\
		memcpy(&v, c->r, sizeof(v));					\
		c->r += sizeof(v);						\
		return le##BITS##toh(v);					\
	}

PUT(16)
PUT(32)
PUT(64)

static void put8(struct cursor *c, uint8_t v)
{
	*c->w++ = v;
}

static uint8_t get8(struct cursor *c)
{
	return *c->r++;
}

static void put_bytes(struct cursor *c, const void *from, size_t n)
{
	memcpy(c->w, from, n);
	c->w += n;
}

static void get_bytes(struct cursor *c, void *to, size_t n)
{
	memcpy(to, c->r, n);
	c->r += n;
}

static int common_version(uint16_t least, uint16_t most)
{
	return least > most || most < BRAID_WIRE_LEAST || least > BRAID_WIRE_MOST ?
		       -EPROTONOSUPPORT : 0;
}

/* --- the handle ---------------------------------------------------------------------------- */

enum { HANDLE_CHECKED = 104, HANDLE_STATE = 112, MORE_LAST = 2 };

/* FNV-1a over the listener's part: detects damage.  It proves nothing; the token does that. */
static uint64_t handle_check(const uint8_t *p)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (int i = 0; i < HANDLE_CHECKED; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

void braid_handle_put_state(void *handle, const struct braid_handle_state *s)
{
	struct cursor c = { .w = (uint8_t *)handle + HANDLE_STATE };

	put32(&c, s->slot);
	put32(&c, s->gen);
	put64(&c, s->nonce);
}

void braid_handle_pack(const struct braid_handle *h, void *to)
{
	struct cursor c = { .w = to };

	memset(to, 0, BRAID_HANDLE_SIZE);
	put64(&c, BRAID_HANDLE_MAGIC);
	put16(&c, h->least);
	put16(&c, h->most);
	put16(&c, h->flags);
	put16(&c, h->dev);
	put64(&c, h->listen_id);
	put_bytes(&c, h->process, sizeof(h->process));
	put_bytes(&c, h->token, sizeof(h->token));
	put16(&c, h->port);
	put8(&c, h->has4);
	put8(&c, h->has6);
	put_bytes(&c, h->addr4, sizeof(h->addr4));
	if (h->has6)
		put_bytes(&c, h->addr6, sizeof(h->addr6));
	else
		put_bytes(&c, h->more4[MORE_LAST], sizeof(h->addr6));
	put_bytes(&c, h->more4[0], MORE_LAST * sizeof(h->more4[0]));
	c.w = (uint8_t *)to + HANDLE_CHECKED;
	put64(&c, handle_check(to));
	braid_handle_put_state(to, &h->state);
}

int braid_handle_unpack(const void *from, struct braid_handle *ret)
{
	struct cursor c = { .r = from };
	struct braid_handle h = { 0 };

	if (get64(&c) != BRAID_HANDLE_MAGIC)
		return -EPROTO;
	h.least = get16(&c);
	h.most = get16(&c);
	h.flags = get16(&c);
	h.dev = get16(&c);
	h.listen_id = get64(&c);
	get_bytes(&c, h.process, sizeof(h.process));
	get_bytes(&c, h.token, sizeof(h.token));
	h.port = get16(&c);
	h.has4 = get8(&c);
	h.has6 = get8(&c);
	get_bytes(&c, h.addr4, sizeof(h.addr4));
	get_bytes(&c, h.has6 ? h.addr6 : h.more4[MORE_LAST], sizeof(h.addr6));
	get_bytes(&c, h.more4[0], MORE_LAST * sizeof(h.more4[0]));
	c.r = (const uint8_t *)from + HANDLE_CHECKED;
	if (get64(&c) != handle_check(from))
		return -EBADMSG;
	h.state.slot = get32(&c);
	h.state.gen = get32(&c);
	h.state.nonce = get64(&c);
	*ret = h;
	return common_version(h.least, h.most);
}

/* --- the handshake ------------------------------------------------------------------------- */

void braid_hello_pack(const struct braid_hello *h, uint8_t *to)
{
	struct cursor c = { .w = to };

	memset(to, 0, BRAID_HELLO_SIZE);
	put64(&c, BRAID_WIRE_MAGIC);
	put16(&c, h->least);
	put16(&c, h->most);
	put8(&c, h->kind);
	put8(&c, h->status);
	put8(&c, h->lane);
	put8(&c, h->lanes_max);
	put16(&c, h->dev);
	put16(&c, h->peer_dev);
	put16(&c, (uint16_t)h->traffic_class);
	put16(&c, h->epoch);
	put32(&c, h->pid);
	put32(&c, h->window);
	put64(&c, h->ident);
	put_bytes(&c, h->process, sizeof(h->process));
	put_bytes(&c, h->nonce, sizeof(h->nonce));
	put_bytes(&c, h->transports, sizeof(h->transports));
	put_bytes(&c, h->host, sizeof(h->host));
	put32(&c, h->frames);
	put32(&c, h->first);
	put16(&c, h->port);
	for (unsigned i = 0; i < BRAID_PATHS_MAX - 1; i++) {
		put_bytes(&c, h->more[i].ip, sizeof(h->more[i].ip));
		put16(&c, h->more[i].port);
	}
	c.w = to + BRAID_HELLO_SIGNED;
	put_bytes(&c, h->mac, sizeof(h->mac));
}

int braid_hello_unpack(const uint8_t *from, struct braid_hello *ret)
{
	struct cursor c = { .r = from };
	struct braid_hello h = { 0 };
	int err;

	if (get64(&c) != BRAID_WIRE_MAGIC)
		return -EPROTO;
	h.least = get16(&c);
	h.most = get16(&c);
	err = common_version(h.least, h.most);
	h.kind = get8(&c);
	h.status = get8(&c);
	h.lane = get8(&c);
	h.lanes_max = get8(&c);
	h.dev = get16(&c);
	h.peer_dev = get16(&c);
	h.traffic_class = (int16_t)get16(&c);
	h.epoch = get16(&c);
	h.pid = get32(&c);
	h.window = get32(&c);
	h.ident = get64(&c);
	get_bytes(&c, h.process, sizeof(h.process));
	get_bytes(&c, h.nonce, sizeof(h.nonce));
	get_bytes(&c, h.transports, sizeof(h.transports));
	get_bytes(&c, h.host, sizeof(h.host));
	h.host[BRAID_HOST_SIZE - 1] = '\0';
	for (char *p = h.host; *p; p++) {
		if (*p < '!' || *p > '~')
			*p = '?';
	}
	h.frames = get32(&c);
	h.first = get32(&c);
	h.port = get16(&c);
	for (unsigned i = 0; i < BRAID_PATHS_MAX - 1; i++) {
		get_bytes(&c, h.more[i].ip, sizeof(h.more[i].ip));
		h.more[i].port = get16(&c);
	}
	c.r = from + BRAID_HELLO_SIGNED;
	get_bytes(&c, h.mac, sizeof(h.mac));
	if (!err && (h.kind < BRAID_HELLO_LINK || h.kind > BRAID_HELLO_ALIVE ||
		     h.status >= BRAID_HELLO_STATUS_MAX || h.lane >= BRAID_LANES_MAX ||
		     h.lanes_max < 1 || h.lanes_max > BRAID_LANES_MAX))
		return -EBADMSG;
	*ret = h;
	return err;
}

/* --- set-up -------------------------------------------------------------------------------- */

void braid_setup_pack(const struct braid_setup_msg *m, uint8_t *to)
{
	struct cursor c = { .w = to };

	memset(to, 0, BRAID_SETUP_SIZE);
	put64(&c, BRAID_SETUP_MAGIC);
	put16(&c, m->err);
	put8(&c, m->member);
	put8(&c, 0);
	put32(&c, m->rkey_epoch);
	put_bytes(&c, m->blob, sizeof(m->blob));
	c.w = to + BRAID_SETUP_SIGNED;
	put_bytes(&c, m->mac, sizeof(m->mac));
}

int braid_setup_unpack(const uint8_t *from, struct braid_setup_msg *ret)
{
	struct cursor c = { .r = from };

	if (get64(&c) != BRAID_SETUP_MAGIC)
		return -EBADMSG;
	ret->err = get16(&c);
	ret->member = get8(&c);
	get8(&c);
	ret->rkey_epoch = get32(&c);
	get_bytes(&c, ret->blob, sizeof(ret->blob));
	c.r = from + BRAID_SETUP_SIGNED;
	get_bytes(&c, ret->mac, sizeof(ret->mac));
	return ret->member < BRAID_PATHS_MAX ? 0 : -EBADMSG;
}

/* --- frames -------------------------------------------------------------------------------- */

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

void braid_short_pack(uint32_t what, void *to)
{
	struct cursor c = { .w = to };

	put32(&c, BRAID_SHORT);
	put32(&c, what);
}

bool braid_short_unpack(const void *from, size_t n, uint32_t *ret)
{
	struct cursor c = { .r = from };

	if (n <= BRAID_SHORT_SIZE || get32(&c) != BRAID_SHORT)
		return false;
	*ret = get32(&c);
	return true;
}

/*
 * Packed member by member, although a little-endian struct has the wire's layout: one copy of the
 * whole took longer, perhaps because it waits for the stores of the members (store forwarding).
 */
void braid_hdr_pack(const struct braid_hdr *h, void *to)
{
	struct cursor c = { .w = to };

	put8(&c, h->type);
	put8(&c, h->flags);
	put16(&c, h->n);
	put32(&c, h->ack);
	put32(&c, h->lseq);
	put32(&c, h->comm);
	put32(&c, h->seq);
	put32(&c, (uint32_t)h->tag);
	put32(&c, h->rseq);
	put32(&c, h->len);
	put64(&c, h->offset);
	if (h->type == BRAID_F_EAGER)
		braid_short_pack(braid_short(h->comm, h->seq), c.w);
	else
		put64(&c, h->size);
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
