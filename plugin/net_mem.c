/* SPDX-License-Identifier: BSD-3-Clause */
/* net_mem.c - memory that NCCL registers. */
#include <errno.h>

#include "core/base/log.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/flush.h"
#include "core/mem/later.h"
#include "core/mem/mrcache.h"
#include "core/msg/comm.h"
#include "gdr/cuda.h"
#include "plugin/net_int.h"

/* Memory registered as CUDA's may be pinned memory of the host, and is then treated as such. */
void braid_net_find_gpu(struct braid_mem *mem)
{
	struct braid_gpu_mem gpu;
	int err = braid_gpu_query(mem->data, mem->size, &gpu);

	mem->gpu = err != -EINVAL;
	mem->gpu_index = err ? -1 : gpu.gpu;
	mem->gpu_id = err ? 0 : gpu.id;
}

static ncclResult_t reg(struct braid_comm *c, struct braid_mem *mem, int type, void **ret_mr)
{
	const struct braid_dev *dev = c->link->key.dev;
	struct braid_mr *mr;
	int err;

	*ret_mr = NULL;
	if (type == NCCL_PTR_CUDA && !dev->gpu) {
		braid_warn("device %s: memory of a GPU was to be registered, which its properties "
			   "do not offer. If a topology file (NCCL_TOPO_FILE) says gdr=\"1\" of "
			   "this NIC, NCCL believes that: take it out there "
			   "[gpu-memory-not-offered]",
			   dev->net.name);
		return ncclInternalError;
	}
	if (type != NCCL_PTR_HOST && type != NCCL_PTR_CUDA) {
		braid_warn("device %s: memory of type %d, which its properties do not offer "
			   "[bad-memory-type]",
			   dev->net.name, type);
		return ncclInternalError;
	}
	mem->send_only = c->sender;
	if (type == NCCL_PTR_CUDA)
		braid_net_find_gpu(mem);
	err = braid_mr_new(c->link->key.dev, mem, &mr);
	if (err)
		return braid_net_result(err);
	pthread_mutex_lock(&braid_net_lock);
	braid_list_add_tail(&c->mrs, &mr->node);
	pthread_mutex_unlock(&braid_net_lock);
	*ret_mr = mr;
	return ncclSuccess;
}

ncclResult_t braid_net_reg(void *comm, void *data, size_t size, int type, void **ret_mr)
{
	struct braid_mem mem = { .data = data, .size = size, .fd = -1 };

	if (braid_net_forked())
		return ncclSystemError;
	return comm && ret_mr ? reg(comm, &mem, type, ret_mr) : braid_net_misuse("regMr");
}

ncclResult_t braid_net_reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
				  int fd, void **ret_mr)
{
	struct braid_mem mem = { .data = data, .size = size, .fd = fd, .offset = offset };

	if (braid_net_forked())
		return ncclSystemError;
	return comm && ret_mr ? reg(comm, &mem, type, ret_mr) : braid_net_misuse("regMrDmaBuf");
}

ncclResult_t braid_net_dereg(void *comm, void *opaque)
{
	struct braid_mr *mr = opaque;
	int err;

	if (braid_net_forked())
		return ncclSystemError;
	if (!comm || !mr)
		return ncclSuccess;
	braid_flush_cancel(comm, mr);
	braid_comm_cancel(comm, mr);
	/* The NIC of a lost lane may still read the memory, even for sends that have completed. */
	err = braid_stops_wait(mr->dev);
	if (err)
		return braid_net_result(err);
	pthread_mutex_lock(&braid_net_lock);
	braid_list_del(&mr->node);
	pthread_mutex_unlock(&braid_net_lock);
	braid_mr_free(mr);
	return ncclSuccess;
}
