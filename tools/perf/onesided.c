/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * onesided.c - an RMA plugin as a fabric: messages are put into the peer's memory.
 *
 * A message is a put with a signal (FABRIC_PUT_SIGNAL), a put and then a signal of its own
 * (FABRIC_PUT), or a get by the receiver (FABRIC_GET).  A receive is done when the receiver sees
 * the signal in its memory, as a GPU would.  Bytes land where the sender has them: at the same
 * offset of the peer's memory.  So no rank says where its messages are to go, and none is checked.
 *
 * Each comm is a communicator of two ranks.  Their handles cross over raw TCP (raw.c).
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf/fabric.h"
#include "tools/perf/stat.h"
#include "tools/proxy.h"
#include "tools/rma.h"

enum { QUEUE = 64, MEET_S = 10 };

struct onesided {
	struct fabric super;
	enum fabric_kind kind;
	struct rma *rma;
	void *ctx;
	int dev;
	struct fabric *raw;
};

struct os_req {
	struct os_comm *comm;
	void *put, *signal;		/* NULL: done */
	size_t size;
	uint64_t least;			/* of a receive: what the word must have reached */
};

struct os_comm {
	struct onesided *f;
	bool is_send;
	void *coll, *ctx, *listen, *raw;
	unsigned rank, peer;
	_Atomic uint64_t word;		/* messages that have come, if this end receives */
	uint64_t posted, done;
	void *words;			/* registration of `word` */
	char *base;			/* of the memory that is registered */
	void *mem;			/* its registration */
	struct os_req queue[QUEUE];
};

static struct onesided *of(struct fabric *fab)
{
	return (struct onesided *)fab;
}

static int fail(struct fabric *fab, ncclResult_t res, const char *what)
{
	const char *warn = net_last_warn();

	snprintf(fab->err, sizeof(fab->err), "%s: %s%s%s", what, net_result_name(res),
		 warn && *warn ? ": " : "", warn ? warn : "");
	return res == ncclRemoteError ? -ECONNRESET : res == ncclInvalidUsage ? -EINVAL : -EIO;
}

/* -- the plugin ------------------------------------------------------------------------------- */

static int dev_find(struct onesided *f, const char *want, char *err)
{
	ncclNetProperties_v12_t p;
	int n = 0;

	if (rma_devices(f->rma, &n) != ncclSuccess || n <= 0) {
		snprintf(err, FABRIC_ERR, "%s offers no device for one-sided operations%s",
			 f->rma->name, getenv("BRAID_RMA") ? "" : "; BRAID_RMA=on may help");
		return -ENODEV;
	}
	for (int i = 0; i < n; i++) {
		char number[16];

		snprintf(number, sizeof(number), "%d", i);
		memset(&p, 0, sizeof(p));
		if (rma_props(f->rma, i, &p) != ncclSuccess)
			continue;
		if (!want || !strcmp(want, number) || (p.name && !strcmp(want, p.name))) {
			snprintf(f->super.about.dev, FABRIC_NAME, "%s", p.name ? p.name : "?");
			f->super.about.speed_mbps = p.speed;
			return i;
		}
	}
	snprintf(err, FABRIC_ERR, "%s: no device '%s' among its %d", f->rma->name, want, n);
	return -ENODEV;
}

static int start(struct onesided *f, const struct fabric_env *env, char *err)
{
	static const char *const ways[] = {
		[FABRIC_PUT] = "put, then signal", [FABRIC_PUT_SIGNAL] = "put with signal",
		[FABRIC_GET] = "get",
	};
	struct fabric_env raw = *env;
	ncclResult_t res = rma_init(f->rma, &f->ctx, (uint64_t)getpid(), net_log);

	if (res != ncclSuccess) {
		fail(&f->super, res, "init");
		snprintf(err, FABRIC_ERR, "%s", f->super.err);
		return -EIO;
	}
	f->dev = dev_find(f, env->dev, err);
	if (f->dev < 0)
		return f->dev;
	snprintf(f->super.about.name, FABRIC_NAME, "%.40s, %s", f->rma->name, ways[f->kind]);
	f->super.about.abi = f->rma->abi;
	raw.dev = f->super.about.dev;
	return fabric_raw.open(&raw, &f->raw, err);
}

