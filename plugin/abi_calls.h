/* SPDX-License-Identifier: BSD-3-Clause */
/* abi_calls.h - see abi.h: prototypes, each named after the first version that had it. */
#ifndef BRAID_PLUGIN_ABI_CALLS_H
#define BRAID_PLUGIN_ABI_CALLS_H

#include "plugin/abi_const.h"
#include "plugin/abi_props.h"

typedef ncclResult_t nccl_init_v5(ncclDebugLogger_t log);
typedef ncclResult_t nccl_init_v10(ncclDebugLogger_t log, ncclProfilerCallback_t prof);
typedef ncclResult_t nccl_init_v11(void **ctx, uint64_t comm_id, ncclNetCommConfig_v10_t *config,
				   ncclDebugLogger_t log, ncclProfilerCallback_t prof);

typedef ncclResult_t nccl_devices_v5(int *ndev);

typedef ncclResult_t nccl_props_v5(int dev, ncclNetProperties_v5_t *props);
typedef ncclResult_t nccl_props_v6(int dev, ncclNetProperties_v6_t *props);
typedef ncclResult_t nccl_props_v7(int dev, ncclNetProperties_v7_t *props);
typedef ncclResult_t nccl_props_v8(int dev, ncclNetProperties_v8_t *props);
typedef ncclResult_t nccl_props_v9(int dev, ncclNetProperties_v9_t *props);
typedef ncclResult_t nccl_props_v11(int dev, ncclNetProperties_v11_t *props);
typedef ncclResult_t nccl_props_v12(int dev, ncclNetProperties_v12_t *props);

typedef ncclResult_t nccl_listen_v5(int dev, void *handle, void **listen_comm);
typedef ncclResult_t nccl_listen_v11(void *ctx, int dev, void *handle, void **listen_comm);

typedef ncclResult_t nccl_connect_v5(int dev, void *handle, void **send_comm);
typedef ncclResult_t nccl_connect_v7(int dev, void *handle, void **send_comm,
				     ncclNetDeviceHandle_v7_t **offload);
typedef ncclResult_t nccl_connect_v10(int dev, ncclNetCommConfig_v10_t *config, void *handle,
				      void **send_comm, ncclNetDeviceHandle_v7_t **offload);
typedef ncclResult_t nccl_connect_v11(void *ctx, int dev, void *handle, void **send_comm,
				      ncclNetDeviceHandle_v7_t **offload);

typedef ncclResult_t nccl_accept_v5(void *listen_comm, void **recv_comm);
typedef ncclResult_t nccl_accept_v7(void *listen_comm, void **recv_comm,
				    ncclNetDeviceHandle_v7_t **offload);

typedef ncclResult_t nccl_reg_v5(void *comm, void *data, int size, int type, void **mr);
typedef ncclResult_t nccl_reg_v8(void *comm, void *data, size_t size, int type, void **mr);
typedef ncclResult_t nccl_reg_dmabuf_v6(void *comm, void *data, size_t size, int type,
					uint64_t offset, int fd, void **mr);
typedef ncclResult_t nccl_dereg_v5(void *comm, void *mr);

typedef ncclResult_t nccl_isend_v5(void *comm, void *data, int size, int tag, void *mr,
				   void **req);
typedef ncclResult_t nccl_isend_v9(void *comm, void *data, size_t size, int tag, void *mr,
				   void **req);
typedef ncclResult_t nccl_isend_v10(void *comm, void *data, size_t size, int tag, void *mr,
				    void *phandle, void **req);

typedef ncclResult_t nccl_irecv_v5(void *comm, int n, void **data, int *sizes, int *tags,
				   void **mrs, void **req);
typedef ncclResult_t nccl_irecv_v9(void *comm, int n, void **data, size_t *sizes, int *tags,
				   void **mrs, void **req);
typedef ncclResult_t nccl_irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags,
				    void **mrs, void **phandles, void **req);

typedef ncclResult_t nccl_iflush_v5(void *comm, int n, void **data, int *sizes, void **mrs,
				    void **req);
typedef ncclResult_t nccl_test_v5(void *req, int *done, int *sizes);
typedef ncclResult_t nccl_close_v5(void *comm);

typedef ncclResult_t nccl_device_mr_v7(void *comm, void *mr, void **device_mr);
typedef ncclResult_t nccl_consumed_v7(void *comm, int n, void *req);
typedef ncclResult_t nccl_vdevice_v9(int *dev, ncclNetVDeviceProps_v9_t *members);
typedef ncclResult_t nccl_vdevice_v12(int *dev, ncclNetVDeviceProps_v12_t *members);
typedef ncclResult_t nccl_finalize_v11(void *ctx);
typedef ncclResult_t nccl_attr_v11(void *ctx, ncclNetAttr_v11_t *attr);

#endif
