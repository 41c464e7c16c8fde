/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.h - memory of a GPU for ABI tests, over a NIC and a driver that exist in memory only
 * (tests/fake, tests/fakecuda).
 *
 * A program that touches the GPU's memory as if it were the CPU's gets SIGSEGV.  So a message that
 * arrives was moved by a NIC or the driver.  No real GPU takes part: what was tried
 * on one is in docs/user/gpu.md.
 */
#ifndef BRAID_TESTS_ABI_GPU_H
#define BRAID_TESTS_ABI_GPU_H

#include "tests/abi/abi.h"
#include "tests/fakecuda/ctl.h"
#include "tests/lib/hostile.h"

enum { MEG = 1 << 20, BIG = 8 << 20, QPNS = 1 << 14 };
enum { HOST = NCCL_PTR_HOST, CUDA = NCCL_PTR_CUDA, DMABUF = NCCL_PTR_DMABUF };

/* For gpu_up(): what the NIC can do. */
#define ALL_WAYS ",dmabuf=1,peermem=1"
#define MLX5 ",path=0000:01:00.0,driver=mlx5_core"
#define DIRECT MLX5 ",direct=1"

/* -- the fakes ---------------------------------------------------------------------------- */

/* Loads the fake NIC, unless UCX is to be used (tests/ucx/gpu.sh), and runs the cases. */
int gpu_main(const char *group, const struct abi_case *cases, size_t n);

#define GPU_MAIN(cases) \
	int main(void) { return gpu_main(__FILE__, cases, sizeof(cases) / sizeof((cases)[0])); }

void *fake_load(const char *dir, const char *name);	/* tests/DIR/.libs/NAME */
void fakecuda_load(void);

/* A command for the NIC (tests/fake/ctl.h) or the GPU (tests/fakecuda/ctl.h): negative, it failed. */
extern long (*nic_ctl)(const char *cmd);
extern long (*gpu_ctl)(const char *cmd);
long nic_do(const char *cmd);			/* the same, and it must succeed */
long gpu_do(const char *cmd);

/* The driver's cuMemAlloc() and cuMemFree(). */
extern int (*gpu_alloc)(uint64_t *ret, size_t size);
extern int (*gpu_free)(uint64_t ptr);

/* The plugin in a process that has the driver, and one NIC; `more` describes it (",dmabuf=1"). */
struct net *gpu_up(struct abi *t, const char *kind, const char *more);
int gpu_offered(struct net *net);		/* ptr_support of device 0 */
int fuse_two(struct net *net, int *dev);	/* ptr_support of devices 0 and 1 made one */

/* -- memory ------------------------------------------------------------------------------- */

struct buf gpu_new(struct net *net, void *comm, size_t size);	/* registered */
void gpu_end(struct net *net, struct buf *b);
void *bytes_of(const struct buf *b);		/* where the test may read and write it */

/* iflush(), each call timed: none may wait for the NIC.  NULL: the flush is complete. */
void *flush_begin(struct net *net, void *recv, struct buf *b, int size);
ncclResult_t flush_end(struct net *net, void *req);
ncclResult_t flush(struct net *net, void *recv, struct buf *b, int size);

/* -- messages ----------------------------------------------------------------------------- */

/* One message; `early`: it arrives before its receive is posted. */
void move(struct net *net, struct pair *p, bool from_gpu, bool to_gpu, size_t size, bool early);
/* One message, while a kernel spins until it is there.  False: the comm has failed. */
bool pass(struct net *net, struct pair *p, struct buf *from, struct buf *to, size_t size, uint64_t seed);

/* -- cases that several programs have ----------------------------------------------------- */

void gpu_offer_is(struct abi *t, const char *kind, const char *more, int want);
/* All sizes between GPU and host, early and late. */
void gpu_messages(struct abi *t, const char *kind, const char *more);
/* Messages into a DMA-BUF that NCCL exports, and closes as soon as it is registered. */
void gpu_dmabuf_on(struct abi *t, const char *more);
/* Memory is deregistered and freed in any state of its message. */
void gpu_taken_back(struct abi *t);
/* The NIC reports a message while its bytes are still on the bus: a flush brings them. */
void gpu_late_on(struct abi *t, const char *more);

/* -- a peer over TCP ---------------------------------------------------------------------- */

/* In a peer that has TCP alone: returns its send comm when the test meets it. */
void *begin_by_tcp(struct abi *t, int fd, struct net **ret);
/* A message of BIG bytes of that sender arrives in a GPU while this thread calls nothing. */
void gpu_comes_alone(struct abi *t, void (*sender)(struct abi *t, int fd));

/* -- what the plugin says ----------------------------------------------------------------- */

/* The last line about BRAID_GPU_FLUSH_BY's choice, and about the ways to a GPU's memory. */
extern char flush_said[512], ways_said[1024];
/* gpu_up() with RoCE v2, and those lines are kept. */
struct net *gpu_up_heard(struct abi *t, const char *more);

#endif
