/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_frames.c - an authenticated peer sends arbitrary bytes to a link with four comms and three
 * lanes.  Meanwhile the link's owner posts, tests, cancels and closes, and sockets are replaced.
 *
 * Input: a list of steps (below), each a byte and what it needs.  Most frames are built from a
 * few small numbers, with the frame's own number and acknowledgement made right, so that they get
 * as far as they can; others are raw bytes.  Payload is a pattern.
 *
 * A sanitizer watches memory: every buffer is a block of its own, freed as soon as it is the
 * owner's again (test() returned done, cancel() or close() returned).  So a byte written outside,
 * or later, is found.  Our end's frames are parsed: they must be well-formed and numbered.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/control.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/link/lane_io.h"
#include "core/link/recover.h"
#include "core/msg/comm.h"
#include "core/setup/process.h"
#include "core/transport.h"
#include "tests/lib/req.h"

extern const struct braid_transport braid_tcp;

enum step {				/* each with the input bytes that follow it */
	FRAME,		/* lane type flags n comm seq tag rseq len len offset size size */
	RAW,				/* lane count bytes */
	BITE,				/* the most bytes that one read of a socket returns */
	RECV,				/* comm count (tag size size)* */
	SEND,				/* comm tag size size */
	TEST,				/* request */
	LEAVE,				/* comm how */
	MOVE,				/* how */
	LOSE,				/* lane how, and arbitrary `frames` or `first`: lose() */
	STEPS,
};

enum {
	LANES = 3, COMMS = 4, REQS = 32, IN_MAX = 1 << 18, FD = 1 << 19,
	WILD_SEQ = 0x40, WILD_ACK = 0x80,	/* in FRAME's lane: arbitrary lseq; arbitrary ack */
	BARE = 0x20,			/* its payload without a header, as from a NIC; with a short
					 * header if the frame has flags */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct request {
	struct braid_req *req;
	struct braid_comm *comm;
	unsigned n;
	char *buf[BRAID_RECVS_MAX];
};

static struct {
	const uint8_t *p, *end;		/* input */
	struct braid_dev dev;
	struct braid_link *link;
	struct braid_comm *comm[COMMS];	/* 0 and 2 send, 1 and 3 receive; NULL: closed */
	struct request req[REQS];
	unsigned bite;
	struct {
		uint8_t *in;
		size_t n, read;
		uint32_t lseq;		/* of the next frame to us */
		uint8_t hdr[BRAID_HDR_SIZE];	/* of the frame that our end is sending */
		size_t said, left;
		uint32_t out;		/* frames that our end has sent */
	} lane[LANES];
} w;

static uint8_t byte(void)
{
	return w.p < w.end ? *w.p++ : 0;
}

static unsigned two(void)
{
	unsigned hi = byte();

	return hi << 8 | byte();
}

/* --- the socket ---------------------------------------------------------------------------- */

static ssize_t os_recvmsg(int fd, struct msghdr *msg, int flags)
{
	unsigned l = (unsigned)(fd - FD);
	size_t have = w.lane[l].n - w.lane[l].read, moved = 0;

	(void)flags;
	if (w.bite && have > w.bite)
		have = w.bite;
	for (size_t i = 0; i < msg->msg_iovlen && have; i++) {
		size_t n = msg->msg_iov[i].iov_len < have ? msg->msg_iov[i].iov_len : have;

		memcpy(msg->msg_iov[i].iov_base, w.lane[l].in + w.lane[l].read, n);
		w.lane[l].read += n;
		have -= n;
		moved += n;
	}
	if (moved)
		return (ssize_t)moved;
	errno = EAGAIN;
	return -1;
}

static ssize_t os_recv(int fd, void *buf, size_t len, int flags)
{
	struct iovec iov = { buf, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return os_recvmsg(fd, &msg, flags);
}

static void hear(unsigned l, const uint8_t *p, size_t n)
{
	while (n) {
		struct braid_hdr h;
		size_t part;

		if (w.lane[l].left) {
			part = n < w.lane[l].left ? n : w.lane[l].left;
			w.lane[l].left -= part;
		} else {
			part = BRAID_HDR_SIZE - w.lane[l].said;
			part = n < part ? n : part;
			memcpy(w.lane[l].hdr + w.lane[l].said, p, part);
			w.lane[l].said += part;
		}
		p += part;
		n -= part;
		if (w.lane[l].said < BRAID_HDR_SIZE || w.lane[l].left)
			continue;
		if (w.lane[l].hdr[0]) {
			assert(braid_hdr_unpack(w.lane[l].hdr, &h) == 0);
			assert(h.lseq == w.lane[l].out++);
			w.lane[l].left = h.len;
			w.lane[l].hdr[0] = 0;	/* this header has been parsed */
		}
		if (!w.lane[l].left)
			w.lane[l].said = 0;
	}
}

static ssize_t os_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t sum = 0;

	(void)flags;
	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		hear((unsigned)(fd - FD), msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
		sum += (ssize_t)msg->msg_iov[i].iov_len;
	}
	return sum;
}

static ssize_t os_send(int fd, const void *buf, size_t len, int flags)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return os_sendmsg(fd, &msg, flags);
}

