/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ring.c - ring collectives, sends and receives, in NCCL's protocols Simple and LL.  An operation is a
 * sequence of prims (struct prim).  It moves when its connections allow it: a slice to receive has
 * come, and a slice to send has room.
 */
#include "tests/nccl/ring.h"

#include <string.h>

enum { GRAIN_SIMPLE = 512, GRAIN_LL = 16, LINE = 8, LINES_AT_ONCE = 512 };

struct line {					/* of LL */
	uint32_t data1, flag1, data2, flag2;
};

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t div_up(size_t a, size_t b)
{
	return (a + b - 1) / b;
}

static uint64_t load(const uint64_t *at)
{
	return __atomic_load_n((const uint64_t *)gpu_bytes(at, sizeof(*at)), __ATOMIC_ACQUIRE);
}

static void store(uint64_t *at, uint64_t value)
{
	__atomic_store_n((uint64_t *)gpu_bytes(at, sizeof(*at)), value, __ATOMIC_RELEASE);
}

/* -- programs: which prim comes next ---------------------------------------------------------------- */

static char *at_element(const struct op *op, char *base, size_t i)
{
	return base + i * op->element;
}

/* Sets p's range to chunk `which`, of n elements each with `left` left in all, in both user buffers. */
static void set_chunk(const struct op *op, struct prim *p, size_t which, size_t n, size_t left)
{
	size_t from = op->offset + op->at + which * n;

	p->n = which * n < left ? min_size(n, left - which * n) : 0;
	if (p->src)
		p->src = at_element(op, op->input, from);
	if (p->dst)
		p->dst = at_element(op, op->output, from);
}

static bool next_all_reduce(struct op *op, struct prim *p)
{
	int n = op->grid->comm->nranks, k = op->k, which;
	size_t left = op->part - op->at, chunk = op->chunk;

	if (op->at >= op->part)
		return false;
	if (left < (size_t)n * chunk)
		chunk = div_up(div_up(left, (size_t)n), 16 / op->element) * (16 / op->element);
	*p = (struct prim){ .recv = k > 0, .send = k < 2 * n - 2, .last = k == n - 1 };
	p->src = k < n ? op->input : NULL;
	p->dst = k >= n - 1 ? op->output : NULL;
	which = k < n ? op->index + n - 1 - k : op->index + 2 * n - 1 - k;
	set_chunk(op, p, (size_t)(which % n), chunk, left);
	if (++op->k == 2 * n - 1) {
		op->k = 0;
		op->at += (size_t)n * op->chunk;
	}
	return true;
}

static bool next_all_gather(struct op *op, struct prim *p)
{
	int n = op->grid->comm->nranks, k = op->k, rank = op->ranks[(n - k) % n];
	size_t from = op->offset + op->at;
	char *dst = at_element(op, op->output, from + (size_t)rank * op->count);

	if (op->at >= op->part)
		return false;
	*p = (struct prim){ .recv = k > 0, .send = k < n - 1, .n = min_size(op->chunk, op->part - op->at) };
	p->src = k ? NULL : at_element(op, op->input, from);
	p->dst = p->src == dst ? NULL : dst;
	if (++op->k == n) {
		op->k = 0;
		op->at += op->chunk;
	}
	return true;
}

static bool next_reduce_scatter(struct op *op, struct prim *p)
{
	int n = op->grid->comm->nranks, k = op->k, rank = op->ranks[n - 1 - k];
	size_t from = op->offset + op->at;

	if (op->at >= op->part)
		return false;
	*p = (struct prim){ .recv = k > 0, .send = k < n - 1, .last = k == n - 1,
		.n = min_size(op->chunk, op->part - op->at) };
	p->src = at_element(op, op->input, from + (size_t)rank * op->count);
	p->dst = k == n - 1 ? at_element(op, op->output, from) : NULL;
	if (++op->k == n) {
		op->k = 0;
		op->at += op->chunk;
	}
	return true;
}

/* One prim a chunk, whose kind depends on the root's place in the ring. */
static bool next_rooted(struct op *op, struct prim *p)
{
	bool reduces = op->coll == REDUCE;
	int rank = op->ranks[0], end = op->ranks[reduces ? op->grid->comm->nranks - 1 : 1];
	bool first = reduces ? end == op->root : rank == op->root;
	bool final = reduces ? rank == op->root : end == op->root;

	if (op->at >= op->part)
		return false;
	*p = (struct prim){ .recv = !first, .send = !final, .last = reduces && final };
	p->src = reduces || first ? op->input : NULL;
	p->dst = !reduces || final ? op->output : NULL;
	set_chunk(op, p, 0, op->chunk, op->part - op->at);
	if (p->src == p->dst && first)
		p->dst = NULL;
	op->at += op->chunk;
	return true;
}

