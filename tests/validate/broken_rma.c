/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * broken_rma.c - a plugin whose one-sided operations are those of another (BREAK_PLUGIN, a path) but
 * for one thing, which BREAK names: what a check of braid validate is there to find.
 *
 *	noput	there is no iput			name	v14 has another name
 *	noget	there is no iget			old	v14 puts nothing
 *	twice	a second init fails			init	init leaks 1 descriptor
 *	host	devices have the net table's type	names	devices have names of their own
 *	budget	maxRecvs is 0				dmabuf	DMA-BUF without its call
 *	bounds	any device has properties		flushes	getRmaProperties fails
 *	none	it has no device
 *
 *	handle	160 bytes				refuse	groups of four are refused
 *	alone	groups of one are refused		ctx	connect looks at its context
 *	group	two ranks are taken for each other	stride	rankStride is refused
 *	four	there are three groups at most		context	the fifth of a call is refused
 *	second	createContext a second time fails	class	classes of traffic are refused
 *	listen	closeListen last is a SIGSEGV		left	closeColl with a context fails
 *	dereg	deregMrSym without a context fails	comm	each group leaks 1 descriptor
 *	idle	closeColl without operations fails	leaves	progress fails once a rank has closed
 *
 *	tail	large puts are a byte short		huge	those of 32 MiB and more are
 *	shift	offsets are rounded down		value	sizes are rounded up to 8
 *	edge	a window's last byte is not written	empty	a signal alone is refused
 *	early	large puts are done before they are	flipN	a bit of each tenth put, of N ranks
 *	self	puts to itself are refused		spin	they are not done without progress
 *
 *	inc	INC adds the value			add	ADD adds 32 bits
 *	double	each 50th signal comes twice		lose	each 50th never
 *	crowd	rank 2's are one too many		next	a signal changes the word before, too
 *	shadow	the last value is added again		never	NEVER_RESET is refused
 *
 *	order	puts are late				large	large puts are
 *	before	a signal comes before its put		null	the 21st request is NULL
 *	busy	the 21st request is an error		oldest	only the oldest may be tested
 *	more	what more follows is never sent		wait	a put waits for 20 ms
 *	thread	two threads at a time are refused
 *
 *	get	a byte short				gets	the 21st get is an error
 *	gself	gets from itself are refused		flush	iflush fails
 *	late	puts to windows that are late are lost	wrong	windows above 100 are taken for the first
 *	reg	each window leaks 1 descriptor		sizes	a window is as large as at the sender
 *	again	memory is registered once		other	puts go to the source's window
 *
 *	calm	errors are not returned			beside	messages change while there are groups
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "plugin/abi_rma.h"

#define PUBLIC __attribute__((visibility("default"))) extern

PUBLIC ncclNet_v12_t ncclNetPlugin_v12;
PUBLIC ncclRma_v14_t ncclRmaPlugin_v14;
PUBLIC ncclRma_v16_t ncclRmaPlugin_v16;

enum { HELD = 4096, WINDOWS = 1024, LATE_US = 5000 };

static const ncclNet_v12_t *net;
static const ncclRma_v14_t *old;
static const ncclRma_v16_t *real;
static const char *mode = "";

static bool is(const char *what)
{
	return strcmp(mode, what) == 0;
}

/* What the processes of one check share. */
static struct share {
	atomic_uint closed, windows[16];
} *share;

static unsigned colls, contexts, inits, windows, posted, signals, progressed;
static int own_rank, n_ranks;
static void *closed_coll;

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* -- requests and windows ------------------------------------------------------------------ */

struct put {
	void *ctx, *src, *dst;
	int context;
	uint64_t src_off, dst_off;
	size_t size;
	uint32_t rank;
};

static struct request {
	void *req;			/* NULL: done */
	atomic_bool used;
	bool early, to_itself;
	uint64_t when;			/* `put` is posted then; 0: it has been */
	unsigned nth, progressed;
	struct put put;
} held[HELD];
static atomic_uint n_held;

static struct window {
	void *mh;
	uint8_t *data;
	size_t size;
	unsigned nth;
} window[WINDOWS];

static const struct window *window_of(const void *mh)
{
	for (unsigned i = 0; mh && i < WINDOWS; i++)
		if (window[i].mh == mh)
			return &window[i];
	return NULL;
}

