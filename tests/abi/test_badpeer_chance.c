/* SPDX-License-Identifier: BSD-3-Clause */
/* test_badpeer_chance.c - peers that send frames made by chance, wild ones and nearly right ones. */
#include "tests/abi/badpeer.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A number that may be right, nearly right or wrong. */
static uint64_t some_number(struct abi *t)
{
	static const uint64_t edges[] = {
		0, 1, 2, 3, 99, 100, 127, 255, 256, 257, 4095, 4096, 4097, 65535, 65536, 1 << 20,
		(1 << 20) + 1, 1 << 30, 0x7fffffff, 0x80000000, 0xffffffff, MOST - 1, MOST, MOST + 1,
		1ull << 63, UINT64_MAX,
	};

	switch (rnd_below(t, 4)) {
	case 0:
		return rnd(t);
	case 1:
		return edges[rnd_below(t, sizeof(edges) / sizeof(edges[0]))];
	default:
		return rnd_below(t, 4);
	}
}

static struct braid_hdr some_frame(struct abi *t, uint32_t comm)
{
	struct braid_hdr h = {
		.type = (uint8_t)rnd_below(t, BRAID_F_MAX + 1), .comm = comm, .tag = TAG,
		.flags = (uint8_t)(rnd_below(t, 4) == 0), .n = (uint16_t)some_number(t),
		.seq = (uint32_t)some_number(t), .rseq = (uint32_t)some_number(t),
		.size = some_number(t),
	};

	if (rnd_below(t, 8) == 0)
		h.comm = (uint32_t)some_number(t);
	if (rnd_below(t, 8) == 0)
		h.tag = (int32_t)some_number(t);
	if (h.type == BRAID_F_EAGER || h.type == BRAID_F_CHUNK || rnd_below(t, 16) == 0)
		h.len = (uint32_t)some_number(t);
	if (h.type == BRAID_F_EAGER && rnd_below(t, 8))
		h.size = h.len;
	if (h.type == BRAID_F_CHUNK)
		h.offset = some_number(t);
	if (h.type == BRAID_F_OPEN && rnd_below(t, 4))
		h.len = BRAID_OPEN_SIZE;
	return h;
}

/* Frames without sense, and noise, until the plugin hangs up. */
static void babble(struct abi *t, struct speaker *sp, uint32_t comm)
{
	uint8_t payload[1 << 14];

	for (unsigned n = 1 + rnd_below(t, 12); n; n--) {
		struct braid_hdr h = some_frame(t, comm);
		size_t len = h.len < sizeof(payload) ? h.len : sizeof(payload);

		fill(payload, sizeof(payload), rnd(t));
		if (rnd_below(t, 10) == 0 ? !speak_write(sp->fd, payload, 1 + rnd_below(t, 200)) :
					    !speak_frame(sp, &h, payload, len))
			return;
	}
}

/*
 * A sender that mostly follows the protocol: it numbers its messages, and remembers its announcements
 * and credits.  So its mistakes reach states that random frames don't.
 */
struct offer {				/* a credit, and the message it is for */
	uint32_t rseq, seq, size;
	int32_t tag;
	bool begun;
	uint32_t cut;
};

struct babbler {
	struct speaker *home, *lane;
	uint32_t seq;
	struct offer want[64], offer[64];
	unsigned nwants, noffers;
	unsigned frames;
};

enum { BABBLE_OPS = 4, BABBLE_FRAMES = 60 };

static uint32_t some_size(struct abi *t)
{
	static const uint32_t sizes[] = { 0, 1, 100, 128, 1000, ROOM - 1, ROOM, ROOM + 1 };

	return sizes[rnd_below(t, 7 + (rnd_below(t, 32) == 0))];
}

