/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.c - see gpu.h. */
#include "tests/abi/gpu.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DMA_BUF_FD = 1, EARLY = 200, EARLY_MS = 5, TAKEN = 24, GONE_MS = 40000, ALONE_MS = 3000 };

/* -- the fakes -------------------------------------------------------------------------------- */

static bool by_ucx;		/* in place of a NIC (tests/ucx/gpu.sh) */
static int (*gpu_export)(void *ret, uint64_t ptr, size_t size, int type, unsigned long long flags);
static void *(*gpu_bytes)(const void *ptr, size_t size);
long (*nic_ctl)(const char *cmd);
long (*gpu_ctl)(const char *cmd);
int (*gpu_alloc)(uint64_t *ret, size_t size);
int (*gpu_free)(uint64_t ptr);

void *fake_load(const char *dir, const char *name)
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

void fakecuda_load(void)
{
	void *lib = fake_load("fakecuda", "libcuda.so.1");

	find(lib, "braid_fakecuda_ctl", &gpu_ctl);
	find(lib, "braid_fakecuda_bytes", &gpu_bytes);
	find(lib, "cuMemAlloc_v2", &gpu_alloc);
	find(lib, "cuMemFree_v2", &gpu_free);
	find(lib, "cuMemGetHandleForAddressRange", &gpu_export);
}

long gpu_do(const char *cmd)
{
	long n = gpu_ctl(cmd);

	if (n < 0)
		FAIL("the fake GPU does not understand: %s", cmd);
	return n;
}

long nic_do(const char *cmd)
{
	long n = nic_ctl(cmd);

	if (n < 0)
		FAIL("the fake NIC: %s: %s", cmd, strerror((int)-n));
	return n;
}

struct net *gpu_up(struct abi *t, const char *kind, const char *more)
{
	char text[256];

	snprintf(text, sizeof(text), "nic0:%s,netdev=lo%s", kind, more);
	if (!by_ucx)
		setenv("BRAID_TEST_FAKE_DEVICES", text, 1);
	setenv("BRAID_FUSE", "any", 1);
	if (!gpu_ctl)
		fakecuda_load();
	return abi_up(t);
}

int gpu_offered(struct net *net)
{
	struct braid_net_props p;

	OK(net_props(net, 0, &p));
	return p.ptr_support;
}

int fuse_two(struct net *net, int *dev)
{
	static const int members[] = { 0, 1 };
	struct braid_net_props p;

	OK(net_fuse(net, 2, members, dev));
	OK(net_props(net, *dev, &p));
	return p.ptr_support;
}

int gpu_main(const char *group, const struct abi_case *cases, size_t n)
{
	const char *ucx = getenv("BRAID_TEST_UCX");

	by_ucx = ucx && !strcmp(ucx, "gpu");
	if (!by_ucx)
		find(fake_load("fake", "libibverbs.so.1"), "braid_fake_ctl", &nic_ctl);
	return abi_main(group, cases, n);
}

/* -- memory ----------------------------------------------------------------------------------- */

struct buf gpu_new(struct net *net, void *comm, size_t size)
{
	struct buf b = { .size = size, .comm = comm };
	uint64_t at;

	EQ(0, gpu_alloc(&at, size ? size : 1));
	b.data = (uint8_t *)(uintptr_t)at;
	OK(net_reg(net, comm, b.data, size ? size : 1, NCCL_PTR_CUDA, &b.mr));
	return b;
}

void gpu_end(struct net *net, struct buf *b)
{
	OK(net_dereg(net, b->comm, b->mr));
	EQ(0, gpu_free((uint64_t)(uintptr_t)b->data));
}

void *bytes_of(const struct buf *b)
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

void *flush_begin(struct net *net, void *recv, struct buf *b, int size)
{
	void *data = b->data, *mr = b->mr, *req = b;

	OK(TIMED(DATA_MS, net_iflush(net, recv, 1, &data, &size, &mr, &req)));
	TRUE(req != b);
	return req;
}

ncclResult_t flush_end(struct net *net, void *req)
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

ncclResult_t flush(struct net *net, void *recv, struct buf *b, int size)
{
	return flush_end(net, flush_begin(net, recv, b, size));
}

void move(struct net *net, struct pair *p, bool from_gpu, bool to_gpu, size_t size, bool early)
{
	struct buf from = some_new(net, p->send, size, from_gpu);
	struct buf to = some_new(net, p->recv, size, to_gpu);
	struct op ops[] = { op_send(net, p->send, &from, size, 0), op_recv(net, p->recv, &to, size, 0) };

	fill(bytes_of(&from), size, size);
	blank(bytes_of(&to), size);
	gpu_do("kernel 1");
	ops_post(&ops[0], 1);
	for (int i = 0; early && i < EARLY && !ops[0].done; i++)
		op_test(&ops[0]);
	if (early)
		nap_ms(EARLY_MS);	/* the service thread reads it */
	ops_run(ops, 2);
	gpu_do("kernel 0");
	EQ(size, ops[1].got[0]);
	filled(bytes_of(&to), size, size);
	some_end(net, &from);
	some_end(net, &to);
}

