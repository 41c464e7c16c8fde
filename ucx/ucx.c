/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx.c - UCX: frames as tagged messages over a UCP endpoint.
 *
 *	heads		whole frames, as many as fit into a slot, the last perhaps without its
 *			payload; or a single message with a short header.  They arrive in slots that
 *			the peer keeps posted
 *	payload		of a chunk, as a message of its own, which the peer receives into the place
 *			that the head before it names.  UCX sends a large one by rendezvous
 *
 * Heads and payloads have a tag each, which the receiver chooses at random and sends in the
 * handshake.  UCX keeps messages of one tag in order; heads say where payloads belong between them.
 *
 * UCX sends a large payload only when its receive is posted, and that answer takes a while.  So
 * while a payload is awaited, the heads that have come after it are read ahead, and receives for
 * their payloads are posted.
 *
 * Each lane has a worker of its own.  It shares nothing with other lanes, and once it is destroyed,
 * UCX reads and writes none of the lane's memory.  Calls on it are made with w->lock held, which
 * its callbacks thus hold too; the link's lock is taken before w->lock, or not at all.  Once the
 * worker has moved memory of a GPU, they are made in that GPU's context, which UCX asks the driver
 * for: the service thread has none.
 *
 * lane->fd is the handshake's socket: it is closed when the peer's process ends.
 *
 * To make a worker and its endpoint, UCX pins memory and makes queue pairs, which has taken a
 * second and more.  So during set-up all calls on a worker are made by a thread of its own
 * (core/base/work.h), which owns the endpoint until it is done.
 *
 * A process may exit while lanes move, and UCX then frees its own state, as libraries do.  So
 * before that (leave_all) every worker is left as it is, and UCX is not called from then on.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/msg/comm.h"
#include "core/link/link.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/work.h"
#include "gdr/stage.h"
#include "ucx/port.h"

enum {
	SLOT = BRAID_HDR_SIZE + BRAID_COPY_MAX,
	SLOTS = 16,
	PAYLOADS = 8,			/* receives for payloads posted at a time */
	FLYING = 64,			/* sends that UCX has not completed */
	TURNS = 8,			/* calls of ucp_worker_progress() in one of ours */
	ARM_TURNS = 1000,
	STUCK = 15,			/* checks without progress, a tenth of a second apart */
	FLIGHT = 8 << 20,		/* bytes of payload in flight */
};

#define END_NS 2000000ull
#define LEAVE_NS 1000000000ull

enum { TAG_HEAD, TAG_PAYLOAD, TAG_HELLO, TAG_BITS = 2 };

struct slot {
	atomic_bool waits;		/* while it is true, UCX owns the rest */
	void *req;
	ucs_status_t status;
	size_t len;
	char *at;
	uint32_t comm;			/* the comm whose memory that is; NOBODYS: our own */
};

#define NOBODYS UINT32_MAX

struct ucx_ep {
	struct braid_work ending;
	struct braid_dev *dev;		/* set with `over` */
	struct braid_job stop;
	struct braid_stop stopping;
	atomic_uint users;		/* its owner, and that job */
	bool over;			/* fenced: the lane moves no more */
	struct braid_list node;		/* of `eps` */
	struct braid_lock lock;
	struct coming *coming;		/* the service thread's; NULL: no set-up is under way */
	ucp_worker_h worker;		/* NULL: fenced, or left at exit */
	ucp_ep_h ep;
	int efd;
	_Atomic ucs_status_t status;	/* the first error, or UCS_OK */
	uint64_t tag_rx, tag_tx;
	ucp_request_param_t send_param;	/* the same for all */
	unsigned flying;
	bool rdma, wired, stranded;
	char *memory;
	struct slot slot[SLOTS];	/* heads; the oldest is number `slots`, the next `posted` */
	struct slot hello;
	struct slot payload[PAYLOADS];	/* the oldest is number `paid`, the next `asked` */
	bool awaits_payload;		/* the head of the oldest payload has been taken */
	bool blind;			/* the place of the next payload is not known yet */
	char *scratch;			/* receives a payload that is thrown away */
	unsigned slots, posted, seen;	/* heads before `seen` have been read ahead */
	unsigned paid, asked;
	unsigned idle_polls;
	struct braid_look look;		/* the service thread's */
	struct braid_stage *gpu;	/* of the first GPU whose memory was given to UCX */
};

static struct ucx_ep *ep_of(const struct braid_lane *lane)
{
	return lane->priv;
}

/* --- the process exits --------------------------------------------------------------------- */

static struct braid_lock listed;		/* taken before an endpoint's */
static struct braid_list eps = { &eps, &eps };	/* under `listed` */
static atomic_bool left;

