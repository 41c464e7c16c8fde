/* SPDX-License-Identifier: BSD-3-Clause */
/* lib.c - see lib.h. */
#include "verbs/lib.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/base/lib.h"

struct braid_ibv braid_ibv;
struct braid_rdma braid_rdma;
struct braid_mlx5 braid_mlx5;

static const char *fork_by = "not checked";

static int missing(const char *lib, const char *name, int since, char *why, size_t len)
{
	snprintf(why, len, "%s is too old: it has no %s; install rdma-core %d or newer", lib, name,
		 since);
	return -ENOSYS;
}

/* Kernels from 5.12 on copy pinned pages at fork(); before, libibverbs must mark each page. */
static void arrange_forks(void)
{
	if (braid_ibv.is_fork_initialized &&
	    braid_ibv.is_fork_initialized() == IBV_FORK_UNNEEDED)
		fork_by = "the kernel";
	else
		fork_by = braid_ibv.fork_init() ? "nothing: do not fork" : "libibverbs";
}

const char *braid_ibv_fork(void)
{
	return fork_by;
}

int braid_ibv_load(char *why, size_t len)
{
	void *lib;

	if (braid_ibv.get_device_list)
		return 0;
	lib = braid_lib_open("libibverbs.so.1", "libibverbs1 and ibverbs-providers for RDMA", why,
			     len);
	if (!lib)
		return -ENOENT;
#define NEED(result, name, args) \
	if (!braid_lib_find(lib, "ibv_" #name, &braid_ibv.name)) { \
		braid_ibv.get_device_list = NULL; \
		return missing("libibverbs", "ibv_" #name, 17, why, len); \
	}
	BRAID_IBV_NEEDED(NEED)
#undef NEED
#define WANT(result, name, args) braid_lib_find(lib, "ibv_" #name, &braid_ibv.name);
	BRAID_IBV_WANTED(WANT)
#undef WANT
	braid_lib_find(lib, "_ibv_query_gid_ex", &braid_ibv.query_gid_ex);
	arrange_forks();
	return 0;
}

int braid_rdma_load(char *why, size_t len)
{
	void *lib;

	if (braid_rdma.create_event_channel)
		return 0;
	lib = braid_lib_open("librdmacm.so.1", "librdmacm1 for RDMA", why, len);
	if (!lib)
		return -ENOENT;
#define NEED(result, name, args) \
	if (!braid_lib_find(lib, "rdma_" #name, &braid_rdma.name)) { \
		braid_rdma.create_event_channel = NULL; \
		return missing("librdmacm", "rdma_" #name, 17, why, len); \
	}
	BRAID_RDMA_NEEDED(NEED)
#undef NEED
	return 0;
}

/* libibverbs loads the same file as the driver of mlx5 NICs, so no second copy is loaded. */
int braid_mlx5_load(char *why, size_t len)
{
	void *lib;

	if (braid_mlx5.reg_dmabuf_mr)
		return 0;
	lib = braid_lib_open("libmlx5.so.1", "ibverbs-providers for Data Direct", why, len);
	if (!lib)
		return -ENOENT;
#define NEED(result, name, args) \
	if (!braid_lib_find(lib, "mlx5dv_" #name, &braid_mlx5.name)) \
		return missing("libmlx5", "mlx5dv_" #name, 54, why, len);
	BRAID_MLX5_NEEDED(NEED)
#undef NEED
	return 0;
}