/* Reads what the plugin has sent meanwhile. */
static void babbler_hears(struct babbler *b)
{
	uint8_t peek[BRAID_HDR_SIZE];
	struct braid_hdr h;

	while (recv(b->home->fd, peek, sizeof(peek), MSG_PEEK | MSG_DONTWAIT) == sizeof(peek)) {
		struct offer o;

		if (peek[0] == BRAID_F_ACK)
			TRUE(speak_read(b->home->fd, peek, sizeof(peek))), b->home->got++;
		if (peek[0] == BRAID_F_ACK)
			continue;
		if (!speak_hear_frame(b->home, &h, NULL, 0))
			return;
		if (h.type != BRAID_F_CREDIT || b->noffers == 64)
			continue;
		o = (struct offer){ .rseq = h.rseq, .tag = h.tag, .seq = UINT32_MAX };
		for (unsigned i = 0; i < b->nwants; i++) {
			if (b->want[i].tag != h.tag)
				continue;
			o.seq = b->want[i].seq;
			o.size = b->want[i].size;
			memmove(&b->want[i], &b->want[i + 1], (--b->nwants - i) * sizeof(o));
			break;
		}
		b->offer[b->noffers++] = o;
	}
}

static struct braid_hdr message(struct abi *t, struct babbler *b)
{
	struct braid_hdr h = {
		.type = rnd_below(t, 3) ? BRAID_F_EAGER : BRAID_F_WANT, .seq = b->seq++,
		.tag = TAG + (int)rnd_below(t, 2), .size = some_size(t),
	};

	if (h.type == BRAID_F_EAGER)
		h.len = (uint32_t)h.size;
	else if (b->nwants < 64)
		b->want[b->nwants++] = (struct offer){
			.seq = h.seq, .size = (uint32_t)h.size, .tag = h.tag,
		};
	return h;
}

/* Makes the next frame for a credit that the babbler has: START, then the chunks. */
static struct braid_hdr part(struct abi *t, struct babbler *b)
{
	unsigned i = rnd_below(t, b->noffers);
	struct offer *o = &b->offer[i];
	struct braid_hdr h = { .type = BRAID_F_START, .rseq = o->rseq, .tag = o->tag };

	if (!o->begun && o->seq == UINT32_MAX) {
		o->size = 1 + some_size(t) % ROOM;
		o->seq = b->seq++;
	}
	h.seq = o->seq;
	h.size = o->size;
	if (!o->begun) {
		o->begun = true;
		return h;
	}
	h.type = BRAID_F_CHUNK;
	h.n = (uint16_t)(o->cut / 128);
	h.offset = o->cut;
	h.len = o->size - o->cut;
	if (h.len > 128 && rnd_below(t, 2))
		h.len = 128;
	o->cut += h.len;
	if (o->cut >= o->size)
		*o = b->offer[--b->noffers];
	return h;
}

static struct braid_hdr likely_frame(struct abi *t, struct babbler *b)
{
	struct braid_hdr h = { .type = BRAID_F_ACK };

	if (rnd_below(t, 60) == 0)
		h.type = (uint8_t)(BRAID_F_BYE + rnd_below(t, 4));
	else if (b->noffers && rnd_below(t, 2))
		h = part(t, b);
	else if (rnd_below(t, 8))
		h = message(t, b);
	if (rnd_below(t, 40))
		return h;
	switch (rnd_below(t, 6)) {	/* one thing is wrong */
	case 0:
		h.seq += 1 + rnd_below(t, 3);
		break;
	case 1:
		h.rseq += 1 + rnd_below(t, 3);
		break;
	case 2:
		h.tag = TAG + 1 - (h.tag - TAG);
		break;
	case 3:
		h.size = some_size(t);
		break;
	case 4:
		h.flags = h.type == BRAID_F_EAGER;
		break;
	default:
		h.offset += rnd_below(t, 200);
		break;
	}
	return h;
}