/* The holder may be the exiting thread itself, or be stuck in UCX: so do not wait for ever. */
static bool lock_until(struct braid_lock *l, uint64_t until_ns)
{
	while (!braid_trylock(l)) {
		if (braid_os->now_ns() > until_ns)
			return false;
		braid_yield();
	}
	return true;
}

static void leave_all(void)
{
	uint64_t until = braid_os->now_ns() + LEAVE_NS;
	struct ucx_ep *w;

	if (atomic_load(&braid_forked))
		return;			/* the parent's threads may hold the locks */
	atomic_store(&left, true);
	if (!lock_until(&listed, until))
		return;
	braid_list_for(w, &eps, node) {
		if (!lock_until(&w->lock, until))
			continue;
		w->worker = NULL;
		braid_unlock(&w->lock);
	}
	braid_unlock(&listed);
}

/* Takes w->lock.  False: the process exits, UCX must not be called, and the lock is not held. */
static bool enter(struct ucx_ep *w)
{
	braid_lock_wait(&w->lock);
	if (!atomic_load(&left))
		return true;
	braid_unlock(&w->lock);
	return false;
}

/* --- messages, with w->lock held ----------------------------------------------------------- */

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct ucx_ep *w = arg;

	(void)ep;
	if (w->status == UCS_OK)
		w->status = status;
}

static void sent(void *req, ucs_status_t status, void *arg)
{
	struct ucx_ep *w = arg;

	w->flying--;
	on_error(w, NULL, status);
	braid_ucp.request_free(req);
}

static void received(void *req, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
	struct slot *s = arg;

	s->status = status;
	s->len = status == UCS_OK ? info->length : 0;
	s->waits = false;
	braid_ucp.request_free(req);
}

/* From now on UCX is called in the context of that memory's GPU. */
static void has_gpu(struct ucx_ep *w, const struct braid_mr *mr)
{
	if (w->gpu || !mr->stage)
		return;
	w->gpu = mr->stage;
	braid_stage_hold(w->gpu);
}

static bool enter_gpu(const struct ucx_ep *w, int *ret_mode)
{
	return w->gpu && !braid_stage_enter(w->gpu, ret_mode);
}

static unsigned turn(struct ucx_ep *w)
{
	int mode;
	bool in = enter_gpu(w, &mode);
	unsigned n = braid_ucp.worker_progress(w->worker);

	if (in)
		braid_stage_leave(mode);
	return n;
}

/*
 * Posts a receive.  It must not complete at once, since UCX 1.13 then does not report the length.
 * gpu: the GPU memory in which s->at lies, or NULL.
 */
static void post(struct ucx_ep *w, struct slot *s, size_t size, uint64_t tag,
		 const struct braid_mr *gpu)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
		.cb.recv = received, .user_data = s,
		.memory_type = gpu ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST,
	};
	bool in;
	int mode;

	s->waits = true;		/* the callback may run before tag_recv() returns */
	if (!w->worker)
		return;			/* leave_all() came in between */
	if (gpu)
		has_gpu(w, gpu);
	in = enter_gpu(w, &mode);
	s->req = braid_ucp.tag_recv(w->worker, s->at, size, w->tag_rx | tag, UINT64_MAX, &param);
	if (in)
		braid_stage_leave(mode);
	if (!UCS_PTR_IS_ERR(s->req))
		return;
	s->waits = false;
	s->status = UCS_PTR_STATUS(s->req);
	on_error(w, NULL, s->status);
}

/* Posts all free slots for heads. */
static void post_heads(struct ucx_ep *w)
{
	while (w->posted - w->slots < SLOTS)
		post(w, &w->slot[w->posted++ % SLOTS], SLOT, TAG_HEAD, NULL);
}

static ucs_status_ptr_t send_gpu(struct ucx_ep *w, const void *data, size_t len, uint64_t tag,
				 const struct braid_mr *gpu)
{
	ucp_request_param_t param = w->send_param;
	ucs_status_ptr_t req;
	bool in;
	int mode;

	param.memory_type = UCS_MEMORY_TYPE_CUDA;
	has_gpu(w, gpu);
	in = enter_gpu(w, &mode);
	req = braid_ucp.tag_send(w->ep, data, len, w->tag_tx | tag, &param);
	if (in)
		braid_stage_leave(mode);
	return req;
}

/* 0; -EAGAIN: too many sends in flight; or an error.  gpu: the GPU memory of `data`, or NULL. */
static int send_msg(struct ucx_ep *w, const void *data, size_t len, uint64_t tag,
		    const struct braid_mr *gpu)
{
	ucs_status_ptr_t req;

	if (atomic_load(&left))
		return -EAGAIN;
	if (!w->worker || w->status != UCS_OK)
		return -EIO;
	if (w->flying >= FLYING)
		return -EAGAIN;
	req = gpu ? send_gpu(w, data, len, tag, gpu) :
		    braid_ucp.tag_send(w->ep, data, len, w->tag_tx | tag, &w->send_param);
	if (UCS_PTR_IS_ERR(req)) {
		on_error(w, NULL, UCS_PTR_STATUS(req));
		return -EIO;
	}
	w->flying += req != NULL;
	return 0;
}

