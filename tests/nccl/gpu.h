/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.h - a GPU that the CPU plays, for an unmodified libnccl.so.2: what the files of tests/nccl
 * share.  Its memory is the host's, its streams are threads, its kernels (kernel.c) are run by them.
 *
 * The environment, each with BRAID_TEST_GPU_ before it:
 *   COUNT       GPUs of this process (1)
 *   FIRST       the number of the first of them among the host's (0): it makes the PCI address
 *   CC          compute capability (80)
 *   NCCL        the version that NCCL is taken for (its own)
 *   PEERS       1: they come to each other's memory (0)
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

/* NULL: it can't be, and *ret_why says why.  The library stays loaded. */
void *gpu_lead(const char *path, const char **ret_why);

extern int gpu_version;			/* of NCCL */
extern bool gpu_known;			/* its layouts are known: kernels can be played */
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

/* Where the CPU finds what lies there, a GPU's or not. */
void *gpu_bytes(const void *at, size_t size);
bool gpu_is_pageable(const void *at);
int gpu_malloc(void **ret, size_t size);
int gpu_free(void *at);
unsigned gpu_live(void);		/* allocations */
void *gpu_fakecuda(const char *name);	/* of its library; NULL: not used */

/* -- gpu_stream.c ----------------------------------------------------------------------------------- */

/* `fn(arg)` in its turn. */
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
/* to[i] = from[i], as the operation wants its operands. */
void reduce_first(const struct reduction *r, void *to, const void *from, size_t n);
/* to[i] = a[i] + b[i], or what stands for the plus; `to` may be either. */
void reduce_two(const struct reduction *r, void *to, const void *a, const void *b, size_t n);
/* to[i] = what is left to do when all have been reduced. */
void reduce_last(const struct reduction *r, void *to, size_t n);

/* Numbers of a type, for tests: exact where the type has them. */
double type_get(unsigned type, const void *at);
void type_set(unsigned type, void *at, double value);

#endif
