/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_gpu.c - memory of a GPU, over a NIC and a driver that exist in memory only (tests/fake,
 * tests/fakecuda).
 *
 * Who touches it as if it were the CPU's gets SIGSEGV, so that a message that arrives has come by
 * a way that a NIC or the driver can go.  Nothing here has been a GPU: docs/gpu.md.
 */
#include "tests/abi/abi.h"
#include "tests/fakecuda/ctl.h"
#include "tests/lib/hostile.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEG = 1 << 20, REGS = 2000, DMA_BUF_FD = 1, EARLY = 200, EARLY_MS = 5, ENDS = 24, QPNS = 1 << 14,
       TAKEN = 24, FLUSHES = 300, STUCK_MS = 500, THREADS = 4, CUTS = 20, FEW = 100, GONE_MS = 40000 };

/* -- the fakes -------------------------------------------------------------------------------- */

static long (*nic_ctl)(const char *cmd);
static long (*gpu_ctl)(const char *cmd);
static void *(*gpu_bytes)(const void *ptr, size_t size);
static int (*gpu_alloc)(uint64_t *ret, size_t size);
static int (*gpu_free)(uint64_t ptr);
static int (*gpu_export)(void *ret, uint64_t ptr, size_t size, int type, unsigned long long flags);

static void *load(const char *dir, const char *name)
{
	const char *build = getenv("BRAID_TEST_BUILDDIR");
	char path[PATH_MAX];
	void *lib;

	snprintf(path, sizeof(path), "%s/tests/%s/.libs/%s", build ? build : ".", dir, name);
	lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(99);
	}
	return lib;
}

static void find(void *lib, const char *name, void *ret)
{
	void *at = dlsym(lib, name);

	memcpy(ret, &at, sizeof(at));
}

static void cuda_load(void)
{
	void *lib = load("fakecuda", "libcuda.so.1");

	find(lib, "braid_fakecuda_ctl", &gpu_ctl);
	find(lib, "braid_fakecuda_bytes", &gpu_bytes);
	find(lib, "cuMemAlloc_v2", &gpu_alloc);
	find(lib, "cuMemFree_v2", &gpu_free);
	find(lib, "cuMemGetHandleForAddressRange", &gpu_export);
}

static long gpu(const char *cmd)
{
	long n = gpu_ctl(cmd);

	if (n < 0)
		FAIL("the fake GPU does not understand: %s", cmd);
	return n;
}

static long nic(const char *cmd)
{
	long n = nic_ctl(cmd);

	if (n < 0)
		FAIL("the fake NIC: %s: %s", cmd, strerror((int)-n));
	return n;
}

/* A process that has loaded the driver, and a NIC, of which `more` is known. */
static struct net *up(struct abi *t, const char *kind, const char *more)
{
	char text[128];

	snprintf(text, sizeof(text), "nic0:%s,netdev=lo%s", kind, more);
	setenv("BRAID_TEST_FAKE_DEVICES", text, 1);
	if (!gpu_ctl)
		cuda_load();
	return abi_up(t);
}

static int offered(struct net *net)
{
	struct braid_net_props p;

	OK(net_props(net, 0, &p));
	return p.ptr_support;
}

#define ALL_WAYS ",dmabuf=1,peermem=1"
enum { HOST = NCCL_PTR_HOST, CUDA = NCCL_PTR_CUDA, DMABUF = NCCL_PTR_DMABUF };

/* -- memory ----------------------------------------------------------------------------------- */

static struct buf gpu_new(struct net *net, void *comm, size_t size)
{
	struct buf b = { .size = size, .comm = comm };
	uint64_t at;

	EQ(0, gpu_alloc(&at, size ? size : 1));
	b.data = (uint8_t *)(uintptr_t)at;
	OK(net_reg(net, comm, b.data, size ? size : 1, NCCL_PTR_CUDA, &b.mr));
	return b;
}

static void gpu_end(struct net *net, struct buf *b)
{
	OK(net_dereg(net, b->comm, b->mr));
	EQ(0, gpu_free((uint64_t)(uintptr_t)b->data));
}

static void *bytes_of(const struct buf *b)
{
	void *at = b->map ? b->data : gpu_bytes(b->data, b->size ? b->size : 1);

	TRUE(at);
	return at;
}

static struct buf some_new(struct net *net, void *comm, size_t size, bool on_gpu)
{
	return on_gpu ? gpu_new(net, comm, size) : buf_new(net, comm, size, 0);
}

