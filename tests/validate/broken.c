/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * broken.c - a net plugin that is another one (BREAK_PLUGIN, a path) but for one thing, which
 * BREAK names: what a check of braid validate is there to find.
 *
 *	open	the table is empty			members	a call is missing
 *	stdout	init writes there			signal	init sets a handler
 *	environ	init sets a variable			init	init leaks 1 descriptor
 *	speed	0 Mbit/s				ptr	memory of GPUs that it has not
 *	dmabuf	DMA-BUF without its call		name	device names are empty
 *	pci	a PCI path that is not there		bounds	any device has properties
 *	recvs	99 grouped receives			changes	properties that change
 *	handle	160 bytes				fds	each comm leaks 3 descriptors
 *	block	connect waits for 50 ms			accept	accept does
 *	wait	isend and test wait for 20 ms		irecv	irecv does
 *	refuse	no connect ever				flip	a bit of what was received
 *	short	a byte less than came			behind	a byte behind what came is written
 *	early	receives are done before they are	swap	two messages of a tag
 *	lose	a message				order	grouped: sizes in another order
 *	stale	registrations are kept by address	error	errors are the caller's fault
 *	death	errors are not returned			class	init's class of traffic is dropped
 *	reuse	sends are done before they are		crash	a receive is a SIGSEGV
 *	hang	no receive is ever done			none	it has no device
 *	large	a bit of what is over 256 KiB		tired	slow after a pause of a second
 *	words	no receive, and a WARN of 900 bytes	rests	tired, but for 8 seconds only
 *
 * One is not broken, and does no more than NCCL asks for:
 *	oldest	only a comm's oldest request may be tested, one receive at a time, tags are not looked at
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugin/abi.h"

__attribute__((visibility("default"))) extern ncclNet_v12_t ncclNetPlugin_v12;

static const ncclNet_v12_t *real;
static const char *mode = "";
static ncclDebugLogger_t logger;

static bool is(const char *what)
{
	return strcmp(mode, what) == 0;
}

/* -- requests: ours wrap those of the real plugin ----------------------------------------- */

enum { HELD = 4096 };

static struct request {
	void *req;
	uint8_t *data[8];
	size_t room[8];
	int n;
	bool is_recv, used, early;
	void *comm;			/* mode oldest: requests of a comm are numbered */
	uint64_t nth;
} held[HELD];

static uint64_t posted;

/* Is an older request of that comm not done yet? */
static bool has_older(const struct request *r)
{
	for (int i = 0; i < HELD; i++)
		if (held[i].used && held[i].comm == r->comm && held[i].nth < r->nth)
			return true;
	return false;
}

static struct request *hold(void *req)
{
	for (int i = 0; i < HELD; i++) {
		if (!__sync_bool_compare_and_swap(&held[i].used, false, true))
			continue;
		held[i].req = req;
		held[i].early = false;
		held[i].comm = &held[i];
		held[i].nth = ++posted;
		return &held[i];
	}
	abort();
}

/* -- life --------------------------------------------------------------------------------- */

static void nothing(int sig)
{
	(void)sig;
}

static ncclResult_t init(void **ctx, uint64_t id, ncclNetCommConfig_v10_t *config,
			 ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
	ncclNetCommConfig_v10_t plain = { .trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF };

	if (is("stdout"))
		(void)!write(STDOUT_FILENO, "hello\n", 6);
	if (is("signal"))
		signal(SIGUSR2, nothing);
	if (is("environ"))
		setenv("BROKEN", "1", 1);
	if (is("init") && dup(STDERR_FILENO) < 0)
		return ncclSystemError;
	logger = log;
	return real->init(ctx, id, is("class") ? &plain : config, log, prof);
}

static ncclResult_t finalize(void *ctx)
{
	return real->finalize(ctx);
}

static ncclResult_t devices(int *n)
{
	ncclResult_t res = real->devices(n);

	if (is("none"))
		*n = 0;
	return res;
}

static ncclResult_t properties(int dev, ncclNetProperties_v12_t *p)
{
	static int asked;
	ncclResult_t res;
	int n = 0;

	real->devices(&n);
	if (is("bounds") && (dev < 0 || dev >= n))
		dev = 0;
	res = real->getProperties(dev, p);
	if (is("speed"))
		p->speed = 0;
	if (is("ptr"))
		p->ptrSupport |= NCCL_PTR_CUDA;
	if (is("dmabuf"))
		p->ptrSupport |= NCCL_PTR_DMABUF;
	if (is("name"))
		p->name = (char *)(uintptr_t)"";
	if (is("pci"))
		p->pciPath = (char *)(uintptr_t)"/sys/nowhere/at/all";
	if (is("recvs"))
		p->maxRecvs = 99;
	if (is("oldest"))
		p->maxRecvs = 1;
	if (is("changes"))
		p->speed += ++asked;
	return res;
}

