/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.c - see wire.h.  One thread: poll() on both devices, and a heap of frames by the time at
 * which they are due.  A frame without delay is written at once.
 */
#include "tests/faults/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/faults/stage.h"

enum { FRAME_MAX = 2048, HELD_MAX = 4096, ETHER_HEADER = 14, IP_HEADER = 20, KNOWN_MAX = 4096 };

struct frame {
	uint64_t due_ns, order;
	unsigned to, len;
	uint8_t data[FRAME_MAX];
};

struct bench {
	struct wire *wire;
	struct wire_trouble t;
	int tap[2];
	uint64_t seed, frames;		/* frames: how many have come in */
	unsigned losing[2];		/* frames still to lose of a burst, each way */
	struct frame *held[HELD_MAX];	/* a heap, the earliest first */
	unsigned n_held;
	bool known[KNOWN_MAX];		/* TCP connections, by a hash of addresses and ports */
};

/* True for `share` in a million frames.  Follows from the seed, the frame's number and `what`. */
static bool chance(struct bench *b, unsigned share, unsigned what)
{
	return share && mix(b->seed + what, b->frames) % 1000000 < share;
}

static uint64_t up_to(struct bench *b, unsigned most, unsigned what)
{
	return most ? mix(b->seed + what, b->frames) % most : 0;
}

static void put(struct bench *b, unsigned to, const uint8_t *data, unsigned len)
{
	/* A full device loses frames, as a real one does. */
	if (write(b->tap[to], data, len) == (ssize_t)len)
		b->wire->passed++;
	else
		b->wire->full++;
}

/* -- the heap ----------------------------------------------------------------------------- */