static int os_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	(void)fd, (void)level, (void)name, (void)val, (void)len;
	return 0;
}

static int os_close(int fd)
{
	(void)fd;
	return 0;
}

static void drop(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)level, (void)file, (void)line;
	assert(strlen(text) <= BRAID_LOG_MAX);
}

/* --- the peer ------------------------------------------------------------------------------ */

static void arrive(unsigned l, const void *bytes, size_t n)
{
	if (w.lane[l].read == w.lane[l].n)
		w.lane[l].read = w.lane[l].n = 0;
	if (n > IN_MAX - w.lane[l].n)
		return;
	memcpy(w.lane[l].in + w.lane[l].n, bytes, n);
	w.lane[l].n += n;
}

/* The payload, with room for a short header in front. */
static uint8_t sent[BRAID_SHORT_SIZE + (1 << 16)] = { [BRAID_SHORT_SIZE] = 1, 2, 3 };
static const uint8_t *const payload = sent + BRAID_SHORT_SIZE;

/* A message without a header comes whole, and only once all earlier bytes have been read. */
static void bare(unsigned l, const struct braid_hdr *h)
{
	struct braid_lane *lane = w.link->lane[l];
	uint32_t what = braid_short(h->comm, h->seq);
	int err;

	if (!braid_lane_up(lane) || w.lane[l].read != w.lane[l].n ||
	    lane->rx_kind != BRAID_RX_NONE)
		return;
	braid_lock_wait(&lane->io);
	braid_lock_wait(&w.link->lock);
	braid_short_pack(what, sent);
	err = h->flags ? braid_rx_message(lane, (const char *)sent, BRAID_SHORT_SIZE + h->len) :
			 braid_rx_imm(lane, what, (const char *)payload, h->len);
	braid_unlock(&w.link->lock);
	braid_unlock(&lane->io);
	w.lane[l].lseq += !err;
	if (err)
		braid_link_fail(w.link, -EREMOTEIO, "a message that says nothing true");
}

/* Fills the place of a payload that may be received early, to check that all of it fits. */
static void look_ahead(const void *bytes, size_t n)
{
	struct braid_rx_rest rest;

	braid_lock_wait(&w.link->lock);
	rest = braid_rx_ahead(w.link->lane[0], bytes, n);
	if (rest.dst)
		memset(rest.dst, 1, rest.len);
	braid_unlock(&w.link->lock);
}

static void frame(void)
{
	unsigned where = byte(), l = where % LANES;
	struct braid_hdr h = {
		.type = byte(), .flags = byte(), .n = byte(), .comm = byte(), .seq = byte(),
		.tag = byte(), .rseq = byte(),
	};
	uint8_t hdr[BRAID_HDR_SIZE];

	h.len = two();
	h.offset = byte();
	h.offset *= 64;
	h.size = two();
	if (where & BARE) {
		bare(l, &h);
		return;
	}
	if (h.type == BRAID_F_EAGER)
		h.size = h.len;
	if (h.type == BRAID_F_OPEN || h.type == BRAID_F_OPENED)
		h.len = BRAID_OPEN_SIZE;
	h.lseq = where & WILD_SEQ ? h.seq : w.lane[l].lseq;
	h.ack = where & WILD_ACK ? h.rseq : w.lane[l].out;
	if (h.type == BRAID_F_ACK && h.n < LANES && !(where & WILD_ACK))
		h.seq = w.lane[h.n].out;
	w.lane[l].lseq++;
	braid_hdr_pack(&h, hdr);
	look_ahead(hdr, sizeof(hdr));
	arrive(l, hdr, sizeof(hdr));
	arrive(l, payload, h.len);
}

