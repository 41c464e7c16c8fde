/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_stream.c - frames over a byte stream that does all that a socket may do.
 *
 * Two links are joined by socket pairs with the TCP transport on top.  A fake braid_os cuts reads and
 * writes short, interrupts them, or returns EAGAIN at random.  All frames must arrive, whole, once and
 * in order, in the right memory.  Bytes that no Braid peer would send must only cause an error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/proto/aead.h"
#include "core/transport.h"
#include "socket/stream.h"
#include "tests/lib/pair.h"
#include "tests/lib/req.h"
#include "tests/unit/unkind.h"

enum { K = 1024, BIG = 3 << 20 };

static unsigned warns;
static char warned[512];
static const struct braid_os *real_os;
static struct braid_link *end[2];
static struct braid_dev dev[2];
static struct braid_params saved;
static uint8_t cipher;		/* of lanes that are added; 0: they are not encrypted */

static void keep_warn(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file, (void)line;
	if (level != BRAID_LOG_WARN || strstr(text, "congestion"))
		return;
	warns++;
	snprintf(warned, sizeof(warned), "%s", text);
}

/* --- two links ----------------------------------------------------------------------------- */

extern const struct braid_transport braid_tcp;

/* Two ends of a connection, with keys of their own if it is to be encrypted. */
static void carriers(struct braid_carrier ret[2])
{
	static struct braid_lane_keys keys[2];
	static uint8_t n;
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	n += 2;
	for (int i = 0; i < 2; i++) {
		keys[i].cipher = cipher;
		memset(keys[i].send, n + i, sizeof(keys[i].send));
		memset(keys[i].receive, n + !i, sizeof(keys[i].receive));
		ret[i] = (struct braid_carrier){
			.tr = &braid_tcp, .fd = fd[i], .keys = cipher ? &keys[i] : NULL,
		};
	}
}

static void add_lane(void)
{
	struct braid_carrier c[2];

	carriers(c);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(braid_link_add_lane(end[i], end[i]->nlanes, &c[i]), 0);
		end[i]->lanes.active = end[i]->nlanes;
	}
}

static void join(unsigned lanes)
{
	for (unsigned i = 0; i < 2; i++) {
		struct braid_link_key key = { .dev = &dev[i], .traffic_class = -1 };

		dev[i].nmembers = 1;
		dev[i].member[0] = &dev[i];
		strcpy(dev[i].net.name, i ? "right" : "left");
		end[i] = braid_link_new(&key);
		assert_non_null(end[i]);
		end[i]->dialler = !i;
		end[i]->setup.next_comm = i;
		end[i]->lanes_max = BRAID_LANES_MAX;
		end[i]->msg.rx_window = braid_pool_promise((size_t)braid_param.window);
		end[i]->msg.tx_window = end[i]->msg.rx_window;
		strcpy(end[i]->peer, i ? "left" : "right");
	}
	while (lanes--)
		add_lane();
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(braid_link_attach(end[i]), 0);
		atomic_store(&end[i]->state, BRAID_LINK_UP);
	}
}

static void part(void)
{
	for (unsigned i = 0; i < 2; i++)
		null_link_free(end[i]);
}

static int setup(void **state)
{
	(void)state;
	memset(&unkind, 0, sizeof(unkind));
	warns = 0;
	unkind.rnd.s = 88172645463325252u;
	real_os = braid_os;
	braid_os = unkind_os(real_os);
	saved = braid_param;
	braid_log_to(keep_warn);
	join(1);
	return 0;
}

static int setup_aes(void **state)
{
	cipher = braid_aead_ciphers() & BRAID_CIPHER_AES256 ? BRAID_CIPHER_AES256 :
							      BRAID_CIPHER_CHACHA20;
	return setup(state);
}

static int setup_chacha(void **state)
{
	cipher = BRAID_CIPHER_CHACHA20;
	return setup(state);
}

static int teardown(void **state)
{
	(void)state;
	part();
	braid_pool_trim();
	braid_param = saved;
	braid_os = real_os;
	braid_log_to(NULL);
	return 0;
}

