/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_gpu.c - memory of a GPU, over a NIC and a driver that exist in memory only (tests/fake,
 * tests/fakecuda).
 *
 * Who touches it as if it were the CPU's gets SIGSEGV, so that a message that arrives has come by
 * a way that a NIC or the driver can go.  Nothing here has been a GPU: docs/user/gpu.md.
 */
#include "tests/abi/abi.h"
#include "tests/fakecuda/ctl.h"
#include "tests/lib/hostile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/udmabuf.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEG = 1 << 20, REGS = 2000, DMA_BUF_FD = 1, EARLY = 200, EARLY_MS = 5, ENDS = 24, QPNS = 1 << 14,
       TAKEN = 24, FLUSHES = 300, STUCK_MS = 500, THREADS = 4, CUTS = 20, FEW = 100,
       GONE_MS = 40000, BIG = 8 << 20, ALONE_MS = 3000 };

/* -- the fakes -------------------------------------------------------------------------------- */

static bool by_ucx;		/* no NIC: UCX, as tests/ucx/gpu.sh has it */
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
	char text[256];

	snprintf(text, sizeof(text), "nic0:%s,netdev=lo%s", kind, more);
	if (!by_ucx)
		setenv("BRAID_TEST_FAKE_DEVICES", text, 1);
	setenv("BRAID_FUSE", "any", 1);
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
	gpu("kernel 1");
	ops_post(&ops[0], 1);
	for (int i = 0; early && i < EARLY && !ops[0].done; i++)
		op_test(&ops[0]);
	if (early)
		nap_ms(EARLY_MS);	/* the service thread takes it in */
	ops_run(ops, 2);
	gpu("kernel 0");
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

	pair_open(net, &p);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (unsigned how = 0; how < 8; how++)
			move(net, &p, how & 1, how & 2, sizes[i], how & 4);
	}
	EQ(0, gpu("blocked"));			/* nothing that would wait for NCCL's kernel */
	EQ(0, by_ucx ? 0 : gpu("staging"));	/* nor is anything kept, but by UCX's lanes */
	pair_close(net, &p);
	abi_down(net);
	WAIT_FOR(!gpu("staging"));
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
static void its_dmabuf_on(struct abi *t, const char *more)
{
	struct net *net = up(t, "rocev2", more);
	struct buf to = { .size = MEG }, from;
	struct pair p = { 0 };
	struct op ops[2];
	uint64_t at;
	int fd;

	pair_open(net, &p);
	EQ(0, gpu_alloc(&at, 2 * MEG));
	EQ(0, gpu_export(&fd, at + 65536, MEG + 4096, DMA_BUF_FD, 0));
	gpu("dmabuf 0");			/* there is no other */
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

static void its_dmabuf(struct abi *t)
{
	its_dmabuf_on(t, ",dmabuf=1,peermem=0");
}

/* A DMA-BUF of the kernel's own, made of that memory, or why not. */
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

/* What is said to be the GPU's is what the descriptor has, which here is known to be elsewhere. */
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
	net = up(t, "rocev2", ",dmabuf=1,peermem=0");
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

/*
 * The lane is a socket, which can't have it: the NIC of this end, or the driver, fetches it and puts
 * it there.  Returns the copies that the driver made.
 */
static long over_sockets(struct abi *t, const char *stage, const char *cmd)
{
	struct peer peer = peer_start(t, plain_peer);
	struct buf out[OVER_TCP], in[OVER_TCP];
	struct net *net;
	void *send, *recv;
	long copies;

	setenv("BRAID_GPU_STAGE", stage, 1);
	net = up(t, "rocev2", ALL_WAYS);
	warns_expected();		/* that the link is carried by TCP */
	send = send_to(net, peer.fd);
	recv = recv_from(net, peer.fd);
	for (unsigned i = 0; i < OVER_TCP; i++) {
		out[i] = gpu_new(net, send, over_tcp[i]);
		in[i] = gpu_new(net, recv, over_tcp[i]);
		fill(bytes_of(&out[i]), over_tcp[i], i);
	}
	nic(cmd);
	gpu("kernel 1");
	for (unsigned i = 0; i < OVER_TCP; i++) {
		struct op op = op_send(net, send, &out[i], over_tcp[i], 0);

		ops_run(&op, 1);
		op = op_recv(net, recv, &in[i], over_tcp[i], 0);
		ops_run(&op, 1);
		filled(bytes_of(&in[i]), over_tcp[i], i + 100);
	}
	gpu("kernel 0");
	for (unsigned i = 0; i < OVER_TCP; i++) {
		gpu_end(net, &out[i]);
		gpu_end(net, &in[i]);
	}
	EQ(0, gpu("blocked"));
	EQ(0, gpu("stray"));
	EQ(0, gpu("staging"));
	copies = gpu("copies");
	meet(peer.fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
	return copies;
}

static void by_nic(struct abi *t)
{
	EQ(0, over_sockets(t, "1", "drop nic0 0"));
}

static void by_driver(struct abi *t)
{
	TRUE(over_sockets(t, "2", "drop nic0 0") > 0);
}

static void nic_gone(struct abi *t)
{
	TRUE(over_sockets(t, "1", "fatal nic0") > 0);
}

/* That it answers nothing is found out once: the pieces are some dozen. */
static void no_loop(struct abi *t)
{
	uint64_t start = now_us();

	TRUE(over_sockets(t, "1", "drop nic0 1") > 0);
	TRUE(now_us() - start < 40 * STUCK_MS * 1000 * (uint64_t)drive_slow());
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

/* Then there is no way at all: the comm ends, with the reasons. */
static void no_way_left(struct abi *t, const char *stage, const char *cmd, const char *reason)
{
	struct peer peer = peer_start(t, idle_peer);
	struct net *net;
	struct buf out;
	struct op op;
	void *send;

	setenv("BRAID_GPU_STAGE", stage, 1);
	net = up(t, "rocev2", ALL_WAYS);
	warns_expected();
	send = send_to(net, peer.fd);
	gpu(cmd);
	out = gpu_new(net, send, over_tcp[0]);
	nic("fail 1 post EIO on");
	op = op_send(net, send, &out, over_tcp[0], 0);
	ops_settle(&op, 1);
	TRUE(op.res != ncclSuccess);
	if (!strstr(net_last_warn(), "memory of a GPU") || !strstr(net_last_warn(), reason))
		FAIL("the reason is not told but: %s", net_last_warn());
	peer_kill(&peer);
	end_well();
}

static void nothing_left(struct abi *t)
{
	no_way_left(t, "0", "fail 0", "nor by the driver (BRAID_GPU_STAGE: ");
}

static void no_stage(struct abi *t)
{
	no_way_left(t, "1", "fail 1 cuMemHostAlloc on", "nor by the driver (cuMemHostAlloc: Input");
}

static void no_engine(struct abi *t)
{
	no_way_left(t, "1", "fail 1 cuMemcpyDtoHAsync_v2 on", "nor by the driver (Input/output error)");
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

/* -- by the driver ---------------------------------------------------------------------------- */

/* With a kernel that spins until it is there.  False: the comm has failed. */
static bool pass(struct net *net, struct pair *p, struct buf *from, struct buf *to, size_t size, uint64_t seed)
{
	struct op ops[] = { op_recv(net, p->recv, to, size, 0), op_send(net, p->send, from, size, 0) };

	fill(bytes_of(from), size, seed);
	blank(bytes_of(to), size);
	gpu("kernel 1");
	ops_settle(ops, 2);
	gpu("kernel 0");
	if (ops[0].res == ncclSuccess)
		filled(bytes_of(to), size, seed);
	return ops[0].res == ncclSuccess && ops[1].res == ncclSuccess;
}

static void staged(struct abi *t)
{
	setenv("BRAID_GPU_STAGE", "2", 1);
	messages(t, "rocev2", ALL_WAYS);
	TRUE(gpu("copies") > 0);
	EQ(0, gpu("stray"));
}

/* All that is done under capture is, set-up too; so it is in a thread that has no context. */
static void staged_capture(struct abi *t)
{
	struct buf from = { .size = MEG }, host;
	struct pair p = { 0 };
	struct net *net;
	uint64_t at;

	setenv("BRAID_GPU_STAGE", "2", 1);
	net = up(t, "rocev2", ALL_WAYS);
	pair_open(net, &p);
	EQ(0, gpu_alloc(&at, MEG));
	from.data = (uint8_t *)(uintptr_t)at;
	from.comm = p.recv;
	host = buf_new(net, p.send, MEG, 0);
	gpu("capture 1");
	gpu("context 0");
	OK(net_reg(net, p.recv, from.data, MEG, NCCL_PTR_CUDA, &from.mr));
	for (unsigned i = 0; i < FEW; i++)
		TRUE(pass(net, &p, &host, &from, 8 * i, i));
	TRUE(gpu("copies") >= FEW);
	EQ(0, gpu("mode"));
	OK(net_dereg(net, p.recv, from.mr));
	EQ(0, gpu("staging"));
	EQ(0, gpu("mode"));
	buf_free(net, &host);
	pair_close(net, &p);
	abi_down(net);
}

/*
 * A copy that the driver can't be asked about may be done yet: nobody else does it meanwhile, or it
 * would land in what the receive's owner has put there since.
 */
static void unknown(struct abi *t, const char *fault)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf host, to;

	pair_open(net, &p);
	host = buf_new(net, p.send, 8192, 0);
	to = gpu_new(net, p.recv, 8192);
	gpu("engine 200000");
	EQ(0, gpu(fault));
	if (pass(net, &p, &host, &to, 8192, 1)) {
		fill(bytes_of(&to), 8192, 2);
		WAIT_FOR(!gpu("under_way"));
		filled(bytes_of(&to), 8192, 2);
	}
	gpu_end(net, &to);
	buf_free(net, &host);
	pair_close(net, &p);
	abi_down(net);
}

static void staged_unknown(struct abi *t)
{
	setenv("BRAID_GPU_STAGE", "2", 1);
	warns_expected();
	unknown(t, "fail 1 cuEventRecord");
	gpu("engine 50");
	unknown(t, "fail 1 cuEventQuery");
}

static const size_t dying[] = { 8, 8192, 65536, MEG };
enum { DYING = sizeof(dying) / sizeof(dying[0]), DEATHS = 40 };

/* The NIC is gone under messages both ways: the job goes on over TCP, flushes too. */
static void dies(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf from, to, host[2];

	warns_expected();
	pair_open(net, &p);
	from = gpu_new(net, p.send, MEG);
	to = gpu_new(net, p.recv, MEG);
	host[0] = buf_new(net, p.send, MEG, 0);
	host[1] = buf_new(net, p.recv, MEG, 0);
	gpu("flush 1");
	for (unsigned i = 0; i < DEATHS; i++) {
		struct op ops[] = { op_recv(net, p.recv, &to, MEG, 0), op_send(net, p.send, &from, MEG, 0) };

		if (i == 4) {
			fill(bytes_of(&from), MEG, i);
			ops_post(ops, 2);
			op_test(&ops[0]);
			nic("fatal nic0");
			ops_run(ops, 2);
			filled(bytes_of(&to), MEG, i);
		}
		TRUE(pass(net, &p, &from, &to, dying[i % DYING], 3 * i));
		TRUE(pass(net, &p, &from, &host[1], dying[i % DYING], 3 * i + 1));
		TRUE(pass(net, &p, &host[0], &to, dying[i % DYING], 3 * i + 2));
		OK(flush(net, p.recv, &to, 8));
	}
	TRUE(gpu("copies") > 0 && gpu("seen") > 0);
	laps_say(t, "with a NIC that is gone");
	EQ(0, gpu("blocked"));
	EQ(0, gpu("stray"));
	gpu_end(net, &from);
	gpu_end(net, &to);
	EQ(0, gpu("staging"));
	buf_free(net, &host[0]);
	buf_free(net, &host[1]);
	pair_close(net, &p);
	abi_down(net);
}

/* Its port goes down and comes up again: so does what goes over it. */
static void returns(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	uint64_t end = deadline_ms(GONE_MS);
	struct pair p = { 0 };
	struct buf from, to;
	long copies;

	warns_expected();
	pair_open(net, &p);
	from = gpu_new(net, p.send, MEG);
	to = gpu_new(net, p.recv, MEG);
	TRUE(pass(net, &p, &from, &to, MEG, 1));
	EQ(0, gpu("copies"));
	nic("port nic0 down");
	for (unsigned i = 0; !gpu("copies"); i++) {
		TRUE(pass(net, &p, &from, &to, MEG, i));
		wait_tick(end, __FILE__, __LINE__, "a copy by the driver");
	}
	nic("port nic0 up");
	do {
		nap_ms(10);
		copies = gpu("copies");
		TRUE(pass(net, &p, &from, &to, MEG, 7));
		wait_tick(end, __FILE__, __LINE__, "the NIC to be used again");
	} while (copies != gpu("copies"));
	EQ(0, gpu("blocked"));
	EQ(0, gpu("stray"));
	gpu_end(net, &from);
	gpu_end(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

/* A kernel that polls the flags of LL128, and words of LL, of which none is half there. */
struct poller {
	const _Atomic uint64_t *at;
	atomic_uint sent, early, wrong;	/* messages; lines seen before it was said that they are there */
	atomic_bool stop;
};

enum { LINES = 64, LINE_WORDS = 16, SENT = 60, ENGINE_US = 400 };

static void *poll_lines(void *arg)
{
	struct poller *p = arg;

	while (!atomic_load(&p->stop)) {
		uint64_t sent = atomic_load(&p->sent), want = sent << 32 | sent;

		for (unsigned i = 0; i < LINES; i++) {
			const _Atomic uint64_t *line = p->at + (size_t)i * LINE_WORDS;
			bool flag = atomic_load(&line[LINE_WORDS - 1]) == want;

			for (unsigned k = 0; k < LINE_WORDS; k++) {
				uint64_t w = atomic_load(&line[k]);

				p->wrong += w >> 32 != (uint32_t)w || (flag && w < want);
			}
			p->early += flag && atomic_load(&p->sent) == sent;
		}
	}
	return NULL;
}

static void lines(struct abi *t)
{
	size_t size = (size_t)LINES * LINE_WORDS * 8;
	struct poller poller = { 0 };
	struct pair p = { 0 };
	struct buf from, to;
	pthread_t thread;
	struct net *net;
	uint64_t *words;

	setenv("BRAID_GPU_STAGE", "2", 1);
	net = up(t, "rocev2", ALL_WAYS);
	pair_open(net, &p);
	from = buf_new(net, p.send, size, 0);
	to = gpu_new(net, p.recv, size);
	gpu("engine 400");
	poller.at = bytes_of(&to);
	words = (uint64_t *)(void *)from.data;
	TRUE(!pthread_create(&thread, NULL, poll_lines, &poller));
	for (uint64_t i = 1; i <= SENT; i++) {
		struct op ops[] = { op_recv(net, p.recv, &to, size, 0), op_send(net, p.send, &from, size, 0) };

		for (unsigned k = 0; k < LINES * LINE_WORDS; k++)
			words[k] = i << 32 | i;
		atomic_store(&poller.sent, (unsigned)i);
		ops_run(ops, 2);
	}
	atomic_store(&poller.stop, true);
	TRUE(!pthread_join(thread, NULL));
	printf("%u times a line was seen whole before the message was said to be there\n", poller.early);
	fflush(stdout);
	TRUE(poller.early > SENT);
	EQ(0, poller.wrong);
	EQ(2 * SENT, gpu("copies"));
	gpu_end(net, &to);
	buf_free(net, &from);
	pair_close(net, &p);
	abi_down(net);
}

/* Memory goes, or its comm, with copies into it and out of it under way: nobody touches it then. */
static void staged_taken(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p[TAKEN] = { 0 };
	struct buf from[TAKEN], to[TAKEN];
	unsigned under_way = 0;

	warns_expected();
	for (unsigned i = 0; i < TAKEN; i++) {
		pair_open(net, &p[i]);
		from[i] = gpu_new(net, p[i].send, MEG);
		to[i] = gpu_new(net, p[i].recv, MEG);
	}
	gpu("engine 3000");
	nic("fatal nic0");
	TRUE(pass(net, &p[0], &from[0], &to[0], MEG, 1));
	for (unsigned i = 0; i < TAKEN; i++) {
		struct op ops[] = { op_recv(net, p[i].recv, &to[i], MEG, 0),
				    op_send(net, p[i].send, &from[i], MEG, 0) };
		bool out = i & 1;

		ops_post(ops, 2);
		for (uint64_t until = now_us() + i * 3000; now_us() < until;) {
			op_test(&ops[0]);
			op_test(&ops[1]);
		}
		under_way += gpu("under_way") > 0;
		if (i & 2)
			gpu_end(net, out ? &from[i] : &to[i]);
		else if (out)
			OK(net_close_send(net, p[i].send));
		else
			OK(net_close_recv(net, p[i].recv));
		if (!(i & 2))
			EQ(0, gpu_free((uint64_t)(uintptr_t)(out ? from : to)[i].data));
		if (!(i & 2) && out)
			p[i].send = NULL;
		else if (!(i & 2))
			p[i].recv = NULL;
		ops_settle(&ops[out ? 0 : 1], i & 2 ? 1 : 0);
		gpu_end(net, out ? &to[i] : &from[i]);
		pair_close(net, &p[i]);
	}
	printf("memory was taken back %u times with copies under way\n", under_way);
	fflush(stdout);
	TRUE(under_way > TAKEN / 4);
	WAIT_FOR(!gpu("under_way"));
	EQ(0, gpu("stray"));
	EQ(0, gpu("staging"));
	abi_down(net);
}

/* A peer that has TCP alone, and may begin. */
static void *begin_by_tcp(struct abi *t, int fd, struct net **ret)
{
	void *send;

	setenv("BRAID_TRANSPORTS", "tcp", 1);
	*ret = abi_up(t);
	send = send_to(*ret, fd);
	meet(fd);
	return send;
}

static void big_sender(struct abi *t, int fd)
{
	struct net *net;
	void *send;

	setenv("BRAID_CHUNK", "8m", 1);
	send = begin_by_tcp(t, fd, &net);
	send_one(net, send, BIG, 1);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
}

/* Of many pieces, and nobody calls: NCCL's thread may be asleep. */
static void comes_alone(struct abi *t, void (*sender)(struct abi *t, int fd))
{
	struct peer peer = peer_start(t, sender);
	struct net *net = up(t, "rocev2", ALL_WAYS);
	uint8_t *bytes, was;
	struct buf in;
	struct op op;
	void *recv;

	recv = recv_from(net, peer.fd);
	in = gpu_new(net, recv, BIG);
	bytes = bytes_of(&in);
	blank(bytes, BIG);
	was = bytes[BIG - 1];		/* the last to come */
	op = op_recv(net, recv, &in, BIG, 0);
	ops_post(&op, 1);
	meet(peer.fd);
	WAIT_FOR_MS(ALONE_MS, *(volatile uint8_t *)&bytes[BIG - 1] != was);
	ops_run(&op, 1);
	filled(bytes, BIG, 1);
	meet(peer.fd);
	gpu_end(net, &in);
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
}

static void nobody_calls(struct abi *t)
{
	setenv("BRAID_GPU_STAGE", "2", 1);
	warns_expected();		/* that the link is carried by TCP */
	comes_alone(t, big_sender);
}

enum { LEFT_N = 8, LEFT = 3000 };

static void small_sender(struct abi *t, int fd)
{
	struct net *net;
	void *send = begin_by_tcp(t, fd, &net);

	for (uint64_t i = 0; i < LEFT_N; i++)
		send_one(net, send, LEFT, i);
	OK(net_close_send(net, send));
	abi_down(net);
	end_well();
}

/* What came before its link was gone can be copied when it is. */
static void sender_left(struct abi *t)
{
	struct peer peer = peer_start(t, small_sender);
	struct buf in[LEFT_N];
	struct op ops[LEFT_N];
	struct net *net;
	void *recv;

	net = up(t, "rocev2", ALL_WAYS);
	warns_expected();		/* that the link is carried by TCP */
	recv = recv_from(net, peer.fd);
	for (unsigned i = 0; i < LEFT_N; i++) {
		in[i] = gpu_new(net, recv, LEFT);
		blank(bytes_of(&in[i]), LEFT);
		ops[i] = op_recv(net, recv, &in[i], LEFT, 0);
	}
	meet(peer.fd);
	peer_join(&peer);
	nap_ms(50);
	ops_run(ops, LEFT_N);
	for (unsigned i = 0; i < LEFT_N; i++) {
		filled(bytes_of(&in[i]), LEFT, i);
		gpu_end(net, &in[i]);
	}
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void sender_left_staged(struct abi *t)
{
	setenv("BRAID_GPU_STAGE", "2", 1);
	sender_left(t);
}

/* A GPU that does nothing any more: an error in bounded time, and deregMr returns in such. */
static void stuck(struct abi *t)
{
	struct pair p[2] = { 0 };
	struct buf from[2], to[2];
	struct op ops[2];
	struct net *net;
	uint64_t start;
	long before;

	warns_expected();
	setenv("BRAID_GPU_STAGE", "2", 1);
	net = up(t, "rocev2", ALL_WAYS);
	for (unsigned i = 0; i < 2; i++) {
		pair_open(net, &p[i]);
		from[i] = buf_new(net, p[i].send, 8192, 0);
		to[i] = gpu_new(net, p[i].recv, 8192);
	}
	gpu("hold 1");
	start = now_us();
	TRUE(!pass(net, &p[0], &from[0], &to[0], 8192, 1));
	/* The other end, of the same process, may have been warned of its peer since. */
	if (!net_warned("nor by the driver (Connection timed out)"))
		FAIL("the reason is not told but: %s", net_last_warn());
	ops[0] = op_recv(net, p[1].recv, &to[1], 8192, 0);
	ops[1] = op_send(net, p[1].send, &from[1], 8192, 0);
	before = gpu("under_way");
	ops_post(ops, 2);
	WAIT_FOR((op_test(&ops[0]), gpu("under_way") > before));
	gpu_end(net, &to[1]);
	if (!net_warned("is the GPU alive"))
		FAIL("the reason is not told but: %s", net_last_warn());
	TRUE(now_us() - start < 20 * 1000000ull * drive_slow());
	gpu("hold 0");
	end_well();
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
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf first;

	pair_open(net, &p);
	first = buf_new(net, p.recv, 64 * MEG, 0);
	nic("fail 0 ibv_reg_mr");
	reg_again(net, &p, &first, NCCL_PTR_HOST);
	TRUE(regs() < FEW);			/* of lanes that come up */
	buf_free(net, &first);
	pair_close(net, &p);
	abi_down(net);
}

static void second(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf first;

	pair_open(net, &p);
	first = gpu_new(net, p.recv, 64 * MEG);
	count_regs();
	reg_again(net, &p, &first, NCCL_PTR_CUDA);
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

/* What is there when a limit is reached serves on, what is not there is copied or refused. */
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
	net = up(t, "rocev2", ALL_WAYS);
	pair_open(net, &p);
	b[0] = gpu_new(net, p.recv, size);
	b[1] = buf_new(net, p.send, size, 0);
	b[2] = buf_new(net, p.recv, size, 0);		/* one too many */
	if (!strstr(net_last_warn(), "BRAID_MR_MAX") || !strstr(net_last_warn(), "are copied"))
		FAIL("the limit is not told but: %s", net_last_warn());
	EQ(0, gpu_alloc(&at, size));
	RES(ncclSystemError, net_reg(net, p.recv, (void *)(uintptr_t)at, size, NCCL_PTR_CUDA, &mr));
	if (!strstr(net_last_warn(), "of a GPU are not registered: 2 registrations"))
		FAIL("the limit is not told but: %s", net_last_warn());
	OK(net_reg(net, p.recv, b[0].data, size, NCCL_PTR_CUDA, &mr));	/* that is there */
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

/* When a context has no comm any more, and again only if there was something new. */
static void counted(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
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
	if (!strstr(net_last_warn(), "can't register 1048576 bytes of GPU 0 (CUDA's number): "))
		FAIL("the reason is not told but: %s", net_last_warn());
	pair_close(net, &p);
	abi_down(net);
}

/* A driver that exports them as one: so does the NIC have them, and nobody else's. */
static void spans(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf to, again;

	pair_open(net, &p);
	gpu("pieces 4");
	gpu("spans 1");
	move(net, &p, true, true, MEG, false);
	to = gpu_new(net, p.recv, MEG);
	count_regs();
	again = to;
	OK(net_reg(net, p.recv, again.data + MEG / 8, MEG / 2, NCCL_PTR_CUDA, &again.mr));
	EQ(1, regs());				/* what is of three of them is not known to be of these */
	OK(net_dereg(net, p.recv, again.mr));
	OK(net_reg(net, p.recv, again.data, MEG, NCCL_PTR_CUDA, &again.mr));
	EQ(1, regs());
	OK(net_dereg(net, p.recv, again.mr));
	EQ(0, gpu_free((uint64_t)(uintptr_t)to.data));
	again = gpu_new(net, p.recv, MEG);
	TRUE(again.data == to.data);
	EQ(2, regs());				/* others, at the same address */
	OK(net_dereg(net, p.recv, to.mr));
	gpu_end(net, &again);
	pair_close(net, &p);
	abi_down(net);
}

/* Some of the host's among them: the CPU keeps away all the same. */
static void mixed(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	uint64_t at;
	void *mr;

	warns_expected();
	pair_open(net, &p);
	gpu("pieces 4");
	gpu("mixed 1");
	EQ(0, gpu_alloc(&at, MEG));
	RES(ncclSystemError, net_reg(net, p.recv, (void *)(uintptr_t)at, MEG, NCCL_PTR_CUDA, &mr));
	gpu("spans 1");
	OK(net_reg(net, p.recv, (void *)(uintptr_t)at, MEG, NCCL_PTR_CUDA, &mr));
	OK(net_dereg(net, p.recv, mr));
	pair_close(net, &p);
	abi_down(net);
}

/* Not the GPU that was tried: who reads the line learns which it is. */
static void other_gpu(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	uint64_t at;
	void *mr;

	warns_expected();
	pair_open(net, &p);
	gpu("number 3");
	EQ(0, gpu_alloc(&at, MEG));
	gpu("dmabuf 0");
	nic("fail 1 ibv_reg_mr_iova2 EFAULT");
	RES(ncclSystemError, net_reg(net, p.recv, (void *)(uintptr_t)at, MEG, NCCL_PTR_CUDA, &mr));
	if (!strstr(net_last_warn(), "of GPU 3 (CUDA's number), which is not the one that was tried at init: "))
		FAIL("the GPU is not named but: %s", net_last_warn());
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
static void late_on(struct abi *t, const char *more)
{
	struct net *net = up(t, "rocev2", more);
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

static void late(struct abi *t)
{
	late_on(t, ALL_WAYS ",late=1");
}

/* BRAID_GPU_FLUSH_BY, and a logger that keeps what is said of it, and of all. */
static char chosen[512], said[1024];

static void hear_choice(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
static void hear_choice(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	net_log(level, flags, file, line, "%s", text);
	if (strstr(text, "gpu: memory is "))
		snprintf(said, sizeof(said), "%s", text);
	if (strstr(text, "flush by "))
		snprintf(chosen, sizeof(chosen), "%s", strstr(text, "flush by "));
}

static struct net *up_heard(struct abi *t, const char *more)
{
	struct net *net;
	void *ctx;

	if (!gpu_ctl)
		cuda_load();
	gpu("context 0");		/* the first init hears of nothing, the next tries */
	net = up(t, "rocev2", more);
	gpu("context 1");
	OK(net_init_ctx(net, &ctx, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, hear_choice, NULL));
	OK(net_finalize_ctx(net, ctx));
	return net;
}

/* Up, with this way to flush asked for, and this one chosen. */
static struct net *up_by(struct abi *t, const char *by, const char *want)
{
	struct net *net;

	setenv("BRAID_GPU_FLUSH_BY", by, 1);
	net = up_heard(t, ALL_WAYS);
	if (strncmp(chosen, want, strlen(want)) != 0)
		FAIL("what is said is: %s", chosen);
	return net;
}

/* Flushes of GPU memory, one by one: how many by the CPU? */
static long by_cpu(struct net *net, struct pair *p, struct buf *b, unsigned n)
{
	long seen = gpu("seen"), reads = nic("count sends"), by;

	for (unsigned i = 0; i < n; i++)
		OK(flush(net, p->recv, b, MEG));
	by = gpu("seen") - seen;
	if (by != n)
		TRUE(nic("count sends") >= reads + (long)n - by);
	return by;
}

/* At once, in the call, and what was on its way on the bus is there. */
static void gdrcopy(struct abi *t)
{
	struct net *net;
	struct pair p = { 0 };
	struct buf b;

	cuda_load();
	load("fakecuda", "libgdrapi.so.2");
	net = up_by(t, "gdrcopy", "flush by GDRCopy, ");
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	TRUE(!flush_begin(net, p.recv, &b, MEG));
	EQ(FEW, by_cpu(net, &p, &b, FEW));
	gpu_end(net, &b);
	pair_close(net, &p);
	end_well();
}

static void gdrcopy_late(struct abi *t)
{
	long reads;

	setenv("BRAID_GPU_FLUSH_BY", "gdrcopy", 1);
	cuda_load();
	load("fakecuda", "libgdrapi.so.2");
	reads = gpu("seen");
	late_on(t, ALL_WAYS ",late=1");
	TRUE(gpu("seen") > reads);
}

/* A window that the driver takes away, and memory of a GPU that there is no window on. */
static void gdrcopy_gone(struct abi *t)
{
	struct net *net;
	struct pair p = { 0 };
	struct buf b, other;

	cuda_load();
	load("fakecuda", "libgdrapi.so.2");
	net = up_by(t, "gdrcopy", "flush by GDRCopy, ");
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	gpu("number 1");
	other = gpu_new(net, p.recv, MEG);
	EQ(0, by_cpu(net, &p, &other, 3));
	EQ(3, by_cpu(net, &p, &b, 3));
	gpu("take");
	EQ(0, by_cpu(net, &p, &b, 3));
	gpu_end(net, &b);
	gpu_end(net, &other);
	pair_close(net, &p);
	end_well();
}

/* Asked for or not, what is not there is not used. */
static void gdrcopy_none(struct abi *t)
{
	struct net *net = up_by(t, "gdrcopy", "flush by the NIC, ");
	struct pair p = { 0 };
	struct buf b;

	/* Or a real one is, whose driver is not or knows nothing of a fake GPU. */
	if (!strstr(chosen, "libgdrapi.so.2") && !strstr(chosen, "gdr_pin_buffer"))
		FAIL("what is said is: %s", chosen);
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	EQ(0, by_cpu(net, &p, &b, 3));
	end_well();
}

/* Where it is not seen to be valid. */
static void gdrcopy_unasked(struct abi *t)
{
	cuda_load();
	load("fakecuda", "libgdrapi.so.2");
	abi_down(up_by(t, "auto", "flush by the NIC, "));
	if (!strstr(chosen, "not seen to be below one PCIe switch"))
		FAIL("what is said is: %s", chosen);
	EQ(0, gpu("live"));
}

static void driver_flushes(struct abi *t)
{
	struct net *net;
	struct pair p = { 0 };
	struct buf b;

	cuda_load();
	gpu("flush 1");
	net = up_by(t, "driver", "flush by the driver");
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	EQ(3, by_cpu(net, &p, &b, 3));
	gpu("context 0");		/* this thread's */
	EQ(0, by_cpu(net, &p, &b, 3));
	end_well();
}

static void driver_does_not(struct abi *t)
{
	abi_down(up_by(t, "driver", "flush by the NIC, "));
	if (!strstr(chosen, "the driver: Operation not supported"))
		FAIL("what is said is: %s", chosen);
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
	void *send = begin_by_tcp(t, fd, &net);

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

static void last_sender(struct abi *t, int fd)
{
	struct net *net;

	setenv("BRAID_TRANSPORTS", "tcp", 1);
	net = abi_up(t);
	send_one(net, send_to(net, fd), 8, 1);
	for (;;)
		pause();
}

/* Others have it registered, so that the NIC could go on. */
static void copy_taken(struct abi *t)
{
	struct peer peer = peer_start(t, last_sender);
	static const uint8_t none[8];
	struct net *net;
	struct buf in;
	struct op op;
	long before;
	void *recv, *other;

	setenv("BRAID_GPU_STAGE", "0", 1);
	net = up(t, "rocev2", ALL_WAYS);
	warns_expected();
	recv = recv_from(net, peer.fd);
	in = gpu_new(net, recv, 8);
	OK(net_reg(net, recv, in.data, 8, NCCL_PTR_CUDA, &other));
	nic("delay nic0 100000");
	before = nic("count sends");
	op = op_recv(net, recv, &in, 8, 0);
	ops_post(&op, 1);
	WAIT_FOR((op_test(&op), nic("count sends") > before));
	OK(net_dereg(net, recv, in.mr));
	TRUE(!memcmp(bytes_of(&in), none, 8));		/* or this shows nothing */
	nap_ms(300);
	TRUE(!memcmp(bytes_of(&in), none, 8));
	nic("delay nic0 0");
	peer_kill(&peer);
	end_well();
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

/* -- Data Direct ------------------------------------------------------------------------------ */

#define MLX5 ",path=0000:01:00.0,driver=mlx5_core"
#define DIRECT MLX5 ",direct=1"

/* Is it used?  NCCL then hears of the second function, and that it must flush. */
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
	if (want != (strstr(said, text) != NULL))
		FAIL("what is said is: %s", said);
}

static void direct_alone(struct abi *t)
{
	struct net *net;

	load("fake", "libmlx5.so.1");
	net = up_heard(t, DIRECT ",dmabuf=0,peermem=0");
	is_direct(net, 0, true);
	is_told("direct-pcie: Operation not supported, direct, pcie: ", true);
	is_told("Data Direct's PCI function is /", true);
	abi_down(net);
}

static void direct_pcie(struct abi *t)
{
	struct net *net;

	cuda_load();
	gpu("pcie 1");
	load("fake", "libmlx5.so.1");
	net = up_heard(t, DIRECT ALL_WAYS);
	is_direct(net, 0, true);
	is_told("direct-pcie, direct, pcie, dmabuf, peermem; ", true);
	abi_down(net);
}

static void direct_messages(struct abi *t)
{
	load("fake", "libmlx5.so.1");
	messages(t, "rocev2", DIRECT ",dmabuf=0,peermem=0");
}

/* What can be registered so is, and in no other way. */
static void direct_first(struct abi *t)
{
	struct pair p = { 0 };
	struct net *net;
	struct buf b;

	load("fake", "libmlx5.so.1");
	net = up(t, "rocev2", DIRECT ALL_WAYS);
	pair_open(net, &p);
	nic("fail 0 mlx5dv_reg_dmabuf_mr");
	b = gpu_new(net, p.recv, MEG);
	EQ(1, nic("calls"));
	gpu_end(net, &b);
	nic("fail 1 mlx5dv_reg_dmabuf_mr");	/* as for this buffer alone */
	b = gpu_new(net, p.recv, MEG);
	EQ(1, nic("calls"));
	OK(flush(net, p.recv, &b, MEG));
	gpu_end(net, &b);
	pair_close(net, &p);
	abi_down(net);
}

static void direct_dmabuf(struct abi *t)
{
	load("fake", "libmlx5.so.1");
	its_dmabuf_on(t, DIRECT ",dmabuf=0,peermem=0");
}

/* Nothing is changed by what is not there. */
static void direct_no_library(struct abi *t)
{
	struct net *net = up_heard(t, DIRECT ALL_WAYS);

	is_direct(net, 0, false);
	is_told("direct: ", true);
	is_told("pcie: Operation not supported, dmabuf, peermem; ", true);
	abi_down(net);
}

static void direct_other_nic(struct abi *t)
{
	struct net *net;

	load("fake", "libmlx5.so.1");
	nic("fail 0 mlx5dv_get_data_direct_sysfs_path");
	net = up_heard(t, ",path=0000:01:00.0,driver=other_core,direct=1" ALL_WAYS);
	EQ(0, nic("calls"));
	is_direct(net, 0, false);
	is_told("direct", false);
	abi_down(net);
}

static void direct_no_function(struct abi *t)
{
	struct net *net;

	load("fake", "libmlx5.so.1");
	nic("fail 0 mlx5dv_get_data_direct_sysfs_path");
	net = up_heard(t, MLX5 ALL_WAYS);
	EQ(1, nic("calls"));
	is_direct(net, 0, false);
	is_told("direct", false);
	abi_down(net);
}

static void direct_refused(struct abi *t)
{
	struct net *net;

	load("fake", "libmlx5.so.1");
	nic("fail 1 mlx5dv_reg_dmabuf_mr EINVAL on");
	net = up_heard(t, DIRECT ALL_WAYS);
	is_direct(net, 0, false);
	is_told("direct: Invalid argument, ", true);
	abi_down(net);
}

static void direct_unknown(struct abi *t)
{
	struct net *net;

	load("fake", "libmlx5.so.1");
	nic("fail 1 mlx5dv_get_data_direct_sysfs_path EIO");
	net = up_heard(t, DIRECT ALL_WAYS);
	is_direct(net, 0, false);
	is_told("direct: Input/output error, ", true);
	abi_down(net);
}

static void direct_lies(struct abi *t)
{
	struct net *net;

	cuda_load();
	gpu("lies 1");
	load("fake", "libmlx5.so.1");
	net = up(t, "rocev2", DIRECT ALL_WAYS);
	EQ(HOST | CUDA, offered(net));
	abi_down(net);
}

static void direct_off(struct abi *t)
{
	struct net *net;

	setenv("NCCL_IB_DATA_DIRECT", "0", 1);
	load("fake", "libmlx5.so.1");
	net = up_heard(t, DIRECT ALL_WAYS);
	is_direct(net, 0, false);
	is_told("direct", false);
	abi_down(net);
}

static void direct_dmabuf_named(struct abi *t)
{
	struct net *net;

	setenv("BRAID_GPU", "dmabuf", 1);
	load("fake", "libmlx5.so.1");
	net = up_heard(t, DIRECT ALL_WAYS);
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
	load("fake", "libmlx5.so.1");
	net = up_heard(t, DIRECT ALL_WAYS);
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

	load("fake", "libmlx5.so.1");
	setenv("BRAID_TEST_FAKE_DEVICES", "nic0:ib,netdev=lo" DIRECT ";nic1:ib,dmabuf=1", 1);
	setenv("BRAID_FUSE", "any", 1);
	cuda_load();
	net = abi_up(t);
	is_direct(net, 0, true);
	fuse(net, &dev);
	is_direct(net, dev, true);
	OK(net_props(net, 1, &p));
	EQ(0, p.force_flush);
	abi_down(net);
}

/* The NIC's read goes the way that its writes went, and the CPU's does not. */
static void direct_late(struct abi *t)
{
	load("fakecuda", "libgdrapi.so.2");
	load("fake", "libmlx5.so.1");
	late_on(t, DIRECT ALL_WAYS ",late=1");
}

static void direct_gdrcopy(struct abi *t)
{
	struct net *net;

	load("fakecuda", "libgdrapi.so.2");
	load("fake", "libmlx5.so.1");
	net = up_heard(t, DIRECT ALL_WAYS);
	if (strncmp(chosen, "flush by the NIC, ", 18) != 0 || !strstr(chosen, "another PCIe function"))
		FAIL("what is said is: %s", chosen);
	abi_down(net);
}

/* -- each call fails once --------------------------------------------------------------------- */

static const char *life_nic = ALL_WAYS;

/* A life; what is offered must work, but for what fails later. */
static void life(struct abi *t)
{
	struct net *net = up(t, "rocev2", life_nic);
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
		from.comm = p.recv;
		if (net_reg(net, p.recv, from.data, MEG, NCCL_PTR_CUDA, &from.mr) == ncclSuccess) {
			OK(flush(net, p.recv, &from, MEG));
			OK(net_dereg(net, p.recv, from.mr));
		}
		gpu_free(at);
	}
	buf_free(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

/* In a process of its own, with what fails said so; false: there was no k-th call of those. */
static bool life_in_fork(struct abi *t, void (*one)(struct abi *t), long (*ctl)(const char *cmd),
			 const char *cmd, unsigned k)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		TRUE(ctl(cmd) >= 0);
		one(t);
		_exit(ctl("calls") >= (long)k ? 0 : 42);
	}
	TRUE(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) || (WEXITSTATUS(status) && WEXITSTATUS(status) != 42))
		FAIL("status 0x%x after: %s", (unsigned)status, cmd);
	return !WEXITSTATUS(status);
}

/* `which` call ("": any) fails at the k-th time. */
static bool life_with(struct abi *t, long (*ctl)(const char *cmd), const char *which, unsigned k)
{
	char text[64];

	snprintf(text, sizeof(text), "fail %u %s", k, which);
	return life_in_fork(t, life, ctl, text, k);
}

/* And with copies by the driver: what is said to be there must be. */
static void staged_life(struct abi *t)
{
	struct net *net = up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf from, to, host;

	pair_open(net, &p);
	host = buf_new(net, p.send, MEG, 0);
	from = gpu_new(net, p.send, MEG);
	to = gpu_new(net, p.recv, MEG);
	if (pass(net, &p, &host, &to, 8192, 1)) {
		nic("fatal nic0");
		pass(net, &p, &from, &to, MEG, 2);
	}
	EQ(0, gpu("blocked"));
	EQ(0, gpu("stray"));
	gpu_end(net, &from);
	gpu_end(net, &to);
	buf_free(net, &host);
	pair_close(net, &p);
	abi_down(net);
}

static void stage_fails(struct abi *t)
{
	static const char *const calls[] = {
		"cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
		"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuMemHostAlloc", "cuMemFreeHost",
		"cuStreamCreate", "cuStreamDestroy_v2", "cuEventCreate", "cuEventDestroy_v2",
		"cuEventRecord", "cuEventQuery", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
		"cuMemcpy2DAsync_v2", "cuThreadExchangeStreamCaptureMode",
	};
	static const char *const how[] = { "1", "2", "3", "1 on", "5 on" };
	unsigned lives = 0, failed = 0;

	cuda_load();
	warns_expected();
	setenv("BRAID_GPU_STAGE", "2", 1);
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		for (unsigned k = 0; k < sizeof(how) / sizeof(how[0]); k++, lives++) {
			char text[80];

			snprintf(text, sizeof(text), "fail %c %s%s", how[k][0], calls[i], how[k] + 1);
			failed += life_in_fork(t, staged_life, gpu_ctl, text, (unsigned)(how[k][0] - '0'));
		}
	}
	printf("%u lives, in %u of them a call of the driver's failed\n", lives, failed);
	fflush(stdout);
	TRUE(failed > lives / 2);
}

static void gdrcopy_fails(struct abi *t)
{
	static const char *const calls[] = { "gdr_open", "gdr_pin_buffer", "gdr_map", "gdr_get_callback_flag" };

	setenv("BRAID_GPU_FLUSH_BY", "gdrcopy", 1);
	cuda_load();
	load("fakecuda", "libgdrapi.so.2");
	warns_expected();
	for (unsigned i = 0; i < 4; i++) {
		unsigned k = 1;

		while (life_with(t, gpu_ctl, calls[i], k))
			k++;
		TRUE(k > 1);
	}
}

static void driver_flush_fails(struct abi *t)
{
	unsigned k = 1;

	setenv("BRAID_GPU_FLUSH_BY", "driver", 1);
	cuda_load();
	gpu("flush 1");
	warns_expected();
	while (life_with(t, gpu_ctl, "cuFlushGPUDirectRDMAWrites", k))
		k++;
	TRUE(k > 1);
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

static void direct_fails(struct abi *t)
{
	static const char *const calls[] = { "mlx5dv_get_data_direct_sysfs_path", "mlx5dv_reg_dmabuf_mr",
					     "ibv_reg_dmabuf_mr" };

	cuda_load();
	load("fake", "libmlx5.so.1");
	life_nic = DIRECT ALL_WAYS;
	warns_expected();
	for (unsigned i = 0; i < 3; i++) {
		unsigned k = 1;

		while (life_with(t, nic_ctl, calls[i], k))
			k++;
		TRUE(k > 1);
	}
}

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
	CASE("a DMA-BUF that the kernel made is where messages go", real_dmabuf, ONCE),
	CASE("two NICs as one: both reach it, and both flush", fused, ONCE),
	CASE("two NICs as one: what one can't is not offered", half_fused, ONCE),
	CASE("a peer that has TCP alone gets what is in a GPU, and the other way",
	     by_nic, ONCE, .warns = "peer-lacks-transport"),
	CASE("the same by the driver", by_driver, ONCE),
	CASE("the same if the NIC is gone", nic_gone, ONCE),
	CASE("the same if the NIC does not answer, which is found out once", no_loop, ONCE),
	CASE("if neither NIC nor driver fetch it, the comm fails and says so",
	     nothing_left, ONCE, .warns = "gpu-copy-failed"),
	CASE("the same if the driver has no memory to spare", no_stage, ONCE),
	CASE("the same if the driver does not copy", no_engine, ONCE),
	CASE("messages between GPU and host, by the driver", staged, ONCE),
	CASE("the same while a graph is captured, and with no context", staged_capture, ONCE),
	CASE("a copy that the driver can't be asked about: nobody else does it", staged_unknown, ONCE),
	CASE("the NIC is gone under messages of a GPU: they go on over TCP, as flushes do", dies, ONCE),
	CASE("a port goes down and up again: the driver copies, and no more", returns, ONCE),
	CASE("who polls lines sees flags after payload, and no half words", lines, ONCE),
	CASE("memory is taken back, and comms are closed, with copies under way", staged_taken, ONCE),
	CASE("memory is taken back with a NIC's copy under way", copy_taken, ONCE),
	CASE("a message is copied into a GPU although nobody calls", nobody_calls, ONCE),
	CASE("what was sent is copied into a GPU though the sender has long left", sender_left, ONCE),
	CASE("the same by the driver's copies", sender_left_staged, ONCE),
	CASE("a GPU that copies nothing any more is an error, and deregMr returns",
	     stuck, ONCE, .warns = "gpu-copy-late"),
	CASE("queue pairs end with messages of a GPU under way: all arrive", ends, ONCE),
	CASE("memory of a GPU is taken back with messages under way", taken_back, ONCE),
	CASE("memory freed and allocated at the same address is other memory", reuse, ONCE),
	CASE("the second registration of a buffer asks no NIC", second, ONCE),
	CASE("the same of the host's memory", second_host, ONCE),
	CASE("at the limit what is there serves, the host's is copied, and a GPU's an error",
	     limits, ONCE, .warns = "not-registered"),
	CASE("registrations are counted, and told when the last comm is closed", counted, ONCE),
	CASE("memory that the driver has no id for is shared by nobody", no_ids, ONCE),
	CASE("a buffer of several allocations is refused, and says so",
	     pieces, ONCE, .warns = "gpu-not-registered"),
	CASE("a buffer of several allocations that the driver exports as one", spans, ONCE),
	CASE("one of a GPU's and the host's is no memory of the CPU's", mixed, ONCE),
	CASE("memory of a GPU that was not tried: the line names it", other_gpu, ONCE),
	CASE("pinned memory of the host, registered as CUDA's, is the host's", pinned, ONCE),
	CASE("a flush is a read of the NIC's", flushes, ONCE),
	CASE("what the NIC has written and the GPU can't see yet, it sees after a flush", late, ONCE),
	CASE("a flush through GDRCopy is over in the call, and no NIC reads", gdrcopy, ONCE),
	CASE("what the NIC has written and the GPU can't see yet, it sees after that", gdrcopy_late, ONCE),
	CASE("of another GPU, and when its window is taken away, the NIC flushes", gdrcopy_gone, ONCE),
	CASE("without GDRCopy the NIC flushes, and that is said", gdrcopy_none, ONCE),
	CASE("unasked, GDRCopy is used below one PCIe switch alone", gdrcopy_unasked, ONCE),
	CASE("a flush by the driver, where a context is current", driver_flushes, ONCE),
	CASE("a driver that has no flush: the NIC flushes, and that is said", driver_does_not, ONCE),
	CASE("a flush that fails is an error, and the next one works",
	     flush_fails, ONCE, .warns = "flush-failed"),
	CASE("flushes that a slow NIC answers late wait in no call", flush_slow, ONCE),
	CASE("nor those that are never answered, which are errors", flush_lost, ONCE),
	CASE("nor those of a NIC whose device is gone", flush_gone, ONCE),
	CASE("nor those of a NIC that copies for somebody else", flush_behind, ONCE),
	CASE("threads that flush at one time, and queue pairs that end meanwhile", flush_threads, ONCE),
	CASE("memory and comms end with flushes under way, and others' flushes are done", flush_dropped, ONCE),
	CASE("BRAID_GPU_FLUSH=2: NCCL is asked to flush always", always, ONCE),
	CASE("Data Direct: it is offered, NCCL is told where, and to flush", direct_alone, .since = 9),
	CASE("Data Direct: with the PCIe mapping, where the driver has that", direct_pcie, ONCE),
	CASE("Data Direct: messages between GPU and host", direct_messages, ONCE),
	CASE("Data Direct: a buffer is registered so, and if that fails in the next way", direct_first, ONCE),
	CASE("Data Direct: a DMA-BUF of NCCL's own", direct_dmabuf, ONCE),
	CASE("Data Direct: without libmlx5 nothing changes, and that is said", direct_no_library, ONCE),
	CASE("Data Direct: a NIC of another driver is not asked", direct_other_nic, ONCE),
	CASE("Data Direct: a NIC without a second function is like any", direct_no_function, ONCE),
	CASE("Data Direct: what is refused is not offered, and that is said", direct_refused, ONCE),
	CASE("Data Direct: nor is what can't be asked for", direct_unknown, ONCE),
	CASE("Data Direct: nor is what has other bytes", direct_lies, ONCE),
	CASE("Data Direct: NCCL_IB_DATA_DIRECT=0: none of it", direct_off, ONCE),
	CASE("Data Direct: BRAID_GPU=dmabuf: not with the PCIe mapping", direct_dmabuf_named, ONCE),
	CASE("Data Direct: BRAID_GPU_FLUSH=0: no flush all the same", direct_no_flush, ONCE),
	CASE("Data Direct: two NICs as one, of which one has it", direct_fused, ONCE),
	CASE("Data Direct: what the GPU can't see yet, it sees after a flush", direct_late, ONCE),
	CASE("Data Direct: GDRCopy is not used unasked, and that is said", direct_gdrcopy, ONCE),
	CASE("Data Direct: each call fails once", direct_fails, ONCE, .seconds = 240),
	CASE("each call into the driver fails once", driver_fails, ONCE, .seconds = 240),
	CASE("each call of GDRCopy's fails once", gdrcopy_fails, ONCE, .seconds = 240),
	CASE("the driver's flush fails once", driver_flush_fails, ONCE, .seconds = 240),
	CASE("calls for the driver's copies fail", stage_fails, ONCE, .seconds = 240),
	CASE("each registration fails once", nic_fails, ONCE, .seconds = 240),
};

/* -- by UCX ----------------------------------------------------------------------------------- */

static void ucx_offers(struct abi *t)
{
	offer_is(t, "", "", HOST | CUDA);
	EQ(0, gpu("mode"));
}

static void ucx_silent(struct abi *t)
{
	unsetenv("BRAID_TEST_UCP_CUDA");
	offer_is(t, "", "", HOST);
}

static void ucx_none(struct abi *t)
{
	setenv("BRAID_GPU", "none", 1);
	offer_is(t, "", "", HOST);
}

static void ucx_broken(struct abi *t)
{
	setenv("BRAID_TEST_UCP_CUDA", "broken", 1);
	offer_is(t, "", "", HOST);
}

static void ucx_lies(struct abi *t)
{
	setenv("BRAID_TEST_UCP_CUDA", "lies", 1);
	offer_is(t, "", "", HOST);
}

static void ucx_messages(struct abi *t)
{
	messages(t, "", "");
}

/* Endpoints break: what is under way goes on over TCP, by the driver's copies, and comes back. */
static void ucx_breaks(struct abi *t)
{
	struct pair p = { 0 };
	struct buf from, to;
	struct net *net;

	setenv("BRAID_TRANSPORTS", "ucx,tcp", 1);
	setenv("BRAID_TEST_UCP_BREAK", "3000", 1);
	net = up(t, "", "");
	warns_expected();
	pair_open(net, &p);
	from = gpu_new(net, p.send, MEG);
	to = gpu_new(net, p.recv, MEG);
	for (unsigned i = 0; !gpu("copies"); i++) {
		TRUE(i < 20000);
		TRUE(pass(net, &p, &from, &to, i % 3 ? MEG - i : 8192, i));
	}
	for (unsigned i = 0; i < FEW; i++)
		TRUE(pass(net, &p, &from, &to, MEG - i, i));
	EQ(0, gpu("blocked"));
	gpu_end(net, &from);
	gpu_end(net, &to);
	pair_close(net, &p);
	EQ(0, gpu("stray"));
	abi_down(net);
}

static void ucx_sender(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);

	meet(fd);
	send_one(net, send, BIG, 1);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
}

/* The thread that moves it then has no context of the driver's by itself. */
static void ucx_nobody_calls(struct abi *t)
{
	comes_alone(t, ucx_sender);
	EQ(0, gpu("copies"));
}

static const struct abi_case ucx_cases[] = {
	CASE("GPU memory is offered where UCX has moved some", ucx_offers, .since = 6),
	CASE("where UCX does not say that it can, nothing is", ucx_silent, ONCE),
	CASE("BRAID_GPU=none: nothing is offered", ucx_none, ONCE),
	CASE("UCX says that it can, and can't: nothing is offered", ucx_broken, ONCE),
	CASE("UCX brings other bytes: nothing is offered", ucx_lies, ONCE),
	CASE("messages between GPU and host, all sizes, early and late", ucx_messages, ONCE),
	CASE("endpoints break under messages of a GPU: they go on over TCP", ucx_breaks, ONCE),
	CASE("a message comes into a GPU although nobody calls", ucx_nobody_calls, ONCE),
	CASE("memory of a GPU is taken back with messages under way", taken_back, ONCE),
};

int main(void)
{
	const char *ucx = getenv("BRAID_TEST_UCX");

	by_ucx = ucx && !strcmp(ucx, "gpu");
	if (by_ucx)
		return abi_main(__FILE__, ucx_cases, sizeof(ucx_cases) / sizeof(ucx_cases[0]));
	find(load("fake", "libibverbs.so.1"), "braid_fake_ctl", &nic_ctl);
	return abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
}