static void some_end(struct net *net, struct buf *b)
{
	if (b->map)
		buf_free(net, b);
	else
		gpu_end(net, b);
}

/* Each call is timed: none waits for the NIC.  NULL: it is done. */
static void *flush_begin(struct net *net, void *recv, struct buf *b, int size)
{
	void *data = b->data, *mr = b->mr, *req = b;

	OK(TIMED(DATA_MS, net_iflush(net, recv, 1, &data, &size, &mr, &req)));
	TRUE(req != b);
	return req;
}

static ncclResult_t flush_end(struct net *net, void *req)
{
	uint64_t end = deadline_ms(GONE_MS);
	ncclResult_t res = ncclSuccess;
	int done = !req;

	while (!done && res == ncclSuccess) {
		res = TIMED(DATA_MS, net_test(net, req, &done, NULL));
		wait_tick(end, __FILE__, __LINE__, "a flush");
	}
	return res;
}

static ncclResult_t flush(struct net *net, void *recv, struct buf *b, int size)
{
	return flush_end(net, flush_begin(net, recv, b, size));
}

/* One message; `early`: it has come before its receive is posted. */
static void move(struct net *net, struct pair *p, bool from_gpu, bool to_gpu, size_t size, bool early)
{
	struct buf from = some_new(net, p->send, size, from_gpu);
	struct buf to = some_new(net, p->recv, size, to_gpu);
	struct op ops[] = { op_send(net, p->send, &from, size, 0), op_recv(net, p->recv, &to, size, 0) };

	fill(bytes_of(&from), size, size);
	blank(bytes_of(&to), size);
	ops_post(&ops[0], 1);
	for (int i = 0; early && i < EARLY && !ops[0].done; i++)
		op_test(&ops[0]);
	if (early)
		nap_ms(EARLY_MS);	/* the service thread takes it in */
	ops_run(ops, 2);
	EQ(size, ops[1].got[0]);
	filled(bytes_of(&to), size, size);
	some_end(net, &from);
	some_end(net, &to);
}

/* -- what is offered -------------------------------------------------------------------------- */

static void offer_is(struct abi *t, const char *kind, const char *more, int want)
{
	struct net *net = up(t, kind, more);

	EQ(want, offered(net));
	EQ(0, gpu("live"));
	abi_down(net);
}

static void all_ways(struct abi *t)
{
	offer_is(t, "rocev2", ALL_WAYS, HOST | CUDA | DMABUF);
}

static void all_ways_ib(struct abi *t)
{
	offer_is(t, "ib", ALL_WAYS, HOST | CUDA | DMABUF);
}

static void peermem_alone(struct abi *t)
{
	offer_is(t, "rocev2", ",dmabuf=0,peermem=1", HOST | CUDA);
}

static void dmabuf_alone(struct abi *t)
{
	offer_is(t, "rocev2", ",dmabuf=1,peermem=0", HOST | CUDA | DMABUF);
}

static void no_way(struct abi *t)
{
	offer_is(t, "rocev2", ",dmabuf=0,peermem=0", HOST);
}

static void iwarp(struct abi *t)
{
	offer_is(t, "iwarp", ALL_WAYS, HOST);
}

static void no_export(struct abi *t)
{
	cuda_load();
	gpu("dmabuf 0");
	offer_is(t, "rocev2", ALL_WAYS, HOST | CUDA);
}

static void lies(struct abi *t)
{
	cuda_load();
	gpu("lies 1");
	offer_is(t, "rocev2", ALL_WAYS, HOST | CUDA);
}

static void capture(struct abi *t)
{
	cuda_load();
	gpu("capture 1");
	offer_is(t, "rocev2", ALL_WAYS, HOST | CUDA | DMABUF);
	EQ(0, gpu("mode"));
}

static void named_none(struct abi *t)
{
	setenv("BRAID_GPU", "none", 1);
	offer_is(t, "rocev2", ALL_WAYS, HOST);
}

static void named_peermem(struct abi *t)
{
	setenv("BRAID_GPU", "peermem", 1);
	offer_is(t, "rocev2", ALL_WAYS, HOST | CUDA);
}

static void no_driver(struct abi *t)
{
	struct net *net;

	setenv("BRAID_TEST_FAKE_DEVICES", "nic0:rocev2,netdev=lo,dmabuf=1", 1);
	net = abi_up(t);
	EQ(HOST, offered(net));
	abi_down(net);
}