static void comms(unsigned from, struct braid_comm **ret_send, struct braid_comm **ret_recv)
{
	uint32_t id = end[from]->setup.next_comm;

	end[from]->setup.next_comm += 2;
	for (unsigned i = 0; i < 2; i++) {
		struct braid_comm *c;

		braid_lock_wait(&end[i]->lock);
		c = braid_comm_new(end[i], id, i == from);
		braid_unlock(&end[i]->lock);
		assert_non_null(c);
		c->opened = true;
		*(i == from ? ret_send : ret_recv) = c;
	}
}

/* --- messages ------------------------------------------------------------------------------ */

static char pattern(unsigned stream, unsigned k, size_t i)
{
	return (char)(stream * 97 + k * 31 + i * 11 + (i >> 8) * 3);
}

enum { SLOTS = 4 };

struct slot {
	char *from, *to;		/* a byte longer: which one it is; a guard */
	size_t size;
	struct braid_req *s, *r;
};

struct ring {				/* one comm, a few messages in flight */
	struct braid_comm *send, *recv;
	unsigned stream, n;
	size_t max;
	struct null_rnd sizes;
	unsigned sent, received;
	struct slot slot[SLOTS];
};

static void fill(struct ring *g, struct slot *t, unsigned k)
{
	t->size = null_below(&g->sizes, null_below(&g->sizes, 4) ? 300 : g->max);
	t->from = malloc(t->size + 1);
	t->to = malloc(t->size + 1);
	t->s = t->r = NULL;
	for (size_t b = 0; b < t->size; b++)
		t->from[b] = pattern(g->stream, k, b);
	t->from[t->size] = (char)k;
	memset(t->to, 0x5a, t->size + 1);
}

/* Calls test(): is the request done? */
static bool is_done(struct braid_req *req)
{
	int res = atomic_load(&req->done) ? 1 : braid_comm_test(req);

	assert_true(res >= 0);
	return res > 0;
}

static void post(struct ring *g, struct slot *t, int tag)
{
	void *to = t->to;

	if (!t->r)
		assert_int_equal(braid_comm_irecv(g->recv, 1, &to, &t->size, &tag, NULL, &t->r), 0);
	if (!t->s)
		assert_int_equal(braid_comm_isend(g->send, t->from, t->size, tag, NULL, &t->s), 0);
}

/* Both are done: the bytes are right, and nothing is written behind them. */
static void check(struct ring *g, struct slot *t)
{
	unsigned k = (uint8_t)t->from[t->size];
	bool done;

	assert_memory_equal(t->to, t->from, t->size);
	assert_int_equal(t->to[t->size], 0x5a);
	if (t->size)
		assert_int_equal(t->to[0], pattern(g->stream, k, 0));
	assert_int_equal(req_test(t->s, &done, NULL), 0);
	assert_int_equal(req_test(t->r, &done, NULL), 0);
	free(t->from);
	free(t->to);
	t->from = NULL;
	g->received++;
}

/* One step of every slot; true when all n messages have arrived. */
static bool turn(struct ring *g)
{
	for (int i = 0; i < SLOTS; i++) {
		struct slot *t = &g->slot[i];
		bool sent;

		if (!t->from) {
			if (g->sent == g->n)
				continue;
			fill(g, t, g->sent++);
		}
		post(g, t, i);
		if (!t->s || !t->r)
			continue;
		sent = is_done(t->s);		/* test both always: each test() moves the link */
		if (is_done(t->r) && sent)
			check(g, t);
	}
	return g->received == g->n;
}

static struct ring ring(unsigned from, unsigned stream, unsigned n, size_t max)
{
	struct ring g = { .stream = stream, .n = n, .max = max, .sizes = { stream + 1 } };

	comms(from, &g.send, &g.recv);
	return g;
}

static void traffic(unsigned n, size_t max)
{
	struct ring there = ring(0, 1, n, max), back = ring(1, 2, n, max);
	time_t began = time(NULL);
	bool more = true;

	for (unsigned i = 0; more; i++) {
		more = !turn(&there);
		more |= !turn(&back);
		if (i % 64 == 0) {		/* as the service thread would do */
			braid_link_try_flush_control(end[0]);
			braid_link_try_flush_control(end[1]);
		}
		if (i % 65536 == 0)	/* what is on its way may wait for a busy CPU */
			assert_true(time(NULL) - began < 300);
	}
	assert_int_equal(warns, 0);
}

static void every_frame_arrives_whole_through_a_kind_socket(void **state)
{
	(void)state;
	traffic(200, 400 * K);
}

