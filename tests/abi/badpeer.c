/* SPDX-License-Identifier: BSD-3-Clause */
/* badpeer.c - see badpeer.h. */
#include "tests/abi/badpeer.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

void scene_up(struct abi *t, struct scene *s)
{
	memset(s, 0, sizeof(*s));
	s->net = hostile_up(t);
	pair_open(s->net, &s->good);
	OK(net_listen(s->net, 0, s->handle, &s->listen));
	s->to = handle_of(s->handle);
}

void scene_lives(struct scene *s)
{
	exchange(s->net, s->good.send, s->good.recv, 3000, ++s->seed);
}

void scene_down(struct scene *s)
{
	scene_lives(s);
	pair_close(s->net, &s->good);
	OK(net_close_listen(s->net, s->listen));
	abi_down(s->net);
}

/* -- a bad sender ----------------------------------------------------------------------------- */

void bad_in(struct scene *s, struct bad *b)
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

void bad_turns(struct bad *b, unsigned ms)
{
	for (uint64_t end = deadline_ms(ms); !b->op.done && now_us() < end;)
		TIMED(DATA_MS, op_test(&b->op));
}

void bad_out(struct scene *s, struct bad *b)
{
	buf_guards(&b->buf);
	OK(TIMED(SETUP_MS, net_dereg(s->net, b->recv, b->buf.mr)));
	OK(TIMED(SETUP_MS, net_close_recv(s->net, b->recv)));
	b->buf.comm = NULL;
	buf_free(s->net, &b->buf);
	if (b->sp.fd >= 0)
		close(b->sp.fd);
}

void untouched(const struct bad *b)
{
	for (size_t i = 0; i < ROOM; i++)
		if (b->buf.data[i] != 0xee)
			FAIL("byte %zu of the buffer was written", i);
}

struct braid_hdr eager(uint32_t seq, uint32_t len)
{
	return (struct braid_hdr){
		.type = BRAID_F_EAGER, .seq = seq, .tag = TAG, .len = len, .size = len,
	};
}

bool say_eager(struct speaker *sp, uint32_t seq, uint32_t len, uint64_t seed)
{
	uint8_t payload[ROOM];
	struct braid_hdr h = eager(seq, len);

	fill(payload, len, seed);
	return speak_frame(sp, &h, payload, len);
}

void get_credit(struct speaker *sp, uint32_t seq, uint64_t size, struct braid_hdr *ret)
{
	struct braid_hdr want = { .type = BRAID_F_WANT, .seq = seq, .tag = TAG, .size = size };

	TRUE(speak_frame(sp, &want, NULL, 0));
	TRUE(speak_hear_frame(sp, ret, NULL, 0));
	EQ(BRAID_F_CREDIT, ret->type);
	EQ(TAG, ret->tag);
	EQ(ROOM, ret->size);
}

/* -- a bad receiver --------------------------------------------------------------------------- */

void taker_listens(struct taker *k, uint8_t *handle)
{
	uint16_t port;

	memset(k, 0, sizeof(*k));
	TRUE((k->listener = speak_listen(&port)) >= 0);
	handle_forge(handle, port, &k->to);
}

/*
 * Connections that end before their hello, and dials for more lanes, are closed: the plugin may
 * have begun them for the link that was broken before.
 */
static void accept_link(struct scene *s, struct taker *k, uint8_t *handle)
{
	uint64_t end = deadline_ms(drive_hang_ms);

	for (;;) {
		connect_begins(s->net, handle, k->listener, &k->send);
		speaker_init(&k->sp, &k->to);
		TRUE((k->sp.fd = speak_accept(k->listener)) >= 0);
		if (!speak_hear(&k->sp))
			TRUE(speak_closed(k->sp.fd, 0));
		else if (k->sp.theirs.kind == BRAID_HELLO_LINK)
			return;
		close(k->sp.fd);
		wait_tick(end, __FILE__, __LINE__, "the dial of a link");
	}
}

void taker_meets(struct scene *s, struct taker *k, uint8_t *handle)
{
	struct pollfd heard = { .events = POLLIN };
	struct braid_hdr h;
	uint64_t end;

	accept_link(s, k, handle);
	TRUE(speak_answer(&k->sp, BRAID_HELLO_OK) && speak_believe(&k->sp));
	heard.fd = k->sp.fd;
	/* The plugin sets up the link, and the comm on it, inside of connect(). */
	for (end = deadline_ms(5000); now_us() < end && poll(&heard, 1, 1) <= 0;)
		OK(TIMED(SETUP_MS, net_connect(s->net, 0, handle, &k->send)));
	TRUE(!k->send);
	TRUE(speak_hear_frame(&k->sp, &h, NULL, 0));
	EQ(BRAID_F_OPEN, h.type);
	k->comm = h.comm;
}

void taker_opens(struct scene *s, struct taker *k, uint8_t *handle)
{
	taker_listens(k, handle);
	taker_meets(s, k, handle);
}

void taker_in(struct scene *s, struct taker *k, size_t size)
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

void taker_out(struct scene *s, struct taker *k)
{
	OK(TIMED(SETUP_MS, net_dereg(s->net, k->send, k->buf.mr)));
	OK(TIMED(SETUP_MS, net_close_send(s->net, k->send)));
	k->buf.comm = NULL;
	buf_free(s->net, &k->buf);
	close(k->sp.fd);
	close(k->listener);
}
