/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gpu_direct.c - Data Direct: a second PCI function of the NIC, nearer to the GPU. */
#include "tests/abi/gpu.h"

#include <stdlib.h>
#include <string.h>

/* Where Data Direct is used, NCCL gets the second function's path and is asked to flush. */
static void is_direct(struct net *net, int dev, bool want)
{
	struct braid_net_props p;
	const char *end;

	OK(net_props(net, dev, &p));
	EQ(HOST | CUDA | DMABUF, p.ptr_support);
	EQ(want, p.force_flush);
	end = p.pci_path ? strrchr(p.pci_path, '/') : NULL;
	EQ(want, end && !strcmp(end, "/0000:01:00.1"));
}

static void is_told(const char *text, bool want)
{
	if (want != (strstr(ways_said, text) != NULL))
		FAIL("what is said is: %s", ways_said);
}

static void direct_alone(struct abi *t)
{
	struct net *net;

	fake_load("fake", "libmlx5.so.1");
	net = gpu_up_heard(t, DIRECT ",dmabuf=0,peermem=0");
	is_direct(net, 0, true);
	is_told("direct-pcie: Operation not supported, direct, pcie: ", true);
	is_told("Data Direct's PCI function is /", true);
	abi_down(net);
}

static void direct_pcie(struct abi *t)
{
	struct net *net;

	fakecuda_load();
	gpu_do("pcie 1");
	fake_load("fake", "libmlx5.so.1");
	net = gpu_up_heard(t, DIRECT ALL_WAYS);
	is_direct(net, 0, true);
	is_told("direct-pcie, direct, pcie, dmabuf, peermem; ", true);
	abi_down(net);
}

static void direct_messages(struct abi *t)
{
	fake_load("fake", "libmlx5.so.1");
	gpu_messages(t, "rocev2", DIRECT ",dmabuf=0,peermem=0");
}

/* A buffer is registered by Data Direct alone; if that fails, by the next method. */
static void direct_first(struct abi *t)
{
	struct pair p = { 0 };
	struct net *net;
	struct buf b;

	fake_load("fake", "libmlx5.so.1");
	net = gpu_up(t, "rocev2", DIRECT ALL_WAYS);
	pair_open(net, &p);
	nic_do("fail 0 mlx5dv_reg_dmabuf_mr");
	b = gpu_new(net, p.recv, MEG);
	EQ(1, nic_do("calls"));
	gpu_end(net, &b);
	nic_do("fail 1 mlx5dv_reg_dmabuf_mr");	/* for this buffer alone */
	b = gpu_new(net, p.recv, MEG);
	EQ(1, nic_do("calls"));
	OK(flush(net, p.recv, &b, MEG));
	gpu_end(net, &b);
	pair_close(net, &p);
	abi_down(net);
}

static void direct_dmabuf(struct abi *t)
{
	fake_load("fake", "libmlx5.so.1");
	gpu_dmabuf_on(t, DIRECT ",dmabuf=0,peermem=0");
}

static void direct_no_library(struct abi *t)
{
	struct net *net = gpu_up_heard(t, DIRECT ALL_WAYS);

	is_direct(net, 0, false);
	is_told("direct: ", true);
	is_told("pcie: Operation not supported, dmabuf, peermem; ", true);
	abi_down(net);
}

static void direct_other_nic(struct abi *t)
{
	struct net *net;

	fake_load("fake", "libmlx5.so.1");
	nic_do("fail 0 mlx5dv_get_data_direct_sysfs_path");
	net = gpu_up_heard(t, ",path=0000:01:00.0,driver=other_core,direct=1" ALL_WAYS);
	EQ(0, nic_do("calls"));
	is_direct(net, 0, false);
	is_told("direct", false);
	abi_down(net);
}

static void direct_no_function(struct abi *t)
{
	struct net *net;

	fake_load("fake", "libmlx5.so.1");
	nic_do("fail 0 mlx5dv_get_data_direct_sysfs_path");
	net = gpu_up_heard(t, MLX5 ALL_WAYS);
	EQ(1, nic_do("calls"));
	is_direct(net, 0, false);
	is_told("direct", false);
	abi_down(net);
}

static void direct_refused(struct abi *t)
{
	struct net *net;

	fake_load("fake", "libmlx5.so.1");
	nic_do("fail 1 mlx5dv_reg_dmabuf_mr EINVAL on");
	net = gpu_up_heard(t, DIRECT ALL_WAYS);
	is_direct(net, 0, false);
	is_told("direct: Invalid argument, ", true);
	abi_down(net);
}

static void direct_unknown(struct abi *t)
{
	struct net *net;

	fake_load("fake", "libmlx5.so.1");
	nic_do("fail 1 mlx5dv_get_data_direct_sysfs_path EIO");
	net = gpu_up_heard(t, DIRECT ALL_WAYS);
	is_direct(net, 0, false);
	is_told("direct: Input/output error, ", true);
	abi_down(net);
}

