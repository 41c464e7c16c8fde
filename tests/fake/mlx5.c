/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mlx5.c - Data Direct of the fake NICs: libmlx5.so.1.
 *
 * The path is reported relative to /sys, whose imitation lies elsewhere.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

EXPORT int mlx5dv_get_data_direct_sysfs_path(struct ibv_context *ctx, char *ret, size_t len);
EXPORT struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
					   int fd, int access, int mlx5_access);

int mlx5dv_get_data_direct_sysfs_path(struct ibv_context *ctx, char *ret, size_t len)
{
	const char *path = fake_direct_path(ctx);

	if (fake_call_fails(__func__))
		return errno;
	if (!path[0])
		return ENODEV;
	return (size_t)snprintf(ret, len, "/..%s", path) < len ? 0 : ENOSPC;
}

struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd,
				    int access, int mlx5_access)
{
	if (mlx5_access & ~1) {
		errno = EINVAL;
		return NULL;
	}
	return fake_reg_dmabuf(pd, offset, len, iova, fd, access, mlx5_access & 1);
}
