/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * msg.c - the messages of an endpoint: receives are posted, sends begun, and UCX is given the CPU.
 *
 * All of it is called with w->lock held, which the callbacks thus hold too.  Once the worker has
 * moved memory of a GPU, UCX is called in that GPU's context, for which it asks the driver: the
 * service thread has none.
 */
#include <errno.h>

#include "ucx/ep.h"

enum { FLYING = 64 };			/* sends that UCX has not completed */

void braid_ucx_ep_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct ucx_ep *w = arg;

	(void)ep;
	if (w->status == UCS_OK)
		w->status = status;
}

static void sent(void *req, ucs_status_t status, void *arg)
{
	struct ucx_ep *w = arg;

	braid_assert_locked(&w->lock);
	w->flying--;
	braid_ucx_ep_error(w, NULL, status);
	braid_ucp.request_free(req);
}

void braid_ucx_send_init(struct ucx_ep *w)
{
	w->send_param = (ucp_request_param_t){
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.cb.send = sent, .user_data = w, .memory_type = UCS_MEMORY_TYPE_HOST,
	};
}

static void received(void *req, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
	struct ucx_slot *s = arg;

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

unsigned braid_ucx_progress_once(struct ucx_ep *w)
{
	int mode;
	unsigned n;
	bool in;

	braid_assert_locked(&w->lock);
	in = enter_gpu(w, &mode);
	n = braid_ucp.worker_progress(w->worker);
	if (in)
		braid_stage_leave(mode);
	return n;
}

void braid_ucx_progress(struct ucx_ep *w)
{
	braid_assert_locked(&w->lock);
	for (unsigned i = 0; i < BRAID_UCX_PROGRESS_MAX && braid_ucx_progress_once(w); i++)
		;
}

/*
 * Posts a receive.  It must not complete at once, since UCX 1.13 then does not report the length.
 * gpu: the GPU memory in which s->at lies, or NULL.
 */
void braid_ucx_post(struct ucx_ep *w, struct ucx_slot *s, size_t size, uint64_t tag,
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

	braid_assert_locked(&w->lock);
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
	braid_ucx_ep_error(w, NULL, s->status);
}

/* Posts all free slots for heads. */
void braid_ucx_post_heads(struct ucx_ep *w)
{
	braid_assert_locked(&w->lock);
	while (w->posted - w->slots < BRAID_UCX_SLOTS)
		braid_ucx_post(w, &w->slot[w->posted++ % BRAID_UCX_SLOTS], BRAID_UCX_SLOT,
			       BRAID_UCX_HEAD, NULL);
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
int braid_ucx_send(struct ucx_ep *w, const void *data, size_t len, uint64_t tag,
		   const struct braid_mr *gpu)
{
	ucs_status_ptr_t req;

	braid_assert_locked(&w->lock);
	if (atomic_load(&braid_ucx_left))
		return -EAGAIN;
	if (!w->worker || w->status != UCS_OK)
		return -EIO;
	if (w->flying >= FLYING)
		return -EAGAIN;
	req = gpu ? send_gpu(w, data, len, tag, gpu) :
		    braid_ucp.tag_send(w->ep, data, len, w->tag_tx | tag, &w->send_param);
	if (UCS_PTR_IS_ERR(req)) {
		braid_ucx_ep_error(w, NULL, UCS_PTR_STATUS(req));
		return -EIO;
	}
	w->flying += req != NULL;
	return 0;
}