static void os_close(struct fabric *fab)
{
	struct onesided *f = of(fab);

	if (f->raw)
		f->raw->ops->close(f->raw);
	if (f->ctx)
		rma_finalize(f->rma, f->ctx);
	rma_unload(f->rma);
	free(f);
}

static int open_kind(enum fabric_kind kind, const struct fabric_ops *ops,
		     const struct fabric_env *env, struct fabric **ret_fab, char *err)
{
	struct onesided *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return -ENOMEM;
	net_log_verbose(env->verbose);
	f->kind = kind;
	f->super.ops = ops;
	f->rma = rma_load(env->plugin, 0, err, FABRIC_ERR);
	if (!f->rma) {
		free(f);
		return -ENOENT;
	}
	rc = start(f, env, err);
	if (rc) {
		os_close(&f->super);
		return rc;
	}
	*ret_fab = &f->super;
	return 0;
}

static int open_put(const struct fabric_env *env, struct fabric **ret_fab, char *err)
{
	return open_kind(FABRIC_PUT, &fabric_put, env, ret_fab, err);
}

static int open_put_signal(const struct fabric_env *env, struct fabric **ret_fab, char *err)
{
	return open_kind(FABRIC_PUT_SIGNAL, &fabric_put_signal, env, ret_fab, err);
}

static int open_get(const struct fabric_env *env, struct fabric **ret_fab, char *err)
{
	return open_kind(FABRIC_GET, &fabric_get, env, ret_fab, err);
}

/* -- comms ------------------------------------------------------------------------------------ */

static int os_listen(struct fabric *fab, void *handle, void **ret_listen)
{
	struct fabric *raw = of(fab)->raw;
	int rc = raw->ops->listen(raw, handle, ret_listen);

	if (rc)
		snprintf(fab->err, sizeof(fab->err), "%s", raw->err);
	return rc;
}

/* Send or receive a handle over raw TCP. */
static int cross(struct fabric *raw, void *comm, void *handle, bool sends)
{
	uint64_t until = perf_now_ns() + MEET_S * UINT64_C(1000000000);
	void *req = NULL;
	bool done = false;
	size_t size;
	int rc = sends ? raw->ops->isend(raw, comm, handle, FABRIC_HANDLE, 0, NULL, &req) :
			 raw->ops->irecv(raw, comm, handle, FABRIC_HANDLE, 0, NULL, &req);

	while (!rc && !done) {
		rc = raw->ops->test(raw, req, &done, &size);
		if (!rc && !done && perf_now_ns() > until)
			rc = -ETIMEDOUT;
		sched_yield();
	}
	return rc;
}

/* Both ranks send each other their handles: the one that dialled first. */
static int meet(struct os_comm *c, int peer, int idx, uint8_t mine[FABRIC_HANDLE],
		uint8_t other[FABRIC_HANDLE])
{
	struct fabric *raw = c->f->raw;
	void *back = NULL, *mr;
	int rc;

	/* The socket is there: the other direction's comm on it needs no wait. */
	rc = c->is_send ? raw->ops->accept(raw, peer, idx, NULL, &back) :
			  raw->ops->connect(raw, peer, idx, NULL, &back);
	if (!rc && c->is_send)
		rc = raw->ops->reg(raw, c->raw, NULL, 0, &mr);	/* checks who answered */
	if (!rc)
		rc = cross(raw, c->raw, c->is_send ? mine : other, c->is_send);
	if (!rc)
		rc = cross(raw, back, c->is_send ? other : mine, !c->is_send);
	if (rc)
		snprintf(c->f->super.err, sizeof(c->f->super.err), "%s",
			 raw->err[0] ? raw->err : strerror(-rc));
	if (back)
		raw->ops->close_recv(raw, back);
	return rc;
}

