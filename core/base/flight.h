/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flight.h - the flight recorder: the last events of this process, to find out what happened.
 *
 * One ring of BRAID_FLIGHT_MAX events of a fixed size, in static memory.  Any thread may write at
 * any time, with or without locks held, and never waits.  Events are rare (a lane is lost, a link
 * is up), never one per message.  The kinds of events: flight.def.
 */
#ifndef BRAID_BASE_FLIGHT_H
#define BRAID_BASE_FLIGHT_H

#include <stdint.h>

enum { BRAID_FLIGHT_MAX = 4096, BRAID_FLIGHT_NONE = 0xffff };

enum braid_event_kind {
#define EVENT(name, ...) BRAID_EVENT_##name,
#include "core/base/flight.def"
#undef EVENT
	BRAID_EVENTS,
};

struct braid_event {
	uint64_t ns;			/* braid_os->now_ns() */
	uint32_t link;			/* the link's number; 0: none */
	uint16_t lane;			/* or BRAID_FLIGHT_NONE */
	uint16_t kind;
	int64_t a, b;
};

struct braid_event_row {
	const char *words, *a, *b;
};
extern const struct braid_event_row braid_event_rows[BRAID_EVENTS];

void braid_event(enum braid_event_kind kind, uint32_t link, unsigned lane, int64_t a, int64_t b);

/*
 * Copies the newest events, at most `max`, oldest first; returns their number.  An event that is
 * being written, or was overwritten meanwhile, is left out.
 */
unsigned braid_flight_copy(struct braid_event *to, unsigned max);

#endif