static void progress(struct ucx_ep *w)
{
	for (unsigned i = 0; i < TURNS && turn(w); i++)
		;
}

/* --- its end ------------------------------------------------------------------------------- */

/*
 * Closes the endpoint, so that sends in flight end with an error.  Some that wait for the peer
 * never complete; they end with the worker.
 */
static void end_sends(struct ucx_ep *w)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE,
	};
	uint64_t until = braid_os->now_ns() + END_NS;
	ucs_status_ptr_t req = braid_ucp.ep_close(w->ep, &param);

	while ((UCS_PTR_IS_PTR(req) && braid_ucp.request_status(req) == UCS_INPROGRESS) ||
	       w->flying) {
		if (!turn(w) && braid_os->now_ns() > until)
			break;
	}
	if (UCS_PTR_IS_PTR(req))
		braid_ucp.request_free(req);
}

static void cancel(struct ucx_ep *w, struct slot *s)
{
	if (s->waits)
		braid_ucp.request_cancel(w->worker, s->req);
}

static void fence(struct ucx_ep *w)
{
	braid_lock_wait(&w->lock);
	if (w->worker && !atomic_load(&left)) {
		if (w->efd >= 0)
			braid_os->note(w->efd, false);
		if (w->ep)
			end_sends(w);
		for (unsigned i = 0; i < SLOTS; i++)
			cancel(w, &w->slot[i]);
		for (unsigned i = 0; i < PAYLOADS; i++)
			cancel(w, &w->payload[i]);
		cancel(w, &w->hello);
		/* No progress from here on: it could answer the peer for a second endpoint. */
		braid_ucp.worker_destroy(w->worker);
	}
	w->worker = NULL;
	braid_unlock(&w->lock);
}

/* Have the two ends exchanged hellos: has the peer's come, and has ours gone? */
static bool is_wired(struct ucx_ep *w)
{
	w->wired |= !w->hello.waits && !w->flying;
	return w->wired;
}

static void end_run(struct braid_work *work)
{
	struct ucx_ep *w = braid_container(work, struct ucx_ep, ending);

	fence(w);
	braid_lock_wait(&listed);
	braid_list_del(&w->node);
	braid_unlock(&listed);
}

static void end_free(struct braid_work *work)
{
	struct ucx_ep *w = braid_container(work, struct ucx_ep, ending);

	braid_stage_put(w->gpu);
	free(w->memory);
	free(w->scratch);
	free(w);
}

/* Destroying a worker may take long, so a thread of its own does it. */
static void ep_end(struct ucx_ep *w)
{
	w->ending.slow = true;
	if (w->worker &&
	    !braid_work_start(&w->ending, "the end of a worker of UCX's", end_run, end_free)) {
		braid_work_leave(&w->ending);
		return;
	}
	end_run(&w->ending);
	end_free(&w->ending);
}

/* Drop a reference.  The stop's job has destroyed the worker before the last one goes. */
static void ep_put(struct ucx_ep *w)
{
	if (atomic_fetch_sub(&w->users, 1) == 1)
		ep_end(w);
}

static void stop_run(struct braid_job *job)
{
	struct ucx_ep *w = braid_container(job, struct ucx_ep, stop);

	fence(w);
	braid_stop_end(w->dev, &w->stopping);
	ep_put(w);
}

/*
 * Has a job fence the endpoint: UCX may still use the user's memory, and destroying a worker is
 * slow.  braid_stops_past() says when that is over.
 */
static void ep_stop(struct ucx_ep *w, struct braid_dev *dev)
{
	w->over = true;
	w->dev = dev;
	w->stop = (struct braid_job){ .run = stop_run };
	atomic_fetch_add(&w->users, 1);
	braid_stop_begin(dev, &w->stopping);
	braid_later(dev, BRAID_STOP, &w->stop);
}

/*
 * UCX 1.13 aborts if an endpoint is closed before its first message has gone, which takes time over
 * RDMA.  Such an endpoint is stranded: sweep() ends it once that message has gone or failed.
 */
static void ep_free(struct ucx_ep *w)
{
	bool stranded;

	if (!w)
		return;
	if (w->over) {
		ep_put(w);
		return;
	}
	stranded = w->rdma && w->ep && !is_wired(w) && w->flying && w->status == UCS_OK;
	if (!stranded) {
		ep_end(w);
		return;
	}
	braid_lock_wait(&listed);
	w->stranded = true;
	braid_unlock(&listed);
}