static void every_frame_arrives_whole_through_an_unkind_one(void **state)
{
	static const struct {
		size_t most, max;
		unsigned again, interrupt, n;
	} rows[] = {
		{ 1, 500, 0, 0, 60 },
		{ 3, 3000, 5, 5, 60 },
		{ 47, 20 * K, 3, 0, 60 },
		{ 48, 20 * K, 0, 3, 60 },
		{ 49, 20 * K, 4, 4, 60 },
		{ 1000, 200 * K, 2, 9, 80 },
		{ 70000, 600 * K, 3, 3, 100 },
		{ 0, 600 * K, 2, 2, 200 },
	};

	for (unsigned lanes = 1; lanes <= 3; lanes += 2) {
		for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			teardown(state);
			setup(state);
			for (unsigned k = 1; k < lanes; k++)
				add_lane();
			unkind.most = rows[i].most;
			unkind.again = rows[i].again;
			unkind.interrupt = rows[i].interrupt;
			braid_param.chunk = 64 * K;
			traffic(rows[i].n, rows[i].max);
		}
	}
}

/* A message without a receive is read all the same. */
static void payload_of_a_dead_comm_is_thrown_away(void **state)
{
	static char big[BIG];
	struct ring alive = ring(0, 3, 20, 300 * K);
	struct braid_comm *s, *r;
	struct braid_req *req, *rreq;
	size_t size = sizeof(big);
	void *to = malloc(BIG);
	bool done;
	int tag = 0;

	(void)state;
	comms(0, &s, &r);
	assert_int_equal(braid_comm_irecv(r, 1, &to, &size, &tag, NULL, &rreq), 0);
	assert_int_equal(braid_comm_isend(s, big, sizeof(big), 0, NULL, &req), 0);
	for (unsigned i = 0; i < 6; i++) {
		req_test(req, &done, NULL);
		req_test(rreq, &done, NULL);
	}
	braid_comm_close(r);
	free(to);
	unkind.most = 100000;
	while (!turn(&alive))
		braid_link_try_flush_control(end[1]);
	braid_comm_close(s);
	assert_int_equal(atomic_load(&end[1]->state), BRAID_LINK_UP);
}

/* --- what a small message costs ------------------------------------------------------------ */

static void a_small_message_costs_one_call_at_each_end(void **state)
{
	struct braid_comm *s, *r;
	struct braid_req *req, *rreq;
	char to[8];
	void *data = to;
	size_t size = 8;
	bool done;
	int tag = 0;

	(void)state;
	comms(0, &s, &r);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(braid_comm_irecv(r, 1, &data, &size, &tag, NULL, &rreq), 0);
		for (unsigned k = 0; k < 4; k++)	/* callers that wait */
			braid_link_progress(end[0], &s->flush_epoch, NULL);
		unkind.sends = unkind.recvs = 0;
		assert_int_equal(braid_comm_isend(s, "12345678", 8, 0, NULL, &req), 0);
		assert_int_equal(unkind.sends, 1);
		assert_int_equal(unkind.recvs, 0);
		assert_int_equal(req_test(req, &done, NULL), 0);
		assert_true(done);
		assert_int_equal(unkind.sends + unkind.recvs, 1);
		assert_int_equal(req_test(rreq, &done, NULL), 0);
		assert_true(done);
		assert_int_equal(unkind.sends, 1);
		assert_int_equal(unkind.recvs, 1);
		assert_memory_equal(to, "12345678", 8);
	}
}

static void a_burst_leaves_in_fewer_calls_than_messages(void **state)
{
	struct braid_comm *s, *r;
	struct braid_req *req[32];
	bool done;

	(void)state;
	comms(0, &s, &r);
	braid_link_progress(end[0], &s->flush_epoch, NULL);
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(braid_comm_isend(s, "x", 1, 0, NULL, &req[i]), 0);
	for (unsigned k = 0; k < 4; k++) {
		for (unsigned i = 0; i < 32; i++)
			assert_int_equal(req_test(req[i], &done, NULL), 0);
	}
	assert_true(unkind.sends <= 8);
	(void)r;
}

