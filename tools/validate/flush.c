/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flush.c - is all data in place once iflush() is done, in the host's memory and in a GPU's?
 *
 * A GPU needs a driver here, and a device that can use its memory.  A copy is a weaker test than a
 * kernel on the GPU; that one is in tests/gpu.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/validate/far.h"

static void flushed(struct validate *v, const size_t *size, int n, int group)
{
	struct msg m[REQS_MAX];

	if (!v->net)
		both_up(v);
	for (int i = 0; i < n; i++)
		m[i] = (struct msg){ .size = size[i], .tag = i };
	for (int out = 0; out < 2; out++) {
		struct conn conn = conn_open(v, out);

		move(v, &conn, m, n, group, NULL, MOVE_FLUSH);
		conn_close(v, &conn);
	}
	saw(v, "%d messages", n);
}

static void host(struct validate *v)
{
	static const size_t size[] = { 1, 100, 5000, 100000, 3000000 };

	flushed(v, size, 5, 1);
}

static void zero(struct validate *v)
{
	static const size_t size[] = { 0, 8, 0 };

	flushed(v, size, 3, 1);
}

static void grouped(struct validate *v)
{
	static const size_t size[] = { 1000, 20, 70000, 4 };
	struct braid_net_props p;

	both_up(v);
	memset(&p, 0, sizeof(p));
	OK(net_props(v->net, v->dev, &p));
	if (p.max_recvs < 4)
		skip(v, "it has no grouped receives of 4");
	flushed(v, size, 4, 4);
}

/* -- a GPU -------------------------------------------------------------------------------- */

enum { GPU_SIZE = 1 << 20 };		/* each end's */

static struct {
	int (*init)(unsigned flags);
	int (*device)(int *ret, int ordinal);
	int (*retain)(void **ret, int device);
	int (*current)(void *ctx);
	int (*alloc)(unsigned long long *ret, size_t size);
	int (*release)(unsigned long long at);
	int (*to_gpu)(unsigned long long to, const void *from, size_t size);
	int (*to_host)(void *to, unsigned long long from, size_t size);
	int (*export)(void *ret, unsigned long long at, size_t size, int type,
		      unsigned long long flags);
} cuda;

static void gpu_up(struct validate *v)
{
	static const struct {
		const char *name;
		void *to;
	} calls[] = {
		{ "cuInit", &cuda.init }, { "cuDeviceGet", &cuda.device },
		{ "cuDevicePrimaryCtxRetain", &cuda.retain }, { "cuCtxSetCurrent", &cuda.current },
		{ "cuMemAlloc_v2", &cuda.alloc }, { "cuMemFree_v2", &cuda.release },
		{ "cuMemcpyHtoD_v2", &cuda.to_gpu }, { "cuMemcpyDtoH_v2", &cuda.to_host },
		{ "cuMemGetHandleForAddressRange", &cuda.export },
	};
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *ctx = NULL;
	int gpu = 0;

	if (!lib)
		skip(v, "there is no driver of a GPU here (libcuda.so.1)");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		void *at = dlsym(lib, calls[i].name);

		if (!at && calls[i].to != &cuda.export)
			skip(v, "the GPU's driver has no %s", calls[i].name);
		memcpy(calls[i].to, &at, sizeof(at));
	}
	if (cuda.init(0) || cuda.device(&gpu, 0) || cuda.retain(&ctx, gpu) || cuda.current(ctx))
		skip(v, "the GPU's driver finds no GPU that it can use");
}

static void needs_memory(struct validate *v, int kind, const char *what)
{
	struct braid_net_props p;

	memset(&p, 0, sizeof(p));
	OK(net_props(v->net, v->dev, &p));
	if (!(p.ptr_support & kind))
		skip(v, "%s does not say that it has %s", p.name, what);
}

