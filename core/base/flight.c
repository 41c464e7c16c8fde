/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flight.c - see flight.h.
 *
 * A writer takes the next number, marks that number's slot as being written, fills it, and stores
 * the number in it.  A reader accepts a slot that holds the expected number before and after it has
 * read it.  Two writers meet in one slot only if one is a whole ring late: the second gives up.
 */
#include "core/base/flight.h"

#include <stdatomic.h>
#include <stddef.h>

#include "core/base/os.h"

#define WRITING UINT64_MAX

static struct slot {
	_Atomic uint64_t number;	/* 1 + its event's number; 0: none yet */
	_Atomic uint64_t ns, where, a, b;
} ring[BRAID_FLIGHT_MAX];
static _Atomic uint64_t next;

const struct braid_event_row braid_event_rows[BRAID_EVENTS] = {
#define EVENT(name, words, a, b) [BRAID_EVENT_##name] = { words, a, b },
#include "core/base/flight.def"
#undef EVENT
};

static void put(_Atomic uint64_t *to, uint64_t value)
{
	atomic_store_explicit(to, value, memory_order_release);	/* after earlier put()s */
}

static uint64_t get(const _Atomic uint64_t *from)
{
	return atomic_load_explicit(from, memory_order_acquire);
}

void braid_event(enum braid_event_kind kind, uint32_t link, unsigned lane, int64_t a, int64_t b)
{
	uint64_t number = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
	struct slot *s = &ring[number % BRAID_FLIGHT_MAX];
	uint64_t was = get(&s->number);

	if (was > number || !atomic_compare_exchange_strong(&s->number, &was, WRITING))
		return;
	put(&s->ns, braid_os->now_ns());
	put(&s->where, (uint64_t)link << 32 | (uint64_t)(lane & 0xffff) << 16 | kind);
	put(&s->a, (uint64_t)a);
	put(&s->b, (uint64_t)b);
	put(&s->number, number + 1);
}

static bool read_slot(uint64_t number, struct braid_event *ret)
{
	const struct slot *s = &ring[number % BRAID_FLIGHT_MAX];
	uint64_t where;

	if (get(&s->number) != number + 1)
		return false;
	ret->ns = get(&s->ns);
	where = get(&s->where);
	ret->a = (int64_t)get(&s->a);
	ret->b = (int64_t)get(&s->b);
	ret->link = (uint32_t)(where >> 32);
	ret->lane = (uint16_t)(where >> 16);
	ret->kind = (uint16_t)where;
	return get(&s->number) == number + 1;
}

unsigned braid_flight_copy(struct braid_event *to, unsigned max)
{
	uint64_t end = get(&next), number = 0;
	unsigned n = 0;

	if (max > BRAID_FLIGHT_MAX)
		max = BRAID_FLIGHT_MAX;
	if (end > max)
		number = end - max;
	for (; number != end; number++)
		n += read_slot(number, &to[n]);
	return n;
}