/* Ends stranded endpoints that are ready for it.  The service thread calls this now and then. */
static void sweep(void)
{
	struct braid_list done = { &done, &done };
	struct ucx_ep *w, *tmp;

	braid_lock_wait(&listed);
	braid_list_for_safe(w, tmp, &eps, node) {
		if (!w->stranded || !enter(w))
			continue;
		progress(w);
		if (!w->flying || w->status != UCS_OK) {
			braid_list_del(&w->node);
			braid_list_add_tail(&done, &w->node);
		}
		braid_unlock(&w->lock);
	}
	braid_unlock(&listed);
	braid_list_for_safe(w, tmp, &done, node)
		ep_end(w);
}

/* --- coming up ----------------------------------------------------------------------------- */

enum { AT_TAG = 0, AT_LEN = 8, AT_ADDRESS = 16, ADDRESS_MAX = BRAID_BLOB_SIZE - AT_ADDRESS };

/* A set-up under way.  Its thread owns all of it, but for atomic members, until it is done. */
struct coming {
	struct braid_work work;
	struct ucx_ep *w;			/* NULL: the service thread has taken it */
	const struct braid_ucx_port *port;
	bool opens, meets;
	atomic_bool told;		/* `err` and `mine` are set */
	atomic_bool unwanted;
	int err;
	const char *failed;
	uint8_t theirs[BRAID_BLOB_SIZE], mine[BRAID_BLOB_SIZE];
};

static int failed(struct coming *c, const char *call, ucs_status_t status)
{
	if (status != UCS_OK) {
		c->failed = call;
		braid_info("ucx: %s: %s: %s", c->port->nets, call, braid_ucp.status_string(status));
	}
	return braid_ucp_errno(status);
}

static int open_worker(struct coming *c, struct ucx_ep *w)
{
	ucp_worker_params_t params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SERIALIZED,
	};
	ucs_status_t status;

	status = braid_ucp.worker_create(c->port->ctx, &params, &w->worker);
	if (status != UCS_OK) {
		w->worker = NULL;
		return failed(c, "ucp_worker_create", status);
	}
	status = braid_ucp.worker_get_efd(w->worker, &w->efd);
	if (status != UCS_OK) {
		w->efd = -1;
		return failed(c, "ucp_worker_get_efd", status);
	}
	braid_os->note(w->efd, true);
	return 0;
}

static int tell_address(struct coming *c, struct ucx_ep *w)
{
	uint64_t tag = htole64(w->tag_rx);
	ucp_address_t *address;
	size_t len;
	ucs_status_t status = braid_ucp.worker_get_address(w->worker, &address, &len);
	uint16_t len16;

	if (status != UCS_OK)
		return failed(c, "ucp_worker_get_address", status);
	if (len > ADDRESS_MAX) {
		braid_warn("ucx: the address of %s is %zu bytes, and the handshake has room for "
			   "%d: have fewer devices or transports, by UCX_NET_DEVICES or UCX_TLS "
			   "[ucx-address]", c->port->nets, len, ADDRESS_MAX);
		braid_ucp.worker_release_address(w->worker, address);
		return -EMSGSIZE;
	}
	len16 = htole16((uint16_t)len);
	memcpy(c->mine + AT_TAG, &tag, sizeof(tag));
	memcpy(c->mine + AT_LEN, &len16, sizeof(len16));
	memcpy(c->mine + AT_ADDRESS, address, len);
	braid_ucp.worker_release_address(w->worker, address);
	return 0;
}

static int open_ep(struct coming *c, struct ucx_ep *w)
{
	int err = open_worker(c, w);

	if (err)
		return err;
	for (unsigned i = 0; i < SLOTS; i++)
		w->slot[i].at = w->memory + i * SLOT;
	post_heads(w);
	post(w, &w->hello, 0, TAG_HELLO, NULL);
	return tell_address(c, w);
}

/* Connects to the peer's worker.  The first message, a hello, shows that messages arrive. */
static int meet_peer(struct coming *c, struct ucx_ep *w)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = (const ucp_address_t *)(c->theirs + AT_ADDRESS),
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { .cb = on_error, .arg = w },
	};
	uint16_t len;
	int err;

	memcpy(&w->tag_tx, c->theirs + AT_TAG, sizeof(w->tag_tx));
	memcpy(&len, c->theirs + AT_LEN, sizeof(len));
	w->tag_tx = le64toh(w->tag_tx);
	if (!len || le16toh(len) > ADDRESS_MAX || w->tag_tx & ((1 << TAG_BITS) - 1))
		return -EBADMSG;
	err = failed(c, "ucp_ep_create", braid_ucp.ep_create(w->worker, &params, &w->ep));
	return err ? err : send_msg(w, "", 0, TAG_HELLO, NULL);
}