static void a_call_moves_at_most_its_budget(void **state)
{
	static char big[BIG];
	struct braid_comm *s, *r;
	struct braid_req *req, *rreq;
	void *to = malloc(BIG);
	size_t size = BIG, most = 0;
	int tag = 0, sndbuf = 16 << 20;
	bool done = false, sent = false;

	(void)state;
	for (int i = 0; i < 2; i++)
		setsockopt(end[i]->lane[0]->fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	braid_param.chunk = 16 << 20;
	comms(0, &s, &r);
	assert_int_equal(braid_comm_irecv(r, 1, &to, &size, &tag, NULL, &rreq), 0);
	assert_int_equal(braid_comm_isend(s, big, sizeof(big), 0, NULL, &req), 0);
	for (int i = 0; i < 100000 && !done; i++) {
		unkind.moved = 0;
		assert_int_equal(req_test(rreq, &done, NULL), 0);
		most = unkind.moved > most ? unkind.moved : most;
		unkind.moved = 0;
		if (!sent)
			assert_int_equal(req_test(req, &sent, NULL), 0);
		most = unkind.moved > most ? unkind.moved : most;
	}
	assert_true(done);
	assert_memory_equal(big, to, BIG);
	/* Both directions have one, and what is read ahead comes on top. */
	assert_true(most > 100 * K && most <= 2 * BRAID_CALL_BUDGET + 64 * K);
	free(to);
}

/* Neither end may need a second call, before which its caller would yield the CPU. */
static void a_message_of_a_mebibyte_takes_one_call(void **state)
{
	static char big[1 << 20], to[sizeof(big)];
	const struct braid_txq *q = &end[0]->lane[0]->tx;
	struct braid_comm *s, *r;
	struct braid_req *req, *rreq;
	void *data = to;
	size_t size = sizeof(to);
	int tag = 0, sndbuf = 4 << 20, got = 0;
	socklen_t len = sizeof(got);
	bool done;

	(void)state;
	setsockopt(end[0]->lane[0]->fd, SOL_SOCKET, SO_SNDBUFFORCE, &sndbuf, sizeof(sndbuf));
	getsockopt(end[0]->lane[0]->fd, SOL_SOCKET, SO_SNDBUF, &got, &len);
	if (got < sndbuf)
		skip();			/* root's, or net.core.wmem_max would have to be larger */
	comms(0, &s, &r);
	assert_int_equal(braid_comm_irecv(r, 1, &data, &size, &tag, NULL, &rreq), 0);
	memset(big, 'b', sizeof(big));
	assert_int_equal(braid_comm_isend(s, big, sizeof(big), 0, NULL, &req), 0);
	for (int i = 0; i < 4; i++)		/* the credit leaves, and is not read yet */
		braid_link_progress(end[1], &r->flush_epoch, NULL);
	assert_int_equal(req_test(req, &done, NULL), 0);
	assert_true(q->f_head > 1 && !q->unsent);
	assert_int_equal(req_test(rreq, &done, NULL), 0);
	assert_true(done);
	assert_memory_equal(big, to, sizeof(big));
}

/* --- the link is busy ---------------------------------------------------------------------- */

static void what_arrives_while_the_link_is_busy_is_kept(void **state)
{
	struct braid_comm *s, *r;
	struct braid_req *req, *rreq;
	char to[8];
	void *data = to;
	size_t size = 8;
	bool done;
	int tag = 0;

	(void)state;
	comms(0, &s, &r);
	assert_int_equal(braid_comm_irecv(r, 1, &data, &size, &tag, NULL, &rreq), 0);
	assert_int_equal(braid_comm_isend(s, "kept", 5, 0, NULL, &req), 0);
	assert_true(braid_trylock(&end[1]->lock));
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(req_test(rreq, &done, NULL), 0);
		assert_false(done);
	}
	/* Not even memory may be given back: something lies in it. */
	assert_true(braid_trylock(&end[1]->lane[0]->io));
	braid_stream_detach(end[1]->lane[0]);
	braid_unlock(&end[1]->lane[0]->io);
	braid_unlock(&end[1]->lock);
	assert_int_equal(req_test(rreq, &done, NULL), 0);
	assert_true(done);
	assert_string_equal(to, "kept");
}

/* --- hostile bytes ------------------------------------------------------------------------- */

static int poll_home(void)
{
	struct braid_lane *lane = end[1]->lane[0];
	int n;

	assert_true(braid_trylock(&lane->io));
	n = lane->tr->poll(lane);
	braid_unlock(&lane->io);
	return n;
}

