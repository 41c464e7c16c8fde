/* SPDX-License-Identifier: BSD-3-Clause */
/* drive.c - see drive.h. */
#include "tools/drive.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { GUARD = 64, GUARD_BYTE = 0xa5, BLANK_BYTE = 0xee };

enum { YIELDS = 1000 };			/* after so many yields a wait sleeps, to free the CPU */

static void (*verdict)(const char *file, int line, const char *text);
static unsigned slow = 1;
unsigned drive_hang_ms = 10000;

bool drive_late;
static bool any_order;

void drive_any_order(bool any)
{
	any_order = any;
}

bool drive_in_order(void)
{
	return !any_order;
}

void drive_set(void (*fail)(const char *file, int line, const char *text), unsigned slower)
{
	verdict = fail;
	slow = slower;
}

unsigned drive_slow(void)
{
	return slow;
}

void fail_at(const char *file, int line, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (verdict)
		verdict(file, line, text);
	_exit(1);
}

void result_is(const char *file, int line, const char *call, ncclResult_t want, ncclResult_t res)
{
	if (res != want)
		fail_at(file, line, "%s gave %s, not %s", call, net_result_name(res),
			net_result_name(want));
}

void equal(const char *file, int line, const char *what, uint64_t want, uint64_t got)
{
	if (want != got)
		fail_at(file, line, "%s is %lld, not %lld", what, (long long)got, (long long)want);
}

/* -- time --------------------------------------------------------------------------------- */

uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t deadline_ms(unsigned ms)
{
	return now_us() + (uint64_t)ms * 1000 * slow;
}