static struct request *hold(void *req, uint32_t rank)
{
	for (int i = 0; i < HELD; i++) {
		if (atomic_exchange(&held[i].used, true))
			continue;
		held[i].req = req;
		held[i].early = false;
		held[i].when = 0;
		held[i].to_itself = (int)rank == own_rank;
		held[i].nth = ++posted;
		held[i].progressed = progressed;
		n_held++;
		return &held[i];
	}
	abort();
}

static bool has_older(const struct request *r)
{
	for (int i = 0; i < HELD; i++)
		if (held[i].used && held[i].nth < r->nth)
			return true;
	return false;
}

/* -- life and devices ---------------------------------------------------------------------- */

struct box {
	void *real;
};

static ncclResult_t init(void **ctx, uint64_t id, ncclDebugLogger_t log)
{
	struct box *box = malloc(sizeof(*box));

	if (!box || (is("init") && dup(STDERR_FILENO) < 0))
		return ncclSystemError;
	if (is("twice") && inits)
		return ncclInternalError;
	inits++;
	*ctx = box;
	return real->init(&box->real, id, log);
}

static ncclResult_t finalize(void *ctx)
{
	struct box *box = ctx;
	ncclResult_t res = real->finalize(box->real);

	inits--;
	free(box);
	return res;
}

static ncclResult_t devices(int *n)
{
	ncclResult_t res = real->devices(n);

	if (is("none"))
		*n = 0;
	return res;
}

static ncclResult_t flushes(void *coll, ncclRmaProperties_v16_t *p)
{
	return is("flushes") ? ncclInternalError : real->getRmaProperties(coll, p);
}

static ncclResult_t properties(int dev, ncclNetProperties_v12_t *p)
{
	ncclResult_t res;
	int n = 0;

	real->devices(&n);
	res = real->getProperties(is("bounds") && (dev < 0 || dev >= n) ? 0 : dev, p);
	if (is("host"))
		p->netDeviceType = NCCL_NET_DEVICE_HOST;
	if (is("names"))
		p->name = (char *)(uintptr_t)"another";
	if (is("budget"))
		p->maxRecvs = 0;
	if (is("dmabuf"))
		p->ptrSupport |= NCCL_PTR_DMABUF;
	return res;
}

/* -- groups and contexts ------------------------------------------------------------------- */

static ncclResult_t listens(void *ctx, int dev, void *handle, void **comm)
{
	struct box *box = ctx;
	ncclResult_t res = real->listen(box->real, dev, handle, comm);

	if (is("handle"))
		memset((char *)handle + 128, 0x11, 32);
	return res;
}

static ncclResult_t connects(void *ctx, void *handles[], int n, int rank, void *listen,
			     void **coll)
{
	if ((is("refuse") && n == 4) || (is("alone") && n == 1) || (is("four") && colls == 3))
		return ncclSystemError;
	if (is("ctx"))
		ctx = ((struct box *)ctx)->real;
	if (is("comm") && dup(STDERR_FILENO) < 0)
		return ncclSystemError;
	own_rank = rank;
	n_ranks = n;
	colls++;
	if (is("group") && n == 2) {
		void *swapped[] = { handles[1], handles[0] };

		return real->connect(ctx, swapped, n, 1 - rank, listen, coll);
	}
	return real->connect(ctx, handles, n, rank, listen, coll);
}

static ncclResult_t context_new(void *coll, ncclRmaConfig_v14_t *config, void **ctx)
{
	if ((is("stride") && config->rankStride != 1) || (is("class") && config->trafficClass >= 0) ||
	    (is("second") && contexts))
		return ncclInvalidArgument;
	contexts++;
	return real->createContext(coll, config, ctx);
}

static ncclResult_t context_end(void *ctx)
{
	contexts--;
	return real->destroyContext(ctx);
}

static ncclResult_t close_coll(void *coll)
{
	if ((is("left") && contexts) || (is("idle") && !posted))
		return ncclInternalError;
	colls--;
	closed_coll = coll;
	share->closed++;
	return real->closeColl(coll);
}

static ncclResult_t close_listen(void *listen)
{
	if (is("listen") && closed_coll && !colls)
		raise(SIGSEGV);
	return real->closeListen(listen);
}

/* -- memory -------------------------------------------------------------------------------- */