/* Frames on two lanes, half of them in two parts, and a turn for the receiver after each part. */
static bool babble_well(struct abi *t, struct babbler *b, struct op *ops)
{
	uint8_t bytes[BRAID_HDR_SIZE + ROOM + 1];

	for (b->frames = 0; b->frames < BABBLE_FRAMES; b->frames++) {
		struct braid_hdr h = likely_frame(t, b);
		bool other = h.type == BRAID_F_CHUNK && rnd_below(t, 2);
		size_t len = BRAID_HDR_SIZE + h.len, cut = len;
		struct speaker *sp = other ? b->lane : b->home;

		if (rnd_below(t, 2))
			cut = rnd_below(t, (unsigned)len);
		speak_pack(sp, &h, bytes);
		fill(bytes + BRAID_HDR_SIZE, h.len, b->frames);
		for (int half = 0; half < 2; half++) {
			if (!speak_write(sp->fd, half ? bytes + cut : bytes, half ? len - cut : cut))
				return false;
			for (int i = 0; i < 3 * BABBLE_OPS; i++) {
				struct op *op = &ops[i % BABBLE_OPS];

				if (op->done && op->res != ncclSuccess)
					return false;
				if (op->done)
					op->posted = op->done = false;
				if (!op->posted)
					op_post(op);
				else
					TIMED(DATA_MS, op_test(op));
			}
		}
		babbler_hears(b);
	}
	return true;
}

static void babbling_sender(struct abi *t)
{
	unsigned rounds = 300, broken = 0, well = 0, frames = 0;
	struct scene s;

	scene_up(t, &s);
	for (unsigned i = 0; i < rounds; i++) {
		struct op ops[BABBLE_OPS];
		struct speaker lane;
		struct bad b;

		bad_in(&s, &b);
		speaker_lane(&lane, &b.sp, 1);
		TRUE(speak_dial(&lane, &s.to));
		TRUE(speak_until(&lane, SPEAK_PROOF, false));
		for (unsigned k = 0; k < BABBLE_OPS; k++)
			ops[k] = op_recv(s.net, b.recv, &b.buf, ROOM, TAG + (int)(k % 2));
		if (i % 4) {
			struct babbler bb = { .home = &b.sp, .lane = &lane };

			well += babble_well(t, &bb, ops);
			frames += bb.frames;
		} else {
			WAIT_FOR(op_post(&b.op));
			babble(t, &b.sp, 0);
			bad_turns(&b, 3);
			broken += b.op.done && b.op.res != ncclSuccess;
		}
		close(lane.fd);
		bad_out(&s, &b);
		if (i % 8 == 0)
			scene_lives(&s);
	}
	printf("v%d: %u senders babbled; wild: %u of %u broke; nearly right: %u of %u got through, "
	       "%u frames were taken\n", t->abi, rounds, broken, rounds / 4, well,
	       rounds - rounds / 4, frames);
	laps_say(t, "babbling senders");
	scene_down(&s);
}

static void babbling_taker(struct abi *t)
{
	unsigned rounds = 150, broken = 0;
	struct scene s;

	scene_up(t, &s);
	for (unsigned i = 0; i < rounds; i++) {
		struct taker k;
		uint64_t end;

		taker_in(&s, &k, rnd_below(t, 2) ? LARGE : 1 + rnd_below(t, ROOM));
		babble(t, &k.sp, k.comm);
		for (end = now_us() + 3000; !k.op.done && now_us() < end;)
			TIMED(DATA_MS, op_test(&k.op));
		broken += k.op.done && k.op.res != ncclSuccess;
		taker_out(&s, &k);
		if (i % 8 == 0)
			scene_lives(&s);
	}
	printf("v%d: %u receivers babbled, %u comms failed\n", t->abi, rounds, broken);
	laps_say(t, "babbling receivers");
	scene_down(&s);
}

static const struct abi_case cases[] = {
	CASE("300 senders of random bytes harm no other peer",
	     babbling_sender, ONCE, .seconds = 120),
	CASE("150 receivers that send random bytes harm no other peer",
	     babbling_taker, ONCE, .seconds = 120),
};

ABI_MAIN(cases)