/* Move from GPU memory to GPU memory, flush, and compare by a copy. */
static void gpu_exchange(struct validate *v, struct pair *p, unsigned long long gpu, size_t size,
			 void *const mr[2], uint64_t seed)
{
	struct op ops[2] = { op_group(v->net, p->recv), op_group(v->net, p->send) };
	char *here = malloc(size);
	int flush = (int)size, done = 0;
	void *data = (void *)(uintptr_t)(gpu + GPU_SIZE), *mrs = mr[1], *req = NULL;

	TRUE(here);
	fill(here, size, seed);
	TRUE(cuda.to_gpu(gpu, here, size) == 0);
	for (int i = 0; i < 2; i++) {
		ops[i].is_recv = i == 0;
		ops[i].n = 1;
		ops[i].data[0] = (void *)(uintptr_t)(gpu + (i == 0 ? GPU_SIZE : 0));
		ops[i].size[0] = size;
		ops[i].mr[0] = mr[i == 0];
	}
	ops_run(ops, 2);
	OK(net_iflush(v->net, p->recv, 1, &data, &flush, &mrs, &req));
	while (req && !done)
		OK(net_test(v->net, req, &done, NULL));
	TRUE(cuda.to_host(here, gpu + GPU_SIZE, size) == 0);
	filled(here, size, seed);
	free(here);
}

static void gpu_moved(struct validate *v, int fd)
{
	unsigned long long gpu = 0;
	void *mr[2], *comm[2];
	struct pair p;

	if (cuda.alloc(&gpu, 2 * GPU_SIZE) != 0)
		FAIL("the GPU gives no memory");
	if (fd == 0 && (!cuda.export || cuda.export(&fd, gpu, 2 * GPU_SIZE, 1, 0) != 0))
		skip(v, "the GPU's driver does not export memory as DMA-BUF");
	pair_open(v->net, &p);
	comm[0] = p.send;
	comm[1] = p.recv;
	for (int i = 0; i < 2; i++) {
		void *at = (void *)(uintptr_t)(gpu + (i ? GPU_SIZE : 0));
		uint64_t offset = i ? GPU_SIZE : 0;

		step(v, "memory of a GPU is registered");
		OK(fd < 0 ? net_reg(v->net, comm[i], at, GPU_SIZE, NCCL_PTR_CUDA, &mr[i]) :
			    net_reg_dmabuf(v->net, comm[i], at, GPU_SIZE, NCCL_PTR_CUDA, offset, fd,
					   &mr[i]));
	}
	for (uint64_t i = 1; i <= 20; i++)
		gpu_exchange(v, &p, gpu, i % 2 ? GPU_SIZE : 4096, mr, i);
	for (int i = 0; i < 2; i++)
		OK(net_dereg(v->net, comm[i], mr[i]));
	pair_close(v->net, &p);
	cuda.release(gpu);
	if (fd >= 0)
		close(fd);
	saw(v, "20 messages of up to 1 MiB");
}

static void gpu(struct validate *v)
{
	gpu_up(v);
	net_up(v);
	needs_memory(v, NCCL_PTR_CUDA, "memory of GPUs");
	gpu_moved(v, -1);
}

static void gpu_dmabuf(struct validate *v)
{
	gpu_up(v);
	net_up(v);
	needs_memory(v, NCCL_PTR_DMABUF, "DMA-BUF");
	gpu_moved(v, 0);
}

static const char gpudirect[] =
	"Kernels on the GPU would read old data: braid doctor --only gpu; NCCL_NET_GDR_LEVEL=LOC "
	"goes without";

const struct vcheck validate_flush[] = {
	{ "flush-host", "Host memory after iflush() is what was sent",
	  REPORT, host, V_SOAK, 0 },
	{ "flush-zero", "iflush() of nothing is done", REPORT, zero, 0,
	  0 },
	{ "flush-group", "iflush() of a grouped receive", REPORT,
	  grouped, V_SOAK, 0 },
	{ "flush-gpu", "Memory of a GPU after iflush() is what was sent", gpudirect, gpu,
	  V_HERE | V_SOAK, 0 },
	{ "flush-dmabuf", "The same, registered as DMA-BUF", gpudirect, gpu_dmabuf, V_HERE | V_SOAK,
	  0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
