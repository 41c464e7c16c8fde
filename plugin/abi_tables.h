/* SPDX-License-Identifier: BSD-3-Clause */
/* abi_tables.h - see abi.h: the tables that NCCL looks up by name, one for each version. */
#ifndef BRAID_PLUGIN_ABI_TABLES_H
#define BRAID_PLUGIN_ABI_TABLES_H

#include "plugin/abi_calls.h"

typedef struct {
	const char *name;
	nccl_init_v5 *init;
	nccl_devices_v5 *devices;
	nccl_props_v5 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v5 *connect;
	nccl_accept_v5 *accept;
	nccl_reg_v5 *regMr;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v5 *isend;
	nccl_irecv_v5 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
} ncclNet_v5_t;

typedef struct {
	const char *name;
	nccl_init_v5 *init;
	nccl_devices_v5 *devices;
	nccl_props_v6 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v5 *connect;
	nccl_accept_v5 *accept;
	nccl_reg_v5 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;	/* new; NULL: none */
	nccl_dereg_v5 *deregMr;
	nccl_isend_v5 *isend;
	nccl_irecv_v5 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
} ncclNet_v6_t;

typedef struct {
	const char *name;
	nccl_init_v5 *init;
	nccl_devices_v5 *devices;
	nccl_props_v7 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v7 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v5 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v5 *isend;
	nccl_irecv_v5 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;		/* new; NULL: none */
	nccl_consumed_v7 *irecvConsumed;	/* new; NULL: none */
} ncclNet_v7_t;

typedef struct {
	const char *name;
	nccl_init_v5 *init;
	nccl_devices_v5 *devices;
	nccl_props_v8 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v7 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v8 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v5 *isend;
	nccl_irecv_v5 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;
	nccl_consumed_v7 *irecvConsumed;
} ncclNet_v8_t;

typedef struct {
	const char *name;
	nccl_init_v5 *init;
	nccl_devices_v5 *devices;
	nccl_props_v9 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v7 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v8 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v9 *isend;
	nccl_irecv_v9 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;
	nccl_consumed_v7 *irecvConsumed;
	nccl_vdevice_v9 *makeVDevice;		/* new; NULL: no fusion */
} ncclNet_v9_t;

typedef struct {
	const char *name;
	nccl_init_v10 *init;
	nccl_devices_v5 *devices;
	nccl_props_v9 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v10 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v8 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v10 *isend;
	nccl_irecv_v10 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;
	nccl_consumed_v7 *irecvConsumed;
	nccl_vdevice_v9 *makeVDevice;
} ncclNet_v10_t;

typedef struct {
	const char *name;
	nccl_init_v11 *init;
	nccl_devices_v5 *devices;
	nccl_props_v11 *getProperties;
	nccl_listen_v11 *listen;
	nccl_connect_v11 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v8 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v10 *isend;
	nccl_irecv_v10 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;
	nccl_consumed_v7 *irecvConsumed;
	nccl_vdevice_v9 *makeVDevice;
	nccl_finalize_v11 *finalize;		/* new */
	nccl_attr_v11 *setNetAttr;		/* new; NULL: no interest */
} ncclNet_v11_t;

typedef struct {
	const char *name;
	nccl_init_v11 *init;
	nccl_devices_v5 *devices;
	nccl_props_v12 *getProperties;
	nccl_listen_v11 *listen;
	nccl_connect_v11 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v8 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v10 *isend;
	nccl_irecv_v10 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;
	nccl_consumed_v7 *irecvConsumed;
	nccl_vdevice_v12 *makeVDevice;
	nccl_finalize_v11 *finalize;
	nccl_attr_v11 *setNetAttr;
} ncclNet_v12_t;

#endif