/* What the first init could not try the next one does. */
static void later(struct abi *t)
{
	struct net *net;
	void *ctx;

	cuda_load();
	gpu("context 0");
	net = up(t, "rocev2", ALL_WAYS);
	EQ(HOST, offered(net));
	gpu("context 1");
	OK(net_init_ctx(net, &ctx, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, abi_log, NULL));
	EQ(HOST | CUDA | DMABUF, offered(net));
	OK(net_finalize_ctx(net, ctx));
	abi_down(net);
}

/* -- messages --------------------------------------------------------------------------------- */

static void messages(struct abi *t, const char *kind, const char *more)
{
	static const size_t sizes[] = { 0, 1, 8, 127, 4096, 8192, 8193, 65536, 300001, MEG + 1 };
	struct net *net = up(t, kind, more);
	struct pair p = { 0 };
	long waits = gpu("waits");

	pair_open(net, &p);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (unsigned how = 0; how < 8; how++)
			move(net, &p, how & 1, how & 2, sizes[i], how & 4);
	}
	EQ(waits, gpu("waits"));		/* nothing that would wait for NCCL's kernel */
	pair_close(net, &p);
	abi_down(net);
}

static void rocev2(struct abi *t)
{
	messages(t, "rocev2", ALL_WAYS);
}

static void ib(struct abi *t)
{
	messages(t, "ib", ALL_WAYS);
}

/* Each chunk is a write and, behind it, its header: no write has immediate data. */
static void plain_writes(struct abi *t)
{
	setenv("BRAID_IB_AR_THRESHOLD", "0", 1);
	messages(t, "ib", ALL_WAYS);
}

static void by_peermem(struct abi *t)
{
	messages(t, "rocev2", ",peermem=1,dmabuf=0");
}

static void no_inline(struct abi *t)
{
	messages(t, "rocev2", ALL_WAYS ",max_inline=0");
}

/* NCCL's own descriptor, which it closes at once. */
static void its_dmabuf(struct abi *t)
{
	struct net *net = up(t, "rocev2", ",dmabuf=1,peermem=0");
	struct buf to = { .size = MEG }, from;
	struct pair p = { 0 };
	struct op ops[2];
	uint64_t at;
	int fd;

	pair_open(net, &p);
	EQ(0, gpu_alloc(&at, 2 * MEG));
	EQ(0, gpu_export(&fd, at + 65536, MEG + 4096, DMA_BUF_FD, 0));
	to.data = (uint8_t *)(uintptr_t)(at + 65536 + 128);
	OK(net_reg_dmabuf(net, p.recv, to.data, MEG, NCCL_PTR_CUDA, 128, fd, &to.mr));
	close(fd);
	from = buf_new(net, p.send, MEG, 0);
	fill(from.data, MEG, 1);
	ops[0] = op_send(net, p.send, &from, MEG, 0);
	ops[1] = op_recv(net, p.recv, &to, MEG, 0);
	ops_run(ops, 2);
	filled(bytes_of(&to), MEG, 1);
	OK(net_dereg(net, p.recv, to.mr));
	buf_free(net, &from);
	pair_close(net, &p);
	abi_down(net);
}

/* -- two NICs as one -------------------------------------------------------------------------- */