static void direct_lies(struct abi *t)
{
	struct net *net;

	fakecuda_load();
	gpu_do("lies 1");
	fake_load("fake", "libmlx5.so.1");
	net = gpu_up(t, "rocev2", DIRECT ALL_WAYS);
	EQ(HOST | CUDA, gpu_offered(net));
	abi_down(net);
}

static void direct_off(struct abi *t)
{
	struct net *net;

	setenv("NCCL_IB_DATA_DIRECT", "0", 1);
	fake_load("fake", "libmlx5.so.1");
	net = gpu_up_heard(t, DIRECT ALL_WAYS);
	is_direct(net, 0, false);
	is_told("direct", false);
	abi_down(net);
}

static void direct_dmabuf_named(struct abi *t)
{
	struct net *net;

	setenv("BRAID_GPU", "dmabuf", 1);
	fake_load("fake", "libmlx5.so.1");
	net = gpu_up_heard(t, DIRECT ALL_WAYS);
	is_direct(net, 0, true);
	is_told("direct, dmabuf; ", true);
	is_told("pcie", false);
	abi_down(net);
}

static void direct_no_flush(struct abi *t)
{
	struct braid_net_props p;
	struct net *net;

	setenv("BRAID_GPU_FLUSH", "0", 1);
	fake_load("fake", "libmlx5.so.1");
	net = gpu_up_heard(t, DIRECT ALL_WAYS);
	OK(net_props(net, 0, &p));
	EQ(0, p.force_flush);
	TRUE(p.pci_path);
	abi_down(net);
}

static void direct_fused(struct abi *t)
{
	struct braid_net_props p;
	struct net *net;
	int dev;

	fake_load("fake", "libmlx5.so.1");
	setenv("BRAID_TEST_FAKE_DEVICES", "nic0:ib,netdev=lo" DIRECT ";nic1:ib,dmabuf=1", 1);
	setenv("BRAID_FUSE", "any", 1);
	fakecuda_load();
	net = abi_up(t);
	is_direct(net, 0, true);
	fuse_two(net, &dev);
	is_direct(net, dev, true);
	OK(net_props(net, 1, &p));
	EQ(0, p.force_flush);
	abi_down(net);
}

/* The NIC's read takes the path of its writes; a read by the CPU takes another. */
static void direct_late(struct abi *t)
{
	fake_load("fakecuda", "libgdrapi.so.2");
	fake_load("fake", "libmlx5.so.1");
	gpu_late_on(t, DIRECT ALL_WAYS ",late=1");
}

static void direct_gdrcopy(struct abi *t)
{
	struct net *net;

	fake_load("fakecuda", "libgdrapi.so.2");
	fake_load("fake", "libmlx5.so.1");
	net = gpu_up_heard(t, DIRECT ALL_WAYS);
	if (strncmp(flush_said, "flush by the NIC, ", 18) != 0 || !strstr(flush_said, "another PCIe function"))
		FAIL("what is said is: %s", flush_said);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("Data Direct: it is offered, and NCCL gets its PCI path and the request to flush",
	     direct_alone, .since = 9),
	CASE("Data Direct: with the PCIe mapping, where the driver has that", direct_pcie, ONCE),
	CASE("Data Direct: messages between GPU and host", direct_messages, ONCE),
	CASE("Data Direct: a buffer is registered by it, or by the next method if that fails",
	     direct_first, ONCE),
	CASE("Data Direct: a DMA-BUF of NCCL's own", direct_dmabuf, ONCE),
	CASE("Data Direct: without libmlx5 nothing changes, and the log says so",
	     direct_no_library, ONCE),
	CASE("Data Direct: a NIC of another driver is not asked", direct_other_nic, ONCE),
	CASE("Data Direct: a NIC without a second function is like any", direct_no_function, ONCE),
	CASE("Data Direct: a registration that is refused is not offered, and the log says so",
	     direct_refused, ONCE),
	CASE("Data Direct: a registration that can't be requested is not offered",
	     direct_unknown, ONCE),
	CASE("Data Direct: a registration that shows other bytes is not offered",
	     direct_lies, ONCE),
	CASE("Data Direct: NCCL_IB_DATA_DIRECT=0 switches it off", direct_off, ONCE),
	CASE("Data Direct: BRAID_GPU=dmabuf: not with the PCIe mapping", direct_dmabuf_named, ONCE),
	CASE("Data Direct: BRAID_GPU_FLUSH=0: no flush even so", direct_no_flush, ONCE),
	CASE("Data Direct: two NICs as one, of which one has it", direct_fused, ONCE),
	CASE("Data Direct: data that the GPU can't see yet is visible after a flush",
	     direct_late, ONCE),
	CASE("Data Direct: GDRCopy is used only if the user asks, and the log says so",
	     direct_gdrcopy, ONCE),
};

GPU_MAIN(cases)