static bool next_p2p(struct op *op, struct prim *p)
{
	if (op->k++ && op->at >= op->part)	/* an empty message is sent, too */
		return false;
	*p = (struct prim){ .recv = op->in != NULL, .send = op->out != NULL };
	p->src = op->out ? op->input : NULL;
	p->dst = op->in ? op->output : NULL;
	set_chunk(op, p, 0, op->chunk, op->part - op->at);
	op->at += op->chunk;
	return true;
}

/* -- connections ------------------------------------------------------------------------------------ */

static struct nccl_fifo *fifo_slot(const struct nccl_conn *c)
{
	struct nccl_fifo *fifo = c->fifo;

	return fifo ? (struct nccl_fifo *)gpu_bytes(fifo, sizeof(*fifo) * STEPS) + c->step % STEPS : NULL;
}

static char *step_at(const struct nccl_conn *c)
{
	const struct nccl_fifo *slot = fifo_slot(c);
	size_t offset = c->step % STEPS * (size_t)c->step_size;

	if (slot && slot->mode == 1)
		offset = (size_t)__atomic_load_n(&slot->offset, __ATOMIC_RELAXED);
	return gpu_bytes(c->bufs[SIMPLE] + offset, 1);
}

static bool has_room(const struct nccl_conn *c, unsigned steps)
{
	return load(c->head) + STEPS >= c->step + steps;
}

static void set_size(const struct nccl_conn *c, size_t bytes)
{
	struct nccl_fifo *slot = fifo_slot(c);

	if (slot)
		__atomic_store_n(&slot->size, (ssize_t)bytes, __ATOMIC_RELAXED);
}

static void begin_conns(struct op *op)
{
	uint64_t unit = (uint64_t)op->slices * op->slice_steps;

	if (op->ll)
		return;
	if (op->in) {
		op->in->step = (op->in->step + unit - 1) / unit * unit;
		store(op->in->head, op->in->step);
	}
	if (op->out)
		op->out->step = (op->out->step + unit - 1) / unit * unit;
}

/* -- Simple ----------------------------------------------------------------------------------------- */

/* Applies the operation to n elements: from received and user data to the user's and the sent data. */
static void apply(const struct op *op, const char *in, const char *src, char *dst, char *out, size_t n)
{
	char *to = dst ? dst : out;

	if (!n)
		return;
	if (src && in) {
		const char *own = src;

		if (op->reduction.op == 3) {		/* scale first, into the result's place */
			reduce_first(&op->reduction, to, src, n);
			own = to;
		}
		reduce_two(&op->reduction, to, own, in, n);
	} else if (src) {
		reduce_first(&op->reduction, to, src, n);
	} else {
		memmove(to, in, n * op->element);
	}
	if (op->prim.last)
		reduce_last(&op->reduction, to, n);
	if (dst && out)
		memcpy(out, dst, n * op->element);
}

static size_t slice_elements(const struct op *op)
{
	size_t least = op->step_elements * op->slice_steps / 32;
	size_t n = div_up(op->prim.n, 16 * (size_t)op->slices) * 16;

	return min_size(n > least ? n : least, op->prim.n - op->done);
}

static enum moved move_simple(struct op *op)
{
	const struct prim *p = &op->prim;
	size_t n = slice_elements(op), skip = op->done * op->element;
	char *in = NULL, *out = NULL;

	if (p->recv && load(op->in->tail) < op->in->step + op->slice_steps)
		return STUCK;
	if (p->send && !has_room(op->out, op->slice_steps))
		return STUCK;
	if (p->recv)
		in = step_at(op->in);
	if (p->send) {
		set_size(op->out, n * op->element);
		out = step_at(op->out);
	}
	apply(op, in, p->src ? (char *)gpu_bytes(p->src + skip, 1) : NULL,
		p->dst ? (char *)gpu_bytes(p->dst + skip, 1) : NULL, out, n);
	if (p->recv) {
		op->in->step += op->slice_steps;
		store(op->in->head, op->in->step);
	}
	if (p->send) {
		op->out->step += op->slice_steps;
		store(op->out->tail, op->out->step);
	}
	op->done += n;
	op->busy = ++op->slice < op->slices;
	return MOVED;
}

/* -- LL --------------------------------------------------------------------------------------------- */

static struct line *lines_at(const struct op *op, const struct nccl_conn *c)
{
	size_t lines = (size_t)op->grid->comm->buf_sizes[LL] / STEPS / sizeof(struct line);

	return (struct line *)gpu_bytes(c->bufs[LL], 1) + c->step % STEPS * lines;
}

