/* SPDX-License-Identifier: BSD-3-Clause */
/* lane.c - the queue of frames of one lane; see lane.h for the picture. */
#include "core/link/lane.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/link.h"
#include "core/mem/mrcache.h"

enum {
	CTL_BYTES = 8192, CTL_FRAMES = 64,	/* reserved for control frames */
	HDR_FLAGS = 1, HDR_ACK = 4,		/* offsets in a packed header */
	SAMPLE_NS = 2000000,			/* shortest time to measure a rate over */
	AVERAGE_NS = 20000000,			/* time that rates are averaged over */
	SLOWEST = 16,				/* most times the cost of the fastest lane */
};

struct braid_kept {
	struct braid_kept *next;
	char *ring;
};

struct staged {			/* f->own of a frame from GPU memory */
	struct braid_gpucopy copy;
	char bytes[];
};

static void leave_there(struct braid_txf *f)
{
	struct staged *b = f->own;

	if (f->bringing)
		braid_gpucopy_end(&b->copy);
	f->bringing = false;
}

static BRAID_APART void drop_own(struct braid_txf *f)
{
	leave_there(f);
	free(f->own);
	f->own = NULL;
}

int braid_txq_init(struct braid_txq *q, uint32_t ring_size, uint32_t nframes)
{
	assert(!(nframes & (nframes - 1)) && !(ring_size & (ring_size - 1)));
	q->ring = malloc(ring_size);
	q->f = calloc(nframes, sizeof(*q->f));
	if (!q->ring || !q->f) {
		braid_txq_fini(q);
		return -ENOMEM;
	}
	q->ring_size = ring_size;
	q->fmask = nframes - 1;
	q->head = q->tail = 0;
	return 0;
}

void braid_txq_fini(struct braid_txq *q)
{
	if (q->f) {
		for (uint32_t i = q->f_acked; i != q->f_head; i++)
			drop_own(&q->f[i & q->fmask]);
	}
	q->f_acked = q->f_peer_acked = q->f_head;
	while (q->kept) {
		struct braid_kept *k = q->kept;

		q->kept = k->next;
		free(k->ring);
		free(k);
	}
	free(q->ring);
	free(q->f);
	q->ring = NULL;
	q->f = NULL;
	q->fmask = 0;
	q->ring_size = 0;
}

bool braid_txq_idle(const struct braid_txq *q)
{
	if (q->f_sent != q->f_head)
		return false;
	for (uint32_t i = q->f_acked; i != q->f_head; i++) {
		if (q->ring[q->f[i & q->fmask].off] != BRAID_F_ACK)
			return false;
	}
	return true;
}

/* Ring bytes that a frame uses: its own, and those skipped at the end so that it does not wrap. */
static uint32_t ring_need(const struct braid_txq *q, size_t inl, uint32_t *ret_off)
{
	uint32_t off = (uint32_t)(q->head & (q->ring_size - 1));
	uint32_t len = (uint32_t)inl;	/* not padded: adjacent frames leave in one piece */

	if (off + len > q->ring_size) {
		*ret_off = 0;
		return q->ring_size - off + len;
	}
	*ret_off = off;
	return len;
}

static bool room(const struct braid_txq *q, size_t inl, uint32_t bytes_kept, uint32_t frames_kept)
{
	uint32_t off;

	if (!q->ring || q->f_head - q->f_acked + frames_kept > q->fmask)
		return false;
	return q->head - q->tail + ring_need(q, BRAID_HDR_SIZE + inl, &off) + bytes_kept <=
	       q->ring_size;
}

bool braid_txq_room(const struct braid_txq *q, size_t inl)
{
	uint32_t big = q->fmask > 4 * CTL_FRAMES;

	return room(q, inl, big ? CTL_BYTES : 0, big ? CTL_FRAMES : 0);
}

bool braid_txq_room_ctl(const struct braid_txq *q)
{
	return room(q, BRAID_OPEN_SIZE, 0, 0);
}

/* --- how fast a lane is -------------------------------------------------------------------- */

static bool is_timed(const struct braid_lane *lane)
{
	return atomic_load_explicit(&lane->link->nlanes, memory_order_relaxed) > 1;
}

static void time_start(struct braid_txq *q)
{
	q->timed_ns = braid_os->now_ns();
	q->timed_bytes = 0;
}

