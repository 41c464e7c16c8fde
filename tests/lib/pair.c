/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.c - see pair.h. */
#include "tests/lib/pair.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/pool.h"
#include "core/link/recover.h"
#include "core/msg/comms.h"

uint64_t null_now_ns = 1000000000u, null_tick_ns;
unsigned null_posts;

static struct braid_transport transport;	/* null_transport, with these post() and push() */

static struct null_lane *lane_of(const struct null_pair *p, unsigned end, unsigned lane)
{
	assert(lane < p->end[end]->nlanes);
	return null_of(p->end[end]->lane[lane]);
}

/* Takes both locks of the receiving end, which its own poll() would hold. */
static bool enter(struct null_lane *to)
{
	if (!braid_trylock(&to->lane.io))
		return false;
	if (braid_trylock(&to->lane.link->lock))
		return true;
	braid_unlock(&to->lane.io);
	return false;
}

static void leave(struct null_lane *to)
{
	braid_unlock(&to->lane.link->lock);
	braid_unlock(&to->lane.io);
}

/*
 * On a direct lane the message goes with its short header.  A wire keeps no messages apart, so there
 * it goes with the header that its frame will have.
 */
static int pair_post(struct braid_lane *lane, uint32_t imm, const char *payload, uint32_t len)
{
	struct null_lane *from = null_of(lane), *to = from->peer;
	const struct braid_comm *c = braid_comm_find(lane->link, imm >> 16);
	struct braid_hdr h = {
		.type = BRAID_F_EAGER, .comm = c->id, .seq = c->next_seq, .tag = c->last_tag,
		.len = len, .size = len, .lseq = lane->tx.f_head, .ack = lane->rx_acked,
	};
	char hdr[BRAID_HDR_SIZE];

	assert((uint16_t)imm == (uint16_t)h.seq);
	if (!to || (from->limit && null_wire_len(from) + BRAID_HDR_SIZE + len > from->limit))
		return -EAGAIN;
	if (from->held) {
		braid_hdr_pack(&h, hdr);
		null_wire_put(from, hdr, sizeof(hdr));
		null_wire_put(from, payload, len);
	} else {
		if (null_wire_len(from) || !enter(to))
			return -EAGAIN;
		to->err = braid_rx_message(&to->lane, payload - BRAID_SHORT_SIZE,
					   len + BRAID_SHORT_SIZE);
		leave(to);
	}
	null_posts++;
	return 0;
}

/* Bytes of a direct lane, with both locks of the receiving end; what it leaves goes on the wire. */
static void give(struct null_lane *from, const struct iovec *v)
{
	struct null_lane *to = from->peer;
	size_t done = 0;

	if (!to->err && !null_wire_len(from))
		to->err = braid_rx_bytes(&to->lane, v->iov_base, v->iov_len, &done);
	if (to->err == -EAGAIN)
		to->err = 0;
	if (done < v->iov_len)
		null_wire_put(from, (const char *)v->iov_base + done, v->iov_len - done);
}

/* On a direct lane nothing is copied but to its destination, so a bench measures core alone. */
static int pair_push(struct braid_lane *lane)
{
	struct null_lane *from = null_of(lane), *to = from->peer;
	struct iovec iov[64];
	struct braid_can can = { .iov = iov, .niov = 64, .max = SIZE_MAX / 2 };
	struct braid_piece p;
	int err;

	if (from->held || from->limit || from->bite || !to || null_wire_len(from) || !enter(to))
		return null_transport.push(lane);
	while ((err = braid_lane_next(lane, &can, &p)) > 0) {
		for (int i = 0; i < p.niov; i++)
			give(from, &iov[i]);
		braid_tx_advance(lane, p.len);
	}
	leave(to);
	return err;
}

/* --- delivery ------------------------------------------------------------------------------ */

int null_deliver_some(struct null_pair *p, unsigned from_end, unsigned lane, size_t n)
{
	struct null_lane *from = lane_of(p, from_end, lane), *to = from->peer;
	int moved = 0;

	if (!to || to->err)
		return to ? to->err : -EPIPE;
	if (!braid_trylock(&to->lane.io))
		return 0;
	if (to->lane.rx_kind == BRAID_RX_NONE && null_wire_len(from) >= BRAID_HDR_SIZE)
		moved = null_read(to, BRAID_HDR_SIZE);
	if (moved >= 0 && to->lane.rx_left)
		moved += null_read(to, n < to->lane.rx_left ? n : to->lane.rx_left);
	braid_unlock(&to->lane.io);
	return to->err ? to->err : moved > 0;
}

