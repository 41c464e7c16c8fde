/* SPDX-License-Identifier: BSD-3-Clause */
/* direct.c - see direct.h. */
#include "verbs/direct.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BY_DIRECT = 1 };		/* MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT */

/* Checks the kernel driver's name (a card's or a subfunction's): a device can be renamed. */
static bool is_mlx5(const struct ibv_context *ctx)
{
	char path[IBV_SYSFS_PATH_MAX + 16], to[PATH_MAX];
	const char *name;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/device/driver", ctx->device->ibdev_path);
	n = readlink(path, to, sizeof(to) - 1);
	if (n < 0)
		return false;
	to[n] = '\0';
	name = strrchr(to, '/');
	return !strncmp(name ? name + 1 : to, "mlx5_", 5);
}

int braid_direct_find(struct ibv_context *ctx, char *ret, size_t len, char *why, size_t why_len)
{
	int err;

	if (!is_mlx5(ctx))
		return -ENODEV;
	err = braid_mlx5_load(why, why_len);
	if (err)
		return err;
	snprintf(ret, len, "/sys");
	err = braid_mlx5.get_data_direct_sysfs_path(ctx, ret + strlen(ret), len - strlen(ret));
	if (err)
		snprintf(why, why_len, "%s", strerror(err));
	return -err;
}

struct ibv_mr *braid_direct_reg(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
				int fd, int access)
{
	return braid_mlx5.reg_dmabuf_mr(pd, offset, len, iova, fd, access, BY_DIRECT);
}