/* Makes one step with w->lock held, unless the set-up is no longer wanted. */
static int come_step(struct coming *c, int (*step)(struct coming *c, struct ucx_ep *w))
{
	int err;

	if (atomic_load(&c->unwanted) || !enter(c->w))
		return -EALREADY;
	err = step(c, c->w);
	braid_unlock(&c->w->lock);
	braid_work_next(&c->work);
	return err;
}

static int connect_ep(struct coming *c, struct ucx_ep *w)
{
	(void)c;
	progress(w);
	return w->status == UCS_OK && !is_wired(w) ? -EAGAIN : 0;
}

static void come_run(struct braid_work *work)
{
	static const struct timespec nap = { .tv_nsec = 500000 };
	struct coming *c = braid_container(work, struct coming, work);
	int err = c->opens ? come_step(c, open_ep) : 0;

	if (!err && c->meets)
		err = come_step(c, meet_peer);
	c->err = err;
	atomic_store(&c->told, true);
	/* UCX makes the rest of its queue pairs as the two ends hear of each other. */
	if (!err && c->meets) {
		while (come_step(c, connect_ep) == -EAGAIN)
			nanosleep(&nap, NULL);
	}
}

static void come_free(struct braid_work *work)
{
	struct coming *c = braid_container(work, struct coming, work);

	ep_free(c->w);
	free(c);
}

static void come_leave(struct ucx_ep *w)
{
	struct coming *c = w->coming;

	w->coming = NULL;
	atomic_store(&c->unwanted, true);
	braid_work_leave(&c->work);
}

/* The set-up's thread is done: the service thread takes the endpoint. */
static void come_take(struct ucx_ep *w)
{
	w->coming->w = NULL;
	come_leave(w);
}

static int come_start(struct braid_setup *s, bool opens, const uint8_t *theirs)
{
	struct ucx_ep *w = s->priv;
	struct coming *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->w = w;
	c->port = braid_ucx_port_of(s->dev);
	c->opens = opens;
	c->meets = theirs;
	if (theirs)
		memcpy(c->theirs, theirs, BRAID_BLOB_SIZE);
	c->work.slow = true;
	w->coming = c;
	if (!braid_work_start(&c->work, opens ? "the making of a worker of UCX's" :
						"the making of an endpoint of UCX's",
			      come_run, come_free))
		return 0;
	w->coming = NULL;
	free(c);
	return -ENOMEM;			/* -EAGAIN, as of pthread_create(), means: ask again */
}

static void ucx_setup_drop(struct braid_setup *s)
{
	struct ucx_ep *w = s->priv;

	s->priv = NULL;
	if (w && w->coming)
		come_leave(w);		/* come_free() ends the endpoint, too */
	else
		ep_free(w);
}

static struct ucx_ep *ep_new(struct braid_dev *dev)
{
	struct ucx_ep *w = calloc(1, sizeof(*w));

	if (w)
		w->memory = malloc(SLOTS * SLOT);
	if (!w || !w->memory) {
		free(w);
		return NULL;
	}
	w->efd = -1;
	atomic_store(&w->users, 1);
	w->send_param = (ucp_request_param_t){
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.cb.send = sent, .user_data = w, .memory_type = UCS_MEMORY_TYPE_HOST,
	};
	w->rdma = braid_ucx_port_of(dev)->rdma;
	braid_os->random(&w->tag_rx, sizeof(w->tag_rx));
	w->tag_rx &= ~(uint64_t)((1 << TAG_BITS) - 1);
	braid_lock_wait(&listed);
	braid_list_add_tail(&eps, &w->node);
	braid_unlock(&listed);
	return w;
}

static int begin(struct braid_setup *s, const uint8_t *theirs)
{
	static bool exit_known;
	int err;

	sweep();
	if (!exit_known)
		exit_known = !atexit(leave_all);
	if (!exit_known || atomic_load(&left))
		return -EALREADY;
	s->priv = ep_new(s->dev);
	err = s->priv ? come_start(s, true, theirs) : -ENOMEM;
	if (err) {
		ucx_setup_drop(s);
		return err;
	}
	snprintf(s->why, sizeof(s->why), "UCX has not made its worker in time");
	return -EAGAIN;
}

static int ucx_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine)
{
	struct ucx_ep *w = s->priv;
	int err;

	if (!w)
		return begin(s, theirs);
	if (!(theirs ? atomic_load(&w->coming->told) : braid_work_done(&w->coming->work)))
		return -EAGAIN;
	s->why[0] = '\0';
	s->failed = w->coming->failed;
	memcpy(mine, w->coming->mine, BRAID_BLOB_SIZE);
	err = w->coming->err;
	if (err)
		ucx_setup_drop(s);
	return err;
}

