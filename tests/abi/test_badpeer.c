/* SPDX-License-Identifier: BSD-3-Clause */
/* test_badpeer.c - frames that a peer must not send: wrong, cut off, or without end. */
#include "tests/abi/badpeer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* -- a bad sender ----------------------------------------------------------------------------- */

enum state {
	POSTED,				/* a receive of ROOM bytes is posted */
	CREDITED,			/* and message 0, of ROOM bytes, has its credit */
};

enum outcome {
	BROKEN,				/* ncclRemoteError, the link ends */
	TOO_LARGE,			/* ncclInvalidUsage, the link goes on */
	ENDED,				/* ncclRemoteError, the link goes on */
	NOTHING,			/* the next good message is received */
};

struct row {
	const char *what;
	enum state state;
	enum outcome outcome;
	struct braid_hdr h;
	size_t payload;
};

#define MINUS(n) ((uint64_t)0 - (n))
#define ROW(what_, state_, outcome_, payload_, ...) \
	{ what_, state_, outcome_, { __VA_ARGS__ }, payload_ }
#define T(type_) .type = BRAID_F_##type_, .tag = TAG

static const struct row rows[] = {
	/* sizes */
	ROW("a message larger than the receive", POSTED, TOO_LARGE, ROOM + 1,
	    T(EAGER), .len = ROOM + 1, .size = ROOM + 1),
	ROW("one byte too much wanted", POSTED, TOO_LARGE, 0, T(WANT), .size = ROOM + 1),
	ROW("2^31 wanted", POSTED, TOO_LARGE, 0, T(WANT), .size = 1ull << 31),
	ROW("2^32 wanted", POSTED, TOO_LARGE, 0, T(WANT), .size = 1ull << 32),
	ROW("2^38 wanted", POSTED, TOO_LARGE, 0, T(WANT), .size = MOST),
	ROW("2^38 + 1 wanted", POSTED, BROKEN, 0, T(WANT), .size = MOST + 1),
	ROW("-5 wanted", POSTED, BROKEN, 0, T(WANT), .size = MINUS(5)),
	ROW("2^63 wanted", POSTED, BROKEN, 0, T(WANT), .size = 1ull << 63),
	ROW("eager, 2 MiB", POSTED, BROKEN, 0, T(EAGER), .len = 2 << 20, .size = 2 << 20),
	ROW("eager, length -1", POSTED, BROKEN, 0, T(EAGER), .len = UINT32_MAX, .size = UINT32_MAX),
	ROW("start of 2^40", CREDITED, BROKEN, 0, T(START), .size = MOST),
	ROW("start of -1", CREDITED, BROKEN, 0, T(START), .size = MINUS(1)),
	ROW("start of one byte too much", CREDITED, BROKEN, 0, T(START), .size = ROOM + 1),
	ROW("start of another size than was wanted", CREDITED, BROKEN, 0, T(START), .size = 100),
	ROW("chunk past the end", CREDITED, BROKEN, 100,
	    T(CHUNK), .offset = ROOM - 50, .len = 100, .size = ROOM),
	ROW("chunk far past the end", CREDITED, BROKEN, 100,
	    T(CHUNK), .offset = MOST - 100, .len = 100, .size = MOST),
	ROW("chunk before the beginning", CREDITED, BROKEN, 100,
	    T(CHUNK), .offset = MINUS(50), .len = 100, .size = ROOM),
	ROW("chunk that says the message is larger", CREDITED, BROKEN, 100,
	    T(CHUNK), .offset = ROOM, .len = 100, .size = ROOM + 100),
	ROW("chunk of nothing", CREDITED, BROKEN, 0, T(CHUNK), .size = ROOM),
	ROW("chunk of 2 GiB", CREDITED, BROKEN, 0,
	    T(CHUNK), .len = 1u << 31, .size = 1ull << 31),
	ROW("chunk 256", CREDITED, BROKEN, 100, T(CHUNK), .n = 256, .len = 100, .size = ROOM),
	/* credit */
	ROW("chunk without a credit", POSTED, BROKEN, 100, T(CHUNK), .len = 100, .size = 100),
	ROW("start without a credit", POSTED, BROKEN, 0, T(START), .size = 100),
	ROW("start of another message than that with the credit", CREDITED, BROKEN, 0,
	    T(START), .seq = 1, .size = ROOM),
	ROW("start for another receive", CREDITED, BROKEN, 0, T(START), .rseq = 1, .size = ROOM),
	ROW("start for receive -1", CREDITED, BROKEN, 0,
	    T(START), .rseq = UINT32_MAX, .size = ROOM),
	ROW("start for a receive 256 later", CREDITED, BROKEN, 0,
	    T(START), .rseq = 256, .size = ROOM),
	ROW("start with another tag", CREDITED, BROKEN, 0,
	    .type = BRAID_F_START, .tag = TAG + 1, .size = ROOM),
	ROW("eager with a credit nobody gave", POSTED, BROKEN, 100,
	    T(EAGER), .flags = BRAID_FLAG_CREDITED, .len = 100, .size = 100),
	ROW("eager with another's credit", CREDITED, BROKEN, 100,
	    T(EAGER), .flags = BRAID_FLAG_CREDITED, .seq = 1, .len = 100, .size = 100),
	/* numbers */
	ROW("the second message first", POSTED, BROKEN, 100, T(EAGER), .seq = 1, .len = 100, .size = 100),
	ROW("message -1", POSTED, BROKEN, 100,
	    T(EAGER), .seq = UINT32_MAX, .len = 100, .size = 100),
	ROW("the same message twice", CREDITED, BROKEN, 0, T(WANT), .size = ROOM),
	ROW("a message 256 later", CREDITED, BROKEN, 0, T(WANT), .seq = 256, .size = ROOM),
	/* what only a receiver sends */
	ROW("a credit from the sender", POSTED, BROKEN, 0, T(CREDIT), .size = 100),
	ROW("retired by the sender", POSTED, BROKEN, 0, T(RETIRE), .n = 1),
	ROW("opened by the opener", POSTED, BROKEN, BRAID_OPEN_SIZE,
	    T(OPENED), .len = BRAID_OPEN_SIZE),
	ROW("refused by the opener", POSTED, BROKEN, 0, T(REFUSED), .n = 3),
	ROW("lanes asked of who did not dial", POSTED, BROKEN, 0, T(LANES), .n = 2),
	/* links */
	ROW("an ack of a lane that is not there", POSTED, BROKEN, 0, T(ACK), .n = 1),
	ROW("an ack of lane 65535", POSTED, BROKEN, 0, T(ACK), .n = UINT16_MAX),
	ROW("an ack of what was not sent", POSTED, BROKEN, 0, T(ACK), .seq = 1000),
	ROW("an ack of nothing", POSTED, NOTHING, 0, T(ACK)),
	ROW("the same comm again", POSTED, BROKEN, BRAID_OPEN_SIZE,
	    T(OPEN), .len = BRAID_OPEN_SIZE),
	ROW("a comm of our numbers", POSTED, BROKEN, BRAID_OPEN_SIZE,
	    T(OPEN), .comm = 1, .len = BRAID_OPEN_SIZE),
	ROW("a comm without its proof", POSTED, NOTHING, BRAID_OPEN_SIZE,
	    T(OPEN), .comm = 2, .len = BRAID_OPEN_SIZE),
	ROW("a comm of too few bytes", POSTED, BROKEN, 20, T(OPEN), .comm = 2, .len = 20),
	ROW("a message to a comm that is not there", POSTED, NOTHING, 100,
	    T(EAGER), .comm = 4, .seq = 99, .len = 100, .size = 100),
	ROW("a chunk for a comm that is not there", POSTED, NOTHING, 100,
	    T(CHUNK), .comm = UINT32_MAX, .len = 100, .size = 100),
	ROW("a credit for a comm that is not there", POSTED, NOTHING, 0, T(CREDIT), .comm = 256),
	/* frames */
	ROW("frame type 0", POSTED, BROKEN, 0, .type = 0),
	ROW("a frame type too many", POSTED, BROKEN, 0, .type = BRAID_F_MAX),
	ROW("frame type 255", POSTED, BROKEN, 0, .type = 255),
	ROW("a short header in a stream", POSTED, BROKEN, 0, .type = BRAID_SHORT),
	ROW("a flag too many", POSTED, BROKEN, 100, T(EAGER), .flags = 2, .len = 100, .size = 100),
	ROW("all flags", POSTED, BROKEN, 0, T(WANT), .flags = 255, .size = 100),
	ROW("a credit with a payload", POSTED, BROKEN, 100, T(CREDIT), .len = 100),
	/* endings */
	ROW("failed for a reason of its own", POSTED, ENDED, 0, T(FAIL), .n = EIO),
	ROW("failed because of sizes", POSTED, TOO_LARGE, 0,
	    T(FAIL), .n = EMSGSIZE, .size = 5, .offset = 4),
	ROW("goodbye under a receive", POSTED, ENDED, 0, T(BYE)),
	ROW("goodbye under a credit", CREDITED, ENDED, 0, T(BYE)),
	ROW("the link's end, and then more", POSTED, NOTHING, 0, T(CLOSE)),
};

