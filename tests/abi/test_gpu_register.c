/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gpu_register.c - registrations of memory of a GPU, and how they are shared and limited. */
#include "tests/abi/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGS = 2000, FEW = 100 };

/* Counts registrations of DMA-BUFs from now on, which only memory of a GPU needs. */
static void count_regs(void)
{
	nic_do("fail 0 ibv_reg_dmabuf_mr");
}

static long regs(void)
{
	return nic_do("calls");
}

static void reuse(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ",dmabuf=1,peermem=0");
	struct pair p = { 0 };
	struct buf old, new, from;
	struct op ops[2];

	pair_open(net, &p);
	old = gpu_new(net, p.recv, MEG);
	count_regs();
	EQ(0, gpu_free((uint64_t)(uintptr_t)old.data));
	new = gpu_new(net, p.recv, MEG);
	TRUE(new.data == old.data);
	EQ(1, regs());
	from = buf_new(net, p.send, MEG, 0);
	fill(from.data, MEG, 7);
	blank(bytes_of(&new), MEG);
	ops[0] = op_send(net, p.send, &from, MEG, 0);
	ops[1] = op_recv(net, p.recv, &new, MEG, 0);
	ops_run(ops, 2);
	filled(bytes_of(&new), MEG, 7);
	OK(net_dereg(net, p.recv, old.mr));
	gpu_end(net, &new);
	buf_free(net, &from);
	pair_close(net, &p);
	abi_down(net);
}

/* A microsecond is promised, ten fail. */
static void reg_again(struct net *net, struct pair *p, const struct buf *b, int type)
{
	uint64_t start, took, best = UINT64_MAX;

	for (unsigned i = 0; i < 20; i++) {
		start = now_us();
		for (unsigned k = 0; k < REGS; k++) {
			void *mr;

			OK(net_reg(net, p->recv, b->data, b->size, type, &mr));
			OK(net_dereg(net, p->recv, mr));
		}
		took = now_us() - start;
		best = took < best ? took : best;
	}
	printf("the second registration of %zu MiB%s, and taking it back: %.2f us, the best of 20 runs\n",
	       b->size / MEG, type == NCCL_PTR_CUDA ? " of a GPU, with a fake driver" : "",
	       (double)best / REGS);
	fflush(stdout);
	TRUE(best <= (uint64_t)10 * REGS * drive_slow());
}

static void second_host(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf first;

	pair_open(net, &p);
	first = buf_new(net, p.recv, 64 * MEG, 0);
	nic_do("fail 0 ibv_reg_mr");
	reg_again(net, &p, &first, NCCL_PTR_HOST);
	TRUE(regs() < FEW);			/* lanes that come up have some */
	buf_free(net, &first);
	pair_close(net, &p);
	abi_down(net);
}

static void second(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf first;

	pair_open(net, &p);
	first = gpu_new(net, p.recv, 64 * MEG);
	count_regs();
	reg_again(net, &p, &first, NCCL_PTR_CUDA);
	EQ(0, regs());
	gpu_end(net, &first);
	first = gpu_new(net, p.recv, 64 * MEG);
	EQ(1, regs());				/* no other registration was left */
	gpu_end(net, &first);
	pair_close(net, &p);
	abi_down(net);
}

static void no_ids(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf b;
	void *mr;

	pair_open(net, &p);
	gpu_do("ids 0");
	b = gpu_new(net, p.recv, MEG);
	count_regs();
	OK(net_reg(net, p.recv, b.data, MEG, NCCL_PTR_CUDA, &mr));
	EQ(1, regs());
	OK(net_dereg(net, p.recv, mr));
	gpu_end(net, &b);
	pair_close(net, &p);
	abi_down(net);
}