/* A moving average over the time that chunks were in flight. */
static BRAID_APART void time_acked(struct braid_txq *q)
{
	uint64_t now = braid_os->now_ns(), ns = now - q->timed_ns;
	double weight = (double)ns / (double)(ns + AVERAGE_NS);

	if (!q->timed_bytes || (ns < SAMPLE_NS && q->unacked))
		return;
	if (q->ns_per_byte <= 0)
		weight = 1;
	q->ns_per_byte += weight * ((double)ns / (double)q->timed_bytes - q->ns_per_byte);
	q->timed_ns = q->unacked ? now : 0;
	q->timed_bytes = 0;
}

double braid_txq_cost(const struct braid_txq *q, uint64_t more, double best)
{
	double ns = q->ns_per_byte;

	/* Bound the cost, so that a lane which seemed slow is tried again now and then. */
	if (ns > best * SLOWEST)
		ns = best * SLOWEST;
	return (double)(q->unacked + more) * (ns + 1e-3);
}

void braid_tx_add(struct braid_lane *lane, struct braid_hdr *h, const void *copy, const void *ext,
		  struct braid_send *owner)
{
	struct braid_txq *q = &lane->tx;
	struct braid_txf *f = &q->f[q->f_head & q->fmask];
	uint32_t inl = BRAID_HDR_SIZE + (copy ? h->len : 0);

	assert(q->f_head - q->f_acked <= q->fmask);
	h->ack = lane->rx_frames;
	h->lseq = q->f_head;
	q->head += ring_need(q, inl, &f->off);
	f->inl = inl;
	f->ext = ext;
	f->ext_len = ext ? h->len : 0;
	f->owner = owner;
	f->own = NULL;
	f->bringing = false;
	braid_hdr_pack(h, q->ring + f->off);
	if (copy && !q->fast_sent)
		memcpy(q->ring + f->off + BRAID_HDR_SIZE, copy, h->len);
	q->f_head++;
	q->unsent += inl + f->ext_len;
	if (f->ext_len && !q->unacked && is_timed(lane))
		time_start(q);
	q->unacked += f->ext_len;
	assert(q->head - q->tail <= q->ring_size);
	if (q->fast_sent) {
		q->fast_sent = false;
		braid_tx_advance(lane, inl);
	}
}

/* A frame without its header has 16 bits for the comm, and can't carry an acknowledgement. */
static bool may_be_bare(const struct braid_lane *lane, uint32_t comm)
{
	return comm <= UINT16_MAX && lane->rx_quiet < BRAID_ACK_BYTES / 2;
}

bool braid_tx_fast_send(struct braid_lane *lane, uint32_t id, uint32_t seq, const void *payload,
		   uint32_t len)
{
	struct braid_txq *q = &lane->tx;
	uint32_t off;
	char *at;

	if (q->f_sent != q->f_head || lane->pushing || !braid_lane_up(lane) ||
	    !may_be_bare(lane, id) || !braid_txq_room(q, len))
		return false;
	ring_need(q, BRAID_HDR_SIZE + len, &off);
	at = q->ring + off + BRAID_HDR_SIZE;
	memcpy(at, payload, len);
	braid_short_pack(braid_short(id, seq), at - BRAID_SHORT_SIZE);
	q->fast_sent = !lane->tr->post(lane, braid_short(id, seq), at, len);
	return q->fast_sent;
}

static int iov_put(struct iovec *iov, int n, const char *p, size_t len)
{
	if (n && (char *)iov[n - 1].iov_base + iov[n - 1].iov_len == p) {
		iov[n - 1].iov_len += len;
		return n;
	}
	iov[n].iov_base = (void *)(uintptr_t)p;
	iov[n].iov_len = len;
	return n + 1;
}

void braid_lane_told(struct braid_lane *lane)
{
	lane->rx_acked = lane->rx_frames;
	lane->rx_quiet = 0;
	lane->rx_ack_due = lane->rx_some = false;
}

void braid_tx_stamp(struct braid_lane *lane)
{
	struct braid_txq *q = &lane->tx;
	uint32_t ack = htole32(lane->rx_frames);

	memcpy(q->ring + q->f[q->f_sent & q->fmask].off + HDR_ACK, &ack, sizeof(ack));
	braid_lane_told(lane);
}