/* -- connections -------------------------------------------------------------------------- */

static ncclResult_t listens(void *ctx, int dev, void *handle, void **comm)
{
	ncclResult_t res = real->listen(ctx, dev, handle, comm);

	if (is("handle"))
		memset((char *)handle + 128, 0x11, 32);
	return res;
}

static ncclResult_t connects(void *ctx, int dev, void *handle, void **comm,
			     ncclNetDeviceHandle_v7_t **dh)
{
	ncclResult_t res;

	if (is("block"))
		usleep(50000);
	if (is("refuse"))
		return ncclSystemError;
	res = real->connect(ctx, dev, handle, comm, dh);
	for (int i = 0; is("fds") && *comm && i < 3; i++)
		if (dup(STDERR_FILENO) < 0)
			return ncclSystemError;
	return res;
}

static ncclResult_t accepts(void *listen, void **comm, ncclNetDeviceHandle_v7_t **dh)
{
	if (is("accept"))
		usleep(50000);
	return real->accept(listen, comm, dh);
}

/* -- memory ------------------------------------------------------------------------------- */

/* Acts as a registration cache that misses munmap(): it goes on sending from a copy. */
static struct kept {
	void *data;
	size_t size;
	uint8_t *copy;
} kept[64];
static unsigned n_kept;

static struct kept *kept_of(const void *data)
{
	for (unsigned i = 0; i < n_kept; i++)
		if (kept[i].data == data)
			return &kept[i];
	return NULL;
}

static ncclResult_t reg(void *comm, void *data, size_t size, int type, void **mr)
{
	if (is("stale") && n_kept < 64 && !kept_of(data))
		kept[n_kept++] = (struct kept){ data, size, NULL };
	return real->regMr(comm, data, size, type, mr);
}

static ncclResult_t reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
			       int fd, void **mr)
{
	return real->regMrDmaBuf(comm, data, size, type, offset, fd, mr);
}

static ncclResult_t dereg(void *comm, void *mr)
{
	return real->deregMr(comm, mr);
}

/* -- data --------------------------------------------------------------------------------- */

static ncclResult_t fault(ncclResult_t res)
{
	return res != ncclSuccess && is("error") ? ncclInvalidUsage : res;
}

static ncclResult_t isend(void *comm, void *data, size_t size, int tag, void *mr, void *ph,
			  void **req)
{
	static void *last;
	static size_t last_size;
	static unsigned sent;
	struct kept *k = is("stale") ? kept_of(data) : NULL;
	struct request *r;
	ncclResult_t res;

	if (is("wait"))
		usleep(20000);
	if (is("lose") && size > 0 && ++sent % 5 == 0) {
		*req = hold(NULL);	/* done at once, and never sent */
		((struct request *)*req)->is_recv = false;
		return ncclSuccess;
	}
	if (is("swap") && size == 2000 && last && last_size == size) {
		/* Swaps the content of this message and the last, which may not have left yet. */
		for (size_t i = 0; i < size; i++) {
			uint8_t x = ((uint8_t *)data)[i];

			((uint8_t *)data)[i] = ((uint8_t *)last)[i];
			((uint8_t *)last)[i] = x;
		}
	}
	if (k && !k->copy && size <= k->size && size > 4096) {
		k->copy = malloc(k->size);
		if (k->copy)
			memcpy(k->copy, data, size);
	} else if (k && k->copy && size <= k->size) {
		memcpy(data, k->copy, size);
	}
	res = real->isend(comm, data, size, is("oldest") ? 0 : tag, mr, ph, req);
	last = res == ncclSuccess && *req && size == 2000 ? data : NULL;
	last_size = size;
	if (res != ncclSuccess || !*req)
		return fault(res);
	r = hold(*req);
	r->is_recv = false;
	r->comm = comm;
	r->early = is("reuse") && size > 65536;
	*req = r;
	return ncclSuccess;
}

