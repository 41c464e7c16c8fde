/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gpu_offer.c - which memory of a GPU is offered to NCCL, by driver, NIC and setting. */
#include "tests/abi/gpu.h"

#include <stdlib.h>

static void all_ways(struct abi *t)
{
	gpu_offer_is(t, "rocev2", ALL_WAYS, HOST | CUDA | DMABUF);
}

static void all_methods_ib(struct abi *t)
{
	gpu_offer_is(t, "ib", ALL_WAYS, HOST | CUDA | DMABUF);
}

static void peermem_alone(struct abi *t)
{
	gpu_offer_is(t, "rocev2", ",dmabuf=0,peermem=1", HOST | CUDA);
}

static void dmabuf_alone(struct abi *t)
{
	gpu_offer_is(t, "rocev2", ",dmabuf=1,peermem=0", HOST | CUDA | DMABUF);
}

static void no_way(struct abi *t)
{
	gpu_offer_is(t, "rocev2", ",dmabuf=0,peermem=0", HOST);
}

static void iwarp(struct abi *t)
{
	gpu_offer_is(t, "iwarp", ALL_WAYS, HOST);
}

static void no_export(struct abi *t)
{
	fakecuda_load();
	gpu_do("dmabuf 0");
	gpu_offer_is(t, "rocev2", ALL_WAYS, HOST | CUDA);
}

static void lies(struct abi *t)
{
	fakecuda_load();
	gpu_do("lies 1");
	gpu_offer_is(t, "rocev2", ALL_WAYS, HOST | CUDA);
}

static void capture(struct abi *t)
{
	fakecuda_load();
	gpu_do("capture 1");
	gpu_offer_is(t, "rocev2", ALL_WAYS, HOST | CUDA | DMABUF);
	EQ(0, gpu_do("mode"));
}

static void named_none(struct abi *t)
{
	setenv("BRAID_GPU", "none", 1);
	gpu_offer_is(t, "rocev2", ALL_WAYS, HOST);
}

static void named_peermem(struct abi *t)
{
	setenv("BRAID_GPU", "peermem", 1);
	gpu_offer_is(t, "rocev2", ALL_WAYS, HOST | CUDA);
}

static void no_driver(struct abi *t)
{
	struct net *net;

	setenv("BRAID_TEST_FAKE_DEVICES", "nic0:rocev2,netdev=lo,dmabuf=1", 1);
	net = abi_up(t);
	EQ(HOST, gpu_offered(net));
	abi_down(net);
}

/* The first init had no context to try with; the next one has. */
static void later(struct abi *t)
{
	struct net *net;
	void *ctx;

	fakecuda_load();
	gpu_do("context 0");
	net = gpu_up(t, "rocev2", ALL_WAYS);
	EQ(HOST, gpu_offered(net));
	gpu_do("context 1");
	OK(net_init_ctx(net, &ctx, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, abi_log, NULL));
	EQ(HOST | CUDA | DMABUF, gpu_offered(net));
	OK(net_finalize_ctx(net, ctx));
	abi_down(net);
}

static void half_fused(struct abi *t)
{
	struct net *net = gpu_up(t, "ib", ALL_WAYS ";nic1:ib,dmabuf=0,peermem=0");
	int dev;

	EQ(HOST | CUDA | DMABUF, gpu_offered(net));
	EQ(HOST, fuse_two(net, &dev));
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("GPU memory is offered where it was read and written, DMA-BUF too", all_ways, .since = 6),
	CASE("InfiniBand: GPU memory is offered where it was read and written",
	     all_methods_ib, ONCE),
	CASE("without DMA-BUF in the NIC nvidia-peermem is offered", peermem_alone, ONCE),
	CASE("without nvidia-peermem DMA-BUF is offered", dmabuf_alone, ONCE),
	CASE("without either, GPU memory is not offered", no_way, ONCE),
	CASE("iWARP: GPU memory is not offered", iwarp, ONCE),
	CASE("memory that the driver does not export: nvidia-peermem", no_export, ONCE),
	CASE("a DMA-BUF that holds other bytes is not offered", lies, ONCE),
	CASE("GPU memory is offered while another thread captures a graph", capture, ONCE),
	CASE("BRAID_GPU=none: GPU memory is not offered", named_none, ONCE),
	CASE("BRAID_GPU=peermem: GPU memory is offered, DMA-BUF is not", named_peermem, ONCE),
	CASE("a process without the driver: GPU memory is not offered", no_driver, ONCE),
	CASE("without a context GPU memory is not offered; with one, the next init offers it",
	     later, ONCE),
	CASE("two NICs as one: methods that one NIC lacks are not offered", half_fused, ONCE),
};

GPU_MAIN(cases)