uint32_t braid_tx_piece(const struct braid_txq *q, uint32_t max, bool with_head)
{
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];
	uint32_t end = f->off + f->inl, len = f->inl;

	for (uint32_t i = q->f_sent + 1; i != q->f_head && !f->ext_len; i++) {
		f = &q->f[i & q->fmask];
		if ((f->ext_len && !with_head) || f->off != end || len + f->inl > max)
			break;
		end += f->inl;
		len += f->inl;
	}
	return len;
}

/* The first chunk of its message, directly after the START at f_sent; or NULL. */
static const struct braid_txf *first_chunk(const struct braid_txq *q)
{
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];
	const struct braid_txf *g = &q->f[(q->f_sent + 1) & q->fmask];
	struct braid_hdr start, chunk;

	if (q->ring[f->off] != BRAID_F_START || q->f_sent + 1 == q->f_head ||
	    q->ring[g->off] != BRAID_F_CHUNK)
		return NULL;
	braid_hdr_unpack(q->ring + f->off, &start);
	braid_hdr_unpack(q->ring + g->off, &chunk);
	return chunk.comm == start.comm && chunk.rseq == start.rseq ? g : NULL;
}

bool braid_tx_put(const struct braid_lane *lane, uint32_t imm_max, struct braid_put *ret)
{
	const struct braid_txq *q = &lane->tx;
	const struct braid_txf *at = &q->f[q->f_sent & q->fmask];
	const struct braid_txf *first = q->part ? NULL : first_chunk(q), *f = first ? first : at;
	uint32_t hdrs = first ? 2 * BRAID_HDR_SIZE : BRAID_HDR_SIZE;
	unsigned m = lane->member, pm = lane->peer_member;
	const struct braid_send *s = f->owner;
	struct braid_hdr h;
	bool imm;

	if (q->part || !f->ext_len || f->own || !s || !s->mr || pm >= s->to.nkeys ||
	    (int32_t)(s->to.rkey_epoch - lane->peer_rkey_epoch) < 0 || !s->mr->key[m].mr ||
	    q->ring[f->off] != BRAID_F_CHUNK)
		return false;
	braid_hdr_unpack(q->ring + f->off, &h);
	imm = h.len <= imm_max && h.comm <= UINT16_MAX && h.n != BRAID_IMM_WHOLE;
	/* Immediate data stands for one frame or a whole message; two headers must be adjacent. */
	if (first && (imm ? h.len != h.size : f->off != at->off + BRAID_HDR_SIZE))
		return false;
	*ret = (struct braid_put){
		.data = f->ext, .gpu = s->mr->gpu, .len = h.len, .to = s->to.addr + h.offset,
		.local = s->mr->key[m].local, .remote = s->to.key[pm], .has_imm = imm,
		.imm = h.comm << 16 | h.rseq % BRAID_SLOTS << 8 | (first ? BRAID_IMM_WHOLE : h.n),
		.hdrs = q->ring + at->off, .hdrs_len = hdrs,
		.bytes = hdrs + f->ext_len,
	};
	return true;
}

bool braid_tx_nohdr(const struct braid_lane *lane, uint32_t *ret_imm)
{
	const struct braid_txq *q = &lane->tx;
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];
	const struct braid_send *s = f->owner;

	/* A CREDITED message needs its header: it is not for the next receive of its tag. */
	if (!s || !s->same_tag || !s->size || f->ext_len || !may_be_bare(lane, s->req.comm->id) ||
	    q->ring[f->off] != BRAID_F_EAGER || q->ring[f->off + HDR_FLAGS])
		return false;
	*ret_imm = braid_short(s->req.comm->id, s->seq);
	return true;
}

const struct braid_key *braid_tx_gpu(const struct braid_lane *lane)
{
	const struct braid_txq *q = &lane->tx;
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];

	return f->ext_len && !f->own && braid_send_is_gpu(f->owner) ?
		       &f->owner->mr->key[lane->member] : NULL;
}

static void make_void(struct braid_txq *q, struct braid_txf *f, bool sent);