static ncclResult_t irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
			  void **phs, void **req)
{
	static int none;
	ncclResult_t res;
	struct request *r;

	if (is("irecv"))
		usleep(20000);
	if (is("words")) {
		logger(NCCL_LOG_WARN, ~0UL, __FILE__, __LINE__, "%0888d [peer-lost]", 0);
		return ncclRemoteError;
	}
	if (is("crash"))
		raise(SIGSEGV);
	if (is("oldest"))
		tags = &none;
	res = real->irecv(comm, n, data, sizes, tags, mrs, phs, req);
	if (res != ncclSuccess || !*req)
		return fault(res);
	r = hold(*req);
	r->is_recv = true;
	r->comm = comm;
	r->early = is("early");
	r->n = n;
	for (int i = 0; i < n; i++) {
		r->data[i] = data[i];
		r->room[i] = sizes[i];
	}
	*req = r;
	return ncclSuccess;
}

static void spoil(struct request *r, int *sizes)
{
	size_t got = sizes ? (size_t)sizes[0] : 0;

	if ((is("flip") && got > 0) || (is("large") && got > 256 << 10))
		r->data[0][got / 2] ^= 0x10;
	if (is("short") && sizes && got > 0)
		sizes[0]--;
	if (is("behind") && got < r->room[0])
		r->data[0][got] = 0x77;
	if (is("order") && sizes && r->n > 1) {
		int x = sizes[0];

		sizes[0] = sizes[1];
		sizes[1] = x;
	}
}

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* Nothing was done for a second: from then on, or for 8 s, each request takes a while. */
static void tire(void)
{
	static uint64_t last, since;
	static bool is_tired;
	uint64_t now = now_us();

	if (last && now - last > 1000000) {
		is_tired = true;
		since = now;
	}
	last = now;
	if (is("rests") && now - since > 8000000)
		is_tired = false;
	if (is_tired)
		usleep(10000);
}

static ncclResult_t test(void *req, int *done, int *sizes)
{
	struct request *r = req;
	ncclResult_t res;

	if (is("wait"))
		usleep(20000);
	if (is("oldest") && has_older(r))
		return ncclInternalError;
	if (is("hang") && r->is_recv) {
		*done = 0;
		return ncclSuccess;
	}
	if (!r->req) {
		*done = 1;
		r->used = false;
		return ncclSuccess;
	}
	if (r->early) {			/* the real request is not tested any more */
		*done = 1;
		for (int i = 0; sizes && r->is_recv && i < r->n; i++)
			sizes[i] = (int)r->room[i];
		return ncclSuccess;
	}
	res = real->test(r->req, done, sizes);
	if (res != ncclSuccess && is("death")) {
		*done = 0;
		return ncclSuccess;
	}
	if (res == ncclSuccess && *done && r->is_recv)
		spoil(r, sizes);
	if (res == ncclSuccess && *done && (is("tired") || is("rests")))
		tire();
	if (res == ncclSuccess && *done)
		r->used = false;
	return fault(res);
}

static ncclResult_t flush(void *comm, int n, void **data, int *sizes, void **mrs, void **req)
{
	ncclResult_t res = real->iflush(comm, n, data, sizes, mrs, req);
	struct request *r;

	if (res != ncclSuccess || !*req)
		return res;
	r = hold(*req);
	r->is_recv = false;
	*req = r;
	return res;
}

static ncclResult_t close_send(void *comm)
{
	return real->closeSend(comm);
}

static ncclResult_t close_recv(void *comm)
{
	return real->closeRecv(comm);
}

static ncclResult_t close_listen(void *comm)
{
	return real->closeListen(comm);
}

ncclNet_v12_t ncclNetPlugin_v12 = {
	.name = "Broken", .init = init, .devices = devices, .getProperties = properties,
	.listen = listens, .connect = connects, .accept = accepts, .regMr = reg,
	.regMrDmaBuf = reg_dmabuf, .deregMr = dereg, .isend = isend, .irecv = irecv,
	.iflush = flush, .test = test, .closeSend = close_send, .closeRecv = close_recv,
	.closeListen = close_listen, .finalize = finalize,
};

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("BREAK_PLUGIN"), *what = getenv("BREAK");
	void *dl = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

	mode = what ? what : "";
	real = dl ? dlsym(dl, "ncclNetPlugin_v12") : NULL;
	if (!real)
		abort();
	ncclNetPlugin_v12.name = real->name;	/* so that the checks of Braid alone run too */
	if (is("members"))
		ncclNetPlugin_v12.test = NULL;
	if (is("dmabuf"))
		ncclNetPlugin_v12.regMrDmaBuf = NULL;
	if (is("open"))
		memset(&ncclNetPlugin_v12, 0, sizeof(ncclNetPlugin_v12));
}