static int ucx_setup_peer(struct braid_setup *s, const uint8_t *theirs)
{
	come_take(s->priv);
	return come_start(s, false, theirs);
}

static int ucx_setup_ready(struct braid_setup *s)
{
	struct ucx_ep *w = s->priv;
	ucs_status_t status = w->status;
	bool wired;

	if (w->coming && !braid_work_done(&w->coming->work))
		return -EAGAIN;
	if (w->coming) {
		s->failed = w->coming->failed;
		if (w->coming->err)
			return w->coming->err;
		come_take(w);
	}
	if (!enter(w))
		return -EAGAIN;
	progress(w);
	wired = is_wired(w);
	braid_unlock(&w->lock);
	status = w->status;
	if (status == UCS_OK)
		return wired ? 0 : -EAGAIN;
	s->failed = "the endpoint";
	braid_info("ucx: %s: %s: %s", braid_ucx_port_of(s->dev)->nets, s->failed,
		   braid_ucp.status_string(status));
	return braid_ucp_errno(status);
}

/* --- sending ------------------------------------------------------------------------------- */

/*
 * Drops the link's lock while much is copied.  It does not wait for the worker's lock: the caller
 * that holds it polls again and again, and would try for the link's lock in vain meanwhile.
 */
static int send_unlocked(struct braid_lane *lane, const void *data, size_t len, uint64_t tag,
			 const struct braid_mr *gpu)
{
	struct ucx_ep *w = ep_of(lane);
	int err;

	if (w->over)
		return -EIO;
	if (!braid_trylock(&w->lock))
		return -EAGAIN;
	if (len > BRAID_COPY_LOCKED)
		braid_unlock(&lane->link->lock);
	err = send_msg(w, data, len, tag, gpu);
	braid_unlock(&w->lock);
	if (len > BRAID_COPY_LOCKED)
		braid_lock_wait(&lane->link->lock);
	return err;
}

/* Why the lane has ended.  -ENOTCONN: the peer has closed it, so UCX is not at fault. */
static int broken(const struct braid_lane *lane, const struct ucx_ep *w)
{
	if (braid_lane_look_at_fd(lane))
		return -ENOTCONN;
	braid_info("device %s, peer %s: lane %u: UCX says: %s", lane->link->key.dev->net.name,
		   lane->link->peer, lane->index, braid_ucp.status_string(w->status));
	return -EIO;
}

static int ucx_push(struct braid_lane *lane)
{
	struct braid_txq *q = &lane->tx;
	size_t budget = BRAID_CALL_BUDGET;
	int err = 0;

	while (q->unsent && budget && !err) {
		const struct braid_txf *f = braid_tx_here(lane);
		size_t len;

		if (!f)
			return -EAGAIN;
		if (q->part < f->inl) {
			assert(!q->part);
			braid_tx_stamp(lane);
			len = braid_tx_piece(q, SLOT, true);
			err = send_unlocked(lane, q->ring + f->off, len, TAG_HEAD, NULL);
		} else {
			len = f->ext_len;
			err = send_unlocked(lane, f->ext, len, TAG_PAYLOAD,
					    braid_tx_gpu(lane) ? f->owner->mr : NULL);
		}
		if (err)
			break;
		braid_tx_advance(lane, len);
		budget -= len < budget ? len : budget;
	}
	return err == -EIO ? broken(lane, ep_of(lane)) : err;
}

/* Sends a single message, with the short header that lies before the payload. */
static BRAID_HOT int ucx_post(struct braid_lane *lane, uint32_t imm, const char *payload,
			      uint32_t len)
{
	(void)imm;
	return send_unlocked(lane, payload - BRAID_SHORT_SIZE, len + BRAID_SHORT_SIZE, TAG_HEAD,
			     NULL);
}

/* --- receiving, with the link's lock held -------------------------------------------------- */

static void ask(struct ucx_ep *w, char *at, size_t len, uint32_t comm, const struct braid_mr *gpu)
{
	struct slot *s = &w->payload[w->asked++ % PAYLOADS];

	s->at = at;
	s->comm = comm;
	post(w, s, len, TAG_PAYLOAD, gpu);
}

static int await_payload(struct braid_lane *lane, struct ucx_ep *w)
{
	char *at = lane->rx_dst;

	if (!at && w->asked == w->paid) {
		at = w->scratch = malloc(lane->rx_left);
		if (!at)
			return braid_no_memory("a message that nobody waits for");
	}
	braid_lock_wait(&w->lock);
	w->awaits_payload = true;
	if (w->asked == w->paid)
		ask(w, at, lane->rx_left, w->scratch ? NOBODYS : lane->rx_hdr.comm,
		    w->scratch ? NULL : braid_comm_rx_gpu(lane));
	braid_unlock(&w->lock);
	return 0;
}