static void comm_close(struct fabric *fab, void *opaque)
{
	struct onesided *f = of(fab);
	struct os_comm *c = opaque;

	if (!c)
		return;
	if (c->ctx)
		rma_context_end(f->rma, c->ctx);
	if (c->words)
		rma_dereg(f->rma, c->coll, c->words);
	if (c->coll)
		rma_close_coll(f->rma, c->coll);
	if (c->raw)
		f->raw->ops->close_send(f->raw, c->raw);
	free(c);
}

static int comm_make(struct os_comm *c, int peer, int idx)
{
	struct rma *rma = c->f->rma;
	uint8_t handle[2][FABRIC_HANDLE] __attribute__((aligned(16))) = { { 0 } };
	void *handles[2] = { handle[0], handle[1] };
	ncclResult_t res;
	int rc;

	c->rank = c->is_send;
	c->peer = !c->rank;
	res = rma_listen(rma, c->f->ctx, c->f->dev, handle[c->rank], &c->listen);
	if (res != ncclSuccess)
		return fail(&c->f->super, res, "listen");
	rc = meet(c, peer, idx, handle[c->rank], handle[c->peer]);
	if (!rc) {
		res = rma_connect(rma, c->f->ctx, handles, 2, (int)c->rank, c->listen, &c->coll);
		if (res == ncclSuccess)
			res = rma_context(rma, c->coll, 1, -1, 1, &c->ctx);
		if (res == ncclSuccess)
			res = rma_reg(rma, c->coll, &c->word, sizeof(c->word), NCCL_PTR_HOST,
				      NCCL_RMA_FORCE_SO, &c->words);
		rc = res == ncclSuccess ? 0 : fail(&c->f->super, res, "connect");
	}
	rma_close_listen(rma, c->listen);
	return rc;
}

static int comm_new(struct fabric *fab, void *raw, bool is_send, int peer, int idx,
		    void **ret_comm)
{
	struct os_comm *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	c->f = of(fab);
	c->raw = raw;
	c->is_send = is_send;
	rc = comm_make(c, peer, idx);
	if (rc)
		comm_close(fab, c);
	else
		*ret_comm = c;
	return rc;
}

static int os_connect(struct fabric *fab, int peer, int idx, void *handle, void **ret_comm)
{
	struct fabric *raw = of(fab)->raw;
	void *comm = NULL;
	int rc = raw->ops->connect(raw, peer, idx, handle, &comm);

	if (rc)
		snprintf(fab->err, sizeof(fab->err), "%s", raw->err);
	return comm ? comm_new(fab, comm, true, peer, idx, ret_comm) : rc;
}

static int os_accept(struct fabric *fab, int peer, int idx, void *listen, void **ret_comm)
{
	struct fabric *raw = of(fab)->raw;
	void *comm = NULL;
	int rc = raw->ops->accept(raw, peer, idx, listen, &comm);

	if (rc)
		snprintf(fab->err, sizeof(fab->err), "%s", raw->err);
	return comm ? comm_new(fab, comm, false, peer, idx, ret_comm) : rc;
}

static void os_close_listen(struct fabric *fab, void *listen)
{
	struct fabric *raw = of(fab)->raw;

	raw->ops->close_listen(raw, listen);
}

/* -- memory ----------------------------------------------------------------------------------- */

static int os_reg(struct fabric *fab, void *comm, void *data, size_t size, void **ret_mr)
{
	struct os_comm *c = comm;
	ncclResult_t res = rma_reg(of(fab)->rma, c->coll, data, size, NCCL_PTR_HOST, 0, &c->mem);

	if (res != ncclSuccess)
		return fail(fab, res, "regMrSym");
	c->base = data;
	*ret_mr = c->mem;
	return 0;
}

static void os_dereg(struct fabric *fab, void *comm, void *mr)
{
	rma_dereg(of(fab)->rma, ((struct os_comm *)comm)->coll, mr);
}

/* -- operations ------------------------------------------------------------------------------- */

static struct os_req *req_new(struct os_comm *c, size_t size)
{
	struct os_req *q = &c->queue[c->posted % QUEUE];

	if (c->posted - c->done == QUEUE)
		return NULL;
	*q = (struct os_req){ .comm = c, .size = size, .least = ++c->posted };
	return q;
}