bool null_peek(const struct null_pair *p, unsigned from_end, unsigned lane, struct braid_hdr *ret)
{
	const struct null_lane *from = lane_of(p, from_end, lane);

	if (from->peer && from->peer->lane.rx_kind != BRAID_RX_NONE) {
		*ret = from->peer->lane.rx_hdr;
		return true;
	}
	return null_wire_len(from) >= BRAID_HDR_SIZE &&
	       !braid_hdr_unpack(from->wire + from->beg, ret);
}

int null_deliver(struct null_pair *p, unsigned from_end, unsigned lane)
{
	struct null_lane *from = lane_of(p, from_end, lane);
	struct braid_hdr h;
	size_t need;

	if (!null_peek(p, from_end, lane, &h))
		return 0;
	need = from->peer && from->peer->lane.rx_kind != BRAID_RX_NONE ?
		       from->peer->lane.rx_left : BRAID_HDR_SIZE + h.len;
	/* A frame that does not fit on the wire comes in pieces. */
	if (null_wire_len(from) < need && !from->bite &&
	    (!from->limit || null_wire_len(from) < from->limit))
		return 0;
	return null_deliver_some(p, from_end, lane, SIZE_MAX);
}

size_t null_waiting(const struct null_pair *p, unsigned from, unsigned lane)
{
	return null_wire_len(lane_of(p, from, lane));
}

int null_deliver_all(struct null_pair *p)
{
	int frames = 0, moved;

	do {
		moved = 0;
		for (unsigned i = 0; i < 2 * p->end[0]->nlanes; i++) {
			int n = null_deliver(p, i & 1, i / 2);

			if (n < 0)
				return n;
			moved += n;
		}
		frames += moved;
	} while (moved);
	return frames;
}

static uint64_t unsent(const struct null_pair *p)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < 2 * p->end[0]->nlanes; i++)
		n += p->end[i & 1]->lane[i / 2]->tx.unsent;
	return n;
}

void null_settle(struct null_pair *p)
{
	/* Full lanes take turns, so several rounds may move nothing. */
	for (int still = 0; still < 3 + BRAID_LANES_MAX; still++) {
		uint64_t before = unsent(p);

		for (unsigned i = 0; i < 2; i++) {
			braid_link_progress(p->end[i], NULL, NULL);
			braid_link_try_flush_control(p->end[i]);
		}
		if (null_deliver_all(p) > 0 || unsent(p) != before)
			still = 0;
	}
}

/* The next n bytes reach that end. */
static void take(struct null_lane *to, const void *bytes, size_t n)
{
	size_t done;

	to->err = braid_rx_bytes(&to->lane, bytes, n, &done);
}

/* The forged frame just taken has no number: the peer's next one has it. */
static void forget(struct null_lane *to)
{
	to->lane.rx_frames -= !to->err;
}

int null_forge(struct null_pair *p, unsigned from_end, unsigned lane, struct braid_hdr *h,
	       const void *payload)
{
	struct null_lane *to = lane_of(p, from_end, lane)->peer;
	char hdr[BRAID_HDR_SIZE];

	if (!enter(to))
		return -EBUSY;
	assert(to->lane.rx_kind == BRAID_RX_NONE);
	h->lseq = to->lane.rx_frames;
	braid_hdr_pack(h, hdr);
	take(to, hdr, sizeof(hdr));
	if (!to->err && to->lane.rx_left)
		take(to, payload, h->len);
	forget(to);
	leave(to);
	return to->err;
}

int null_bare(struct null_pair *p, unsigned from_end, unsigned lane, uint32_t what,
	      const void *payload, size_t n, bool in_short)
{
	struct null_lane *to = lane_of(p, from_end, lane)->peer;
	char with[BRAID_SHORT_SIZE + 64];

	if (!enter(to))
		return -EBUSY;
	assert(n <= sizeof(with) - BRAID_SHORT_SIZE);
	braid_short_pack(what, with);
	memcpy(with + BRAID_SHORT_SIZE, payload, n);
	to->err = in_short ? braid_rx_message(&to->lane, with, BRAID_SHORT_SIZE + n) :
			     braid_rx_imm(&to->lane, what, payload, n);
	forget(to);
	leave(to);
	return to->err;
}

int null_written(struct null_pair *p, unsigned from_end, unsigned lane, uint32_t imm, size_t n)
{
	struct null_lane *to = lane_of(p, from_end, lane)->peer;

	if (!enter(to))
		return -EBUSY;
	to->err = braid_rx_imm(&to->lane, imm, NULL, n);
	forget(to);
	leave(to);
	return to->err;
}

/* --- the process around it ----------------------------------------------------------------- */

static const struct braid_os *real_os;
static unsigned pairs;

static uint64_t os_now_ns(void)
{
	return null_now_ns += null_tick_ns;
}

static void os_enter(void)
{
	static struct braid_os os;

	if (pairs++)
		return;
	real_os = braid_os;
	os = *real_os;
	os.now_ns = os_now_ns;
	braid_os = &os;
	warns_keep();
}