bool pass(struct net *net, struct pair *p, struct buf *from, struct buf *to, size_t size, uint64_t seed)
{
	struct op ops[] = { op_recv(net, p->recv, to, size, 0), op_send(net, p->send, from, size, 0) };

	fill(bytes_of(from), size, seed);
	blank(bytes_of(to), size);
	gpu_do("kernel 1");
	ops_settle(ops, 2);
	gpu_do("kernel 0");
	if (ops[0].res == ncclSuccess)
		filled(bytes_of(to), size, seed);
	return ops[0].res == ncclSuccess && ops[1].res == ncclSuccess;
}

/* -- cases that several programs have --------------------------------------------------------- */

void gpu_offer_is(struct abi *t, const char *kind, const char *more, int want)
{
	struct net *net = gpu_up(t, kind, more);

	EQ(want, gpu_offered(net));
	EQ(0, gpu_do("live"));
	abi_down(net);
}

void gpu_messages(struct abi *t, const char *kind, const char *more)
{
	static const size_t sizes[] = { 0, 1, 8, 127, 4096, 8192, 8193, 65536, 300001, MEG + 1 };
	struct net *net = gpu_up(t, kind, more);
	struct pair p = { 0 };

	pair_open(net, &p);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (unsigned how = 0; how < 8; how++)
			move(net, &p, how & 1, how & 2, sizes[i], how & 4);
	}
	EQ(0, gpu_do("blocked"));		/* no call waited for NCCL's kernel */
	EQ(0, by_ucx ? 0 : gpu_do("staging"));	/* only UCX's lanes keep staging memory */
	pair_close(net, &p);
	abi_down(net);
	WAIT_FOR(!gpu_do("staging"));
}

void gpu_dmabuf_on(struct abi *t, const char *more)
{
	struct net *net = gpu_up(t, "rocev2", more);
	struct buf to = { .size = MEG }, from;
	struct pair p = { 0 };
	struct op ops[2];
	uint64_t at;
	int fd;

	pair_open(net, &p);
	EQ(0, gpu_alloc(&at, 2 * MEG));
	EQ(0, gpu_export(&fd, at + 65536, MEG + 4096, DMA_BUF_FD, 0));
	gpu_do("dmabuf 0");		/* Braid can't export one itself */
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

void gpu_taken_back(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);

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

void gpu_late_on(struct abi *t, const char *more)
{
	struct net *net = gpu_up(t, "rocev2", more);
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
	TRUE(!memcmp(bytes_of(&to), none, MEG));	/* otherwise this shows nothing */
	OK(flush(net, p.recv, &to, MEG));
	filled(bytes_of(&to), MEG, 9);
	for (unsigned i = 0; i < 10; i++) {	/* small: the CPU copies them */
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

/* -- a peer over TCP -------------------------------------------------------------------------- */

void *begin_by_tcp(struct abi *t, int fd, struct net **ret)
{
	void *send;

	setenv("BRAID_TRANSPORTS", "tcp", 1);
	*ret = abi_up(t);
	send = send_to(*ret, fd);
	meet(fd);
	return send;
}

void gpu_comes_alone(struct abi *t, void (*sender)(struct abi *t, int fd))
{
	struct peer peer = peer_start(t, sender);
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	uint8_t *bytes, was;
	struct buf in;
	struct op op;
	void *recv;

	recv = recv_from(net, peer.fd);
	in = gpu_new(net, recv, BIG);
	bytes = bytes_of(&in);
	blank(bytes, BIG);
	was = bytes[BIG - 1];		/* written last */
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

/* -- what the plugin says --------------------------------------------------------------------- */

char flush_said[512], ways_said[1024];

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
		snprintf(ways_said, sizeof(ways_said), "%s", text);
	if (strstr(text, "flush by "))
		snprintf(flush_said, sizeof(flush_said), "%s", strstr(text, "flush by "));
}

struct net *gpu_up_heard(struct abi *t, const char *more)
{
	struct net *net;
	void *ctx;

	if (!gpu_ctl)
		fakecuda_load();
	gpu_do("context 0");		/* the first init can't try the ways, so the next one does */
	net = gpu_up(t, "rocev2", more);
	gpu_do("context 1");
	OK(net_init_ctx(net, &ctx, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, hear_choice, NULL));
	OK(net_finalize_ctx(net, ctx));
	return net;
}