static ncclResult_t result_of(enum outcome outcome)
{
	return outcome == NOTHING ? ncclSuccess :
	       outcome == TOO_LARGE ? ncclInvalidUsage : ncclRemoteError;
}

static void row_run(struct scene *s, const struct row *r)
{
	uint8_t payload[2 * ROOM];
	struct braid_hdr credit, h = r->h;
	unsigned before = warns();
	struct bad b;

	bad_in(s, &b);
	WAIT_FOR(op_post(&b.op));
	if (r->state == CREDITED) {
		get_credit(&b.sp, 0, ROOM, &credit);
		EQ(0, credit.rseq);
	}
	memset(payload, 'x', sizeof(payload));
	TRUE(speak_frame(&b.sp, &h, payload, r->payload));
	if (r->outcome == NOTHING)
		TRUE(say_eager(&b.sp, 0, 100, 11));
	bad_turns(&b, 5000);
	if (!b.op.done)
		FAIL("%s: neither received nor failed", r->what);
	if (b.op.res != result_of(r->outcome))
		FAIL("%s: %s, not %s", r->what, net_result_name(b.op.res),
		     net_result_name(result_of(r->outcome)));
	if (r->outcome == NOTHING) {
		EQ(100, b.op.got[0]);
		filled(b.buf.data, 100, 11);
	} else {
		untouched(&b);
		if (warns() != before + 1)
			FAIL("%s: %u WARN, not one", r->what, warns() - before);
	}
	if (r->outcome == BROKEN && !speak_closed(b.sp.fd, 1000))
		FAIL("%s: the connection is still there", r->what);
	bad_out(s, &b);
	scene_lives(s);
}