/* The frame's bytes can't be read from the GPU: fail the comm, send a VOID instead. */
static int not_here(struct braid_txq *q, struct braid_txf *f, const struct braid_gpucopy *copy)
{
	braid_send_no_gpu(f->owner, copy);
	f->owner = NULL;
	make_void(q, f, false);
	return 0;
}

/* A socket can't read GPU memory, so send a copy.  0, or -EAGAIN: the copy is not complete. */
static int stage_out(struct braid_txq *q, struct braid_txf *f)
{
	struct staged *b = f->own;
	int err;

	if (!f->bringing) {
		if (f->own || !braid_send_is_gpu(f->owner))
			return 0;
		b = malloc(sizeof(*b) + f->ext_len);
		if (!b)
			return not_here(q, f, NULL);
		braid_gpucopy_begin(&b->copy, f->owner->mr, (char *)(uintptr_t)f->ext, b->bytes,
				    f->ext_len, false);
		f->own = b;
		f->bringing = true;
	}
	err = braid_gpucopy_move(&b->copy);
	if (err == -EAGAIN)
		return err;
	f->bringing = false;
	if (err)
		return not_here(q, f, &b->copy);
	f->ext = b->bytes;
	return 0;
}

/* A later send starts such a copy anew.  Until then other copies may use the driver's slots. */
void braid_tx_leave(struct braid_lane *lane)
{
	struct braid_txq *q = &lane->tx;

	for (uint32_t i = q->f_acked; i != q->f_head; i++) {
		if (q->f[i & q->fmask].bringing)
			drop_own(&q->f[i & q->fmask]);
	}
}

const struct braid_txf *braid_tx_here(struct braid_lane *lane)
{
	struct braid_txq *q = &lane->tx;
	struct braid_txf *f = &q->f[q->f_sent & q->fmask];

	return !q->part && f->ext_len && !lane->gpu && stage_out(q, f) ? NULL : f;
}

int braid_tx_gather(struct braid_lane *lane, struct iovec *iov, int max, size_t budget,
		    size_t *ret_bytes)
{
	struct braid_txq *q = &lane->tx;
	size_t skip = q->part, bytes = 0;
	int n = 0;

	if (!skip && q->f_sent != q->f_head)
		braid_tx_stamp(lane);
	for (uint32_t i = q->f_sent; i != q->f_head && n + 2 <= max && bytes < budget; i++) {
		struct braid_txf *f = &q->f[i & q->fmask];

		if (f->ext_len && stage_out(q, f))
			break;
		if (skip < f->inl) {
			n = iov_put(iov, n, q->ring + f->off + skip, f->inl - skip);
			bytes += f->inl - skip;
			skip = 0;
		} else {
			skip -= f->inl;
		}
		if (f->ext_len && bytes < budget) {
			size_t len = f->ext_len - skip;

			if (len > budget - bytes)
				len = budget - bytes;
			n = iov_put(iov, n, f->ext + skip, len);
			bytes += len;
		}
		skip = 0;
	}
	*ret_bytes = bytes;
	return n;
}

/* Free the ring before the oldest frame, or all of it if no frame is left. */
static void give_back(struct braid_txq *q)
{
	uint32_t off = q->f[q->f_acked & q->fmask].off;

	if (q->f_acked == q->f_head)
		q->tail = q->head;
	else
		q->tail += (off - (uint32_t)q->tail) & (q->ring_size - 1);
}

/* Release the oldest frame: it is acknowledged. */
static void pop(struct braid_lane *lane)
{
	struct braid_txq *q = &lane->tx;
	struct braid_txf *f = &q->f[q->f_acked & q->fmask];

	if (f->owner)
		braid_send_part_done(f->owner);
	if (f->own)
		drop_own(f);
	q->unacked -= f->ext_len;
	q->timed_bytes += f->ext_len;
	braid_count(&lane->link->acked_bytes, f->ext_len);
	q->f_acked++;
	give_back(q);
}

static bool is_told(const struct braid_txq *q)
{
	return q->f_acked != q->f_sent && (int32_t)(q->f_peer_acked - q->f_acked) > 0;
}

static void pop_told(struct braid_lane *lane)
{
	while (is_told(&lane->tx))
		pop(lane);
}

