/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_badpeer.c - a peer that has proved itself and then sends what it must not.
 *
 * Damaged memory, another build, a hand-made library: the token is right and the bytes are wrong.
 * Either a frame does no harm, or the link is over with an error that says so; nothing is written
 * where no message may be, no call waits, and other comms of the process go on.
 */
#include "tests/lib/hostile.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM = 4096, TAG = 7 };

struct scene {
	struct net *net;
	struct pair good;		/* whatever happens, this one lives */
	void *listen;
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct braid_handle to;
	uint64_t seed;
};

static void scene_up(struct abi *t, struct scene *s)
{
	memset(s, 0, sizeof(*s));
	s->net = hostile_up(t);
	pair_open(s->net, &s->good);
	OK(net_listen(s->net, 0, s->handle, &s->listen));
	s->to = handle_of(s->handle);
}

static void scene_lives(struct scene *s)
{
	exchange(s->net, s->good.send, s->good.recv, 3000, ++s->seed);
}

static void scene_down(struct scene *s)
{
	scene_lives(s);
	pair_close(s->net, &s->good);
	OK(net_close_listen(s->net, s->listen));
	abi_down(s->net);
}

/* -- a sender that turns bad ------------------------------------------------------------------ */

struct bad {				/* it sends, we receive */
	struct speaker sp;
	void *recv;
	struct buf buf;
	struct op op;
};

static void bad_in(struct scene *s, struct bad *b)
{
	memset(b, 0, sizeof(*b));
	speaker_init(&b->sp, &s->to);
	TRUE(speak_dial(&b->sp, &s->to));
	TRUE(speak_until(&b->sp, SPEAK_PROOF, false));
	TRUE(speak_open(&b->sp, &s->to, 0));
	WAIT_FOR(accept_step(s->net, s->listen, &b->recv));
	b->buf = buf_new(s->net, b->recv, ROOM, 0);
	blank(b->buf.data, ROOM);
	b->op = op_recv(s->net, b->recv, &b->buf, ROOM, TAG);
}

/* Let it be called on for a while, or until it is done. */
static void bad_turns(struct bad *b, unsigned ms)
{
	for (uint64_t end = deadline_ms(ms); !b->op.done && now_us() < end;)
		TIMED(DATA_MS, op_test(&b->op));
}

static void bad_out(struct scene *s, struct bad *b)
{
	buf_guards(&b->buf);
	OK(TIMED(SETUP_MS, net_dereg(s->net, b->recv, b->buf.mr)));
	OK(TIMED(SETUP_MS, net_close_recv(s->net, b->recv)));
	b->buf.comm = NULL;
	buf_free(s->net, &b->buf);
	if (b->sp.fd >= 0)
		close(b->sp.fd);
}

static void untouched(const struct bad *b)
{
	for (size_t i = 0; i < ROOM; i++)
		if (b->buf.data[i] != 0xee)
			FAIL("byte %zu of the buffer was written", i);
}

/* A message as it should be: the first of its comm, or what `seq` says. */
static struct braid_hdr eager(uint32_t seq, uint32_t len)
{
	return (struct braid_hdr){
		.type = BRAID_F_EAGER, .seq = seq, .tag = TAG, .len = len, .size = len,
	};
}

static bool say_eager(struct speaker *sp, uint32_t seq, uint32_t len, uint64_t seed)
{
	uint8_t payload[ROOM];
	struct braid_hdr h = eager(seq, len);

	fill(payload, len, seed);
	return speak_frame(sp, &h, payload, len);
}

/* Ask for a credit for message `seq`, and get it. */
static void get_credit(struct speaker *sp, uint32_t seq, uint64_t size, struct braid_hdr *ret)
{
	struct braid_hdr want = { .type = BRAID_F_WANT, .seq = seq, .tag = TAG, .size = size };

	TRUE(speak_frame(sp, &want, NULL, 0));
	TRUE(speak_hear_frame(sp, ret, NULL, 0));
	EQ(BRAID_F_CREDIT, ret->type);
	EQ(TAG, ret->tag);
	EQ(ROOM, ret->size);
}

enum state {
	POSTED,				/* a receive of ROOM bytes is posted */
	CREDITED,			/* and message 0 of ROOM bytes has the credit for it */
};

enum outcome {
	BROKEN,				/* the link is over: ncclRemoteError */
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
#define MOST (1ull << 38)
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
	/* what only a receiver says */
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

/* -- a receiver that turns bad ---------------------------------------------------------------- */

struct taker {				/* we send, it receives; and we dialled */
	struct speaker sp;
	struct braid_handle to;
	int listener;
	void *send;
	uint32_t comm;
	struct buf buf;
	struct op op;
};

static void taker_listens(struct taker *k, uint8_t *handle)
{
	uint16_t port;

	memset(k, 0, sizeof(*k));
	TRUE((k->listener = speak_listen(&port)) >= 0);
	handle_forge(handle, port, &k->to);
}

/* The plugin dials and opens a comm, and waits for the answer. */
static void taker_meets(struct scene *s, struct taker *k, uint8_t *handle)
{
	struct pollfd heard = { .events = POLLIN };
	struct braid_hdr h;
	uint64_t end;

	connect_begins(s->net, handle, k->listener, &k->send);
	speaker_init(&k->sp, &k->to);
	TRUE((k->sp.fd = speak_accept(k->listener)) >= 0);
	TRUE(speak_hear(&k->sp) && speak_answer(&k->sp, BRAID_HELLO_OK) && speak_believe(&k->sp));
	heard.fd = k->sp.fd;
	/* It is the calls of connect that bring the link up and the comm upon it. */
	for (end = deadline_ms(5000); now_us() < end && poll(&heard, 1, 1) <= 0;)
		OK(TIMED(SETUP_MS, net_connect(s->net, 0, handle, &k->send)));
	TRUE(!k->send);
	TRUE(speak_hear_frame(&k->sp, &h, NULL, 0));
	EQ(BRAID_F_OPEN, h.type);
	k->comm = h.comm;
}

static void taker_opens(struct scene *s, struct taker *k, uint8_t *handle)
{
	taker_listens(k, handle);
	taker_meets(s, k, handle);
}

static void taker_in(struct scene *s, struct taker *k, size_t size)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];

	taker_opens(s, k, handle);
	TRUE(speak_opened(&k->sp, &k->to, k->comm));
	WAIT_FOR(connect_step(s->net, handle, &k->send));
	k->buf = buf_new(s->net, k->send, size, 0);
	fill(k->buf.data, size, 3);
	k->op = op_send(s->net, k->send, &k->buf, size, TAG);
	WAIT_FOR(op_post(&k->op));
}