/* Reads lines up to the first that is not whole; returns their number.  Each half is written at once. */
static size_t read_lines(const struct line *from, size_t n, uint32_t flag, uint32_t *to)
{
	for (size_t i = 0; i < n; i++) {
		const uint64_t *half = (const uint64_t *)(const void *)&from[i];
		uint64_t a = __atomic_load_n(half, __ATOMIC_ACQUIRE);
		uint64_t b = __atomic_load_n(half + 1, __ATOMIC_ACQUIRE);

		if (a >> 32 != flag || b >> 32 != flag)
			return i;
		to[2 * i] = (uint32_t)a;
		to[2 * i + 1] = (uint32_t)b;
	}
	return n;
}

static void write_lines(struct line *to, size_t n, uint32_t flag, const uint32_t *from)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t *half = (uint64_t *)(void *)&to[i], high = (uint64_t)flag << 32;

		__atomic_store_n(half, high | from[2 * i], __ATOMIC_RELEASE);
		__atomic_store_n(half + 1, high | from[2 * i + 1], __ATOMIC_RELEASE);
	}
}

/* Lines `op->done` to `op->done` + n, whose data was received into `in` if the prim receives. */
static void apply_lines(struct op *op, const uint32_t *in, size_t n)
{
	const struct prim *p = &op->prim;
	size_t skip = op->done * LINE, bytes = min_size(n * LINE, p->n * op->element - skip);
	uint32_t out[2 * LINES_AT_ONCE] = { 0 };

	apply(op, p->recv ? (const char *)in : NULL, p->src ? (char *)gpu_bytes(p->src + skip, 1) : NULL,
		NULL, (char *)out, bytes / op->element);
	if (p->dst)
		memcpy(gpu_bytes(p->dst + skip, 1), out, bytes);
	if (p->send)
		write_lines(lines_at(op, op->out) + op->done, n, (uint32_t)(op->out->step + 1), out);
	op->done += n;
}

static void end_lines(struct op *op)
{
	if (op->prim.recv)
		store(op->in->head, ++op->in->step);
	if (op->prim.send)
		op->out->step++;
	op->busy = op->announced = false;
}

static enum moved move_ll(struct op *op)
{
	const struct prim *p = &op->prim;
	size_t all = div_up(p->n * op->element, LINE), n = min_size(all - op->done, LINES_AT_ONCE);
	uint32_t in[2 * LINES_AT_ONCE];

	if (p->send && !op->announced) {
		if (!has_room(op->out, 1))
			return STUCK;
		set_size(op->out, all * sizeof(struct line));
		op->announced = true;
	}
	if (p->recv && n) {
		n = read_lines(lines_at(op, op->in) + op->done, n, (uint32_t)(op->in->step + 1), in);
		if (!n)
			return STUCK;
	}
	if (n)
		apply_lines(op, in, n);
	if (op->done == all)
		end_lines(op);
	return MOVED;
}

/* -- operations ------------------------------------------------------------------------------------- */

enum moved op_move(struct op *op)
{
	if (!op->busy) {
		if (!op->next(op, &op->prim))
			return FINISHED;
		op->busy = true;
		op->slice = 0;
		op->done = 0;
	}
	return op->ll ? move_ll(op) : move_simple(op);
}

static struct nccl_peer *peer_of(const struct nccl_channel *c, int rank)
{
	struct nccl_peer **peers = gpu_bytes(c->peers, sizeof(*peers) * (size_t)(rank + 1));

	return gpu_bytes(peers[rank], sizeof(**peers));
}

static void begin_part(struct op *op, const struct nccl_coll *head, const struct nccl_coll_parts *parts,
	unsigned channel)
{
	size_t middle = head->hi > head->lo ? (size_t)(head->hi - head->lo) - 1 : 0;
	size_t grain = (op->ll ? GRAIN_LL : GRAIN_SIMPLE) / op->element;

	op->count = parts->lo + middle * parts->mid + parts->hi;
	if (channel == head->lo) {
		op->part = parts->lo;
		op->chunk = parts->lo_grains * grain;
	} else if (channel == head->hi) {
		op->offset = parts->lo + middle * parts->mid;
		op->part = parts->hi;
		op->chunk = parts->hi_grains * grain;
	} else {
		op->offset = parts->lo + (channel - head->lo - 1) * parts->mid;
		op->part = parts->mid;
		op->chunk = parts->mid_grains * grain;
	}
}

static uint64_t argument(const struct nccl_coll *head, uint64_t arg, size_t element)
{
	uint64_t value = 0;

	if (!head->arg_is_ptr)
		return arg;
	memcpy(&value, gpu_bytes((void *)(uintptr_t)arg, element), element);
	return value;
}