static ncclResult_t reg(void *coll, void *data, size_t size, int type, uint64_t flags, void **mh)
{
	ncclResult_t res;
	unsigned i = 0;

	if (is("never") && flags & NCCL_RMA_NEVER_RESET)
		return ncclInvalidArgument;
	for (unsigned k = 0; is("again") && k < WINDOWS; k++)
		if (window[k].mh && window[k].data == data)
			return ncclInvalidArgument;
	if (is("reg") && dup(STDERR_FILENO) < 0)
		return ncclSystemError;
	res = real->regMrSym(coll, data, size, type, flags, mh);
	while (i < WINDOWS - 1 && window[i].mh)
		i++;
	window[i] = (struct window){ *mh, data, size, ++windows };
	share->windows[own_rank] = windows;
	return res;
}

static ncclResult_t reg_dmabuf(void *coll, void *data, size_t size, int type, uint64_t offset,
			       int fd, uint64_t flags, void **mh)
{
	return real->regMrSymDmaBuf(coll, data, size, type, offset, fd, flags, mh);
}

static ncclResult_t dereg(void *coll, void *mh)
{
	struct window *w = (struct window *)(uintptr_t)window_of(mh);

	if (is("dereg") && !contexts)
		return ncclInternalError;
	if (w)
		w->mh = NULL;
	return real->deregMrSym(coll, mh);
}

/* -- puts ---------------------------------------------------------------------------------- */

static ncclResult_t fault(ncclResult_t res)
{
	return is("calm") ? ncclSuccess : res;
}

static ncclResult_t put_now(const struct put *p, uint32_t flags, void **req)
{
	return real->iput(p->ctx, p->context, p->src_off, p->src, p->size, p->dst_off, p->dst,
			  p->rank, flags, req);
}

/* What is wrong with a put's place and size. */
static void spoil(struct put *p)
{
	const struct window *src = window_of(p->src), *dst = window_of(p->dst);

	if (!p->size || !src || !dst)
		return;
	if ((is("tail") && p->size >= 65536) || (is("huge") && p->size >= 32 << 20) ||
	    (is("edge") && p->dst_off + p->size == dst->size))
		p->size--;
	if (is("shift") && p->size >= 64)
		p->dst_off &= ~UINT64_C(7);
	if (is("value") && p->size < 8)
		p->size = 8;
	if (is("other"))
		p->dst = p->src;
	if (is("wrong") && dst->nth > 100)
		p->dst = window[0].mh;
	if (is("late") && share->windows[p->rank] < dst->nth)
		p->size = 0;
}

static bool refused(const struct put *p)
{
	const struct window *dst = window_of(p->dst);

	return (is("self") && (int)p->rank == own_rank) || (is("context") && p->context >= 4) ||
	       (is("busy") && n_held >= 20) ||
	       (is("sizes") && dst && p->dst_off + p->size > dst->size);
}

/* The byte of each tenth put that is wrong while the put is copied; or NULL. */
static uint8_t *flipped(const struct put *p)
{
	const struct window *src = window_of(p->src);

	if (strncmp(mode, "flip", 4) != 0 || n_ranks != atoi(mode + 4) || !src || p->size < 100 ||
	    p->size > 8000 || posted % 10)
		return NULL;
	return src->data + p->src_off + p->size / 2;
}

static bool is_late(const struct put *p, bool with_signal)
{
	if (!p->size)
		return false;
	return with_signal ? is("before") :
			     (is("order") && p->size < 1 << 20) ||
			     (is("large") && p->size >= 1 << 20);
}

/* The put alone is late; it is posted by test(). */
static void **later(const struct put *p, struct request **ret)
{
	*ret = hold(NULL, p->rank);
	(*ret)->put = *p;
	(*ret)->when = now() + LATE_US;
	return &(*ret)->req;
}

static bool enter(void)
{
	static atomic_uint inside;

	if (!is("thread"))
		return true;
	if (atomic_fetch_add(&inside, 1)) {
		atomic_fetch_sub(&inside, 1);
		return false;
	}
	usleep(500);
	atomic_fetch_sub(&inside, 1);
	return true;
}