static void raw(const void *bytes, size_t n)
{
	assert_int_equal(send(end[0]->lane[0]->fd, bytes, n, 0), n);
}

static void an_end_is_an_end(void **state)
{
	uint8_t part_of_header[20] = { 0 };

	(void)state;
	assert_int_equal(poll_home(), 0);
	raw(part_of_header, sizeof(part_of_header));
	assert_true(poll_home() >= 0);
	shutdown(end[0]->lane[0]->fd, SHUT_WR);
	assert_int_equal(poll_home(), -ENOTCONN);
}

/* What a user reads when another rank was killed: device, peer, and where to look. */
/* Gives a lane a new socket at both ends, which exchange how many frames they have received. */
static void reconnect(void)
{
	struct braid_lane *a = end[0]->lane[0], *b = end[1]->lane[0];
	struct braid_carrier c[2];

	braid_lane_fence(a);
	braid_lane_fence(b);
	carriers(c);
	c[0].epoch = c[1].epoch = (uint16_t)(a->epoch + 1);
	assert_int_equal(braid_lane_resume(a, &c[0], b->rx_frames, a->tx.f_acked), 0);
	assert_int_equal(braid_lane_resume(b, &c[1], a->rx_frames, b->tx.f_acked), 0);
}

/* The connection is lost at either end, at any point of the message. */
static void a_message_survives_its_connection(void **state)
{
	static char from[40000], to[sizeof(from)];
	enum { LENS = 4 };
	const size_t lens[LENS] = { 1, 8192, 8193, sizeof(from) };

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (char)(i * 7);
	for (unsigned way = 0; way < LENS * 40; way++) {
		size_t size = lens[way % LENS], room = sizeof(to);
		struct braid_comm *s, *r;
		struct braid_req *tx, *rx;
		bool sent = false, got = false;
		void *data = to;
		int tag = 0;

		teardown(state);
		setup(state);
		comms(0, &s, &r);
		memset(to, 0, sizeof(to));
		unkind.most = way / LENS % 2 ? 3000 : 0;
		assert_int_equal(braid_comm_irecv(r, 1, &data, &room, &tag, NULL, &rx), 0);
		assert_int_equal(braid_comm_isend(s, from, size, 0, NULL, &tx), 0);
		for (unsigned n = 0; n < way / LENS / 2; n++)
			braid_link_progress(end[n & 1], NULL, NULL);
		shutdown(end[way & 1]->lane[0]->fd, SHUT_RDWR);
		braid_link_progress(end[0], NULL, NULL);
		reconnect();
		for (int n = 0; n < 1000 && !(sent && got); n++) {
			if (!sent)
				assert_int_equal(req_test(tx, &sent, NULL), 0);
			if (!got)
				assert_int_equal(req_test(rx, &got, NULL), 0);
			braid_link_move(end[0]);
			braid_link_try_flush_control(end[1]);
		}
		assert_true(sent && got);
		assert_memory_equal(to, from, size);
		assert_int_equal(warns, 0);
		unkind.most = 0;
	}
}

static void a_lost_connection_is_no_error_of_its_comms(void **state)
{
	struct braid_comm *s, *r;
	struct braid_req *req;
	bool done;
	char to[8];
	void *data = to;
	size_t size = 8;
	int tag = 0;

	(void)state;
	comms(0, &s, &r);
	assert_int_equal(braid_comm_irecv(r, 1, &data, &size, &tag, NULL, &req), 0);
	shutdown(end[0]->lane[0]->fd, SHUT_RDWR);
	assert_int_equal(req_test(req, &done, NULL), 0);
	assert_false(done);
	assert_false(atomic_load(&end[0]->lane[0]->up) && atomic_load(&end[1]->lane[0]->up));
	assert_int_equal(atomic_load(&end[0]->state), BRAID_LINK_UP);
	assert_int_equal(warns, 0);
	(void)s;
}