static void os_leave(void)
{
	if (--pairs)
		return;
	braid_os = real_os;
	braid_log_to(NULL);
}

uint64_t null_rnd(struct null_rnd *r)
{
	r->s ^= r->s << 13;
	r->s ^= r->s >> 7;
	r->s ^= r->s << 17;
	return r->s * 0x2545f4914f6cdd1dull;
}

uint64_t null_below(struct null_rnd *r, uint64_t n)
{
	return (null_rnd(r) >> 16) % n;
}

/* --- pairs --------------------------------------------------------------------------------- */

void null_pair_add_lane(struct null_pair *p)
{
	struct null_lane *lane[2];

	for (unsigned i = 0; i < 2; i++) {
		struct braid_link *link = p->end[i];
		struct braid_carrier c = { .tr = &transport, .fd = -1 };
		int err = braid_link_add_lane(link, link->nlanes, &c);

		assert(!err);
		lane[i] = null_of(link->lane[link->nlanes - 1]);
		lane[i]->held = p->config.held;
		lane[i]->limit = p->config.limit;
		lane[i]->bite = p->config.bite;
	}
	lane[0]->peer = lane[1];
	lane[1]->peer = lane[0];
}

void null_lose(struct null_pair *p, unsigned index)
{
	struct braid_lane *lane[2] = { p->end[0]->lane[index], p->end[1]->lane[index] };

	for (unsigned i = 0; i < 2; i++) {
		int err;

		lane[i]->fd = 1 << 19;		/* of no file: so that it can be closed */
		err = braid_lane_fence(lane[i]);
		assert(err == -EAGAIN);
		lane[i]->fd = -1;
		for (unsigned k = 0; k < p->end[i]->nlanes; k++)
			p->end[i]->lane[k]->loss.down_due = false;	/* no lane has an fd here */
	}
	for (unsigned i = 0; i < 2; i++) {
		struct braid_carrier c = { .tr = &transport, .fd = -1 };
		int err = braid_lane_resume(lane[i], &c, lane[!i]->rx_frames, lane[!i]->tx.f_acked);

		assert(!err);
		null_of(lane[i])->held = p->config.held;
		null_of(lane[i])->limit = p->config.limit;
		null_of(lane[i])->bite = p->config.bite;
	}
	null_of(lane[0])->peer = null_of(lane[1]);
	null_of(lane[1])->peer = null_of(lane[0]);
}

static struct braid_link *link_new(struct null_pair *p, unsigned end)
{
	struct braid_link_key key = { .dev = &p->dev[end], .traffic_class = -1 };
	struct braid_link *link;

	memset(key.process, (int)end + 1, sizeof(key.process));
	snprintf(p->dev[end].net.name, sizeof(p->dev[end].net.name), "null%u", end);
	p->dev[end].index = end;
	p->dev[end].nmembers = 1;
	p->dev[end].member[0] = &p->dev[end];
	link = braid_link_new(&key);
	assert(link);
	link->dialler = end == 0;
	link->setup.next_comm = end;
	link->msg.rx_window = braid_pool_promise(p->config.window);
	link->lanes_max = BRAID_LANES_MAX;
	link->npaths = 1;
	link->setup.path[0].dev = &p->dev[end];
	snprintf(link->peer, sizeof(link->peer), "end %u", !end);
	return link;
}

void null_pair_init(struct null_pair *p, const struct null_config *config)
{
	os_enter();
	transport = null_transport;
	transport.post = pair_post;
	transport.push = pair_push;
	memset(p, 0, sizeof(*p));
	p->config = *config;
	for (unsigned i = 0; i < 2; i++)
		p->end[i] = link_new(p, i);
	for (unsigned i = 0; i < (config->lanes ? config->lanes : 1); i++)
		null_pair_add_lane(p);
	for (unsigned i = 0; i < 2; i++) {
		int err = braid_link_attach(p->end[i]);

		assert(!err);
		p->end[i]->msg.tx_window = p->end[!i]->msg.rx_window;
		p->end[i]->lanes.active = p->end[i]->nlanes;
		atomic_store(&p->end[i]->state, BRAID_LINK_UP);
	}
}

void null_link_free(struct braid_link *link)
{
	struct braid_comm *c, *tmp;

	braid_lock_wait(&link->lock);
	braid_list_for_safe(c, tmp, &link->msg.comms, node)
		braid_comm_free(c);
	braid_unlock(&link->lock);
	braid_link_free(link);
}

void null_pair_fini(struct null_pair *p)
{
	for (unsigned i = 0; i < 2; i++)
		null_link_free(p->end[i]);
	os_leave();
}

