/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c - see rma.h. */
#include "core/proto/rma.h"

#include <errno.h>
#include <stdbool.h>

#include "core/proto/cursor.h"
#include "core/proto/frame.h"

void braid_rma_pack(const struct braid_rma_hdr *h, void *to)
{
	struct cursor c = { .w = to };

	put8(&c, h->what);
	put8(&c, h->context);
	put16(&c, 0);
	put32(&c, h->window);
	put64(&c, h->offset);
	put64(&c, h->size);
	put32(&c, h->signal_window);
	put32(&c, h->id);
	put64(&c, h->signal_offset);
	put64(&c, h->value);
}

/* One put at most, or nothing but a get, or nothing but a rank; and a signal has its order. */
static int check_what(unsigned what)
{
	unsigned put = what & (BRAID_RMA_DATA | BRAID_RMA_BULK);

	if (what == BRAID_RMA_GET || what == BRAID_RMA_RANK)
		return 0;
	if (!what || what >= 2 * BRAID_RMA_ORDERED)
		return -EBADMSG;
	if (put == (BRAID_RMA_DATA | BRAID_RMA_BULK))
		return -EBADMSG;
	if ((what & BRAID_RMA_ORDERED) && !(what & BRAID_RMA_SIGNAL))
		return -EBADMSG;
	/* A signal that does not wait for the chunks of its own put is of no use. */
	return (what & BRAID_RMA_BULK) && (what & BRAID_RMA_SIGNAL) && !(what & BRAID_RMA_ORDERED) ?
		       -EBADMSG : 0;
}

/* Of a BULK: a slot and its turn, or none. */
static bool is_slot(uint32_t id)
{
	return !id || (id >> 16 == BRAID_RMA_SLOT >> 16 && (id & 0xff) < BRAID_RMA_SLOTS &&
		       (id >> 8 & 0xff) < BRAID_RMA_TURNS);
}

int braid_rma_unpack(const void *from, size_t n, struct braid_rma_hdr *ret)
{
	struct cursor c = { .r = from };

	if (n < BRAID_RMA_HDR_SIZE)
		return -EBADMSG;
	ret->what = get8(&c);
	ret->context = get8(&c);
	if (get16(&c))
		return -EBADMSG;
	ret->window = get32(&c);
	ret->offset = get64(&c);
	ret->size = get64(&c);
	ret->signal_window = get32(&c);
	ret->id = get32(&c);
	ret->signal_offset = get64(&c);
	ret->value = get64(&c);
	if (ret->what & BRAID_RMA_BULK && !is_slot(ret->id))
		return -EBADMSG;
	if (check_what(ret->what) || ret->size > BRAID_MSG_MAX || ret->offset > BRAID_MSG_MAX)
		return -EBADMSG;
	if (!(ret->what & BRAID_RMA_DATA))
		return BRAID_RMA_HDR_SIZE;
	return ret->size <= n - BRAID_RMA_HDR_SIZE ? BRAID_RMA_HDR_SIZE + (int)ret->size : -EBADMSG;
}