/* Has another head come that may say where its payload goes? */
static inline bool may_ask(const struct ucx_ep *w)
{
	const struct slot *s = &w->slot[w->seen % SLOTS];

	return w->awaits_payload && !w->blind && w->asked - w->paid < PAYLOADS &&
	       w->seen != w->posted && !s->waits && s->status == UCS_OK;
}

/* Posts receives ahead, in the order of the heads, since payloads come in that order. */
static void ask_ahead(struct braid_lane *lane, struct ucx_ep *w)
{
	braid_lock_wait(&w->lock);
	for (; w->worker && may_ask(w); w->seen += !w->blind) {
		const struct slot *s = &w->slot[w->seen % SLOTS];
		const struct braid_mr *gpu;
		struct braid_hdr h;
		char *at;

		if (!braid_frames_lack(s->at, s->len, &h))
			continue;
		at = braid_comm_rx_place(lane, &h, &gpu);
		w->blind = !at;
		if (at)
			ask(w, at, h.len, h.comm, gpu);
	}
	braid_unlock(&w->lock);
}

/* A receive fails only with its endpoint, whose on_error() may not have run yet. */
static int lost(struct ucx_ep *w, ucs_status_t status)
{
	on_error(w, NULL, status);
	return -EIO;
}

static int take_payload(struct braid_lane *lane, struct ucx_ep *w)
{
	const struct slot *s = &w->payload[w->paid % PAYLOADS];
	int err;

	free(w->scratch);
	w->scratch = NULL;
	if (lane->rx_left && s->status != UCS_OK)
		return lost(w, s->status);
	if (lane->rx_left && s->len != lane->rx_left)
		return braid_rx_broken(lane, "payload", -EBADMSG);
	braid_count(&lane->rx_bytes, lane->rx_left);
	lane->rx_left = 0;
	err = braid_rx_end(lane);
	w->awaits_payload = err == -EAGAIN;
	w->paid += !w->awaits_payload;
	return err;
}

static int take_head(struct braid_lane *lane, struct ucx_ep *w)
{
	struct slot *s = &w->slot[w->slots % SLOTS];
	int err = s->status == UCS_OK ? braid_rx_take(lane, s->at, s->len) : lost(w, s->status);

	if (err == -EAGAIN)
		return err;
	w->seen += w->seen == w->slots;
	w->slots++;
	w->blind = false;
	braid_count(&lane->rx_bytes, s->len + 1);
	return err;
}

/* Has the next message in order come? */
static inline bool has_something(const struct ucx_ep *w)
{
	if (w->awaits_payload)
		return !w->payload[w->paid % PAYLOADS].waits;
	return w->slots != w->posted && !w->slot[w->slots % SLOTS].waits;
}

/* Lets UCX progress until the next message in order has come; not longer, for those behind it. */
static bool look(struct ucx_ep *w)
{
	post_heads(w);
	for (unsigned i = 0; i < TURNS; i++) {
		unsigned n = turn(w);

		if (has_something(w))
			return true;
		if (!n)
			break;
	}
	return false;
}

/*
 * Takes what has come, in order.  Returns how many messages, or an error.  The data of the last may
 * still be on its way into a GPU.
 */
static int take(struct braid_lane *lane, struct ucx_ep *w)
{
	int taken = 0, err = 0;

	while (!err && has_something(w)) {
		err = w->awaits_payload ? take_payload(lane, w) : take_head(lane, w);
		if (!err && lane->rx_kind != BRAID_RX_NONE && lane->rx_left)
			err = await_payload(lane, w);
		taken++;
	}
	if (may_ask(w))
		ask_ahead(lane, w);
	return err && err != -EAGAIN ? err : taken;
}

static int look_and_take(struct braid_lane *lane)
{
	struct ucx_ep *w = ep_of(lane);
	bool some, more;
	int n;

	if (!braid_trylock(&w->lock))
		return 1;		/* another thread sends */
	if (!w->worker) {
		braid_unlock(&w->lock);
		return 0;
	}
	some = look(w);
	more = some || may_ask(w);
	braid_unlock(&w->lock);
	if (w->status != UCS_OK && !some)
		return broken(lane, w);	/* what had come before it has been taken */
	if (more) {
		if (!braid_trylock(&lane->link->lock))
			return 1;
		n = take(lane, w);
		braid_unlock(&lane->link->lock);
		if (n == -EIO)
			return broken(lane, w);
		if (n < 0)
			return braid_lane_look_at_fd(lane) ? -ENOTCONN : n;
		w->idle_polls = 0;
		return n;
	}
	return 0;
}

