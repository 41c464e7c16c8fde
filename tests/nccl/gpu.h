/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.h - a GPU emulated by the CPU, for an unmodified libnccl.so.2: what the files of tests/nccl
 * share.  Its memory is the host's, its streams are threads, which run its kernels (kernel.c).
 *
 * The environment, each with BRAID_TEST_GPU_ before it:
 *   COUNT       GPUs of this process (1)
 *   FIRST       the first one's number among the host's GPUs (0), from which its PCI address follows
 *   CC          compute capability (80)
 *   NCCL        the version of NCCL to assume (the library's own)
 *   PEERS       1: GPUs can access each other's memory (0)
 *   FAKECUDA    1: memory is that of tests/fakecuda, which the CPU may not touch where NCCL sees it
 */
#ifndef BRAID_TESTS_NCCL_GPU_H
#define BRAID_TESTS_NCCL_GPU_H

#include "tests/nccl/layout.h"

/* The runtime's and the driver's codes that are used here are the same. */
enum { GPU_OK = 0, GPU_INVALID = 1, GPU_NO_MEMORY = 2, GPU_BAD_HANDLE = 400, GPU_NOT_READY = 600,
       GPU_NOT_SUPPORTED = 801 };

struct gpu_stream;
struct gpu_event;

/* -- lead.c: libnccl.so.2, led to this GPU ---------------------------------------------------------- */

/* Loads the library and directs it to this GPU.  NULL: impossible; *ret_why has the reason. */
void *gpu_lead(const char *path, const char **ret_why);

extern int gpu_version;			/* of NCCL */
extern bool gpu_known;			/* its layouts are known, so kernels can be emulated */
extern struct nccl_layout gpu_layout;
extern struct nccl_func *gpu_funcs;	/* by the id that a batch has */
extern unsigned gpu_nfuncs;

/* The function that stands for an entry point of the runtime; NULL: none, "not supported". */
void *gpu_runtime_entry(const char *name);
void *gpu_memory_entry(const char *name);
void *gpu_stream_entry(const char *name);

/* The last entry point NCCL called that has no function here; NULL: none. */
extern const char *gpu_unsupported;

/* -- gpu_mem.c -------------------------------------------------------------------------------------- */

/* The address at which the CPU can access `at`, which may be GPU memory or not. */
void *gpu_bytes(const void *at, size_t size);
bool gpu_is_pageable(const void *at);
int gpu_malloc(void **ret, size_t size);
int gpu_free(void *at);
unsigned gpu_live(void);		/* allocations */
void *gpu_fakecuda(const char *name);	/* a symbol of tests/fakecuda; NULL: not used */

/* -- gpu_stream.c ----------------------------------------------------------------------------------- */

/* Calls fn(arg) when all earlier tasks of the stream are done. */
int gpu_enqueue(struct gpu_stream *s, void (*fn)(void *arg), void *arg);
int gpu_stream_new(struct gpu_stream **ret);
int gpu_stream_free(struct gpu_stream *s);
int gpu_stream_wait(struct gpu_stream *s);

/* -- kernel.c --------------------------------------------------------------------------------------- */

/* Runs a launch to its end, or until the communicator is aborted.  The arguments are freed. */
void gpu_kernel(void *args);

/* -- reduce.c --------------------------------------------------------------------------------------- */

struct reduction {
	unsigned op, type;		/* NCCL's numbers */
	uint64_t arg;
};
size_t type_size(unsigned type);
/* to[i] = from[i], scaled if the operation scales its operands. */
void reduce_first(const struct reduction *r, void *to, const void *from, size_t n);
/* to[i] = a[i] op b[i]; `to` may be a or b. */
void reduce_two(const struct reduction *r, void *to, const void *a, const void *b, size_t n);
/* Finishes to[i] once all operands are reduced: the division of an average. */
void reduce_last(const struct reduction *r, void *to, size_t n);

/* Numbers of a type, for tests: exact where the type has them. */
double type_get(unsigned type, const void *at);
void type_set(unsigned type, void *at, double value);

#endif