int braid_tx_acked(struct braid_lane *lane, uint32_t frames)
{
	struct braid_txq *q = &lane->tx;

	if ((int32_t)(frames - q->f_peer_acked) <= 0)
		return 0;		/* a later count came first, over another lane */
	if (frames - q->f_acked > q->f_head - q->f_acked)
		return -EPROTO;
	q->f_peer_acked = frames;
	pop_told(lane);
	if (q->timed_ns)
		time_acked(q);
	return 0;
}

void braid_tx_advance(struct braid_lane *lane, size_t n)
{
	struct braid_txq *q = &lane->tx;

	assert(n <= q->unsent);
	q->unsent -= n;
	braid_count(&lane->tx_bytes, n);
	if (n)
		q->starts = 0;
	n += q->part;
	while (q->f_sent != q->f_head) {
		struct braid_txf *f = &q->f[q->f_sent & q->fmask];

		if (n < f->inl + f->ext_len)
			break;
		n -= f->inl + f->ext_len;
		if (f->owner && !f->ext_len) {		/* copied: replay needs only the ring */
			braid_send_part_done(f->owner);
			f->owner = NULL;
		}
		q->f_sent++;
	}
	q->part = n;
	if (is_told(q))
		pop_told(lane);
}

int braid_tx_rewind(struct braid_lane *lane, uint32_t frames)
{
	struct braid_txq *q = &lane->tx;

	if ((int32_t)(frames - q->f_acked) < 0)
		frames = q->f_acked;		/* the handshake sent it our f_acked (`first`) */
	if (frames - q->f_acked > q->f_sent - q->f_acked || (int32_t)(frames - q->f_peer_acked) < 0)
		return -EPROTO;
	q->f_peer_acked = frames;
	pop_told(lane);
	q->f_sent = frames;
	q->part = 0;
	q->starts = 0;
	q->unsent = 0;
	for (uint32_t i = q->f_sent; i != q->f_head; i++)
		q->unsent += q->f[i & q->fmask].inl + q->f[i & q->fmask].ext_len;
	if (q->timed_ns)
		time_start(q);
	return 0;
}

void braid_tx_move(struct braid_lane *from, struct braid_lane *to)
{
	struct braid_txq *q = &from->tx;
	struct braid_txf f = q->f[--q->f_head & q->fmask];
	struct braid_hdr h;

	braid_hdr_unpack(q->ring + f.off, &h);
	q->head -= (q->head - f.off) & (q->ring_size - 1);
	q->unsent -= f.inl + f.ext_len;
	q->unacked -= f.ext_len;
	if (h.type == BRAID_F_VOID) {
		free(f.own);
		return;
	}
	braid_tx_add(to, &h, NULL, f.ext, f.owner);
	to->tx.f[(to->tx.f_head - 1) & to->tx.fmask].own = f.own;
}

/* Append a frame unchanged but for its place in the ring. */
static void append(struct braid_txq *q, const struct braid_txq *from, struct braid_txf f)
{
	uint32_t off;

	q->head += ring_need(q, f.inl, &off);
	memcpy(q->ring + off, from->ring + f.off, f.inl);
	f.off = off;
	q->f[q->f_head++ & q->fmask] = f;
}

static uint32_t power_of_two(uint64_t least)
{
	uint32_t n = 1;

	while (n < least)
		n *= 2;
	return n;
}

/* Take all frames, or all but chunks; the chunks that stay are renumbered without gaps. */
static void take_frames(struct braid_txq *q, struct braid_txq *from, uint32_t ack, bool but_chunks)
{
	uint32_t stay = from->f_acked;

	for (uint32_t i = from->f_acked; i != from->f_head; i++) {
		struct braid_txf f = from->f[i & from->fmask];
		struct braid_hdr h;

		braid_hdr_unpack(from->ring + f.off, &h);
		if (but_chunks && h.type == BRAID_F_CHUNK) {
			h.lseq = stay;
			braid_hdr_pack(&h, from->ring + f.off);
			from->f[stay++ & from->fmask] = f;
			continue;
		}
		h.lseq = q->f_head;
		h.ack = ack;
		braid_hdr_pack(&h, from->ring + f.off);
		append(q, from, f);
		q->unsent += f.inl + f.ext_len;
		q->unacked += f.ext_len;
		from->unsent -= f.inl + f.ext_len;
		from->unacked -= f.ext_len;
	}
	from->f_head = stay;
	from->starts = 0;
	give_back(from);
}

