/* SPDX-License-Identifier: BSD-3-Clause */
/* test_badpeer_lanes.c - a peer that says different things on two lanes, or dies on one. */
#include "tests/abi/badpeer.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * The first bytes of a receive arrive as a chunk on one lane, then a whole message on the other lane
 * completes it.  From then on its memory is the user's: the chunk's rest must not be written.
 */
static void written_after_done(struct abi *t, bool matched_first)
{
	uint8_t bytes[BRAID_HDR_SIZE + 2000];
	struct braid_hdr credit, chunk, h;
	struct speaker lane;
	struct scene s;
	struct bad b;

	scene_up(t, &s);
	bad_in(&s, &b);
	speaker_lane(&lane, &b.sp, 1);
	TRUE(speak_dial(&lane, &s.to));
	TRUE(speak_until(&lane, SPEAK_PROOF, false));
	/* After one message by WANT and CREDIT, each receive gets a credit. */
	WAIT_FOR(op_post(&b.op));
	get_credit(&b.sp, 0, 100, &credit);
	h = (struct braid_hdr){ .type = BRAID_F_START, .tag = TAG, .size = 100 };
	TRUE(speak_frame(&b.sp, &h, NULL, 0));
	h.type = BRAID_F_CHUNK;
	h.len = 100;
	TRUE(speak_frame(&b.sp, &h, bytes, 100));
	ops_run(&b.op, 1);
	b.op = op_recv(s.net, b.recv, &b.buf, ROOM, TAG);
	WAIT_FOR(op_post(&b.op));
	do {
		bad_turns(&b, 1);
		TRUE(speak_hear_frame(&b.sp, &credit, NULL, 0));
	} while (credit.type != BRAID_F_CREDIT);
	EQ(1, credit.rseq);
	blank(b.buf.data, ROOM);

	chunk = (struct braid_hdr){
		.type = BRAID_F_CHUNK, .seq = 1, .rseq = 1, .tag = TAG, .len = 2000, .size = 2000,
	};
	speak_pack(&lane, &chunk, bytes);
	memset(bytes + BRAID_HDR_SIZE, 'x', 2000);
	h = eager(1, 2000);
	if (matched_first) {		/* the message's header is there before the chunk */
		uint8_t head[BRAID_HDR_SIZE];

		h.flags = BRAID_FLAG_CREDITED;
		h.rseq = 1;
		speak_pack(&b.sp, &h, head);
		TRUE(speak_write(b.sp.fd, head, sizeof(head)));
		bad_turns(&b, 20);
	}
	TRUE(speak_write(lane.fd, bytes, BRAID_HDR_SIZE + 500));
	bad_turns(&b, 50);
	if (matched_first) {
		fill(bytes + BRAID_HDR_SIZE, 2000, 9);
		speak_write(b.sp.fd, bytes + BRAID_HDR_SIZE, 2000);
	} else {
		say_eager(&b.sp, 1, 2000, 9);
	}
	bad_turns(&b, 1000);
	TRUE(b.op.done);
	if (b.op.res == ncclSuccess) {	/* the memory is the user's again */
		struct buf other = buf_new(s.net, b.recv, ROOM, 0);
		struct op next = op_recv(s.net, b.recv, &other, ROOM, TAG);

		blank(b.buf.data, ROOM);
		memset(bytes, 'x', sizeof(bytes));
		speak_write(lane.fd, bytes, 1500);
		WAIT_FOR(op_post(&next));
		for (int i = 0; i < 500 && !next.done; i++)
			op_test(&next);
		untouched(&b);
		OK(net_dereg(s.net, b.recv, other.mr));
		other.comm = NULL;
		buf_free(s.net, &other);
	}
	close(lane.fd);
	bad_out(&s, &b);
	scene_down(&s);
}

static void chunk_then_message(struct abi *t)
{
	written_after_done(t, false);
}

static void message_then_chunk(struct abi *t)
{
	written_after_done(t, true);
}

static uint64_t cpu_us(void)
{
	struct rusage u;

	TRUE(!getrusage(RUSAGE_SELF, &u));
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* The service thread handles a lane's event once: it does not spin over it while nobody calls. */
static void quiet_lane(struct abi *t, bool dies)
{
	enum { NAP_MS = 200 };
	uint64_t most = 0;
	struct scene s;

	scene_up(t, &s);
	for (int i = 0; i < 4; i++) {
		struct speaker lane;
		struct bad b;
		uint64_t used;

		bad_in(&s, &b);
		speaker_lane(&lane, &b.sp, 1);
		TRUE(speak_dial(&lane, &s.to));
		TRUE(speak_until(&lane, SPEAK_PROOF, false));
		WAIT_FOR(op_post(&b.op));
		for (int k = 0; k < 20 + i; k++)
			TRUE(!op_test(&b.op));
		nap_ms(50);		/* the service thread takes over */
		if (dies)
			speak_reset(lane.fd);
		else
			TRUE(speak_write(lane.fd, "half", 4));
		used = cpu_us();
		nap_ms(NAP_MS);
		used = cpu_us() - used;
		most = used > most ? used : most;
		if (!dies)
			close(lane.fd);
		bad_out(&s, &b);
	}
	printf("v%d: a lane %s while all was quiet: %llu us of CPU in %d ms\n", t->abi,
	       dies ? "died" : "spoke", (unsigned long long)most, NAP_MS);
	if (most > NAP_MS * 1000 / 4)
		FAIL("%llu us of CPU in %d ms for a lane that %s once", (unsigned long long)most,
		     NAP_MS, dies ? "died" : "spoke");
	scene_down(&s);
}

static void quiet_lane_dies(struct abi *t)
{
	quiet_lane(t, true);
}

static void quiet_lane_speaks(struct abi *t)
{
	quiet_lane(t, false);
}

static const struct abi_case cases[] = {
	CASE("nothing is written after done: a message overtakes a chunk", chunk_then_message, ONCE),
	CASE("nothing is written after done: a chunk joins a message", message_then_chunk, ONCE),
	CASE("a lane that dies while all is quiet costs nothing", quiet_lane_dies, ONCE),
	CASE("a lane that speaks while all is quiet costs nothing", quiet_lane_speaks, ONCE),
};

ABI_MAIN(cases)