static void raw(void)
{
	unsigned l = byte() % LANES, n = byte();

	if (n > (size_t)(w.end - w.p))
		n = (unsigned)(w.end - w.p);
	look_ahead(w.p, n);
	arrive(l, w.p, n);
	w.p += n;
}

/* --- the owner ----------------------------------------------------------------------------- */

static struct request *free_request(void)
{
	for (unsigned i = 0; i < REQS; i++) {
		if (!w.req[i].comm)
			return &w.req[i];
	}
	return NULL;
}

static void forget(struct request *r)
{
	for (unsigned i = 0; i < r->n; i++)
		free(r->buf[i]);
	memset(r, 0, sizeof(*r));
}

/* The memory of a comm's requests is the owner's again. */
static void forget_all(const struct braid_comm *c)
{
	for (unsigned i = 0; i < REQS; i++) {
		if (w.req[i].comm == c)
			forget(&w.req[i]);
	}
}

static void recv_some(void)
{
	struct braid_comm *c = w.comm[1 + 2 * (byte() % 2)];
	unsigned n = 1 + byte() % BRAID_RECVS_MAX;
	struct request *r = free_request();
	size_t sizes[BRAID_RECVS_MAX];
	int tags[BRAID_RECVS_MAX];

	if (!c || !r)
		return;
	r->comm = c;
	r->n = n;
	for (unsigned i = 0; i < n; i++) {
		tags[i] = byte();
		sizes[i] = two();
		r->buf[i] = malloc(sizes[i] ? sizes[i] : 1);
	}
	if (braid_comm_irecv(c, n, (void *const *)r->buf, sizes, tags, NULL, &r->req) || !r->req)
		forget(r);
}

static void send_one(void)
{
	struct braid_comm *c = w.comm[2 * (byte() % 2)];
	int tag = byte();
	size_t size = two() * 3;
	struct request *r = free_request();

	if (!c || !r)
		return;
	r->comm = c;
	r->n = 1;
	r->buf[0] = malloc(size ? size : 1);
	memset(r->buf[0], 7, size);
	if (braid_comm_isend(c, r->buf[0], size, tag, NULL, &r->req) || !r->req)
		forget(r);
}

static void test_one(struct request *r)
{
	int sizes[BRAID_RECVS_MAX];
	bool done;

	if (r->comm && !req_test(r->req, &done, sizes) && done)
		forget(r);
}

static void leave(unsigned i, unsigned how)
{
	struct braid_comm *c = w.comm[i];

	if (!c)
		return;
	if (how & 1) {
		braid_comm_cancel(c, NULL);
		forget_all(c);
	}
	if (how & 2)
		return;
	braid_comm_close(c);
	forget_all(c);
	w.comm[i] = NULL;
}

static void move(unsigned how)
{
	struct braid_comm *c = w.comm[how >> 2 & 3];

	if (how & 1)
		braid_link_try_flush_control(w.link);
	w.link->rx.spread += how >> 1 & 1 && !w.link->rx.spread;	/* look at all lanes */
	braid_link_progress(w.link, c ? &c->flush_epoch : NULL, NULL);
}

/*
 * A lane loses its socket, and may get another.  The peer then states how many frames it has
 * received, and which is the oldest that it has kept.  Both numbers may be wrong.
 */
