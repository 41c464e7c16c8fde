/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib.h - libibverbs, librdmacm and libmlx5, loaded at run time.
 *
 * The build needs only their headers.  A host without the libraries loads the plugin all the same.
 * The headers' inline functions (posting, polling) call through the device's own table and need no
 * library.
 */
#ifndef BRAID_VERBS_LIB_H
#define BRAID_VERBS_LIB_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stddef.h>

/* The headers define these as macros for other functions. */
#undef ibv_query_port
#undef ibv_reg_mr

/* X(result, name, arguments): functions of libibverbs.  It may lack those of WANTED. */
#define BRAID_IBV_NEEDED(X) \
	X(struct ibv_device **, get_device_list, (int *n)) \
	X(void, free_device_list, (struct ibv_device **list)) \
	X(struct ibv_context *, open_device, (struct ibv_device *dev)) \
	X(int, close_device, (struct ibv_context *ctx)) \
	X(int, query_device, (struct ibv_context *ctx, struct ibv_device_attr *attr)) \
	X(int, query_port, (struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)) \
	X(int, query_gid, (struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)) \
	X(int, query_pkey, (struct ibv_context *ctx, uint8_t port, int index, __be16 *pkey)) \
	X(struct ibv_pd *, alloc_pd, (struct ibv_context *ctx)) \
	X(int, dealloc_pd, (struct ibv_pd *pd)) \
	X(struct ibv_mr *, reg_mr, (struct ibv_pd *pd, void *addr, size_t len, int access)) \
	X(int, dereg_mr, (struct ibv_mr *mr)) \
	X(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context *ctx)) \
	X(int, destroy_comp_channel, (struct ibv_comp_channel *channel)) \
	X(struct ibv_cq *, create_cq, (struct ibv_context *ctx, int cqe, void *user, \
				       struct ibv_comp_channel *channel, int vector)) \
	X(int, destroy_cq, (struct ibv_cq *cq)) \
	X(int, get_cq_event, (struct ibv_comp_channel *ch, struct ibv_cq **cq, void **user)) \
	X(void, ack_cq_events, (struct ibv_cq *cq, unsigned n)) \
	X(struct ibv_qp *, create_qp, (struct ibv_pd *pd, struct ibv_qp_init_attr *attr)) \
	X(int, modify_qp, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)) \
	X(int, destroy_qp, (struct ibv_qp *qp)) \
	X(struct ibv_ah *, create_ah, (struct ibv_pd *pd, struct ibv_ah_attr *attr)) \
	X(int, destroy_ah, (struct ibv_ah *ah)) \
	X(int, get_async_event, (struct ibv_context *ctx, struct ibv_async_event *ev)) \
	X(void, ack_async_event, (struct ibv_async_event *ev)) \
	X(int, fork_init, (void)) \
	X(const char *, wc_status_str, (enum ibv_wc_status status)) \
	X(const char *, event_type_str, (enum ibv_event_type type))

#define BRAID_IBV_WANTED(X) \
	X(struct ibv_srq *, create_srq, (struct ibv_pd *pd, struct ibv_srq_init_attr *attr)) \
	X(int, destroy_srq, (struct ibv_srq *srq)) \
	X(int, query_ece, (struct ibv_qp *qp, struct ibv_ece *ece)) \
	X(int, set_ece, (struct ibv_qp *qp, struct ibv_ece *ece)) \
	X(int, query_port_speed, (struct ibv_context *ctx, uint32_t port, uint64_t *ret)) \
	X(enum ibv_fork_status, is_fork_initialized, (void)) \
	X(struct ibv_mr *, reg_mr_iova2, (struct ibv_pd *pd, void *addr, size_t len, \
					  uint64_t iova, unsigned access)) \
	X(struct ibv_mr *, reg_dmabuf_mr, (struct ibv_pd *pd, uint64_t offset, size_t len, \
					   uint64_t iova, int fd, int access))

#define BRAID_RDMA_NEEDED(X) \
	X(struct rdma_event_channel *, create_event_channel, (void)) \
	X(void, destroy_event_channel, (struct rdma_event_channel *ch)) \
	X(int, create_id, (struct rdma_event_channel *ch, struct rdma_cm_id **id, void *user, \
			   enum rdma_port_space ps)) \
	X(int, destroy_id, (struct rdma_cm_id *id)) \
	X(int, bind_addr, (struct rdma_cm_id *id, struct sockaddr *addr)) \
	X(int, listen, (struct rdma_cm_id *id, int backlog)) \
	X(int, resolve_addr, (struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, \
			      int timeout_ms)) \
	X(int, resolve_route, (struct rdma_cm_id *id, int timeout_ms)) \
	X(int, create_qp, (struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)) \
	X(void, destroy_qp, (struct rdma_cm_id *id)) \
	X(int, connect, (struct rdma_cm_id *id, struct rdma_conn_param *p)) \
	X(int, accept, (struct rdma_cm_id *id, struct rdma_conn_param *p)) \
	X(int, reject, (struct rdma_cm_id *id, const void *data, uint8_t len)) \
	X(int, get_cm_event, (struct rdma_event_channel *ch, struct rdma_cm_event **ev)) \
	X(int, ack_cm_event, (struct rdma_cm_event *ev)) \
	X(__be16, get_src_port, (struct rdma_cm_id *id)) \
	X(int, set_option, (struct rdma_cm_id *id, int level, int name, void *value, size_t len))

/* libmlx5 has these from rdma-core 54 on.  See verbs/direct.h. */
#define BRAID_MLX5_NEEDED(X) \
	X(int, get_data_direct_sysfs_path, (struct ibv_context *ctx, char *ret, size_t len)) \
	X(struct ibv_mr *, reg_dmabuf_mr, (struct ibv_pd *pd, uint64_t offset, size_t len, \
					   uint64_t iova, int fd, int access, int mlx5_access))

#define BRAID_LIB_MEMBER(result, name, args) result (*name) args;

struct braid_ibv {
	BRAID_IBV_NEEDED(BRAID_LIB_MEMBER)
	BRAID_IBV_WANTED(BRAID_LIB_MEMBER)
	/* _ibv_query_gid_ex(): type and interface of a GID.  NULL: read them from sysfs. */
	int (*query_gid_ex)(struct ibv_context *ctx, uint32_t port, uint32_t index,
			    struct ibv_gid_entry *entry, uint32_t flags, size_t size);
};

struct braid_rdma {
	BRAID_RDMA_NEEDED(BRAID_LIB_MEMBER)
};

struct braid_mlx5 {
	BRAID_MLX5_NEEDED(BRAID_LIB_MEMBER)
};

extern struct braid_ibv braid_ibv;
extern struct braid_rdma braid_rdma;
extern struct braid_mlx5 braid_mlx5;

/*
 * Once per process, at init.  0, or -ENOENT (no such library) or -ENOSYS (too old: a function is
 * missing); `why` then says so in one line, with what to do.
 */
int braid_ibv_load(char *why, size_t len);
int braid_rdma_load(char *why, size_t len);
int braid_mlx5_load(char *why, size_t len);

/* What keeps pinned memory intact across fork(): "the kernel", "libibverbs", or nothing. */
const char *braid_ibv_fork(void);

#endif
