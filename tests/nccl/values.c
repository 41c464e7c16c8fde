/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * values.c - collectives whose results are known.  A rank's input repeats after PERIOD elements; its
 * numbers are small and whole, so that all types add them exactly.  The results repeat likewise.
 */
#include "tests/nccl/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD = 1021, ELEMENT_MAX = 8 };

static bool is_signed(unsigned type)
{
	return type == T_I8 || type == T_I32 || type == T_I64 || type >= T_F16;
}

/* The input of rank `rank` at element i of share `share`. */
static double value(const struct trial *t, int nranks, int rank, int share, size_t i)
{
	unsigned x = (unsigned)(i * 7 + (size_t)rank * 3 + (size_t)share * 5 + t->salt);
	bool reduces = t->kind == C_ALL_REDUCE || t->kind == C_REDUCE || t->kind == C_REDUCE_SCATTER;
	int low = is_signed(t->type) && reduces ? -1 : 0;

	switch (reduces ? t->op : OP_SUM) {
	case OP_PROD:
		return 1 + x % 2;
	case OP_AVG:
		return nranks * ((int)(x % 2) + low);
	default:
		return (int)(x % 3) + low;
	}
}

static double combine(const struct trial *t, double a, double b)
{
	switch (t->op) {
	case OP_PROD: return a * b;
	case OP_MAX: return a > b ? a : b;
	case OP_MIN: return a < b ? a : b;
	default: return a + b;
	}
}

/* The reduction of all ranks' elements i of that share.  A user's operation doubles each first. */
static double reduced(const struct trial *t, int nranks, int share, size_t i)
{
	double all = value(t, nranks, 0, share, i);

	for (int rank = 1; rank < nranks; rank++)
		all = combine(t, all, value(t, nranks, rank, share, i));
	return t->op == OP_AVG ? all / nranks : t->op == OP_USER ? 2 * all : all;
}

/* -- the content of each buffer's shares ------------------------------------------------------------ */

static bool shares_in(const struct trial *t)
{
	return t->kind == C_REDUCE_SCATTER || t->kind == C_ALL_TO_ALL;
}

static bool shares_out(const struct trial *t)
{
	return t->kind == C_ALL_GATHER || t->kind == C_ALL_TO_ALL;
}

static double expected(const struct rank *r, const struct trial *t, int share, size_t i)
{
	int n = r->nranks;

	switch (t->kind) {
	case C_ALL_REDUCE:
	case C_REDUCE: return reduced(t, n, 0, i);
	case C_REDUCE_SCATTER: return reduced(t, n, r->rank, i);
	case C_BROADCAST: return value(t, n, t->root, 0, i);
	case C_ALL_GATHER: return value(t, n, share, 0, i);
	case C_ALL_TO_ALL: return value(t, n, share, r->rank, i);
	default: return value(t, n, (r->rank + n - 1) % n, 0, i);	/* C_SEND_RECV, round */
	}
}

static size_t share_size(const struct trial *t)
{
	return t->n * type_size(t->type);
}

static bool checked_here(const struct rank *r, const struct trial *t)
{
	return t->kind != C_REDUCE || r->rank == t->root;
}

/* The input's address: in place, it lies where the result is to be, if the collective allows that. */
static char *input(const struct rank *r, const struct bufs *b, const struct trial *t)
{
	if (!t->in_place || t->kind == C_SEND_RECV || t->kind == C_ALL_TO_ALL)
		return b->send;
	return t->kind == C_ALL_GATHER ? b->recv + (size_t)r->rank * share_size(t) : b->recv;
}

static char *output(const struct rank *r, const struct bufs *b, const struct trial *t)
{
	if (t->in_place && t->kind == C_REDUCE_SCATTER)
		return b->recv + (size_t)r->rank * share_size(t);
	return b->recv;
}

/* -- patterns --------------------------------------------------------------------------------------- */

struct pattern {
	char bytes[PERIOD * ELEMENT_MAX];
	size_t size;
};

static void repeat(char *to, size_t size, const struct pattern *p)
{
	for (size_t at = 0; at < size; at += p->size)
		memcpy(to + at, p->bytes, size - at < p->size ? size - at : p->size);
}

static void compare(const struct rank *r, const struct trial *t, const char *from, const struct pattern *p,
	int share)
{
	size_t size = share_size(t);

	for (size_t at = 0; at < size; at += p->size) {
		size_t n = size - at < p->size ? size - at : p->size, i = 0, e = type_size(t->type);

		if (!memcmp(from + at, p->bytes, n))
			continue;
		while (from[at + i] == p->bytes[i])
			i++;
		i = i / e * e;
		fail("rank %d: %s: element %zu of share %d is %g, not %g", r->rank, trial_name(t), (at + i) / e,
			share, type_get(t->type, from + at + i), type_get(t->type, p->bytes + i));
	}
}

static void make(const struct rank *r, const struct trial *t, struct pattern *p, int share, bool out)
{
	size_t e = type_size(t->type);

	p->size = PERIOD * e;
	for (size_t i = 0; i < PERIOD; i++) {
		double v = out ? expected(r, t, share, i) : value(t, r->nranks, r->rank, share, i);

		type_set(t->type, p->bytes + i * e, v);
	}
}