static void lose(void)
{
	enum { STAYS_DOWN = 1, WILD_FRAMES = 2, WILD_FIRST = 4 };
	unsigned l = byte() % LANES, how = byte();
	struct braid_lane *lane = w.link->lane[l];
	uint32_t frames, first;

	braid_lane_fence(lane);
	w.lane[l].n = w.lane[l].read = w.lane[l].said = w.lane[l].left = 0;
	if (how & STAYS_DOWN)
		return;
	frames = how & WILD_FRAMES ? byte() : w.lane[l].out;
	first = how & WILD_FIRST ? byte() : lane->rx_frames;
	/* The peer replays from the frame that our end expects next. */
	if (braid_lane_resume(lane, &(struct braid_carrier){
		.tr = lane->tr, .fd = FD + (int)l, .epoch = (uint16_t)(lane->epoch + 1),
	}, frames, first)) {
		braid_link_fail(w.link, -EREMOTEIO, "a peer that can't count");
		return;
	}
	w.lane[l].lseq = lane->rx_frames;
	w.lane[l].out = lane->tx.f_sent;
}

/* --- a link -------------------------------------------------------------------------------- */

static void begin(void)
{
	static struct braid_os os;
	struct braid_link_key key = { .dev = &w.dev, .traffic_class = -1 };

	if (!os.recv) {
		os = *braid_os;
		os.recvmsg = os_recvmsg;
		os.recv = os_recv;
		os.sendmsg = os_sendmsg;
		os.send = os_send;
		os.setsockopt = os_setsockopt;
		os.close = os_close;
		assert(braid_service_init(NULL) == 0);
		braid_os = &os;
		braid_log_to(drop);
		braid_param.chunk = 16384;
		braid_param.eager = 20000;
		for (unsigned i = 0; i < LANES; i++) {
			w.lane[i].in = malloc(IN_MAX);
			assert(w.lane[i].in);
		}
	}
	w.dev.nmembers = 1;
	w.dev.member[0] = &w.dev;
	strcpy(w.dev.net.name, "fuzz0");
	w.link = braid_link_new(&key);
	assert(w.link);
	w.link->dialler = true;
	w.link->setup.next_comm = 4;
	w.link->lanes_max = 4;
	w.link->msg.tx_window = w.link->msg.rx_window = braid_pool_promise(60000);
	for (unsigned i = 0; i < LANES; i++) {
		uint8_t *in = w.lane[i].in;

		memset(&w.lane[i], 0, sizeof(w.lane[i]));
		w.lane[i].in = in;
		assert(!braid_link_add_lane(w.link, i, &(struct braid_carrier){
			.tr = &braid_tcp, .fd = FD + (int)i,
		}));
	}
	assert(!braid_link_attach(w.link));
	w.link->lanes.active = LANES;
	atomic_store(&w.link->state, BRAID_LINK_UP);
	braid_lock_wait(&w.link->lock);
	for (unsigned i = 0; i < COMMS; i++) {
		w.comm[i] = braid_comm_new(w.link, i, i % 2 == 0);
		assert(w.comm[i]);
	}
	braid_unlock(&w.link->lock);
	w.bite = 0;
}

static void end(void)
{
	struct braid_comm *c, *tmp;

	for (unsigned i = 0; i < COMMS; i++)
		leave(i, 0);
	move(3);
	braid_lock_wait(&w.link->lock);
	braid_list_for_safe(c, tmp, &w.link->msg.comms, node)
		braid_comm_free(c);
	braid_unlock(&w.link->lock);
	assert(!w.link->msg.unexp_bytes);
	braid_link_free(w.link);
	braid_pool_trim();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin();
	w.p = data;
	w.end = data + size;
	while (w.p < w.end && atomic_load(&w.link->state) == BRAID_LINK_UP) {
		switch ((enum step)(byte() % STEPS)) {
		case FRAME:
			frame();
			break;
		case RAW:
			raw();
			break;
		case BITE:
			w.bite = byte();
			break;
		case RECV:
			recv_some();
			break;
		case SEND:
			send_one();
			break;
		case TEST:
			test_one(&w.req[byte() % REQS]);
			break;
		case LEAVE: {
			unsigned i = byte() % COMMS;

			leave(i, byte());
			break;
		}
		case MOVE:
			move(byte());
			break;
		case LOSE:
			lose();
			break;
		case STEPS:
			break;
		}
	}
	end();
	return 0;
}