static ncclResult_t iput(void *ctx, int context, uint64_t src_off, void *src, size_t size,
			 uint64_t dst_off, void *dst, uint32_t rank, uint32_t flags, void **req)
{
	struct put p = { ctx, src, dst, context, src_off, dst_off, size, rank };
	struct request *r;
	ncclResult_t res;
	uint8_t *bad;

	if (is("wait"))
		usleep(20000);
	if (refused(&p) || !enter())
		return ncclInternalError;
	spoil(&p);
	*req = NULL;
	if (is("null") && n_held >= 20)
		return ncclSuccess;
	if (is("more") && flags & NCCL_RMA_AGGREGATE) {
		*req = hold(NULL, rank);
		return ncclSuccess;
	}
	if (is_late(&p, false)) {
		later(&p, &r);
		*req = r;
		return ncclSuccess;
	}
	bad = flipped(&p);
	if (bad)
		*bad ^= 4;
	res = fault(put_now(&p, flags, req));
	if (bad)
		*bad ^= 4;
	if (res != ncclSuccess)
		return res;
	r = hold(*req, rank);
	r->early = is("early") && size > 65536;
	*req = r;
	return res;
}

struct signal {
	uint64_t off, value;
	void *mh;
	uint32_t op;
	bool strong;
};

static ncclResult_t signal_now(const struct put *p, const struct signal *s, uint32_t flags,
			       void **req)
{
	return real->iputSignal(p->ctx, p->context, p->src_off, p->src, p->size, p->dst_off,
				p->dst, p->rank, s->off, s->mh, s->value, s->op, s->strong, flags,
				req);
}

static void spoil_signal(struct signal *s)
{
	static uint64_t last;

	if (is("inc"))
		s->op = NCCL_RMA_SIGNAL_ADD;
	if (is("add"))
		s->value &= 0xffffffff;
	if (is("crowd") && own_rank == 2)
		s->value++;
	if (is("shadow")) {
		uint64_t value = s->value;

		s->value += last;
		last = value;
	}
}

static ncclResult_t iput_signal(void *ctx, int context, uint64_t src_off, void *src, size_t size,
				uint64_t dst_off, void *dst, uint32_t rank, uint64_t signal_off,
				void *signal_mh, uint64_t value, uint32_t op, bool strong,
				uint32_t flags, void **req)
{
	struct put p = { ctx, src, dst, context, src_off, dst_off, size, rank };
	struct put none = { .ctx = ctx, .context = context, .rank = rank };
	struct signal s = { signal_off, value, signal_mh, op, strong };
	struct request *r;
	ncclResult_t res;
	uint8_t *bad;
	void *more;

	if (is("wait"))
		usleep(20000);
	if (refused(&p) || (is("empty") && !src) || !enter())
		return ncclInternalError;
	spoil(&p);
	spoil_signal(&s);
	*req = NULL;
	if (is("null") && n_held >= 20)
		return ncclSuccess;
	signals++;
	if (is("lose") && signals % 50 == 0) {
		*req = hold(NULL, rank);
		return ncclSuccess;
	}
	if (is("double") && signals % 50 == 0)
		signal_now(&none, &s, 0, &more);
	if (is("next") && s.off >= 8) {
		s.off -= 8;
		signal_now(&none, &s, 0, &more);
		s.off += 8;
	}
	if (is_late(&p, true)) {
		signal_now(&none, &s, 0, &more);
		later(&p, &r);
		*req = r;
		return ncclSuccess;
	}
	bad = flipped(&p);
	if (bad)
		*bad ^= 4;
	res = fault(signal_now(p.size ? &p : &none, &s, flags, req));
	if (bad)
		*bad ^= 4;
	if (res != ncclSuccess)
		return res;
	r = hold(*req, rank);
	r->early = is("early") && size > 65536;
	*req = r;
	return res;
}

/* -- the rest ------------------------------------------------------------------------------ */

static ncclResult_t iget(void *ctx, int context, uint64_t remote_off, void *remote, size_t size,
			 uint64_t local_off, void *local, uint32_t rank, uint32_t flags,
			 void **req)
{
	ncclResult_t res;

	if ((is("gself") && (int)rank == own_rank) || (is("gets") && n_held >= 20))
		return ncclInternalError;
	res = fault(real->iget(ctx, context, remote_off, remote, size - is("get"), local_off, local,
			       rank, flags, req));
	if (res == ncclSuccess)
		*req = hold(*req, rank);
	return res;
}

static ncclResult_t iflush(void *ctx, int context, void *mh, uint32_t rank, void **req)
{
	ncclResult_t res;

	if (is("flush"))
		return ncclInternalError;
	res = real->iflush(ctx, context, mh, rank, req);
	if (res == ncclSuccess && *req)
		*req = hold(*req, rank);
	return res;
}