static int fuse(struct net *net, int *dev)
{
	static const int members[] = { 0, 1 };
	struct braid_net_props p;

	OK(net_fuse(net, 2, members, dev));
	OK(net_props(net, *dev, &p));
	return p.ptr_support;
}

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
	struct net *net = up(t, "ib", ALL_WAYS ";nic1:ib,dmabuf=1");
	struct pair p = { 0 };
	struct buf to;
	long before;
	int dev;

	EQ(HOST | CUDA | DMABUF, fuse(net, &dev));
	pair_on(net, dev, &p);
	for (unsigned how = 0; how < 4; how++) {
		move(net, &p, how & 1, how & 2, 3 * MEG + 1, false);
		move(net, &p, how & 1, how & 2, 100, false);
	}
	to = gpu_new(net, p.recv, MEG);
	nap_ms(50);
	before = nic("count sends");
	OK(flush(net, p.recv, &to, MEG));
	TRUE(nic("count sends") >= before + 2);	/* whichever of them has written */
	gpu_end(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

static void half_fused(struct abi *t)
{
	struct net *net = up(t, "ib", ALL_WAYS ";nic1:ib,dmabuf=0,peermem=0");
	int dev;

	EQ(HOST | CUDA | DMABUF, offered(net));
	EQ(HOST, fuse(net, &dev));
	abi_down(net);
}

/* -- by way of the CPU ------------------------------------------------------------------------ */

static const size_t over_tcp[] = { 8, 8192, 65536, 3 * MEG + 5 };
enum { OVER_TCP = sizeof(over_tcp) / sizeof(over_tcp[0]) };

static void plain_peer(struct abi *t, int fd)
{
	struct net *net;
	void *send, *recv;

	setenv("BRAID_TRANSPORTS", "tcp", 1);
	net = abi_up(t);
	recv = recv_from(net, fd);
	send = send_to(net, fd);
	for (unsigned i = 0; i < OVER_TCP; i++) {
		recv_one(net, recv, over_tcp[i], i);
		send_one(net, send, over_tcp[i], i + 100);
	}
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

/* The lane is a socket, which can't have it: the NIC of this end fetches it, and puts it there. */
static void over_sockets(struct abi *t)
{
	struct peer peer = peer_start(t, plain_peer);
	struct net *net = up(t, "rocev2", ALL_WAYS);
	void *send, *recv;

	warns_expected();		/* that the link is carried by TCP */
	send = send_to(net, peer.fd);
	recv = recv_from(net, peer.fd);
	for (unsigned i = 0; i < OVER_TCP; i++) {
		struct buf out = gpu_new(net, send, over_tcp[i]), in = gpu_new(net, recv, over_tcp[i]);
		struct op op = op_send(net, send, &out, over_tcp[i], 0);

		fill(bytes_of(&out), over_tcp[i], i);
		ops_run(&op, 1);
		op = op_recv(net, recv, &in, over_tcp[i], 0);
		ops_run(&op, 1);
		filled(bytes_of(&in), over_tcp[i], i + 100);
		gpu_end(net, &out);
		gpu_end(net, &in);
	}
	meet(peer.fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
}

/* Waits for what will not come. */
static void idle_peer(struct abi *t, int fd)
{
	struct net *net;
	struct buf in;
	struct op op;
	void *recv;

	setenv("BRAID_TRANSPORTS", "tcp", 1);
	net = abi_up(t);
	recv = recv_from(net, fd);
	in = buf_new(net, recv, over_tcp[0], 0);
	op = op_recv(net, recv, &in, over_tcp[0], 0);
	ops_settle(&op, 1);
	for (;;)
		pause();
}

/* Then there is no way at all: the comm ends, with the reason. */
static void nothing_left(struct abi *t)
{
	struct peer peer = peer_start(t, idle_peer);
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct buf out;
	struct op op;
	void *send;

	warns_expected();
	send = send_to(net, peer.fd);
	out = gpu_new(net, send, over_tcp[0]);
	nic("fail 1 post EIO on");
	op = op_send(net, send, &out, over_tcp[0], 0);
	ops_settle(&op, 1);
	TRUE(op.res != ncclSuccess);
	if (!strstr(net_last_warn(), "memory of a GPU"))
		FAIL("the reason is not told but: %s", net_last_warn());
	peer_kill(&peer);
	end_well();
}

/* All queue pairs end, that to itself too: what was under way goes by sockets, then by others. */
static void ends(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf from, to;

	warns_expected();		/* that TCP carries lanes */
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

/* In any state of it: the comm ends, and nothing touches that memory any more. */
static void taken_back(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);

	warns_expected();
	for (unsigned i = 0; i < TAKEN; i++) {
		struct pair p = { 0 };
		struct buf from, to;
		struct op ops[2];

		pair_open(net, &p);
		from = gpu_new(net, p.send, MEG);
		to = gpu_new(net, p.recv, MEG);
		ops[0] = op_recv(net, p.recv, &to, MEG, 0);
		ops[1] = op_send(net, p.send, &from, MEG, 0);
		ops_post(ops, 2);
		for (unsigned k = 0; k < i; k++)
			op_test(&ops[k % 2]);
		gpu_end(net, i & 1 ? &from : &to);
		ops_settle(ops, 2);
		gpu_end(net, i & 1 ? &to : &from);
		pair_close(net, &p);
	}
	abi_down(net);
}

/* -- registrations ---------------------------------------------------------------------------- */

/* Of DMA-BUFs, from now on: only memory of a GPU is one. */
static void count_regs(void)
{
	nic("fail 0 ibv_reg_dmabuf_mr");
}

static long regs(void)
{
	return nic("calls");
}

static void reuse(struct abi *t)
{
	struct net *net = up(t, "rocev2", ",dmabuf=1,peermem=0");
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

static void second(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf first;
	uint64_t start, took, best = UINT64_MAX;

	pair_open(net, &p);
	first = gpu_new(net, p.recv, 64 * MEG);
	count_regs();
	for (unsigned i = 0; i < 20; i++) {
		start = now_us();
		for (unsigned k = 0; k < REGS; k++) {
			void *mr;

			OK(net_reg(net, p.recv, first.data, 64 * MEG, NCCL_PTR_CUDA, &mr));
			OK(net_dereg(net, p.recv, mr));
		}
		took = now_us() - start;
		best = took < best ? took : best;
	}
	printf("the second registration of 64 MiB, and taking it back: %.2f us with a fake driver, the best "
	       "of 20 runs\n", (double)best / REGS);
	fflush(stdout);
	EQ(0, regs());
	gpu_end(net, &first);
	first = gpu_new(net, p.recv, 64 * MEG);
	EQ(1, regs());				/* nobody had it any more */
	gpu_end(net, &first);
	pair_close(net, &p);
	abi_down(net);
}

static void no_ids(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf b;
	void *mr;

	pair_open(net, &p);
	gpu("ids 0");
	b = gpu_new(net, p.recv, MEG);
	count_regs();
	OK(net_reg(net, p.recv, b.data, MEG, NCCL_PTR_CUDA, &mr));
	EQ(1, regs());
	OK(net_dereg(net, p.recv, mr));
	gpu_end(net, &b);
	pair_close(net, &p);
	abi_down(net);
}

/* Several allocations in a row: none of the ways takes them as one. */
static void pieces(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	uint64_t at;
	void *mr;

	warns_expected();
	pair_open(net, &p);
	gpu("pieces 4");
	EQ(0, gpu_alloc(&at, MEG));
	RES(ncclSystemError, net_reg(net, p.recv, (void *)(uintptr_t)at, MEG, NCCL_PTR_CUDA, &mr));
	if (!strstr(net_last_warn(), "can't register"))
		FAIL("the reason is not told but: %s", net_last_warn());
	pair_close(net, &p);
	abi_down(net);
}

/* What NCCL takes for CUDA's may be the host's. */
static void pinned(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
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

/* -- flush ------------------------------------------------------------------------------------ */

static void flushes(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct braid_net_props props;
	struct buf b;
	long reads;

	pair_open(net, &p);
	OK(net_props(net, 0, &props));
	EQ(0, props.force_flush);
	b = gpu_new(net, p.recv, MEG);
	reads = nic("count sends");
	OK(flush(net, p.recv, &b, MEG));
	TRUE(nic("count sends") > reads);
	OK(flush(net, p.recv, &b, 0));		/* nothing has come: nothing to wait for */
	gpu_end(net, &b);
	pair_close(net, &p);
	abi_down(net);
}

/* What is on its way on the bus when the NIC says that it has come. */
static void late(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS ",late=1");
	static const uint8_t none[MEG];
	struct pair p = { 0 };
	struct buf from, to;
	struct op ops[2];

	pair_open(net, &p);
	from = buf_new(net, p.send, MEG, 0);
	to = gpu_new(net, p.recv, MEG);
	fill(from.data, MEG, 9);
	ops[0] = op_send(net, p.send, &from, MEG, 0);
	ops[1] = op_recv(net, p.recv, &to, MEG, 0);
	ops_run(ops, 2);
	TRUE(!memcmp(bytes_of(&to), none, MEG));	/* or this shows nothing */
	OK(flush(net, p.recv, &to, MEG));
	filled(bytes_of(&to), MEG, 9);
	for (unsigned i = 0; i < 10; i++) {		/* by way of the CPU */
		fill(from.data, 8, i);
		ops[0] = op_send(net, p.send, &from, 8, 0);
		ops[1] = op_recv(net, p.recv, &to, 8, 0);
		ops_run(ops, 2);
		filled(bytes_of(&to), 8, i);
	}
	gpu_end(net, &to);
	buf_free(net, &from);
	pair_close(net, &p);
	abi_down(net);
}

static void flush_fails(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf b;

	warns_expected();
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	nap_ms(50);				/* what else there is to say has been said */
	nic("fail 1 post EIO on");
	TRUE(flush(net, p.recv, &b, MEG) != ncclSuccess);
	nic("fail 0");
	OK(flush(net, p.recv, &b, MEG));	/* by a new queue pair */
	end_well();
}

/* More than the NIC takes at a time, of two comms, and more than it does in the time for one. */
static void flush_slow(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p[2] = { 0 };
	struct buf b[2];
	void *req[FLUSHES];
	uint64_t start;

	for (unsigned i = 0; i < 2; i++) {
		pair_open(net, &p[i]);
		b[i] = gpu_new(net, p[i].recv, MEG);
	}
	nic("delay nic0 2000");
	start = now_us();
	for (unsigned i = 0; i < FLUSHES; i++) {
		req[i] = flush_begin(net, p[i % 2].recv, &b[i % 2], MEG);
		TRUE(req[i]);
	}
	for (unsigned i = 0; i < FLUSHES; i++)
		OK(flush_end(net, req[FLUSHES - 1 - i]));
	TRUE(now_us() - start > STUCK_MS * 1000);	/* in which it answered, one by one */
	laps_say(t, "with a slow NIC");
	nic("delay nic0 0");
	for (unsigned i = 0; i < 2; i++) {
		gpu_end(net, &b[i]);
		pair_close(net, &p[i]);
	}
	abi_down(net);
}

static void flush_lost(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf b;
	void *req;
	int done;

	warns_expected();
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	nap_ms(50);
	nic("drop nic0 1");
	req = flush_begin(net, p.recv, &b, MEG);
	RES(ncclSystemError, flush_end(net, req));
	if (!strstr(net_last_warn(), "could not read memory of the GPU"))
		FAIL("the reason is not told but: %s", net_last_warn());
	RES(ncclSystemError, net_test(net, req, &done, NULL));	/* that stays */
	nic("drop nic0 0");
	OK(flush(net, p.recv, &b, MEG));
	laps_say(t, "with a NIC that never answers");
	end_well();
}

static void flush_gone(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf b;

	warns_expected();
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	nic("fatal nic0");
	TRUE(flush(net, p.recv, &b, MEG) != ncclSuccess);
	laps_say(t, "with a NIC whose device is gone");
	end_well();
}

struct flusher {
	pthread_t thread;
	struct net *net;
	struct pair p;
	struct buf b;
	unsigned all, failed;
};

static atomic_bool enough;

static void *flush_many(void *arg)
{
	struct flusher *f = arg;
	void *data = f->b.data, *mr = f->b.mr;
	int size = MEG;

	for (; !atomic_load(&enough); f->all++) {
		uint64_t end = deadline_ms(GONE_MS);
		ncclResult_t res;
		int done = 0;
		void *req;

		OK(net_iflush(f->net, f->p.recv, 1, &data, &size, &mr, &req));
		for (res = ncclSuccess; req && !done && res == ncclSuccess;) {
			res = net_test(f->net, req, &done, NULL);
			wait_tick(end, __FILE__, __LINE__, "a flush");
		}
		f->failed += res != ncclSuccess;
	}
	return NULL;
}

/* And the queue pair ends now and then under them: twice in one flush is an error. */
static void flush_threads(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	static struct flusher f[THREADS];
	unsigned all = 0, failed = 0;

	warns_expected();
	for (unsigned i = 0; i < THREADS; i++) {
		f[i].net = net;
		pair_open(net, &f[i].p);
		f[i].b = gpu_new(net, f[i].p.recv, MEG);
	}
	for (unsigned i = 0; i < THREADS; i++)
		TRUE(!pthread_create(&f[i].thread, NULL, flush_many, &f[i]));
	for (unsigned i = 0; i < CUTS; i++) {
		/* Other memory of theirs comes and goes meanwhile. */
		for (uint64_t until = now_us() + 10000; now_us() < until;) {
			struct buf other = gpu_new(net, f[i % THREADS].p.recv, MEG);

			gpu_end(net, &other);
		}
		for (unsigned q = QPNS; q--;) {	/* new ones have higher numbers: once each */
			char text[32];

			snprintf(text, sizeof(text), "qp %u error", q);
			nic_ctl(text);
		}
	}
	atomic_store(&enough, true);
	for (unsigned i = 0; i < THREADS; i++) {
		TRUE(!pthread_join(f[i].thread, NULL));
		all += f[i].all;
		failed += f[i].failed;
		OK(flush(net, f[i].p.recv, &f[i].b, MEG));
		gpu_end(net, &f[i].b);
		pair_close(net, &f[i].p);
	}
	printf("%u of %u flushes of %u threads failed when queue pairs ended\n", failed, all, THREADS);
	fflush(stdout);
	TRUE(all > FEW && failed < CUTS);	/* with no second try: about two each */
	abi_down(net);
}

/* Memory is taken back, and a comm closed, with flushes under way: others' still end well. */
static void flush_dropped(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p[3] = { 0 };
	struct buf b[3];
	void *req[3];

	for (unsigned i = 0; i < 3; i++) {
		pair_open(net, &p[i]);
		b[i] = gpu_new(net, p[i].recv, MEG);
	}
	nic("delay nic0 100000");
	for (unsigned i = 0; i < 3; i++)
		req[i] = flush_begin(net, p[i].recv, &b[i], MEG);
	gpu_end(net, &b[0]);
	RES(ncclInternalError, flush_end(net, req[0]));
	OK(net_close_recv(net, p[1].recv));
	p[1].recv = NULL;
	OK(flush_end(net, req[2]));
	nic("delay nic0 0");
	OK(flush(net, p[2].recv, &b[2], MEG));
	gpu_end(net, &b[2]);
	EQ(0, gpu_free((uint64_t)(uintptr_t)b[1].data));
	for (unsigned i = 0; i < 3; i++)
		pair_close(net, &p[i]);
	abi_down(net);
}

static void late_sender(struct abi *t, int fd)
{
	struct net *net;
	void *send;

	setenv("BRAID_TRANSPORTS", "tcp", 1);
	net = abi_up(t);
	send = send_to(net, fd);
	meet(fd);
	send_one(net, send, 8, 1);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
}

/* Somebody else waits for a copy meanwhile, which is not to be waited for. */
static void flush_behind(struct abi *t)
{
	struct peer peer = peer_start(t, late_sender);
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct buf in;
	struct op op;
	long before;
	void *recv;

	warns_expected();		/* that the link is carried by TCP */
	recv = recv_from(net, peer.fd);
	in = gpu_new(net, recv, 8);
	op = op_recv(net, recv, &in, 8, 0);
	ops_post(&op, 1);
	nic("delay nic0 100000");
	before = nic("count sends");
	meet(peer.fd);
	WAIT_FOR(nic("count sends") > before);	/* by the service thread */
	OK(flush(net, recv, &in, 8));
	laps_say(t, "while a copy is under way");
	ops_run(&op, 1);
	filled(bytes_of(&in), 8, 1);
	nic("delay nic0 0");
	meet(peer.fd);
	gpu_end(net, &in);
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
}

static void always(struct abi *t)
{
	struct braid_net_props props;
	struct net *net;

	setenv("BRAID_GPU_FLUSH", "2", 1);
	net = up(t, "rocev2", ALL_WAYS);
	OK(net_props(net, 0, &props));
	EQ(1, props.force_flush);
	abi_down(net);
}

/* -- each call fails once --------------------------------------------------------------------- */

/* A life; what is offered must work, but for what fails later. */
static void life(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf to;
	uint64_t at;

	pair_open(net, &p);
	to = buf_new(net, p.recv, MEG, 0);
	if (offered(net) & CUDA) {
		struct buf from = { .size = MEG };

		if (gpu_alloc(&at, MEG))
			_exit(0);
		from.data = (uint8_t *)(uintptr_t)at;
		if (net_reg(net, p.send, from.data, MEG, NCCL_PTR_CUDA, &from.mr) == ncclSuccess) {
			struct op ops[] = { op_send(net, p.send, &from, MEG, 0),
					    op_recv(net, p.recv, &to, MEG, 0) };

			fill(bytes_of(&from), MEG, 3);
			ops_run(ops, 2);
			filled(to.data, MEG, 3);
			OK(net_dereg(net, p.send, from.mr));
		}
		gpu_free(at);
	}
	buf_free(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

/* In a process of its own; `which` call ("": any) fails at the k-th time.  False: there was none. */
static bool life_with(struct abi *t, long (*ctl)(const char *cmd), const char *which, unsigned k)
{
	pid_t pid = fork();
	char text[64];
	int status;

	if (!pid) {
		snprintf(text, sizeof(text), "fail %u %s", k, which);
		TRUE(ctl(text) >= 0);
		life(t);
		_exit(ctl("calls") >= (long)k ? 0 : 42);
	}
	TRUE(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) || (WEXITSTATUS(status) && WEXITSTATUS(status) != 42))
		FAIL("status 0x%x when call %u fails", (unsigned)status, k);
	return !WEXITSTATUS(status);
}

static void driver_fails(struct abi *t)
{
	unsigned k = 1;

	cuda_load();
	warns_expected();
	while (life_with(t, gpu_ctl, "", k))
		k++;
	printf("%u calls into the driver failed, one in each life\n", k - 1);
	fflush(stdout);
	TRUE(k > 10);
}

static void nic_fails(struct abi *t)
{
	static const char *const calls[] = { "ibv_reg_dmabuf_mr", "ibv_reg_mr_iova2" };

	cuda_load();
	warns_expected();
	for (unsigned i = 0; i < 2; i++) {
		unsigned k = 1;

		while (life_with(t, nic_ctl, calls[i], k))
			k++;
		TRUE(k > 1);
	}
}

#define ONCE .since = NET_ABI_NEWEST, .seconds = 60

static const struct abi_case cases[] = {
	CASE("GPU memory is offered where it was read and written, DMA-BUF too", all_ways, .since = 6),
	CASE("InfiniBand: the same", all_ways_ib, ONCE),
	CASE("without DMA-BUF in the NIC nvidia-peermem is offered", peermem_alone, ONCE),
	CASE("without nvidia-peermem DMA-BUF is offered", dmabuf_alone, ONCE),
	CASE("without either nothing is", no_way, ONCE),
	CASE("iWARP: nothing is", iwarp, ONCE),
	CASE("memory that the driver does not export: nvidia-peermem", no_export, ONCE),
	CASE("a DMA-BUF that holds other bytes is not offered", lies, ONCE),
	CASE("while another thread captures a graph the same is offered", capture, ONCE),
	CASE("BRAID_GPU=none: nothing is offered", named_none, ONCE),
	CASE("BRAID_GPU=peermem: that is, and no DMA-BUF", named_peermem, ONCE),
	CASE("a process without the driver: nothing is offered", no_driver, ONCE),
	CASE("without a context nothing is, and with one the next init offers it", later, ONCE),
	CASE("messages between GPU and host, all sizes, early and late", rocev2, ONCE),
	CASE("InfiniBand: messages between GPU and host", ib, ONCE),
	CASE("InfiniBand, plain writes: messages between GPU and host", plain_writes, ONCE),
	CASE("nvidia-peermem: messages between GPU and host", by_peermem, ONCE),
	CASE("a NIC that sends nothing inline: messages between GPU and host", no_inline, ONCE),
	CASE("a DMA-BUF of NCCL's own, closed after it was registered", its_dmabuf, ONCE),
	CASE("two NICs as one: both reach it, and both flush", fused, ONCE),
	CASE("two NICs as one: what one can't is not offered", half_fused, ONCE),
	CASE("a peer that has TCP alone gets what is in a GPU, and the other way", over_sockets, ONCE),
	CASE("and if the NIC can't fetch it, the comm fails and says so", nothing_left, ONCE),
	CASE("queue pairs end with messages of a GPU under way: all arrive", ends, ONCE),
	CASE("memory of a GPU is taken back with messages under way", taken_back, ONCE),
	CASE("memory freed and allocated at the same address is other memory", reuse, ONCE),
	CASE("the second registration of a buffer asks no NIC", second, ONCE),
	CASE("memory that the driver has no id for is shared by nobody", no_ids, ONCE),
	CASE("a buffer of several allocations is refused, and says so", pieces, ONCE),
	CASE("pinned memory of the host, registered as CUDA's, is the host's", pinned, ONCE),
	CASE("a flush is a read of the NIC's", flushes, ONCE),
	CASE("what the NIC has written and the GPU can't see yet, it sees after a flush", late, ONCE),
	CASE("a flush that fails is an error, and the next one works", flush_fails, ONCE),
	CASE("flushes that a slow NIC answers late wait in no call", flush_slow, ONCE),
	CASE("nor those that are never answered, which are errors", flush_lost, ONCE),
	CASE("nor those of a NIC whose device is gone", flush_gone, ONCE),
	CASE("nor those of a NIC that copies for somebody else", flush_behind, ONCE),
	CASE("threads that flush at one time, and queue pairs that end meanwhile", flush_threads, ONCE),
	CASE("memory and comms end with flushes under way, and others' flushes are done", flush_dropped, ONCE),
	CASE("BRAID_GPU_FLUSH=2: NCCL is asked to flush always", always, ONCE),
	CASE("each call into the driver fails once", driver_fails, .since = NET_ABI_NEWEST, .seconds = 240),
	CASE("each registration fails once", nic_fails, .since = NET_ABI_NEWEST, .seconds = 240),
};

int main(void)
{
	find(load("fake", "libibverbs.so.1"), "braid_fake_ctl", &nic_ctl);
	return abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
}