static void a_link_closed_by_a_close_frame_is_no_loss(void **state)
{
	struct braid_comm *s, *r;
	struct braid_hdr h = { .type = BRAID_F_CLOSE };

	(void)state;
	braid_lock_wait(&end[0]->lock);
	assert_true(braid_link_ctl(end[0], &h, NULL));
	braid_link_flush(end[0]);
	braid_unlock(&end[0]->lock);
	shutdown(end[0]->lane[0]->fd, SHUT_WR);
	for (int i = 0; i < 4; i++)
		braid_link_progress(end[1], NULL, NULL);
	assert_int_equal(atomic_load(&end[1]->state), BRAID_LINK_DEAD);
	assert_int_equal(warns, 0);		/* no comm used the link */

	teardown(state);
	setup(state);
	comms(0, &s, &r);
	braid_lock_wait(&end[0]->lock);
	assert_true(braid_link_ctl(end[0], &h, NULL));
	braid_link_flush(end[0]);
	braid_unlock(&end[0]->lock);
	shutdown(end[0]->lane[0]->fd, SHUT_WR);
	for (int i = 0; i < 4; i++)
		braid_link_progress(end[1], &r->flush_epoch, NULL);
	assert_int_equal(warns, 1);
	assert_non_null(strstr(warned, "the peer closed the link [link-ended]"));
}

static void bytes_that_are_no_frame_are_an_error(void **state)
{
	struct braid_hdr ok = { .type = BRAID_F_ACK }, odd = { .type = BRAID_F_ACK, .lseq = 7 };
	uint8_t bytes[BRAID_HDR_SIZE];

	memset(bytes, 0xff, sizeof(bytes));
	raw(bytes, sizeof(bytes));
	assert_int_equal(poll_home(), -EBADMSG);

	teardown(state);
	setup(state);
	braid_hdr_pack(&ok, bytes);
	raw(bytes, sizeof(bytes));
	assert_int_equal(poll_home(), 1);
	braid_hdr_pack(&odd, bytes);			/* number 7 is not the next */
	raw(bytes, sizeof(bytes));
	assert_int_equal(poll_home(), -EBADMSG);
}

static void a_link_that_receives_a_malformed_frame_fails_and_logs(void **state)
{
	struct braid_comm *s, *r;
	struct braid_req *req;
	char to[8];
	void *data = to;
	size_t size = 8;
	bool done;
	int tag = 0;

	(void)state;
	comms(0, &s, &r);
	assert_int_equal(braid_comm_irecv(r, 1, &data, &size, &tag, NULL, &req), 0);
	raw("GET / HTTP/1.1\r\nHost: right\r\nAccept: */*\r\n\r\n", 44);
	raw("more of it", 10);
	assert_int_equal(req_test(req, &done, NULL), -EREMOTEIO);
	assert_int_equal(warns, 1);
	assert_non_null(strstr(warned, "right"));
	assert_non_null(strstr(warned, "left"));
}

static void any_bytes_end_in_an_error_or_in_waiting_for_more(void **state)
{
	struct null_rnd r = { 4711 };

	for (unsigned i = 0; i < 400; i++) {
		uint8_t bytes[600];
		struct braid_hdr h = { .type = (uint8_t)(1 + null_below(&r, BRAID_F_MAX - 1)) };
		int n = 0;

		teardown(state);
		setup(state);
		for (unsigned k = 0; k < sizeof(bytes); k++)
			bytes[k] = (uint8_t)null_below(&r, 256);
		h.len = (uint32_t)null_below(&r, 100);
		h.size = h.len;
		h.comm = 7;			/* nobody's */
		braid_hdr_pack(&h, bytes);
		raw(bytes, sizeof(bytes));
		for (unsigned k = 0; k < 20 && n >= 0; k++)
			n = poll_home();
		assert_true(n == -EBADMSG || n == -EPROTO || n == 0);
	}
}

/* --- threads ------------------------------------------------------------------------------- */

struct worker {
	struct braid_comm *c;
	unsigned n;
	size_t max;
	const char *why;
};

static size_t size_of(const struct worker *w, unsigned k)
{
	return k % 7 ? k * 37 % 500 : k * 7919 % w->max;
}

/* Its own comm, in order, one message at a time. */
static void *work(void *arg)
{
	struct worker *w = arg;
	char *buf = malloc(w->max + 1);

	for (unsigned k = 0; k < w->n && !w->why; k++) {
		size_t size = size_of(w, k);
		struct braid_req *req = NULL;
		void *data = buf;
		bool done = false;
		int tag = 5, err = 0;

		for (size_t b = 0; b < size && w->c->sender; b++)
			buf[b] = pattern(w->c->id, k, b);
		while (!req && !err)
			err = w->c->sender ?
				      braid_comm_isend(w->c, buf, size, tag, NULL, &req) :
				      braid_comm_irecv(w->c, 1, &data, &size, &tag, NULL, &req);
		while (!done && !err) {
			err = req_test(req, &done, NULL);
			if (!done)
				sched_yield();
		}
		if (err)
			w->why = strerror(-err);
		for (size_t b = 0; b < size && !w->c->sender; b++) {
			if (buf[b] != pattern(w->c->id, k, b))
				w->why = "wrong bytes";
		}
	}
	free(buf);
	return NULL;
}