static void finish(struct request *r)
{
	n_held--;
	r->used = false;
}

static ncclResult_t test(void *coll, void *req, int *done)
{
	struct request *r = req;
	ncclResult_t res = ncclSuccess;

	*done = 0;
	if (is("oldest") && has_older(r))
		return ncclInternalError;
	if (is("spin") && r->to_itself && r->progressed == progressed)
		return ncclSuccess;
	if (r->when && now() < r->when)
		return ncclSuccess;
	if (r->when) {
		r->when = 0;
		res = put_now(&r->put, 0, &r->req);
		if (res != ncclSuccess)
			return res;
	}
	if (r->early || !r->req)
		*done = 1;
	else
		res = real->test(coll, r->req, done);
	if (res != ncclSuccess && is("calm")) {
		res = ncclSuccess;
		*done = 1;
	}
	if (*done)
		finish(r);
	return res;
}

static ncclResult_t progress(void *ctx)
{
	progressed++;
	if (is("leaves") && share->closed)
		return ncclRemoteError;
	return fault(real->rmaProgress(ctx));
}

static ncclResult_t last_error(void *ctx, bool *failed)
{
	ncclResult_t res = real->queryLastError(ctx, failed);

	if (is("calm"))
		*failed = false;
	return res;
}

/* -- version 14, and messages -------------------------------------------------------------- */

static ncclResult_t old_signal(void *ctx, int context, uint64_t src_off, void *src, size_t size,
			       uint64_t dst_off, void *dst, uint32_t rank, uint64_t signal_off,
			       void *signal_mh, uint64_t value, uint32_t op, bool strong,
			       void **req)
{
	return is("old") ? ncclInternalError :
			   old->iputSignal(ctx, context, src_off, src, size, dst_off, dst, rank,
					   signal_off, signal_mh, value, op, strong, req);
}

static ncclResult_t isend(void *comm, void *data, size_t size, int tag, void *mr, void *ph,
			  void **req)
{
	ncclResult_t res = net->isend(comm, data, size, tag, mr, ph, req);

	if (is("beside") && colls && size > 65536 && res == ncclSuccess && *req)
		((uint8_t *)data)[size - 1] ^= 4;
	return res;
}

ncclNet_v12_t ncclNetPlugin_v12;
ncclRma_v14_t ncclRmaPlugin_v14;
ncclRma_v16_t ncclRmaPlugin_v16 = {
	.init = init, .devices = devices, .getRmaProperties = flushes,
	.getProperties = properties, .listen = listens, .connect = connects,
	.createContext = context_new, .regMrSym = reg, .regMrSymDmaBuf = reg_dmabuf,
	.deregMrSym = dereg, .destroyContext = context_end, .closeColl = close_coll,
	.closeListen = close_listen, .iput = iput, .iputSignal = iput_signal, .iget = iget,
	.iflush = iflush, .test = test, .rmaProgress = progress, .queryLastError = last_error,
	.finalize = finalize,
};

/* The ranks of a check have one parent. */
static void share_open(void)
{
	const char *dir = getenv("BREAK_SHARE");
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/share.%d", dir ? dir : ".", (int)getppid());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*share)) != 0)
		abort();
	share = mmap(NULL, sizeof(*share), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (share == MAP_FAILED)
		abort();
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("BREAK_PLUGIN"), *what = getenv("BREAK");
	void *dl = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

	mode = what ? what : "";
	net = dl ? dlsym(dl, "ncclNetPlugin_v12") : NULL;
	old = dl ? dlsym(dl, "ncclRmaPlugin_v14") : NULL;
	real = dl ? dlsym(dl, "ncclRmaPlugin_v16") : NULL;
	if (!net || !old || !real)
		abort();
	share_open();
	ncclNetPlugin_v12 = *net;
	ncclNetPlugin_v12.isend = isend;
	ncclRmaPlugin_v14 = *old;
	ncclRmaPlugin_v14.iputSignal = old_signal;
	ncclRmaPlugin_v16.name = real->name;
	if (is("name"))
		ncclRmaPlugin_v14.name = "another";
	if (is("noput"))
		ncclRmaPlugin_v16.iput = NULL;
	if (is("noget"))
		ncclRmaPlugin_v16.iget = NULL;
	if (is("dmabuf"))
		ncclRmaPlugin_v16.regMrSymDmaBuf = NULL;
}