void op_begin_coll(struct op *op, const struct grid *g, unsigned channel, const struct nccl_func *f,
	const char *item)
{
	static bool (*const programs[])(struct op *, struct prim *) = {
		[ALL_REDUCE] = next_all_reduce, [ALL_GATHER] = next_all_gather,
		[REDUCE_SCATTER] = next_reduce_scatter, [BROADCAST] = next_rooted, [REDUCE] = next_rooted,
	};
	const struct nccl_coll *head = (const void *)item;
	const struct nccl_coll_bufs *bufs = (const void *)(item + gpu_layout.coll_bufs);
	const struct nccl_coll_parts *parts = (const void *)(item + gpu_layout.coll_parts);
	struct nccl_channel *c = &g->channels[channel];
	bool single = f->coll == BROADCAST || f->coll == REDUCE;

	*op = (struct op){ .grid = g, .channel = c, .coll = f->coll, .next = programs[f->coll],
		.ll = f->proto == LL, .slices = single ? 1 : 2, .slice_steps = single ? 1 : 2,
		.element = type_size(f->type), .root = (int)head->root,
		.input = bufs->send, .output = bufs->recv };
	op->reduction = (struct reduction){ f->op, f->type, argument(head, parts->arg, op->element) };
	op->step_elements = (size_t)g->comm->buf_sizes[SIMPLE] / STEPS / op->element;
	op->ranks = gpu_bytes(c->ranks, sizeof(int) * (size_t)g->comm->nranks);
	op->index = gpu_layout.new_ring ? c->index_since_2_29 : c->index_before_2_29;
	op->in = &peer_of(c, c->prev)->recv[0];
	op->out = &peer_of(c, c->next)->send[0];
	begin_part(op, head, parts, channel);
	begin_conns(op);
}

/* The number of this channel's part of an item, and how many parts there are. */
static unsigned part_of(const struct nccl_p2p *w, unsigned channel)
{
	unsigned part = (channel - w->channel_base) & (w->channels - 1U), mirrored = 0;

	if (!gpu_layout.mirrored_parts)
		return part;
	for (unsigned bit = 1; bit < w->channels; bit <<= 1, part >>= 1)
		mirrored = mirrored << 1 | (part & 1);
	return mirrored;
}

static void bounds(size_t bytes, unsigned parts, unsigned part, size_t *ret_from, size_t *ret_n)
{
	size_t each = div_up(div_up(bytes, parts), 4096) * 4096;

	*ret_from = min_size(part * each, bytes);
	*ret_n = min_size((part + 1) * each, bytes) - *ret_from;
}

/* Eight bits: three below the leading one, and the exponent. */
static size_t chunk_size(unsigned x)
{
	unsigned exponent = x >> 3, mantissa = x & 7;

	return exponent ? (size_t)(mantissa | 8) << (exponent - 1) : mantissa;
}

static struct op *begin_half(struct op *op, const struct grid *g, const struct nccl_channel *c, size_t bytes,
	unsigned chunk, bool ll)
{
	*op = (struct op){ .grid = g, .channel = c, .next = next_p2p, .ll = ll, .slices = 1, .slice_steps = 1,
		.element = 1, .part = bytes, .chunk = chunk_size(chunk) };
	op->step_elements = (size_t)g->comm->p2p_chunk;
	return op;
}

unsigned op_begin_p2p(struct op *ops, const struct grid *g, unsigned channel, const char *item)
{
	const struct nccl_p2p *w = (const void *)item;
	struct nccl_channel *c = &g->channels[channel];
	unsigned part = part_of(w, channel), n = 0;
	size_t from, bytes;

	if (w->send_rank == g->comm->rank && part < w->send_channels) {
		bounds(w->send_bytes, w->send_channels, part, &from, &bytes);
		if (bytes)
			memmove(gpu_bytes(w->recv + from, bytes), gpu_bytes(w->send + from, bytes), bytes);
		return 0;
	}
	if (part < w->send_channels) {
		struct op *op = &ops[n++];

		bounds(w->send_bytes, w->send_channels, part, &from, &bytes);
		begin_half(op, g, c, bytes, w->send_chunk, w->send_ll)->input = w->send + from;
		op->out = &peer_of(c, w->send_rank)->send[1];
		begin_conns(op);
	}
	if (part < w->recv_channels) {
		struct op *op = &ops[n++];

		bounds(w->recv_bytes, w->recv_channels, part, &from, &bytes);
		begin_half(op, g, c, bytes, w->recv_chunk, w->recv_ll)->output = w->recv + from;
		op->in = &peer_of(c, w->recv_rank)->recv[1];
		begin_conns(op);
	}
	return n;
}
