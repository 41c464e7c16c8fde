/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * abi_rma.h - NCCL's interface for one-sided puts and gets (RMA), versions 14 to 16, in our own
 * words.
 *
 * NCCL looks for the object ncclRmaPlugin_vN in the net plugin's library, too, from 2.30.7 on.  As
 * in abi.h, a prototype is named after the first version that had it, and the layout is asserted at
 * the end.  Prototypes that the net ABI has as well keep their names of there.
 */
#ifndef BRAID_PLUGIN_ABI_RMA_H
#define BRAID_PLUGIN_ABI_RMA_H

#include <stdbool.h>

#include "plugin/abi.h"

enum {					/* iputSignal: what happens to the 64-bit word */
	NCCL_RMA_SIGNAL_INC = 1,	/* one is added */
	NCCL_RMA_SIGNAL_ADD = 2,	/* the value is added */
};

enum {					/* optFlags, a mask */
	NCCL_RMA_AGGREGATE = 1,		/* more operations follow: this one may wait for them */
};

enum {					/* mrFlags, a mask */
	NCCL_RMA_FORCE_SO = 1,		/* in strict order: the memory may hold signals */
	NCCL_RMA_NEVER_RESET = 2,	/* signals that start at 0 and that nobody else writes */
};

/* -- structs ------------------------------------------------------------------------------- */

typedef struct {
	int nContexts;
	int trafficClass;		/* NCCL_NET_TRAFFIC_CLASS_UNDEF: none */
	int rankStride;			/* peers are the ranks a multiple of this away */
} ncclRmaConfig_v14_t;

typedef struct {
	bool flushesAllPutsOnAnySignal;	/* a signal shows that all earlier puts of all peers came */
} ncclRmaProperties_v16_t;

/* -- prototypes ---------------------------------------------------------------------------- */

typedef ncclResult_t nccl_rma_init_v14(void **ctx, uint64_t comm_id, ncclDebugLogger_t log);

typedef ncclResult_t nccl_rma_connect_v14(void *ctx, void *handles[], int nranks, int rank,
					  void *listen_comm, void **coll);
typedef ncclResult_t nccl_rma_context_v14(void *coll, ncclRmaConfig_v14_t *config, void **rma_ctx);

typedef ncclResult_t nccl_rma_reg_v14(void *coll, void *data, size_t size, int type,
				      uint64_t flags, void **mh);
typedef ncclResult_t nccl_rma_reg_dmabuf_v14(void *coll, void *data, size_t size, int type,
					     uint64_t offset, int fd, uint64_t flags, void **mh);
typedef ncclResult_t nccl_rma_dereg_v14(void *coll, void *mh);

typedef ncclResult_t nccl_rma_close_v14(void *obj);

typedef ncclResult_t nccl_rma_iput_v14(void *rma_ctx, int context, uint64_t src_off, void *src,
				       size_t size, uint64_t dst_off, void *dst, uint32_t rank,
				       void **req);
typedef ncclResult_t nccl_rma_iput_v15(void *rma_ctx, int context, uint64_t src_off, void *src,
				       size_t size, uint64_t dst_off, void *dst, uint32_t rank,
				       uint32_t flags, void **req);

typedef ncclResult_t nccl_rma_iput_signal_v14(void *rma_ctx, int context, uint64_t src_off,
					      void *src, size_t size, uint64_t dst_off, void *dst,
					      uint32_t rank, uint64_t signal_off, void *signal,
					      uint64_t value, uint32_t op, bool strong,
					      void **req);
typedef ncclResult_t nccl_rma_iput_signal_v15(void *rma_ctx, int context, uint64_t src_off,
					      void *src, size_t size, uint64_t dst_off, void *dst,
					      uint32_t rank, uint64_t signal_off, void *signal,
					      uint64_t value, uint32_t op, bool strong,
					      uint32_t flags, void **req);

typedef ncclResult_t nccl_rma_iget_v14(void *rma_ctx, int context, uint64_t remote_off,
				       void *remote, size_t size, uint64_t local_off, void *local,
				       uint32_t rank, void **req);
typedef ncclResult_t nccl_rma_iget_v15(void *rma_ctx, int context, uint64_t remote_off,
				       void *remote, size_t size, uint64_t local_off, void *local,
				       uint32_t rank, uint32_t flags, void **req);

typedef ncclResult_t nccl_rma_iflush_v14(void *rma_ctx, int context, void *mh, uint32_t rank,
					 void **req);
typedef ncclResult_t nccl_rma_test_v14(void *coll, void *req, int *done);
typedef ncclResult_t nccl_rma_progress_v14(void *rma_ctx);
typedef ncclResult_t nccl_rma_last_error_v14(void *rma_ctx, bool *failed);

typedef ncclResult_t nccl_rma_props_v16(void *coll, ncclRmaProperties_v16_t *props);

/* -- tables -------------------------------------------------------------------------------- */

