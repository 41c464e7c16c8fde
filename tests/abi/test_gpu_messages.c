/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gpu_messages.c - messages from and to memory of a GPU, which the NIC reads and writes. */
#include "tests/abi/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ENDS = 24 };

static void rocev2(struct abi *t)
{
	gpu_messages(t, "rocev2", ALL_WAYS);
}

static void ib(struct abi *t)
{
	gpu_messages(t, "ib", ALL_WAYS);
}

/* A chunk is a plain write, followed by its header: no write has immediate data. */
static void plain_writes(struct abi *t)
{
	setenv("BRAID_IB_AR_THRESHOLD", "0", 1);
	gpu_messages(t, "ib", ALL_WAYS);
}

static void by_peermem(struct abi *t)
{
	gpu_messages(t, "rocev2", ",peermem=1,dmabuf=0");
}

/* No lane's queue pair reads or writes the GPU: the NIC copies to and from itself. */
static void strict(struct abi *t)
{
	setenv("BRAID_RDMA_STRICT", "1", 1);
	gpu_messages(t, "rocev2", ALL_WAYS);
}

static void no_inline(struct abi *t)
{
	gpu_messages(t, "rocev2", ALL_WAYS ",max_inline=0");
}

static void its_dmabuf(struct abi *t)
{
	gpu_dmabuf_on(t, ",dmabuf=1,peermem=0");
}

/* A DMA-BUF that the kernel makes of that memory; skips the case where it can't. */
static int udmabuf(int memfd, size_t size)
{
	struct udmabuf_create create = { .memfd = (uint32_t)memfd, .flags = UDMABUF_FLAGS_CLOEXEC,
					 .size = size };
	int dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd;

	if (dev < 0)
		skip_because("/dev/udmabuf: %s", strerror(errno));
	fd = ioctl(dev, UDMABUF_CREATE, &create);
	close(dev);
	if (fd < 0)
		skip_because("/dev/udmabuf: UDMABUF_CREATE: %s", strerror(errno));
	return fd;
}

/* Messages land in the descriptor's memory, which here is not at the address that was registered. */
static void real_dmabuf(struct abi *t)
{
	static const size_t sizes[] = { 8, 65536, MEG };
	int memfd = memfd_create("gpu", MFD_CLOEXEC | MFD_ALLOW_SEALING), fd;
	struct buf to = { .size = MEG }, from;
	struct pair p = { 0 };
	struct net *net;
	uint8_t *bytes;
	uint64_t at;

	TRUE(memfd >= 0 && !ftruncate(memfd, MEG + 4096) && !fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK));
	bytes = mmap(NULL, MEG + 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	TRUE(bytes != MAP_FAILED);
	fd = udmabuf(memfd, MEG + 4096);
	net = gpu_up(t, "rocev2", ",dmabuf=1,peermem=0");
	pair_open(net, &p);
	EQ(0, gpu_alloc(&at, 2 * MEG));
	to.data = (uint8_t *)(uintptr_t)(at + 128);
	OK(net_reg_dmabuf(net, p.recv, to.data, MEG, NCCL_PTR_CUDA, 128, fd, &to.mr));
	close(fd);
	from = buf_new(net, p.send, MEG, 0);
	for (unsigned i = 0; i < 3; i++) {
		struct op ops[] = { op_send(net, p.send, &from, sizes[i], 0),
				    op_recv(net, p.recv, &to, sizes[i], 0) };

		fill(from.data, sizes[i], i);
		ops_run(ops, 2);
		OK(flush(net, p.recv, &to, (int)sizes[i]));
		filled(bytes + 128, sizes[i], i);
	}
	OK(net_dereg(net, p.recv, to.mr));
	buf_free(net, &from);
	pair_close(net, &p);
	abi_down(net);
}

/* -- two NICs as one -------------------------------------------------------------------------- */

static void pair_on(struct net *net, int dev, struct pair *p)
{
	OK(net_listen(net, dev, p->handle, &p->listen));
	while (!p->send || !p->recv) {
		if (!p->send)
			OK(net_connect(net, dev, p->handle, &p->send));
		if (!p->recv)
			OK(net_accept(net, p->listen, &p->recv));
		nap_ms(1);
	}
}

static void fused(struct abi *t)
{
	struct net *net = gpu_up(t, "ib", ALL_WAYS ";nic1:ib,dmabuf=1");
	struct pair p = { 0 };
	struct buf to;
	long before;
	int dev;

	EQ(HOST | CUDA | DMABUF, fuse_two(net, &dev));
	pair_on(net, dev, &p);
	for (unsigned how = 0; how < 4; how++) {
		move(net, &p, how & 1, how & 2, 3 * MEG + 1, false);
		move(net, &p, how & 1, how & 2, 100, false);
	}
	to = gpu_new(net, p.recv, MEG);
	nap_ms(50);
	before = nic_do("count sends");
	OK(flush(net, p.recv, &to, MEG));
	TRUE(nic_do("count sends") >= before + 2);	/* one on each NIC: either may have written */
	gpu_end(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

/* -- messages under way ----------------------------------------------------------------------- */

/* All queue pairs fail, the copying one too: messages go on over sockets, then over new queue pairs. */
static void ends(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf from, to;

	warns_expected();		/* TCP carries lanes */
	pair_open(net, &p);
	from = gpu_new(net, p.send, MEG);
	to = gpu_new(net, p.recv, MEG);
	for (unsigned i = 0; i < ENDS; i++) {
		size_t size = i % 3 ? MEG - i : 8192;
		struct op ops[] = { op_recv(net, p.recv, &to, size, 0), op_send(net, p.send, &from, size, 0) };

		fill(bytes_of(&from), size, i);
		blank(bytes_of(&to), size);
		ops_post(ops, 2);
		for (unsigned k = 0; k < i; k++)
			op_test(&ops[k % 2]);
		for (unsigned q = 0; i % 4 == 0 && q < QPNS; q++) {
			char text[32];

			snprintf(text, sizeof(text), "qp %u error", q);
			nic_ctl(text);
		}
		ops_run(ops, 2);
		filled(bytes_of(&to), size, i);
	}
	gpu_end(net, &from);
	gpu_end(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("messages between GPU and host, all sizes, early and late", rocev2, ONCE),
	CASE("InfiniBand: messages between GPU and host", ib, ONCE),
	CASE("InfiniBand, plain writes: messages between GPU and host", plain_writes, ONCE),
	CASE("nvidia-peermem: messages between GPU and host", by_peermem, ONCE),
	CASE("strict: messages between GPU and host, which no peer writes", strict, ONCE),
	CASE("a NIC that sends nothing inline: messages between GPU and host", no_inline, ONCE),
	CASE("a DMA-BUF of NCCL's own, closed after it was registered", its_dmabuf, ONCE),
	CASE("a DMA-BUF that the kernel made is where messages go", real_dmabuf, ONCE),
	CASE("two NICs as one: both reach it, and both flush", fused, ONCE),
	CASE("queue pairs end with messages of a GPU under way: all arrive", ends, ONCE),
	CASE("memory of a GPU is taken back with messages under way", gpu_taken_back, ONCE),
};

GPU_MAIN(cases)