void null_comms(struct null_pair *p, unsigned from, struct braid_comm **ret_send,
		struct braid_comm **ret_recv)
{
	uint32_t id = p->end[from]->setup.next_comm;

	p->end[from]->setup.next_comm += 2;
	for (unsigned i = 0; i < 2; i++) {
		struct braid_link *link = p->end[i];
		struct braid_comm *c;

		braid_lock_wait(&link->lock);
		c = braid_comm_new(link, id, i == from);
		braid_unlock(&link->lock);
		assert(c);
		c->opened = true;
		*(i == from ? ret_send : ret_recv) = c;
	}
}

/* Frames not acknowledged; acknowledgements themselves never are. */
static unsigned not_acked(const struct braid_txq *q)
{
	unsigned n = 0;

	for (uint32_t i = q->f_acked; i != q->f_head; i++)
		n += q->ring[q->f[i & q->fmask].off] != BRAID_F_ACK;
	return n;
}

static const char *end_not_idle(const struct braid_link *link)
{
	static char why[96];

#define LEFT(what, n) do {							\
	unsigned long long n_ = (unsigned long long)(n);			\
										\
	if (n_) {								\
		snprintf(why, sizeof(why), "%s end: %s %llu",			\
			 link->dialler ? "dialling" : "accepting", what, n_);	\
		return why;							\
	}									\
} while (0)

	for (unsigned i = 0; i < link->nlanes; i++) {
		const struct braid_lane *lane = link->lane[i];

		LEFT("frames not acknowledged", not_acked(&lane->tx));
		LEFT("bytes not sent", lane->tx.unsent);
		LEFT("bytes not acknowledged", lane->tx.unacked);
		LEFT("bytes to receive", lane->rx_left);
		LEFT("frame being received", lane->rx_kind != BRAID_RX_NONE);
	}
	LEFT("comms", link->msg.ncomms);
	LEFT("sends pending", !braid_list_empty(&link->tx.pending));
	LEFT("comms with news", !braid_list_empty(&link->msg.control_due));
	LEFT("window out", link->msg.shared_out);
	LEFT("window lent", link->msg.unexp_bytes);
	LEFT("retired bytes", link->msg.retire_bytes);
	LEFT("spread messages", atomic_load(&link->rx.spread));
	LEFT("link lock", atomic_load(&link->lock.held));
	return NULL;
}

const char *null_not_idle(const struct null_pair *p)
{
	const char *why = end_not_idle(p->end[0]);

	return why ? why : end_not_idle(p->end[1]);
}

static void dump_lane(const struct braid_lane *l)
{
	const struct braid_txq *q = &l->tx;

	fprintf(stderr, "  lane %u: tx %u/%u/%u part %zu unsent %llu blocked %d", l->index,
		q->f_acked, q->f_sent, q->f_head, q->part, (unsigned long long)q->unsent,
		l->blocked);
	fprintf(stderr, "; rx %u told %u some %d kind %d left %zu\n", l->rx_frames, l->rx_acked,
		l->rx_some, l->rx_kind, l->rx_left);
}

static void dump_send(const struct braid_send *s)
{
	if (s->x.parts)
		fprintf(stderr, "    send %u tag %d size %llu await %d parts %u cut %llu\n", s->x.seq,
			s->tag, (unsigned long long)s->size, s->await, s->x.parts,
			(unsigned long long)s->cut);
}

static void dump_recv(const struct braid_recv *r)
{
	if (r->posted)
		fprintf(stderr, "    receive %u tag %d room %llu matched %d wanted %d started %d "
			"credited %d got %llu\n", r->rseq, r->tag, (unsigned long long)r->room,
			r->matched, r->wanted, r->started, r->credited,
			(unsigned long long)r->got);
}

void null_dump(const struct null_pair *p)
{
	for (unsigned e = 0; e < 2; e++) {
		const struct braid_link *link = p->end[e];
		const struct braid_comm *c;

		fprintf(stderr, "end %u: active %u spread %u urgent %d quiet %d stalled %d pending "
			"%d\n", e, link->lanes.active, link->rx.spread, link->tx.control_urgent, link->tx.quiet,
			link->tx.stalled, !braid_list_empty(&link->tx.pending));
		for (unsigned i = 0; i < link->nlanes; i++) {
			dump_lane(link->lane[i]);
			fprintf(stderr, "    on the wire %zu\n", null_waiting(p, e, i));
		}
		braid_list_for(c, &link->msg.comms, node) {
			fprintf(stderr, "  comm %u\n", c->id);
			for (uint32_t q = c->first; q != braid_comm_next(c); q++) {
				if (c->sender)
					dump_send(c->send[q % BRAID_SLOTS]);
				else
					dump_recv(c->recv[q % BRAID_SLOTS]);
			}
		}
	}
}