typedef struct {
	const char *name;
	nccl_rma_init_v14 *init;
	nccl_devices_v5 *devices;
	nccl_props_v12 *getProperties;
	nccl_listen_v11 *listen;
	nccl_rma_connect_v14 *connect;
	nccl_rma_context_v14 *createContext;
	nccl_rma_reg_v14 *regMrSym;
	nccl_rma_reg_dmabuf_v14 *regMrSymDmaBuf;
	nccl_rma_dereg_v14 *deregMrSym;
	nccl_rma_close_v14 *destroyContext, *closeColl, *closeListen;
	nccl_rma_iput_v14 *iput;
	nccl_rma_iput_signal_v14 *iputSignal;
	nccl_rma_iget_v14 *iget;		/* NULL: none */
	nccl_rma_iflush_v14 *iflush;		/* NULL: none */
	nccl_rma_test_v14 *test;
	nccl_rma_progress_v14 *rmaProgress;	/* NULL: none */
	nccl_rma_last_error_v14 *queryLastError;	/* NULL: none */
	nccl_finalize_v11 *finalize;
} ncclRma_v14_t;

typedef struct {
	const char *name;
	nccl_rma_init_v14 *init;
	nccl_devices_v5 *devices;
	nccl_props_v12 *getProperties;
	nccl_listen_v11 *listen;
	nccl_rma_connect_v14 *connect;
	nccl_rma_context_v14 *createContext;
	nccl_rma_reg_v14 *regMrSym;
	nccl_rma_reg_dmabuf_v14 *regMrSymDmaBuf;
	nccl_rma_dereg_v14 *deregMrSym;
	nccl_rma_close_v14 *destroyContext, *closeColl, *closeListen;
	nccl_rma_iput_v15 *iput;		/* + flags, as the next two */
	nccl_rma_iput_signal_v15 *iputSignal;
	nccl_rma_iget_v15 *iget;
	nccl_rma_iflush_v14 *iflush;
	nccl_rma_test_v14 *test;
	nccl_rma_progress_v14 *rmaProgress;
	nccl_rma_last_error_v14 *queryLastError;
	nccl_finalize_v11 *finalize;
} ncclRma_v15_t;

typedef struct {
	const char *name;
	nccl_rma_init_v14 *init;
	nccl_devices_v5 *devices;
	nccl_rma_props_v16 *getRmaProperties;	/* new */
	nccl_props_v12 *getProperties;
	nccl_listen_v11 *listen;
	nccl_rma_connect_v14 *connect;
	nccl_rma_context_v14 *createContext;
	nccl_rma_reg_v14 *regMrSym;
	nccl_rma_reg_dmabuf_v14 *regMrSymDmaBuf;
	nccl_rma_dereg_v14 *deregMrSym;
	nccl_rma_close_v14 *destroyContext, *closeColl, *closeListen;
	nccl_rma_iput_v15 *iput;
	nccl_rma_iput_signal_v15 *iputSignal;
	nccl_rma_iget_v15 *iget;
	nccl_rma_iflush_v14 *iflush;
	nccl_rma_test_v14 *test;
	nccl_rma_progress_v14 *rmaProgress;
	nccl_rma_last_error_v14 *queryLastError;
	nccl_finalize_v11 *finalize;
} ncclRma_v16_t;

/* -- the layout, asserted ------------------------------------------------------------------ */

#define SIZE_IS(t, bytes) _Static_assert(sizeof(t) == (bytes), "size of " #t)
#define AT(t, off, member) _Static_assert(offsetof(t, member) == (off), "place of " #t "." #member)

SIZE_IS(bool, 1);
SIZE_IS(ncclRmaConfig_v14_t, 12);
AT(ncclRmaConfig_v14_t, 0, nContexts);
AT(ncclRmaConfig_v14_t, 4, trafficClass);
AT(ncclRmaConfig_v14_t, 8, rankStride);
SIZE_IS(ncclRmaProperties_v16_t, 1);
AT(ncclRmaProperties_v16_t, 0, flushesAllPutsOnAnySignal);

/* `p`: 1 if the table has getRmaProperties, which moves the rest down by one. */
#define SLOTS(t, p)								\
	AT(t, 0, name); AT(t, 8, init); AT(t, 16, devices);			\
	AT(t, 24 + 8 * (p), getProperties); AT(t, 32 + 8 * (p), listen);	\
	AT(t, 40 + 8 * (p), connect); AT(t, 48 + 8 * (p), createContext);	\
	AT(t, 56 + 8 * (p), regMrSym); AT(t, 64 + 8 * (p), regMrSymDmaBuf);	\
	AT(t, 72 + 8 * (p), deregMrSym); AT(t, 80 + 8 * (p), destroyContext);	\
	AT(t, 88 + 8 * (p), closeColl); AT(t, 96 + 8 * (p), closeListen);	\
	AT(t, 104 + 8 * (p), iput); AT(t, 112 + 8 * (p), iputSignal);		\
	AT(t, 120 + 8 * (p), iget); AT(t, 128 + 8 * (p), iflush);		\
	AT(t, 136 + 8 * (p), test); AT(t, 144 + 8 * (p), rmaProgress);		\
	AT(t, 152 + 8 * (p), queryLastError); AT(t, 160 + 8 * (p), finalize);	\
	SIZE_IS(t, 168 + 8 * (p))

SLOTS(ncclRma_v14_t, 0);
SLOTS(ncclRma_v15_t, 0);
SLOTS(ncclRma_v16_t, 1);
AT(ncclRma_v16_t, 24, getRmaProperties);

#undef SIZE_IS
#undef AT
#undef SLOTS

#endif