static void taker_out(struct scene *s, struct taker *k)
{
	OK(TIMED(SETUP_MS, net_dereg(s->net, k->send, k->buf.mr)));
	OK(TIMED(SETUP_MS, net_close_send(s->net, k->send)));
	k->buf.comm = NULL;
	buf_free(s->net, &k->buf);
	close(k->sp.fd);
	close(k->listener);
}

/* A peer of one job passes for that of another, whose token it does not know. */
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

/* A peer brings each link up and breaks it before it takes the connection. */
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

enum { LARGE = 1 << 20 };		/* such a send waits for a credit */

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

/* -- parts of things -------------------------------------------------------------------------- */

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

/* The same, and the sender dies there. */
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

/* We close under half a payload: the rest is thrown away, and the link serves the next comm. */
static void half_and_closed(struct abi *t)
{
	uint8_t bytes[BRAID_HDR_SIZE + 1000];
	struct braid_hdr h = eager(0, 1000), got;
	struct scene s;
	struct bad b;
	void *recv = NULL;

	scene_up(t, &s);
	bad_in(&s, &b);
	OK(net_dereg(s.net, b.recv, b.buf.mr));	/* the comm goes with the receive posted */
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
	do				/* FAIL, for a receive was posted; BYE */
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

/* -- more than there should be ---------------------------------------------------------------- */

static size_t rss_kib(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	TRUE(f && fscanf(f, "%*u %lu", &pages) == 1);
	fclose(f);
	return pages * 4;
}

/* Frames h, seq counting up, until the other end has had enough or n are sent; then what it took. */
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
	before = rss_kib();		/* says nothing there: what is freed is kept */
#endif
	more = rss_kib() > before ? rss_kib() - before : 0;
	printf("v%d: %s: %u frames were taken, %zu KiB more memory, %s\n", t->abi, what, i, more,
	       net_result_name(b.op.res));
	laps_say(t, what);
	bad_out(&s, &b);
	scene_down(&s);
	return more;
}

/* The receive is for another tag, so that everything piles up. */
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

	/* It is refused each time and reads none of the refusals. */
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

/* -- two lanes -------------------------------------------------------------------------------- */

/*
 * A receive whose first bytes come as a chunk on one lane is finished by a whole message on the
 * other: from then on the memory is the user's again, whatever else arrives on the first.
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
	/* One message the long way: from then on each receive gets a credit. */
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
	if (matched_first) {		/* the message has begun when the chunk comes */
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
	if (b.op.res == ncclSuccess) {	/* done: ours again */
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

/* What arrives on another lane while nobody calls is looked at, not looked for over and over. */
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
		nap_ms(50);		/* now it is the service thread's */
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

/* -- chance ----------------------------------------------------------------------------------- */

/* A number that might be right, or nearly, or not at all. */
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

/* Frames that mean nothing, and noise, until the other end has had enough. */
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
 * A sender that mostly does as it should: it numbers its messages, and keeps what it has announced
 * and which credits it was given, so that its mistakes come deep inside.
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

/* What the other end has said meanwhile. */
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

/* START, and then the parts, for a credit we have. */
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
	CASE("a sender's bad frame is an error or nothing", bad_frames, ONCE),
	CASE("a receiver's bad frame is an error or nothing", bad_takers, ONCE),
	CASE("half a frame makes no call wait", half_frames),
	CASE("a peer that dies inside a frame is a remote error", half_and_dead, ONCE),
	CASE("closing inside a frame spares the link", half_and_closed, ONCE),
	CASE("messages announced without end take no memory", flood_wants, ONCE, .warns = "broken-link"),
	CASE("messages beyond the window take no memory", flood_eager, ONCE),
	CASE("comms opened without proof and without end harm nobody", flood_opens, ONCE),
	CASE("acks without end harm nobody", flood_acks, ONCE),
	CASE("nothing is written after done: a message overtakes a chunk", chunk_then_message, ONCE),
	CASE("nothing is written after done: a chunk joins a message", message_then_chunk, ONCE),
	CASE("a lane that dies while all is quiet costs nothing", quiet_lane_dies, ONCE),
	CASE("a lane that speaks while all is quiet costs nothing", quiet_lane_speaks, ONCE),
	CASE("who takes a comm proves that it knows the token", opened_without_token),
	CASE("a peer that breaks ten links before it takes the connection is an error", links_lost,
	     ONCE, .warns = "links-lost"),
	CASE("300 babbling senders harm nobody", babbling_sender, ONCE, .seconds = 120),
	CASE("150 babbling receivers harm nobody", babbling_taker, ONCE, .seconds = 120),
};

ABI_MAIN(cases)