static ncclResult_t put(struct os_comm *c, struct os_req *q, uint64_t off)
{
	struct rma *rma = c->f->rma;
	/* As NCCL's proxy, which sees how many operations are in its queue. */
	uint32_t flags = c->posted % c->f->super.batch ? NCCL_RMA_AGGREGATE : 0;
	ncclResult_t res;

	if (c->f->kind == FABRIC_PUT_SIGNAL)
		return rma_iput_signal(rma, c->ctx, 0, off, c->mem, q->size, off, c->mem, c->peer,
				       0, c->words, 1, NCCL_RMA_SIGNAL_ADD, true, flags, &q->put);
	res = rma_iput(rma, c->ctx, 0, off, c->mem, q->size, off, c->mem, c->peer,
		       NCCL_RMA_AGGREGATE, &q->put);
	if (res != ncclSuccess)
		return res;
	return rma_iput_signal(rma, c->ctx, 0, 0, NULL, 0, 0, NULL, c->peer, 0, c->words, 1,
			       NCCL_RMA_SIGNAL_ADD, true, flags, &q->signal);
}

static int os_isend(struct fabric *fab, void *comm, void *data, size_t size, int tag, void *mr,
		    void **ret_req)
{
	struct os_comm *c = comm;
	struct os_req *q = req_new(c, size);
	ncclResult_t res = ncclSuccess;

	(void)tag, (void)mr;
	*ret_req = q;
	if (q && of(fab)->kind != FABRIC_GET)
		res = put(c, q, (uint64_t)((char *)data - c->base));
	return res == ncclSuccess ? 0 : fail(fab, res, "iputSignal");
}

static int os_irecv(struct fabric *fab, void *comm, void *data, size_t size, int tag, void *mr,
		    void **ret_req)
{
	struct os_comm *c = comm;
	struct os_req *q = req_new(c, size);
	uint64_t off = (uint64_t)((char *)data - c->base);
	ncclResult_t res = ncclSuccess;

	(void)tag, (void)mr;
	*ret_req = q;
	if (q && of(fab)->kind == FABRIC_GET) {
		q->least = 0;
		res = rma_iget(c->f->rma, c->ctx, 0, off, c->mem, size, off, c->mem, c->peer, 0,
			       &q->put);
	}
	return res == ncclSuccess ? 0 : fail(fab, res, "iget");
}

/* Test one part of a request: it is NULL once done. */
static ncclResult_t test_part(struct os_comm *c, void **req)
{
	int done = 0;
	ncclResult_t res = *req ? rma_test(c->f->rma, c->coll, *req, &done) : ncclSuccess;

	if (done)
		*req = NULL;
	return res;
}

/* Has the message come, for all that this end's memory shows? */
static bool has_come(const struct os_req *q)
{
	return q->comm->is_send ||
	       atomic_load_explicit(&q->comm->word, memory_order_acquire) >= q->least;
}

static int os_test(struct fabric *fab, void *req, bool *ret_done, size_t *ret_size)
{
	struct os_req *q = req;
	struct os_comm *c = q->comm;
	ncclResult_t res = test_part(c, &q->put);

	if (res == ncclSuccess)
		res = test_part(c, &q->signal);
	if (res == ncclSuccess && !has_come(q))
		res = rma_progress(c->f->rma, c->ctx);
	if (res != ncclSuccess)
		return fail(fab, res, "test");
	*ret_done = !q->put && !q->signal && has_come(q);
	if (*ret_done) {
		c->done++;
		*ret_size = q->size;
	}
	return 0;
}

#define ONESIDED(NAME, OPEN) {								\
	.name = NAME, .open = OPEN, .close = os_close, .listen = os_listen,		\
	.connect = os_connect, .accept = os_accept, .reg = os_reg, .dereg = os_dereg,	\
	.isend = os_isend, .irecv = os_irecv, .test = os_test,				\
	.close_send = comm_close, .close_recv = comm_close,				\
	.close_listen = os_close_listen,						\
}

const struct fabric_ops fabric_put = ONESIDED("put", open_put);
const struct fabric_ops fabric_put_signal = ONESIDED("putsignal", open_put_signal);
const struct fabric_ops fabric_get = ONESIDED("get", open_get);