static void bad_frames(struct abi *t)
{
	struct scene s;

	scene_up(t, &s);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		row_run(&s, &rows[i]);
	laps_say(t, "bad frames from a sender");
	scene_down(&s);
}

/* -- a bad receiver --------------------------------------------------------------------------- */

/* A peer of one job answers for another job's peer, whose token it does not know. */
static void opened_without_token(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct scene s;
	struct taker k;
	ncclResult_t res;
	uint64_t end;

	scene_up(t, &s);
	warns_expected();
	taker_opens(&s, &k, handle);
	k.to.token[0] ^= 1;
	TRUE(speak_opened(&k.sp, &k.to, k.comm));
	end = deadline_ms(5000);
	while ((res = net_connect(s.net, 0, handle, &k.send)) == ncclSuccess)
		wait_tick(end, __FILE__, __LINE__, "the refusal of a false answer");
	RES(ncclInvalidUsage, res);
	TRUE(!k.send && strstr(net_last_warn(), "does not know this connection's token"));
	close(k.sp.fd);
	close(k.listener);
	scene_lives(&s);
	scene_down(&s);
}

enum { LINKS_TRIED = 10 };		/* core/setup/connect.c's TRIES_MAX */

/* The peer accepts each link and breaks it before it takes the connection. */
static void links_lost(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct braid_hdr wrong = { .type = BRAID_F_MAX };
	struct scene s;
	struct taker k;
	ncclResult_t res;
	uint64_t end;

	scene_up(t, &s);
	warns_expected();
	taker_listens(&k, handle);
	for (unsigned i = 0; i < LINKS_TRIED; i++) {
		taker_meets(&s, &k, handle);
		TRUE(speak_frame(&k.sp, &wrong, NULL, 0));
		TRUE(speak_closed(k.sp.fd, 5000));
		close(k.sp.fd);
	}
	end = deadline_ms(5000);
	while ((res = net_connect(s.net, 0, handle, &k.send)) == ncclSuccess)
		wait_tick(end, __FILE__, __LINE__, "the end of the tries");
	RES(ncclRemoteError, res);
	TRUE(!k.send && strstr(net_last_warn(), "10 links in a row were lost"));
	close(k.listener);
	scene_down(&s);
}