/* At the limit, existing registrations are shared; other host memory is copied, a GPU's refused. */
static void limits(struct abi *t)
{
	static const size_t size = 3 * MEG;
	struct pair p = { 0 };
	struct buf b[3];
	struct op ops[2];
	struct net *net;
	uint64_t at;
	void *mr;

	warns_expected();
	setenv("BRAID_MR_MAX", "2", 1);
	net = gpu_up(t, "rocev2", ALL_WAYS);
	pair_open(net, &p);
	b[0] = gpu_new(net, p.recv, size);
	b[1] = buf_new(net, p.send, size, 0);
	b[2] = buf_new(net, p.recv, size, 0);		/* over the limit */
	if (!strstr(net_last_warn(), "BRAID_MR_MAX") || !strstr(net_last_warn(), "are copied"))
		FAIL("the limit is missing: %s", net_last_warn());
	EQ(0, gpu_alloc(&at, size));
	RES(ncclSystemError, net_reg(net, p.recv, (void *)(uintptr_t)at, size, NCCL_PTR_CUDA, &mr));
	if (!strstr(net_last_warn(), "of a GPU are not registered: 2 registrations"))
		FAIL("the limit is missing: %s", net_last_warn());
	OK(net_reg(net, p.recv, b[0].data, size, NCCL_PTR_CUDA, &mr));	/* shared */
	OK(net_dereg(net, p.recv, mr));
	for (unsigned i = 0; i < 3; i += 2) {
		fill(b[1].data, size, i);
		ops[0] = op_send(net, p.send, &b[1], size, 0);
		ops[1] = op_recv(net, p.recv, &b[i], size, 0);
		ops_run(ops, 2);
		filled(bytes_of(&b[i]), size, i);
	}
	buf_free(net, &b[1]);
	OK(net_reg(net, p.recv, (void *)(uintptr_t)at, size, NCCL_PTR_CUDA, &mr));
	OK(net_dereg(net, p.recv, mr));
	gpu_end(net, &b[0]);
	buf_free(net, &b[2]);
	pair_close(net, &p);
	abi_down(net);
}

/* Counts are logged when a context's last comm closes, and again only if they have changed. */
static void counted(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p[2] = { 0 };
	struct buf a, b;
	void *ctx;

	OK(net_init_ctx(net, &ctx, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, abi_hear("registrations: "),
			NULL));
	pair_open(net, &p[0]);
	pair_open(net, &p[1]);
	a = gpu_new(net, p[0].recv, MEG);
	b = a;
	b.comm = p[1].recv;
	OK(net_reg(net, b.comm, b.data, MEG, NCCL_PTR_CUDA, &b.mr));
	OK(net_dereg(net, b.comm, b.mr));
	gpu_end(net, &a);
	pair_close(net, &p[0]);
	abi_heard("");
	pair_close(net, &p[1]);
	abi_heard("registrations: 1 hits, 1 misses, 0 refused; at most 1 of 1048576 bytes at a time; "
		  "now 0 of 0 bytes");
	OK(net_finalize_ctx(net, ctx));
	abi_down(net);
	abi_heard("");
}

/* A buffer over several allocations, which no way can register as one. */
static void pieces(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	uint64_t at;
	void *mr;

	warns_expected();
	pair_open(net, &p);
	gpu_do("pieces 4");
	EQ(0, gpu_alloc(&at, MEG));
	RES(ncclSystemError, net_reg(net, p.recv, (void *)(uintptr_t)at, MEG, NCCL_PTR_CUDA, &mr));
	if (!strstr(net_last_warn(), "can't register 1048576 bytes of GPU 0 (CUDA's number): "))
		FAIL("the reason is missing: %s", net_last_warn());
	pair_close(net, &p);
	abi_down(net);
}

