/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.c - GPU memory by UCX's own support.  It is offered only if UCX reports such support, and
 * has moved GPU memory here in a try.
 *
 * UCX then gets GPU addresses as they are, with their memory type, and chooses: it copies by the
 * driver, or has a NIC read and write there.  UCX does not flush what a NIC has written, so GDRCopy
 * or the driver does.  If a lane is lost, its frames go on over sockets by the driver's copies, as
 * those of verbs do (core/mem/gpucopy.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "gdr/bar.h"
#include "gdr/cuda.h"
#include "ucx/port.h"

enum { TRIED = 256 << 10, TRY_TAG = 1 };	/* bytes: for UCX a large message */
#define TRY_NS 5000000000ull

/* --- a try: from the GPU to the GPU, through an endpoint to ourselves ---------------------- */

struct try {
	ucp_worker_h worker;
	ucp_ep_h ep;
	unsigned left;			/* requests, send and receive, that have not completed */
	ucs_status_t status;
};

static void over(struct try *t, void *req, ucs_status_t status)
{
	t->left--;
	if (t->status == UCS_OK)
		t->status = status;
	braid_ucp.request_free(req);
}

static void tried_send(void *req, ucs_status_t status, void *arg)
{
	over(arg, req, status);
}

static void tried_recv(void *req, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
	(void)info;
	over(arg, req, status);
}

static void tried_end(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct try *t = arg;

	(void)ep;
	t->status = status;
}

/* Counts a request that was begun; returns its error if it failed at once. */
static ucs_status_t count_begun(struct try *t, ucs_status_ptr_t req)
{
	if (!UCS_PTR_IS_ERR(req))
		t->left += req != NULL;
	return UCS_PTR_IS_ERR(req) ? UCS_PTR_STATUS(req) : UCS_OK;
}

static ucs_status_t try_open(struct try *t, ucp_context_h ctx)
{
	ucp_worker_params_t params = { .field_mask = 0 };
	ucp_ep_params_t to = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { .cb = tried_end, .arg = t },
	};
	ucp_address_t *address;
	size_t len;
	ucs_status_t status;

	braid_ucx_warn_listens();
	status = braid_ucp.worker_create(ctx, &params, &t->worker);

	if (status != UCS_OK) {
		t->worker = NULL;
		return status;
	}
	status = braid_ucp.worker_get_address(t->worker, &address, &len);
	if (status != UCS_OK)
		return status;
	to.address = address;
	status = braid_ucp.ep_create(t->worker, &to, &t->ep);
	if (status != UCS_OK)
		t->ep = NULL;
	braid_ucp.worker_release_address(t->worker, address);
	return status;
}

static void try_close(struct try *t)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE,
	};
	uint64_t until = braid_os->now_ns() + TRY_NS;
	ucs_status_ptr_t req = t->ep ? braid_ucp.ep_close(t->ep, &param) : NULL;

	while (UCS_PTR_IS_PTR(req) && braid_ucp.request_status(req) == UCS_INPROGRESS &&
	       braid_os->now_ns() < until)
		braid_ucp.worker_progress(t->worker);
	if (UCS_PTR_IS_PTR(req))
		braid_ucp.request_free(req);
	if (t->worker)
		braid_ucp.worker_destroy(t->worker);
}

static ucs_status_t try_move(struct try *t, char *to, const char *from)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
		.user_data = t, .memory_type = UCS_MEMORY_TYPE_CUDA,
	};
	uint64_t until = braid_os->now_ns() + TRY_NS;
	ucs_status_t status;

	param.cb.recv = tried_recv;
	status = count_begun(t, braid_ucp.tag_recv(t->worker, to, TRIED, TRY_TAG, UINT64_MAX,
						   &param));
	if (status != UCS_OK)
		return status;
	param.cb.send = tried_send;
	status = count_begun(t, braid_ucp.tag_send(t->ep, from, TRIED, TRY_TAG, &param));
	while (status == UCS_OK && t->status == UCS_OK && t->left) {
		if (!braid_ucp.worker_progress(t->worker) && braid_os->now_ns() > until)
			return UCS_ERR_TIMED_OUT;
	}
	return status == UCS_OK ? t->status : status;
}