static const struct row taker_rows[] = {
	ROW("room for less than is to be sent", POSTED, TOO_LARGE, 0, T(CREDIT), .size = LARGE - 1),
	ROW("room for nothing", POSTED, TOO_LARGE, 0, T(CREDIT)),
	ROW("room for 2^40 + 1", POSTED, BROKEN, 0, T(CREDIT), .size = MOST + 1),
	ROW("room for -1", POSTED, BROKEN, 0, T(CREDIT), .size = MINUS(1)),
	ROW("a message", POSTED, BROKEN, 100, T(EAGER), .len = 100, .size = 100),
	ROW("a want", POSTED, BROKEN, 0, T(WANT), .size = 100),
	ROW("a start", POSTED, BROKEN, 0, T(START), .size = 100),
	ROW("a chunk", POSTED, BROKEN, 100, T(CHUNK), .len = 100, .size = 100),
	ROW("retired, and it was a want", POSTED, BROKEN, 0, T(RETIRE), .n = 1),
	ROW("retired, and it was not sent", POSTED, BROKEN, 0, T(RETIRE), .seq = 5, .n = 1),
	ROW("retired 65535", POSTED, BROKEN, 0, T(RETIRE), .n = UINT16_MAX),
	ROW("retired from -1 on", POSTED, BROKEN, 0, T(RETIRE), .seq = UINT32_MAX, .n = 2),
	ROW("an ack of what was not sent", POSTED, BROKEN, 0, T(ACK), .seq = 1000),
	ROW("an ack of -1", POSTED, NOTHING, 0, T(ACK), .seq = UINT32_MAX),
	ROW("a comm of our numbers", POSTED, BROKEN, BRAID_OPEN_SIZE,
	    T(OPEN), .comm = 2, .len = BRAID_OPEN_SIZE),
	ROW("a comm to a listen of which it knows nothing", POSTED, NOTHING, BRAID_OPEN_SIZE,
	    T(OPEN), .comm = 3, .len = BRAID_OPEN_SIZE),
	ROW("no lanes", POSTED, BROKEN, 0, T(LANES)),
	ROW("17 lanes", POSTED, BROKEN, 0, T(LANES), .n = 17),
	ROW("opened again", POSTED, NOTHING, BRAID_OPEN_SIZE, T(OPENED), .len = BRAID_OPEN_SIZE),
	ROW("opened, and no proof of it", POSTED, BROKEN, 0, T(OPENED)),
	ROW("a credit of another tag", POSTED, NOTHING, 0,
	    .type = BRAID_F_CREDIT, .tag = TAG + 1, .rseq = 9, .size = LARGE),
	ROW("retired none", POSTED, NOTHING, 0, T(RETIRE)),
	ROW("goodbye", POSTED, ENDED, 0, T(BYE)),
	ROW("failed", POSTED, ENDED, 0, T(FAIL), .n = EIO),
	ROW("refused at last", POSTED, ENDED, 0, T(REFUSED), .n = BRAID_HELLO_NO_LISTEN),
};

static void taker_run(struct scene *s, const struct row *r)
{
	uint8_t payload[ROOM] = { 0 };
	struct braid_hdr h = r->h;
	unsigned before = warns();
	struct taker k;

	taker_in(s, &k, LARGE);
	if (h.type != BRAID_F_OPEN)
		h.comm = k.comm;
	TRUE(speak_frame(&k.sp, &h, payload, r->payload));
	if (r->outcome == NOTHING) {
		for (int i = 0; i < 200 && !k.op.done; i++)
			TIMED(DATA_MS, op_test(&k.op));
		if (k.op.done)
			FAIL("%s: the send is done", r->what);
		scene_lives(s);
		taker_out(s, &k);
		return;
	}
	for (uint64_t end = deadline_ms(5000); !k.op.done && now_us() < end;)
		TIMED(DATA_MS, op_test(&k.op));
	if (!k.op.done)
		FAIL("%s: the send has not failed", r->what);
	if (k.op.res != result_of(r->outcome))
		FAIL("%s: %s, not %s", r->what, net_result_name(k.op.res),
		     net_result_name(result_of(r->outcome)));
	if (warns() != before + 1)
		FAIL("%s: %u WARN, not one", r->what, warns() - before);
	if (r->outcome == BROKEN && !speak_closed(k.sp.fd, 1000))
		FAIL("%s: the connection is still there", r->what);
	taker_out(s, &k);
	scene_lives(s);
}

