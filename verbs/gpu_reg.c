/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_reg.c - the methods to register GPU memory with a NIC. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "gdr/cuda.h"
#include "verbs/direct.h"
#include "verbs/gpu.h"
#include "verbs/mr.h"

enum { GPU_LOG_GATES = 16 };		/* so many GPUs have a log limit each */

const char *const braid_gpu_method_name[BRAID_GPU_METHODS] = {
	"direct-pcie", "direct", "pcie", "dmabuf", "peermem",
};

/* Remote reads are for the loop.  Queue pairs of lanes allow them if gets may come. */
static unsigned gpu_access(const struct braid_mem *mem)
{
	return IBV_ACCESS_REMOTE_READ |
	       (mem->send_only ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static int mr_key(struct ibv_mr *mr, int gpu, struct braid_key *ret)
{
	if (!mr)
		return errno ? -errno : -EIO;
	*ret = (struct braid_key){
		.mr = mr, .local = mr->lkey, .remote = mr->rkey, .gpu = gpu,
		.sealed = braid_param.rdma_strict,
	};
	return 0;
}

bool braid_gpu_method_is_direct(unsigned method)
{
	return BRAID_WITH_DIRECT & 1u << method;
}

static int reg_fd(struct braid_ibport *p, const struct braid_mem *mem, unsigned method, int fd,
		  uint64_t offset, struct braid_key *ret)
{
	uint64_t at = (uint64_t)(uintptr_t)mem->data;
	int access = (int)(gpu_access(mem) | braid_ibport_relaxed());
	bool direct = braid_gpu_method_is_direct(method);
	struct ibv_mr *mr;

	if (!direct && !braid_ibv.reg_dmabuf_mr)
		return -EOPNOTSUPP;
	errno = 0;
	mr = direct ? braid_direct_reg(p->pd, offset, mem->size, at, fd, access) :
		      braid_ibv.reg_dmabuf_mr(p->pd, offset, mem->size, at, fd, access);
	return mr_key(mr, mem->gpu_index, ret);
}

static int reg_export(struct braid_ibport *p, const struct braid_mem *mem, unsigned method,
		      struct braid_key *ret)
{
	bool pcie = method == BRAID_DIRECT_PCIE || method == BRAID_DMABUF_PCIE;
	uint64_t offset;
	int fd, err = braid_gpu_export(mem->data, mem->size, pcie, &fd, &offset);

	if (err)
		return err;
	err = reg_fd(p, mem, method, fd, offset, ret);
	close(fd);
	return err;
}

static int reg_peermem(struct braid_ibport *p, const struct braid_mem *mem, struct braid_key *ret)
{
	errno = 0;
	return mr_key(braid_ibport_reg_user(p, mem->data, mem->size, gpu_access(mem)),
		      mem->gpu_index, ret);
}

int braid_gpu_reg_by(struct braid_ibport *p, const struct braid_mem *mem, unsigned method,
		     struct braid_key *ret)
{
	return method == BRAID_PEERMEM ? reg_peermem(p, mem, ret) :
					 reg_export(p, mem, method, ret);
}

void braid_gpu_note_text(char *why, size_t len, const char *name, const char *text)
{
	size_t at = strlen(why);

	if (at + 1 < len)
		snprintf(why + at, len - at, "%s%s%s%s", at ? ", " : "", name, *text ? ": " : "",
			 text);
}

static void warn_not_registered(const struct braid_ibport *p, const struct braid_mem *mem,
				const char *why)
{
	char which[80] = "a GPU that the driver does not name";

	if (mem->gpu_index >= 0)
		snprintf(which, sizeof(which), "GPU %d (CUDA's number)%s", mem->gpu_index,
			 mem->gpu_index == p->gpu_tried ? "" :
			 ", which is not the one that was tried at init");
	braid_warn("port %s: can't register %zu bytes of %s: %s; docs/user/gpu.md says what each "
		   "needs [gpu-not-registered]",
		   p->name, mem->size, which, why);
}

/*
 * Should the caller's DMA-BUF be tried before that method?  Whether it was exported for PCIe is not
 * known here.  So it is tried once before the two methods that differ in this, if either works.
 */
static bool tries_caller_fd(const struct braid_ibport *p, unsigned method)
{
	return (method == BRAID_DIRECT_PCIE && p->gpu_methods & BRAID_WITH_DIRECT) ||
	       (method == BRAID_DMABUF_PCIE && p->gpu_methods & BRAID_WITH_DMABUF);
}

/* Tries the caller's DMA-BUF, if there is one, and the methods that the probe found to work. */
int braid_verbs_gpu_reg(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret)
{
	static struct braid_log_gate gate[GPU_LOG_GATES];
	struct braid_ibport *p = braid_ibport_of(dev);
	char why[256] = "";
	int err = -EOPNOTSUPP;

	for (unsigned method = 0; method < BRAID_GPU_METHODS; method++) {
		if (mem->fd >= 0 && tries_caller_fd(p, method)) {
			err = reg_fd(p, mem, method, mem->fd, mem->offset, ret);
			if (!err)
				return 0;
			braid_gpu_note(why, sizeof(why), braid_gpu_method_is_direct(method) ?
				       "NCCL's DMA-BUF, direct" : "NCCL's DMA-BUF", err);
		}
		if (!(p->gpu_methods & 1u << method))
			continue;
		err = braid_gpu_reg_by(p, mem, method, ret);
		if (!err)
			return 0;
		braid_gpu_note(why, sizeof(why), braid_gpu_method_name[method], err);
	}
	if (braid_log_gate_open(&gate[(unsigned)mem->gpu_index % GPU_LOG_GATES],
				braid_os->now_ns()))
		warn_not_registered(p, mem, why);
	return err;
}