/* 0, or an errno and in *ret_what the reason.  `want` and `got` have room for TRIED bytes. */
static int try_with(ucp_context_h ctx, char *gpu, uint8_t *want, uint8_t *got,
		    const char **ret_what)
{
	struct try t = { .status = UCS_OK };
	struct braid_ucp_guard g;
	ucs_status_t status;

	for (unsigned i = 0; i < TRIED; i++)
		want[i] = (uint8_t)(i * 31 + (i >> 8) + 1);
	*ret_what = "the driver";
	if (braid_gpu_write(gpu, want, TRIED))
		return -EIO;
	braid_ucp_guard(&g);
	status = try_open(&t, ctx);
	if (status == UCS_OK)
		status = try_move(&t, gpu + TRIED, gpu);
	try_close(&t);
	braid_ucp_unguard(&g);
	*ret_what = braid_ucp.status_string(status);
	if (status != UCS_OK)
		return braid_ucp_errno(status);
	*ret_what = "other bytes came";
	return braid_gpu_read(got, gpu + TRIED, TRIED) || memcmp(want, got, TRIED) ? -EIO : 0;
}

static int try_all(ucp_context_h ctx, char *gpu, const char **ret_what)
{
	uint8_t *bytes = malloc(2 * TRIED);
	int err;

	*ret_what = "no memory to try it with";
	err = bytes ? try_with(ctx, gpu, bytes, bytes + TRIED, ret_what) : -ENOMEM;
	free(bytes);
	return err;
}

/* --- what is offered ----------------------------------------------------------------------- */

/* Can what NICs write into that GPU be flushed, if needed?  The GPU's context is current. */
static bool is_flushed(const struct braid_ucx_port *p, int gpu)
{
	char why[128];

	return !p->rdma || !braid_param.gpu_flush || !braid_bar_open(gpu, why, sizeof(why)) ||
	       !braid_gpu_can_flush(gpu);
}

static bool says_so(const struct braid_ucx_port *p)
{
	ucp_context_attr_t attr = { .field_mask = UCP_ATTR_FIELD_MEMORY_TYPES };

	return braid_ucp.context_query(p->ctx, &attr) == UCS_OK &&
	       attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA);
}

static bool try_gpu(const struct braid_ucx_port *p, char *why, size_t len)
{
	int mode = braid_gpu_enter(), err;
	struct braid_gpu_mem what;
	const char *failed = "no memory of the GPU to try it with";
	void *gpu;

	err = braid_gpu_alloc(2 * TRIED, &gpu);
	if (!err) {
		failed = "the driver does not know its own memory";
		err = braid_gpu_query(gpu, 2 * TRIED, &what);
		if (!err && !is_flushed(p, what.gpu)) {
			failed = "neither GDRCopy nor the driver flushes what NICs write there";
			err = -EOPNOTSUPP;
		}
		if (!err)
			err = try_all(p->ctx, gpu, &failed);
		braid_gpu_free(gpu);
	}
	braid_gpu_leave(mode);
	snprintf(why, len, "UCX %s, to an endpoint of its own: %s", braid_ucp.version_string(),
		 err ? failed : "ok");
	return !err;
}

static unsigned gpu_probe(struct braid_dev *dev, char *why, size_t len)
{
	struct braid_ucx_port *p = braid_ucx_port_of(dev);

	p->gpu = false;
	if (braid_param_lists(braid_param.gpu, "none"))
		snprintf(why, len, "BRAID_GPU has none");
	else if (!says_so(p))
		snprintf(why, len, "UCX %s has no support of it: its modules for CUDA are missing, "
			 "or UCX_TLS leaves them out (cuda)", braid_ucp.version_string());
	else if (dev->port[BRAID_TRANSPORT_VERBS])
		snprintf(why, len, "verbs, which BRAID_TRANSPORTS has as well, would not have what "
			 "was registered for UCX");
	else
		p->gpu = try_gpu(p, why, len);
	return p->gpu ? BRAID_GPU_REG : 0;
}

static int gpu_reg(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret)
{
	if (!is_flushed(braid_ucx_port_of(dev), mem->gpu_index))
		return -EOPNOTSUPP;
	*ret = (struct braid_key){ .gpu = mem->gpu_index };
	return 0;
}

/* No NIC of ours can copy, so the core has the driver copy. */
static int gpu_copy(struct braid_dev *dev, const struct braid_key *key, struct braid_gpu_copy *c)
{
	(void)dev, (void)key, (void)c;
	return -ENODEV;
}

static void gpu_copy_end(struct braid_dev *dev, struct braid_gpu_copy *c)
{
	(void)dev, (void)c;
}

/* -EOPNOTSUPP without GDRCopy: then the driver flushes; is_flushed() has found that it can. */
static int gpu_flush(struct braid_dev *dev, const struct braid_key *key, char *at,
		     struct braid_gpu_flush *f)
{
	(void)at, (void)f;
	return !braid_ucx_port_of(dev)->rdma || braid_bar_read(key->gpu) ? 0 : -EOPNOTSUPP;
}

const struct braid_gpu braid_ucx_gpu = {
	.probe = gpu_probe,
	.reg = gpu_reg,
	.copy = gpu_copy,
	.copy_end = gpu_copy_end,
	.flush = gpu_flush,
};