static void bad_takers(struct abi *t)
{
	struct scene s;

	scene_up(t, &s);
	for (size_t i = 0; i < sizeof(taker_rows) / sizeof(taker_rows[0]); i++)
		taker_run(&s, &taker_rows[i]);
	laps_say(t, "bad frames from a receiver");
	scene_down(&s);
}

/* -- frames that are cut off ------------------------------------------------------------------- */

static void half_frames(struct abi *t)
{
	static const size_t cuts[] = { 1, 2, 8, 24, 47, 48, 49, 48 + 50 };
	uint8_t bytes[BRAID_HDR_SIZE + 100];
	struct scene s;
	struct bad b;

	scene_up(t, &s);
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		struct braid_hdr h = eager(0, 100);

		bad_in(&s, &b);
		WAIT_FOR(op_post(&b.op));
		speak_pack(&b.sp, &h, bytes);
		fill(bytes + BRAID_HDR_SIZE, 100, 5);
		TRUE(speak_write(b.sp.fd, bytes, cuts[i]));
		bad_turns(&b, 20);
		TRUE(!b.op.done);
		scene_lives(&s);
		TRUE(speak_write(b.sp.fd, bytes + cuts[i], sizeof(bytes) - cuts[i]));
		bad_turns(&b, 5000);
		TRUE(b.op.done);
		OK(b.op.res);
		filled(b.buf.data, 100, 5);
		bad_out(&s, &b);
	}
	laps_say(t, "half a header, half a payload");
	scene_down(&s);
}

/* The sender dies in the middle of a frame. */
static void half_and_dead(struct abi *t)
{
	static const size_t cuts[] = { 1, 47, 48, 48 + 50 };
	uint8_t bytes[BRAID_HDR_SIZE + 100] = { 0 };
	struct scene s;
	struct bad b;

	scene_up(t, &s);
	for (size_t i = 0; i < 2 * sizeof(cuts) / sizeof(cuts[0]); i++) {
		struct braid_hdr h = eager(0, 100);
		uint64_t from;

		bad_in(&s, &b);
		WAIT_FOR(op_post(&b.op));
		speak_pack(&b.sp, &h, bytes);
		TRUE(speak_write(b.sp.fd, bytes, cuts[i / 2]));
		bad_turns(&b, 5);
		if (i % 2)
			speak_reset(b.sp.fd);
		else
			close(b.sp.fd);
		b.sp.fd = -1;
		from = now_us();
		bad_turns(&b, 1000);
		TRUE(b.op.done);
		RES(ncclRemoteError, b.op.res);
		printf("v%d: died %zu bytes into a frame: told after %llu us\n", t->abi, cuts[i / 2],
		       (unsigned long long)(now_us() - from));
		bad_out(&s, &b);
	}
	scene_down(&s);
}

/* The comm is closed when half a payload has come: the rest is dropped, and the link serves the next comm. */
static void half_and_closed(struct abi *t)
{
	uint8_t bytes[BRAID_HDR_SIZE + 1000];
	struct braid_hdr h = eager(0, 1000), got;
	struct scene s;
	struct bad b;
	void *recv = NULL;

	scene_up(t, &s);
	bad_in(&s, &b);
	OK(net_dereg(s.net, b.recv, b.buf.mr));	/* while its receive is posted */
	b.buf.comm = b.op.mr[0] = NULL;
	WAIT_FOR(op_post(&b.op));
	speak_pack(&b.sp, &h, bytes);
	fill(bytes + BRAID_HDR_SIZE, 1000, 5);
	TRUE(speak_write(b.sp.fd, bytes, BRAID_HDR_SIZE + 300));
	bad_turns(&b, 5);
	TRUE(!b.op.done);
	OK(TIMED(SETUP_MS, net_close_recv(s.net, b.recv)));
	blank(b.buf.data, ROOM);
	TRUE(speak_write(b.sp.fd, bytes + BRAID_HDR_SIZE + 300, 700));
	do				/* FAIL for the posted receive; BYE */
		TRUE(speak_hear_frame(&b.sp, &got, NULL, 0));
	while (got.type != BRAID_F_BYE);
	TRUE(speak_open(&b.sp, &s.to, 2));
	untouched(&b);
	WAIT_FOR(accept_step(s.net, s.listen, &recv));
	b.op.comm = recv;
	WAIT_FOR(op_post(&b.op));
	h = eager(0, 100);
	h.comm = 2;
	TRUE(speak_frame(&b.sp, &h, bytes + BRAID_HDR_SIZE, 100));
	bad_turns(&b, 5000);
	TRUE(b.op.done);
	OK(b.op.res);
	filled(b.buf.data, 100, 5);
	OK(net_close_recv(s.net, recv));
	buf_free(s.net, &b.buf);
	close(b.sp.fd);
	scene_down(&s);
}