static bool earlier(const struct frame *a, const struct frame *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void swap(struct bench *b, unsigned i, unsigned j)
{
	struct frame *f = b->held[i];

	b->held[i] = b->held[j];
	b->held[j] = f;
}

static void hold(struct bench *b, unsigned to, const uint8_t *data, unsigned len, uint64_t due_ns)
{
	struct frame *f = b->n_held < HELD_MAX ? malloc(sizeof(*f)) : NULL;

	if (!f) {
		b->wire->full++;
		return;
	}
	f->due_ns = due_ns;
	f->order = b->frames;
	f->to = to;
	f->len = len;
	memcpy(f->data, data, len);
	b->held[b->n_held] = f;
	for (unsigned i = b->n_held++; i && earlier(b->held[i], b->held[(i - 1) / 2]); i = (i - 1) / 2)
		swap(b, i, (i - 1) / 2);
}

static void let_go(struct bench *b)
{
	struct frame *f = b->held[0];

	put(b, f->to, f->data, f->len);
	free(f);
	b->held[0] = b->held[--b->n_held];
	for (unsigned i = 0;;) {
		unsigned least = i;

		for (unsigned c = 2 * i + 1; c <= 2 * i + 2 && c < b->n_held; c++) {
			if (earlier(b->held[c], b->held[least]))
				least = c;
		}
		if (least == i)
			return;
		swap(b, i, least);
		i = least;
	}
}

/* -- the fate of a frame ------------------------------------------------------------------ */

static bool is_lost(struct bench *b, unsigned from)
{
	if (b->t.cut & 1U << from)
		return true;
	if (b->losing[from]) {
		b->losing[from]--;
		return true;
	}
	/* A burst loses several frames, so bursts begin more rarely: the share of lost frames stays. */
	if (!chance(b, b->t.burst > 1 ? b->t.loss / b->t.burst : b->t.loss, 1))
		return false;
	b->losing[from] = b->t.burst > 1 ? b->t.burst - 1 : 0;
	return true;
}

/* Changes a bit of an IP packet, which a checksum of IP or TCP must catch.  ARP has no checksum. */
static void damage(struct bench *b, uint8_t *data, unsigned len)
{
	uint64_t bit;

	if (len <= ETHER_HEADER + IP_HEADER || data[12] != 0x08 || data[13] != 0x00)
		return;
	bit = up_to(b, (len - ETHER_HEADER) * 8, 2);
	data[ETHER_HEADER + bit / 8] ^= (uint8_t)(1U << bit % 8);
	b->wire->damaged++;
}

/*
 * Acts as a firewall or NAT that was restarted, or that dropped idle connections: only connections
 * that begin with a SYN since then go through.
 */
static bool is_forgotten(struct bench *b, const uint8_t *data, unsigned len)
{
	const uint8_t *ip = data + ETHER_HEADER, *tcp = ip + IP_HEADER;
	uint32_t address[2];
	uint16_t port[2];
	bool *known;

	if (!b->t.forget || len < ETHER_HEADER + 2 * IP_HEADER || data[12] != 0x08 || data[13] != 0x00 ||
	    ip[9] != 6)
		return false;
	memcpy(address, ip + 12, sizeof(address));
	memcpy(port, tcp, sizeof(port));
	known = &b->known[mix((uint64_t)address[0] * address[1], (uint64_t)port[0] * port[1]) % KNOWN_MAX];
	if (tcp[13] & 0x02)
		*known = true;
	return !*known;
}

/* Changes a payload bit and adjusts TCP's checksum, so that only a comparison of the bytes shows it. */
static void forge(struct bench *b, uint8_t *data, unsigned len)
{
	uint8_t *tcp = data + ETHER_HEADER + IP_HEADER;
	unsigned header, at, was, is, sum;

	if (len <= ETHER_HEADER + 2 * IP_HEADER || data[12] != 0x08 || data[13] != 0x00 || tcp[-11] != 6)
		return;
	header = ETHER_HEADER + IP_HEADER + (tcp[12] >> 4) * 4U;
	if (len < header + 2)
		return;
	at = header + (unsigned)up_to(b, (len - header) / 2, 8) * 2;
	was = (unsigned)(data[at] << 8 | data[at + 1]);
	data[at] ^= (uint8_t)(1U << up_to(b, 8, 9));
	is = (unsigned)(data[at] << 8 | data[at + 1]);
	sum = (~(unsigned)(tcp[16] << 8 | tcp[17]) & 0xffff) + (~was & 0xffff) + is;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	tcp[16] = (uint8_t)(sum >> 8);
	tcp[17] = (uint8_t)sum;
	b->wire->damaged++;
}

static bool is_too_long(const struct bench *b, unsigned len)
{
	return b->t.mtu && len > b->t.mtu + ETHER_HEADER;
}

static void carry(struct bench *b, unsigned from, uint8_t *data, unsigned len)
{
	uint64_t now = now_ns(), wait_us = b->t.delay_us + up_to(b, b->t.jitter_us, 3);
	unsigned copies = 1;

	b->frames++;
	if (is_lost(b, from) || is_too_long(b, len) || is_forgotten(b, data, len)) {
		b->wire->lost++;
		return;
	}
	if (chance(b, b->t.damage, 4))
		damage(b, data, len);
	if (chance(b, b->t.forge, 10))
		forge(b, data, len);
	if (chance(b, b->t.reorder, 5)) {
		wait_us += 1 + up_to(b, b->t.reorder_us, 6);
		b->wire->reordered++;
	}
	if (chance(b, b->t.twice, 7)) {
		copies = 2;
		b->wire->doubled++;
	}
	for (; copies; copies--) {
		if (wait_us)
			hold(b, !from, data, len, now + wait_us * 1000);
		else
			put(b, !from, data, len);
	}
}

/* -- the loop ----------------------------------------------------------------------------- */

static void look_at_trouble(struct bench *b)
{
	uint32_t v = b->wire->version;
	struct wire_trouble t = b->wire->trouble;

	if (v % 2 == 0 && v == b->wire->version)
		b->t = t;
}

/* Reads a limited number of frames, so that delayed frames are written when they are due. */
static void take_from(struct bench *b, unsigned from)
{
	uint8_t data[FRAME_MAX];

	for (int i = 0; i < 32; i++) {
		ssize_t len = read(b->tap[from], data, sizeof(data));

		if (len <= 0)
			return;
		carry(b, from, data, (unsigned)len);
	}
}

static void wait_for_frames(struct bench *b)
{
	struct pollfd fds[2] = { { b->tap[0], POLLIN, 0 }, { b->tap[1], POLLIN, 0 } };
	struct timespec ts = { .tv_nsec = 5000000 };	/* then see whether trouble has changed */
	uint64_t now = now_ns();

	if (b->n_held) {
		uint64_t due = b->held[0]->due_ns, left = due > now ? due - now : 0;

		if (left < 5000000)
			ts.tv_nsec = (long)left;
	}
	ppoll(fds, 2, &ts, NULL);
}

_Noreturn void wire_run(struct wire *wire, int tap_a, int tap_b, uint64_t seed)
{
	static struct bench b;

	b = (struct bench){ .wire = wire, .tap = { tap_a, tap_b }, .seed = seed };
	for (;;) {
		wait_for_frames(&b);
		look_at_trouble(&b);
		take_from(&b, 0);
		take_from(&b, 1);
		while (b.n_held && b.held[0]->due_ns <= now_ns())
			let_go(&b);
	}
}
