/* SPDX-License-Identifier: BSD-3-Clause */
/* hello.c - see hello.h. */
#include "core/proto/hello.h"

#include <errno.h>
#include <string.h>

#include "core/proto/cursor.h"

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
	put16(&c, (uint16_t)h->epoch);
	put32(&c, h->pid);
	put32(&c, h->window);
	put64(&c, h->ident);
	put_bytes(&c, h->process, sizeof(h->process));
	put_bytes(&c, h->nonce, sizeof(h->nonce));
	put_bytes(&c, h->transports, sizeof(h->transports));
	put_bytes(&c, h->host, sizeof(h->host));
	put16(&c, (uint16_t)(h->epoch >> 16));
	put8(&c, h->ciphers);
	put8(&c, h->options);
	put32(&c, h->hint);
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
	err = braid_version_check(h.least, h.most);
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
	if (h.most >= 2) {		/* version 1 has longer host names */
		h.epoch |= (uint32_t)get16(&c) << 16;
		h.ciphers = get8(&c);
		h.options = get8(&c);
		h.hint = get32(&c);
	} else {
		c.r += 8;
	}
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