void trial_fill(struct rank *r, const struct bufs *b, const struct trial *t)
{
	int shares = shares_in(t) ? r->nranks : 1;
	int shares_to = shares_out(t) || (t->in_place && shares_in(t)) ? r->nranks : 1;
	size_t size = share_size(t);
	struct pattern p;
	char *to;

	memset(gpu_bytes(b->recv, b->size), 0x5a, size * (size_t)shares_to);
	to = gpu_bytes(input(r, b, t), size);
	for (int i = 0; i < shares; i++) {
		make(r, t, &p, i, false);
		repeat(to + (size_t)i * size, size, &p);
	}
}

void trial_check(struct rank *r, const struct bufs *b, const struct trial *t)
{
	int shares = shares_out(t) ? r->nranks : 1;
	size_t size = share_size(t);
	const char *from = gpu_bytes(output(r, b, t), size);
	struct pattern p;

	for (int i = 0; i < shares && checked_here(r, t); i++) {
		make(r, t, &p, i, true);
		compare(r, t, from + (size_t)i * size, &p, i);
	}
}

void trial_spoil(struct rank *r, const struct bufs *b, const struct trial *t, size_t at)
{
	size_t size = share_size(t) * (size_t)(shares_out(t) ? r->nranks : 1);
	char *to = gpu_bytes(output(r, b, t), size);

	to[at % size] = (char)(to[at % size] ^ 1 << at % 8);
}

/* -- running ---------------------------------------------------------------------------------------- */

static int start_p2p(struct rank *r, const struct bufs *b, const struct trial *t)
{
	const struct nccl_api *a = r->nccl;
	int n = r->nranks, code = a->group_start();

	if (t->kind == C_SEND_RECV) {
		int to = (r->rank + 1) % n, from = (r->rank + n - 1) % n;

		code = code ? code : a->send(b->send, t->n, (int)t->type, to, r->comm, r->stream);
		code = code ? code : a->recv(b->recv, t->n, (int)t->type, from, r->comm, r->stream);
		return code ? code : a->group_end();
	}
	for (int i = 0; i < n && !code; i++) {
		size_t at = (size_t)i * share_size(t);

		code = a->send(b->send + at, t->n, (int)t->type, i, r->comm, r->stream);
		if (!code)
			code = a->recv(b->recv + at, t->n, (int)t->type, i, r->comm, r->stream);
	}
	return code ? code : a->group_end();
}

static int user_op(struct rank *r, const struct trial *t)
{
	char two[ELEMENT_MAX];
	int op;

	type_set(t->type, two, 2);
	OK(r->nccl->op_create(&op, two, (int)t->type, 1, r->comm));
	return op;
}

int trial_start(struct rank *r, const struct bufs *b, const struct trial *t)
{
	bool reduces = t->kind == C_ALL_REDUCE || t->kind == C_REDUCE || t->kind == C_REDUCE_SCATTER;
	const struct nccl_api *a = r->nccl;
	char *in = input(r, b, t), *out = output(r, b, t);
	int op = reduces && t->op == OP_USER ? user_op(r, t) : (int)t->op;
	int type = (int)t->type, code;

	switch (t->kind) {
	case C_ALL_REDUCE: code = a->all_reduce(in, out, t->n, type, op, r->comm, r->stream); break;
	case C_REDUCE: code = a->reduce(in, out, t->n, type, op, t->root, r->comm, r->stream); break;
	case C_BROADCAST: code = a->broadcast(in, out, t->n, type, t->root, r->comm, r->stream); break;
	case C_ALL_GATHER: code = a->all_gather(in, out, t->n, type, r->comm, r->stream); break;
	case C_REDUCE_SCATTER:
		code = a->reduce_scatter(in, out, t->n, type, op, r->comm, r->stream);
		break;
	default: code = start_p2p(r, b, t);
	}
	if (reduces && t->op == OP_USER)
		OK(a->op_destroy(op, r->comm));
	return code;
}

int trial_run(struct rank *r, const struct bufs *b, const struct trial *t)
{
	int code;

	trial_fill(r, b, t);
	code = trial_start(r, b, t);
	if (!code)
		code = stream_done(r, r->stream, r->comm, r->seconds);
	if (!code)
		trial_check(r, b, t);
	return code;
}

const char *trial_name(const struct trial *t)
{
	static const char *const kinds[] = { "AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter",
		"send and receive", "all to all" };
	static const char *const ops[] = { "sum", "product", "maximum", "minimum", "average",
		"sum of doubles" };
	static const char *const types[] = { "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16",
		"float32", "float64", "bfloat16", "e4m3", "e5m2" };
	static __thread char text[128];

	snprintf(text, sizeof(text), "%s of %zu %s, %s, root %d%s", kinds[t->kind], t->n, types[t->type],
		ops[t->op], t->root, t->in_place ? ", in place" : "");
	return text;
}

void bufs_new(struct rank *r, struct bufs *b, size_t size)
{
	(void)r;
	b->size = size;
	if (gpu_malloc((void **)&b->send, size) || gpu_malloc((void **)&b->recv, size))
		fail("no memory of the GPU");
}

void bufs_free(struct rank *r, struct bufs *b)
{
	(void)r;
	gpu_free(b->send);
	gpu_free(b->recv);
}