static atomic_bool tidy_stop;

static void *tidy(void *arg)
{
	(void)arg;
	while (!atomic_load(&tidy_stop)) {
		braid_link_try_flush_control(end[0]);
		braid_link_try_flush_control(end[1]);
		usleep(500);
	}
	return NULL;
}

static void threads_may_call_on_one_link_at_once(void **state)
{
	enum { COMMS = 2 };
	struct worker w[2 * COMMS];
	pthread_t t[2 * COMMS], service;

	(void)state;
	braid_os = real_os;
	add_lane();
	braid_param.chunk = 64 * K;
	for (unsigned i = 0; i < COMMS; i++) {
		w[2 * i] = w[2 * i + 1] = (struct worker){ .n = 150, .max = 400 * K };
		comms(i & 1, &w[2 * i].c, &w[2 * i + 1].c);
	}
	atomic_store(&tidy_stop, false);
	assert_int_equal(pthread_create(&service, NULL, tidy, NULL), 0);
	for (unsigned i = 0; i < 2 * COMMS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
	for (unsigned i = 0; i < 2 * COMMS; i++)
		pthread_join(t[i], NULL);
	atomic_store(&tidy_stop, true);
	pthread_join(service, NULL);
	for (unsigned i = 0; i < 2 * COMMS; i++) {
		if (w[i].why)
			fail_msg("worker %u: %s", i, w[i].why);
	}
	assert_int_equal(warns, 0);
	part();				/* while `plain` is there */
	join(1);
	braid_os = real_os;
}

static int teardown_last(void **state)
{
	teardown(state);
	cipher = 0;
	return 0;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define SEALED(name, f) { name, f, setup_aes, teardown_last, NULL }
#define CHACHA(name, f) { name, f, setup_chacha, teardown_last, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(every_frame_arrives_whole_through_a_kind_socket),
		CASE(every_frame_arrives_whole_through_an_unkind_one),
		CASE(payload_of_a_dead_comm_is_thrown_away),
		CASE(a_small_message_costs_one_call_at_each_end),
		CASE(a_burst_leaves_in_fewer_calls_than_messages),
		CASE(a_call_moves_at_most_its_budget),
		CASE(a_message_of_a_mebibyte_takes_one_call),
		CASE(what_arrives_while_the_link_is_busy_is_kept),
		CASE(an_end_is_an_end),
		CASE(a_lost_connection_is_no_error_of_its_comms),
		CASE(a_message_survives_its_connection),
		CASE(a_link_closed_by_a_close_frame_is_no_loss),
		CASE(bytes_that_are_no_frame_are_an_error),
		CASE(a_link_that_receives_a_malformed_frame_fails_and_logs),
		CASE(any_bytes_end_in_an_error_or_in_waiting_for_more),
		CASE(threads_may_call_on_one_link_at_once),
		SEALED("every_frame_arrives_whole_through_records",
		       every_frame_arrives_whole_through_a_kind_socket),
		CHACHA("every_frame_arrives_whole_through_records_of_chacha20",
		       every_frame_arrives_whole_through_a_kind_socket),
		SEALED("every_frame_arrives_whole_through_records_in_an_unkind_socket",
		       every_frame_arrives_whole_through_an_unkind_one),
		SEALED("payload_of_a_dead_comm_is_thrown_away_out_of_records",
		       payload_of_a_dead_comm_is_thrown_away),
		SEALED("a_small_record_costs_one_call_at_each_end",
		       a_small_message_costs_one_call_at_each_end),
		SEALED("what_arrives_in_records_while_the_link_is_busy_is_kept",
		       what_arrives_while_the_link_is_busy_is_kept),
		SEALED("a_message_survives_its_encrypted_connection",
		       a_message_survives_its_connection),
		SEALED("threads_may_call_on_one_encrypted_link_at_once",
		       threads_may_call_on_one_link_at_once),
	};

	braid_aead_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