/* -- floods ------------------------------------------------------------------------------------ */

/* Sends n frames h, seq counting up, or until the plugin hangs up.  Returns the KiB that it grew by. */
static size_t flood(struct abi *t, const char *what, struct braid_hdr h, uint32_t n, bool count)
{
	uint8_t payload[64] = { 0 };
	struct scene s;
	struct bad b;
	size_t before, more;
	uint32_t i;

	scene_up(t, &s);
	bad_in(&s, &b);
	WAIT_FOR(op_post(&b.op));
	scene_lives(&s);
	before = rss_kib();
	for (i = 0; i < n; i++) {
		if (count && h.type == BRAID_F_OPEN)
			h.comm = 2 + 2 * i;
		else if (count)
			h.seq = i;
		if (!speak_frame(&b.sp, &h, payload, h.len))
			break;
		if (i % 64 == 0 && !b.op.done)
			TIMED(DATA_MS, op_test(&b.op));
	}
	bad_turns(&b, 100);
#ifdef __SANITIZE_ADDRESS__
	before = rss_kib();		/* shows little there: freed memory is kept */
#endif
	more = rss_kib() > before ? rss_kib() - before : 0;
	printf("v%d: %s: %u frames were taken, %zu KiB more memory, %s\n", t->abi, what, i, more,
	       net_result_name(b.op.res));
	laps_say(t, what);
	bad_out(&s, &b);
	scene_down(&s);
	return more;
}

/* The receive has another tag, so all messages wait. */
static void flood_wants(struct abi *t)
{
	struct braid_hdr h = { .type = BRAID_F_WANT, .tag = TAG + 1, .size = 100 };
	size_t more = flood(t, "wants without end", h, 300000, true);

	if (more > 4096)
		FAIL("%zu KiB for messages that were only announced", more);
}

static void flood_eager(struct abi *t)
{
	struct braid_hdr h = eager(0, 1);
	size_t more;

	h.tag = TAG + 1;
	more = flood(t, "messages beyond any window", h, 300000, true);
	if (more > 16384)
		FAIL("%zu KiB for a window of 512", more);
}

static void flood_opens(struct abi *t)
{
	struct braid_hdr h = { .type = BRAID_F_OPEN, .comm = 2, .len = BRAID_OPEN_SIZE };

	size_t more;

	/* Each is refused, and the peer reads none of the refusals. */
	flood(t, "a comm without proof", h, 300000, false);
	more = flood(t, "comms without proof", h, 300000, true);
	if (more > 4096)
		FAIL("%zu KiB for comms that were refused", more);
}

static void flood_acks(struct abi *t)
{
	struct braid_hdr h = { .type = BRAID_F_ACK };

	flood(t, "acks of nothing", h, 300000, false);
}

static const struct abi_case cases[] = {
	CASE("a sender's bad frame is an error or nothing", bad_frames, ONCE),
	CASE("a receiver's bad frame is an error or nothing", bad_takers, ONCE),
	CASE("half a frame makes no call wait", half_frames),
	CASE("a peer that dies inside a frame is a remote error", half_and_dead, ONCE),
	CASE("closing inside a frame spares the link", half_and_closed, ONCE),
	CASE("an endless stream of announced messages takes no memory",
	     flood_wants, ONCE, .warns = "broken-link"),
	CASE("messages beyond the window take no memory", flood_eager, ONCE),
	CASE("an endless stream of opens without proof harms no other peer", flood_opens, ONCE),
	CASE("an endless stream of acknowledgements harms no other peer", flood_acks, ONCE),
	CASE("a peer must prove that it knows the token before it gets a comm",
	     opened_without_token),
	CASE("a peer that breaks ten links before it takes the connection is an error", links_lost,
	     ONCE, .warns = "links-lost"),
};

ABI_MAIN(cases)