int braid_tx_take_over(struct braid_lane *from, struct braid_lane *to, bool but_chunks)
{
	struct braid_txq *a = &to->tx, *b = &from->tx, q = *a;
	struct braid_kept *kept = NULL;
	uint64_t bytes = (a->head - a->tail) + (b->head - b->tail) + CTL_BYTES;
	uint32_t frames = (a->f_head - a->f_acked) + (b->f_head - b->f_acked) + 4 * CTL_FRAMES + 1;

	assert(b->f_sent == b->f_acked && !b->part);
	if (!a->ring && !b->ring)
		return 0;		/* the link is idle and has freed its queues */
	if (to->tr->dma) {
		kept = malloc(sizeof(*kept));
		if (!kept)
			return -ENOMEM;
	}
	if (braid_txq_init(&q, power_of_two(bytes > b->ring_size ? bytes : b->ring_size),
			   power_of_two(frames > b->fmask ? frames : b->fmask))) {
		free(kept);
		return -ENOMEM;
	}
	q.f_head = q.f_acked;
	for (uint32_t i = a->f_acked; i != a->f_head; i++)
		append(&q, a, a->f[i & a->fmask]);
	take_frames(&q, b, to->rx_frames, but_chunks);
	q.starts = 0;
	if (kept) {
		*kept = (struct braid_kept){ q.kept, a->ring };
		q.kept = kept;
	} else {
		free(a->ring);
	}
	free(a->f);
	*a = q;
	return 0;
}

/* Keep the frame as a VOID, so that the frames behind it keep their numbers. */
static void make_void(struct braid_txq *q, struct braid_txf *f, bool sent)
{
	struct braid_hdr h;

	braid_hdr_unpack(q->ring + f->off, &h);
	h = (struct braid_hdr){
		.type = BRAID_F_VOID, .ack = h.ack, .lseq = h.lseq, .comm = h.comm, .seq = h.seq,
	};
	braid_hdr_pack(&h, q->ring + f->off);
	if (!sent)
		q->unsent -= f->ext_len;
	q->unacked -= f->ext_len;
	f->ext = NULL;
	f->ext_len = 0;
}

int braid_tx_release(struct braid_lane *lane, const void *comm)
{
	struct braid_txq *q = &lane->tx;
	bool gpu;

	for (uint32_t i = q->f_acked; i != q->f_head; i++) {
		struct braid_txf *f = &q->f[i & q->fmask];

		if (!f->owner || f->owner->req.comm != comm)
			continue;
		gpu = braid_send_is_gpu(f->owner);
		leave_there(f);
		f->owner = NULL;
		if (!f->ext_len || (f->own && i == q->f_sent && q->part))
			continue;
		if (i != q->f_sent || !q->part) {
			make_void(q, f, (int32_t)(i - q->f_sent) < 0);
			continue;
		}
		if (gpu) {		/* half sent by a NIC, whose lane has been fenced */
			q->unsent += q->part - f->inl;
			q->part = f->inl;
			make_void(q, f, false);
			continue;
		}
		f->own = malloc(f->ext_len);
		if (!f->own)
			return -ENOMEM;
		memcpy(f->own, f->ext, f->ext_len);
		f->ext = f->own;
	}
	return 0;
}

BRAID_COLD int braid_lane_look_at_fd(const struct braid_lane *lane)
{
	char byte;
	ssize_t n = braid_os->recv(lane->fd, &byte, 1, MSG_DONTWAIT);

	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -ENOTCONN;
}

BRAID_COLD int braid_lane_last_words(struct braid_lane *lane, int (*poll)(struct braid_lane *lane))
{
	int n;

	if (!braid_lane_look_at_fd(lane))
		return 0;
	n = poll(lane);
	return n ? n : -ENOTCONN;
}

bool braid_lane_stuck(const struct braid_lane *lane, struct braid_look *look, unsigned most)
{
	uint64_t bytes = atomic_load_explicit(&lane->rx_bytes, memory_order_relaxed);
	uint32_t told = lane->tx.f_peer_acked;

	if (lane->tx.f_sent == told || bytes != look->bytes || told != look->told)
		look->stuck = 0;
	look->bytes = bytes;
	look->told = told;
	return ++look->stuck > most;
}