static int ucx_poll(struct braid_lane *lane)
{
	int n = ep_of(lane)->over ? 0 : look_and_take(lane);

	return n || ep_of(lane)->over ||
	       !braid_lane_look_due(lane, &ep_of(lane)->idle_polls) ?
		       n : braid_lane_last_words(lane, look_and_take);
}

/* --- lanes --------------------------------------------------------------------------------- */

static struct braid_dev *dev_of(const struct braid_lane *lane)
{
	return lane->link->key.dev->member[lane->member];
}

static int ucx_open(struct braid_lane *lane)
{
	lane->local = false;
	lane->gpu = braid_ucx_port_of(dev_of(lane))->gpu;
	lane->flight_max = FLIGHT;
	lane->event_fd = ep_of(lane)->efd;
	return 0;
}

static int ucx_attach(struct braid_lane *lane)
{
	(void)lane;
	return 0;
}

/* Data for a GPU arrives in lane->rx_stage, which the core frees next: so wait for the fence. */
static void ucx_fence(struct braid_lane *lane)
{
	struct ucx_ep *w = ep_of(lane);

	if (!w || w->over)
		return;
	braid_os->shutdown(lane->fd);
	if (lane->rx_stage)
		fence(w);
	ep_stop(w, dev_of(lane));
}

/* Does UCX use none of the user's memory? */
static bool is_idle(struct ucx_ep *w)
{
	bool idle;

	braid_lock_wait(&w->lock);
	idle = w->status == UCS_OK && !w->flying;
	for (unsigned i = 0; i < PAYLOADS; i++)
		idle &= !w->payload[i].waits;
	braid_unlock(&w->lock);
	return idle;
}

static bool ucx_lands(const struct braid_lane *lane, uint32_t comm)
{
	const struct ucx_ep *w = ep_of(lane);

	for (unsigned i = 0; w && !w->over && i < PAYLOADS; i++) {
		if (w->payload[i].waits && w->payload[i].comm == comm)
			return true;
	}
	return false;
}

/* The socket first: a peer whose endpoint then fails checks it, and knows that we closed both. */
static void ucx_close(struct braid_lane *lane)
{
	struct ucx_ep *w = ep_of(lane);

	if (lane->fd >= 0)
		braid_os->close(lane->fd);
	lane->fd = -1;
	if (w && !w->over && !is_idle(w))
		ep_stop(w, dev_of(lane));
	ep_free(w);
	lane->priv = NULL;
	lane->event_fd = -1;
	lane->rx_dst = NULL;
}

/* A worker can be armed only when it has nothing left to do. */
static bool ucx_arm(struct braid_lane *lane)
{
	struct ucx_ep *w = ep_of(lane);
	ucs_status_t status = UCS_OK;

	if (w->over)
		return true;
	braid_lock_wait(&w->lock);
	for (unsigned i = 0; i < ARM_TURNS && w->worker; i++) {
		status = braid_ucp.worker_arm(w->worker);
		if (status != UCS_ERR_BUSY)
			break;
		turn(w);
	}
	braid_unlock(&w->lock);
	return status == UCS_OK;
}

static int ucx_health(struct braid_lane *lane, struct braid_health *ret)
{
	int err;

	ret->unacked = true;
	if (!braid_trylock(&lane->link->lock))
		return 0;		/* it is being moved */
	ret->unacked = lane->tx.f_sent != lane->tx.f_peer_acked;
	err = braid_lane_stuck(lane, &ep_of(lane)->look, STUCK) && !atomic_load(&left) ?
	      -ETIMEDOUT : 0;
	braid_unlock(&lane->link->lock);
	return err;
}

const struct braid_transport braid_ucx = {
	.name = "ucx",
	.id = BRAID_TRANSPORT_UCX,
	.dma = true,
	.lane_size = sizeof(struct braid_lane),
	.probe = braid_ucx_probe,
	.usable = braid_always,
	.event_fd = braid_no_event_fd,
	.events = braid_no_events,
	.reg = braid_no_reg,
	.dereg = braid_no_dereg,
	.gpu = &braid_ucx_gpu,
	.blob = true,
	.slow = true,
	.setup = ucx_setup,
	.setup_peer = ucx_setup_peer,
	.setup_ready = ucx_setup_ready,
	.setup_drop = ucx_setup_drop,
	.lane_open = ucx_open,
	.lane_attach = ucx_attach,
	.lane_detach = braid_no_lane,
	.lane_close = ucx_close,
	.lane_fence = ucx_fence,
	.lands = ucx_lands,
	.arm = ucx_arm,
	.push = ucx_push,
	.post = ucx_post,
	.poll = ucx_poll,
	.health = ucx_health,
	.describe = braid_no_describe,
};