void wait_tick(uint64_t deadline, const char *file, int line, const char *what)
{
	static _Thread_local uint64_t of;
	static _Thread_local unsigned ticks;
	static const struct timespec nap = { .tv_nsec = 50000 };

	if (now_us() > deadline)
		drive_late = true, fail_at(file, line, "waited too long for %s", what);
	if (deadline != of)
		ticks = 0;
	of = deadline;
	if (++ticks < YIELDS)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

void nap_ms(unsigned ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

uint64_t mix(uint64_t x)		/* splitmix64 */
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

/* -- buffers ------------------------------------------------------------------------------ */

struct buf buf_new(struct net *net, void *comm, size_t size, unsigned misaligned)
{
	struct buf b = {
		.size = size,
		.comm = comm,
		.map_len = GUARD + misaligned + size + GUARD,
	};

	b.map = mmap(NULL, b.map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b.map == MAP_FAILED)
		FAIL("mmap of %zu bytes: %s", b.map_len, strerror(errno));
	b.data = b.map + GUARD + misaligned;
	memset(b.data - GUARD, GUARD_BYTE, GUARD);
	memset(b.data + size, GUARD_BYTE, GUARD);
	if (comm)
		OK(net_reg(net, comm, b.data, size ? size : 1, NCCL_PTR_HOST, &b.mr));
	return b;
}

void buf_guards(const struct buf *b)
{
	for (size_t i = 0; i < GUARD; i++) {
		if (b->data[b->size + i] != GUARD_BYTE)
			FAIL("byte %zu after a buffer of %zu was written", i, b->size);
		if (b->data[i - GUARD] != GUARD_BYTE)
			FAIL("byte %zu before a buffer of %zu was written", GUARD - i, b->size);
	}
}

void buf_free(struct net *net, struct buf *b)
{
	buf_guards(b);
	if (b->comm)
		OK(net_dereg(net, b->comm, b->mr));
	munmap(b->map, b->map_len);
	memset(b, 0, sizeof(*b));
}

static uint64_t word(uint64_t seed, size_t i)
{
	uint64_t x = (seed + i) * 0x9e3779b97f4a7c15;

	return x ^ (x >> 32);
}

void fill(void *data, size_t size, uint64_t seed)
{
	uint8_t *p = data;
	size_t i = 0;

	seed = mix(seed);
	for (; i < size / 8; i++) {
		uint64_t x = word(seed, i);

		memcpy(p + 8 * i, &x, 8);
	}
	if (size % 8) {
		uint64_t x = word(seed, i);

		memcpy(p + 8 * i, &x, size % 8);
	}
}

size_t fill_differs(const void *data, size_t size, uint64_t seed)
{
	const uint8_t *p = data;
	uint64_t want, got;
	size_t i;

	seed = mix(seed);
	for (i = 0; i < size / 8; i++) {	/* a memcmp() here would be a call per word */
		memcpy(&got, p + 8 * i, 8);
		if (got != word(seed, i))
			return 8 * i;
	}
	want = word(seed, i);
	return size % 8 && memcmp(p + 8 * i, &want, size % 8) ? 8 * i : size;
}

void filled(const void *data, size_t size, uint64_t seed)
{
	size_t at = fill_differs(data, size, seed);
	uint64_t got = 0, want = word(mix(seed), at / 8);

	if (at == size)
		return;
	memcpy(&got, (const char *)data + at, size - at < 8 ? size - at : 8);
	FAIL("bytes %zu of %zu of message %llu are %016llx, not %016llx", at, size,
	     (unsigned long long)seed, (unsigned long long)got, (unsigned long long)want);
}

void blank(void *data, size_t size)
{
	memset(data, BLANK_BYTE, size);
}

/* -- operations --------------------------------------------------------------------------- */

static char unwritten;			/* marks a *request that the plugin left alone */

struct op op_group(struct net *net, void *comm)
{
	return (struct op){ .net = net, .comm = comm, .is_recv = true };
}

void op_add(struct op *op, const struct buf *b, size_t size, int tag)
{
	TRUE(op->n < RECVS_MAX);
	op->data[op->n] = b->data;
	op->size[op->n] = size;
	op->tag[op->n] = tag;
	op->mr[op->n] = b->mr;
	op->n++;
}

struct op op_send(struct net *net, void *comm, const struct buf *b, size_t size, int tag)
{
	struct op op = { .net = net, .comm = comm };

	op_add(&op, b, size, tag);
	return op;
}

struct op op_recv(struct net *net, void *comm, const struct buf *b, size_t size, int tag)
{
	struct op op = op_group(net, comm);

	op_add(&op, b, size, tag);
	return op;
}

static ncclResult_t op_call(struct op *op)
{
	if (op->is_recv) {
		op->req = op->optional ? NCCL_NET_OPTIONAL_RECV_COMPLETION : NULL;
		return net_irecv(op->net, op->comm, op->n, op->data, op->size, op->tag, op->mr,
				 op->phandle, &op->req);
	}
	op->req = &unwritten;
	return net_isend(op->net, op->comm, op->data[0], op->size[0], op->tag[0], op->mr[0],
			 op->phandle[0], &op->req);
}

bool op_post(struct op *op)
{
	op->res = op_call(op);
	if (op->res != ncclSuccess) {
		op->posted = true;
		op->done = true;
		return true;
	}
	if (op->req == &unwritten || op->req == NCCL_NET_OPTIONAL_RECV_COMPLETION)
		FAIL("success, but *request was not written");
	op->posted = op->req != NULL;
	return op->posted;
}

bool op_test(struct op *op)
{
	enum { SIZES = 64, UNTOUCHED = -77 };	/* NCCL passes an array of 64 */
	int sizes[SIZES];
	int done = UNTOUCHED;

	for (int i = 0; i < SIZES; i++)
		sizes[i] = i < op->n ? 0 : UNTOUCHED;
	op->res = net_test(op->net, op->req, &done, op->no_sizes ? NULL : sizes);
	if (op->res != ncclSuccess) {
		op->done = true;
		return true;
	}
	if (done != 0 && done != 1)
		FAIL("test() said success and left done at %d", done);
	for (int i = op->n; i < SIZES; i++)
		if (sizes[i] != UNTOUCHED)
			FAIL("test() wrote size %d of a request of %d", i, op->n);
	op->done = done;
	memcpy(op->got, sizes, sizeof(op->got[0]) * (size_t)op->n);
	return op->done;
}

/* Requests of a comm are posted in the order of the array. */
static bool op_next(const struct op *ops, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (!ops[k].posted && ops[k].comm == ops[i].comm)
			return false;
	return true;
}

/* May it be tested now?  Requests of a comm were posted in the order of the array. */
static bool op_due(const struct op *ops, size_t i)
{
	for (size_t k = 0; k < i && !any_order; k++)
		if (ops[k].posted && !ops[k].done && ops[k].comm == ops[i].comm)
			return false;
	return ops[i].posted && !ops[i].done;
}

bool ops_step(struct op *ops, size_t n)
{
	bool all = true;

	for (size_t i = 0; i < n; i++) {
		if (!ops[i].posted && op_next(ops, i))
			op_post(&ops[i]);
		else if (op_due(ops, i))
			op_test(&ops[i]);
		all = all && ops[i].done;
	}
	return all;
}

void ops_settle(struct op *ops, size_t n)
{
	WAIT_FOR(ops_step(ops, n));
}

static void ops_well(const struct op *ops, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ops[i].res != ncclSuccess)
			FAIL("%s %zu of %zu: %s", ops[i].is_recv ? "receive" : "send", i, n,
			     net_result_name(ops[i].res));
}

void ops_run(struct op *ops, size_t n)
{
	uint64_t end = deadline_ms(drive_hang_ms);

	while (!ops_step(ops, n)) {
		ops_well(ops, n);
		if (now_us() > end)
			for (size_t i = 0; i < n; i++)
				if (!ops[i].done)
					LATE("%s %zu of %zu, %zu bytes, tag %d, is %s for ever",
					     ops[i].is_recv ? "receive" : "send", i, n,
					     ops[i].size[0], ops[i].tag[0],
					     ops[i].posted ? "under way" : "refused");
		sched_yield();
	}
	ops_well(ops, n);
}

void ops_post(struct op *ops, size_t n)
{
	for (size_t i = 0; i < n; i++)
		WAIT_FOR(op_post(&ops[i]));
	ops_well(ops, n);
}

void exchange(struct net *net, void *send, void *recv, size_t size, uint64_t seed)
{
	struct buf from = buf_new(net, send, size, 0), to = buf_new(net, recv, size, 0);
	struct op ops[] = {
		op_recv(net, recv, &to, size, 0),
		op_send(net, send, &from, size, 0),
	};

	fill(from.data, size, seed);
	ops_run(ops, 2);
	EQ(size, ops[0].got[0]);
	filled(to.data, size, seed);
	buf_free(net, &from);
	buf_free(net, &to);
}

void send_one(struct net *net, void *send, size_t size, uint64_t seed)
{
	struct buf b = buf_new(net, send, size, 0);
	struct op op = op_send(net, send, &b, size, 0);

	fill(b.data, size, seed);
	ops_run(&op, 1);
	EQ(size, op.got[0]);
	buf_free(net, &b);
}

void recv_one(struct net *net, void *recv, size_t size, uint64_t seed)
{
	struct buf b = buf_new(net, recv, size, 0);
	struct op op = op_recv(net, recv, &b, size, 0);

	ops_run(&op, 1);
	EQ(size, op.got[0]);
	filled(b.data, size, seed);
	buf_free(net, &b);
}

/* -- connections -------------------------------------------------------------------------- */

static int device;

void on_device(int dev)
{
	device = dev;
}

int the_device(void)
{
	return device;
}

bool connect_step(struct net *net, void *handle, void **send)
{
	if (!*send)
		OK(net_connect(net, device, handle, send));
	return *send;
}

bool accept_step(struct net *net, void *listen, void **recv)
{
	if (!*recv)
		OK(net_accept(net, listen, recv));
	return *recv;
}

void pair_listen(struct net *net, struct pair *p)
{
	memset(p, 0, sizeof(*p));
	OK(net_listen(net, device, p->handle, &p->listen));
	TRUE(p->listen);
}

bool pair_step(struct net *net, struct pair *p)
{
	bool connected = connect_step(net, p->handle, &p->send);

	return accept_step(net, p->listen, &p->recv) && connected;
}

void pair_open(struct net *net, struct pair *p)
{
	pair_listen(net, p);
	WAIT_FOR(pair_step(net, p));
	OK(net_close_listen(net, p->listen));
	p->listen = NULL;
}

void pair_close(struct net *net, struct pair *p)
{
	OK(net_close_send(net, p->send));
	OK(net_close_recv(net, p->recv));
	OK(net_close_listen(net, p->listen));
	memset(p, 0, sizeof(*p));
}