/* A driver that exports several allocations as one DMA-BUF: the NIC registers that. */
static void spans(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf to, again;

	pair_open(net, &p);
	gpu_do("pieces 4");
	gpu_do("spans 1");
	move(net, &p, true, true, MEG, false);
	to = gpu_new(net, p.recv, MEG);
	count_regs();
	again = to;
	OK(net_reg(net, p.recv, again.data + MEG / 8, MEG / 2, NCCL_PTR_CUDA, &again.mr));
	EQ(1, regs());				/* a part over three allocations shares nothing */
	OK(net_dereg(net, p.recv, again.mr));
	OK(net_reg(net, p.recv, again.data, MEG, NCCL_PTR_CUDA, &again.mr));
	EQ(1, regs());
	OK(net_dereg(net, p.recv, again.mr));
	EQ(0, gpu_free((uint64_t)(uintptr_t)to.data));
	again = gpu_new(net, p.recv, MEG);
	TRUE(again.data == to.data);
	EQ(2, regs());				/* new allocations at the same address */
	OK(net_dereg(net, p.recv, to.mr));
	gpu_end(net, &again);
	pair_close(net, &p);
	abi_down(net);
}

/* One allocation is host memory: the CPU must not touch the buffer all the same. */
static void mixed(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	uint64_t at;
	void *mr;

	warns_expected();
	pair_open(net, &p);
	gpu_do("pieces 4");
	gpu_do("mixed 1");
	EQ(0, gpu_alloc(&at, MEG));
	RES(ncclSystemError, net_reg(net, p.recv, (void *)(uintptr_t)at, MEG, NCCL_PTR_CUDA, &mr));
	gpu_do("spans 1");
	OK(net_reg(net, p.recv, (void *)(uintptr_t)at, MEG, NCCL_PTR_CUDA, &mr));
	OK(net_dereg(net, p.recv, mr));
	pair_close(net, &p);
	abi_down(net);
}

/* Memory of a GPU that was not tried at init can't be registered: the warning says which GPU it is. */
static void other_gpu(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	uint64_t at;
	void *mr;

	warns_expected();
	pair_open(net, &p);
	gpu_do("number 3");
	EQ(0, gpu_alloc(&at, MEG));
	gpu_do("dmabuf 0");
	nic_do("fail 1 ibv_reg_mr_iova2 EFAULT");
	RES(ncclSystemError, net_reg(net, p.recv, (void *)(uintptr_t)at, MEG, NCCL_PTR_CUDA, &mr));
	if (!strstr(net_last_warn(), "of GPU 3 (CUDA's number), which is not the one that was tried at init: "))
		FAIL("the GPU is missing: %s", net_last_warn());
	pair_close(net, &p);
	abi_down(net);
}

/* NCCL may register host memory with the type of CUDA memory. */
static void pinned(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf b;
	void *mr;

	pair_open(net, &p);
	b = buf_new(net, p.recv, MEG, 0);
	OK(net_reg(net, p.recv, b.data, MEG, NCCL_PTR_CUDA, &mr));
	OK(net_dereg(net, p.recv, mr));
	buf_free(net, &b);
	pair_close(net, &p);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("memory freed and allocated at the same address is other memory", reuse, ONCE),
	CASE("the second registration of a buffer asks no NIC", second, ONCE),
	CASE("the second registration of a host buffer asks no NIC", second_host, ONCE),
	CASE("at the registration limit existing ones serve, host memory is copied, GPU's fails",
	     limits, ONCE, .warns = "not-registered"),
	CASE("registrations are counted, and reported when the last comm is closed", counted, ONCE),
	CASE("memory without a driver's id does not share a registration", no_ids, ONCE),
	CASE("a buffer of several allocations is refused, and the log says so",
	     pieces, ONCE, .warns = "gpu-not-registered"),
	CASE("a buffer of several allocations that the driver exports as one", spans, ONCE),
	CASE("a buffer of GPU and host memory does not pass for host memory", mixed, ONCE),
	CASE("memory of a GPU that was not tried: the line names it", other_gpu, ONCE),
	CASE("pinned memory of the host, registered as CUDA's, is the host's", pinned, ONCE),
};

GPU_MAIN(cases)
