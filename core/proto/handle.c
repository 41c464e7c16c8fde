/* SPDX-License-Identifier: BSD-3-Clause */
/* handle.c - see handle.h. */
#include "core/proto/handle.h"

#include <errno.h>
#include <string.h>

#include "core/proto/cursor.h"

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
	put16(&c, h->place);
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
	h.place = get16(&c);
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
	return braid_version_check(h.least, h.most);
}
