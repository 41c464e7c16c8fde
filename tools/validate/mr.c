/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mr.c - memory that is registered twice, in parts, again after it was freed, and very often.
 *
 * A plugin may cache registrations by address.  After munmap() an address has other memory; a cache
 * that misses this sends old data.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/validate/far.h"

enum { SIZE = 1 << 20 };

struct mem {				/* mapped here, registered at both ends of a pair */
	char *from, *to;
	void *from_mr, *to_mr;
	size_t size;
};

static char *map_at(void *at, size_t size)
{
	char *p = mmap(at, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	if (p == MAP_FAILED)
		FAIL("no memory of %zu bytes: %s", size, strerror(errno));
	return p;
}

static void mem_reg(struct validate *v, struct pair *p, struct mem *m)
{
	OK(net_reg(v->net, p->send, m->from, m->size, NCCL_PTR_HOST, &m->from_mr));
	OK(net_reg(v->net, p->recv, m->to, m->size, NCCL_PTR_HOST, &m->to_mr));
}

static void mem_dereg(struct validate *v, struct pair *p, struct mem *m)
{
	OK(net_dereg(v->net, p->send, m->from_mr));
	OK(net_dereg(v->net, p->recv, m->to_mr));
}

static struct mem mem_new(struct validate *v, struct pair *p, size_t size)
{
	struct mem m = { .from = map_at(NULL, size), .to = map_at(NULL, size), .size = size };

	mem_reg(v, p, &m);
	return m;
}

/* Move `size` bytes at `at` of one end's memory to the same place of the other's. */
static void mem_move(struct validate *v, struct pair *p, const struct mem *m, size_t at,
		     size_t size, uint64_t seed)
{
	struct buf from = { .data = (uint8_t *)m->from + at, .mr = m->from_mr };
	struct buf to = { .data = (uint8_t *)m->to + at, .mr = m->to_mr };
	struct op ops[2] = { op_recv(v->net, p->recv, &to, size, 0),
			     op_send(v->net, p->send, &from, size, 0) };

	fill(from.data, size, seed);
	blank(to.data, size);
	ops_run(ops, 2);
	filled(to.data, size, seed);
}

static void both(struct validate *v, struct pair *p)
{
	net_up(v);
	pair_open(v->net, p);
}

static void overlap(struct validate *v)
{
	struct pair p;
	struct mem a, b;

	both(v, &p);
	a = mem_new(v, &p, SIZE);
	b = a;
	b.from += SIZE / 4;
	b.to += SIZE / 4;
	b.size = SIZE / 2;
	mem_reg(v, &p, &b);
	mem_move(v, &p, &b, 0, b.size, 1);
	mem_move(v, &p, &a, 0, SIZE, 2);
	mem_dereg(v, &p, &a);
	step(v, "the part, after the whole is deregistered");
	mem_move(v, &p, &b, 100, b.size - 100, 3);
	mem_dereg(v, &p, &b);
	pair_close(v->net, &p);
}

static void part(struct validate *v)
{
	struct pair p;
	struct mem m;

	both(v, &p);
	m = mem_new(v, &p, SIZE);
	mem_move(v, &p, &m, 0, 1, 1);
	mem_move(v, &p, &m, 12345, 300000, 2);
	mem_move(v, &p, &m, SIZE - 1, 1, 3);
	mem_move(v, &p, &m, SIZE - 70000, 70000, 4);
	mem_dereg(v, &p, &m);
	pair_close(v->net, &p);
}

static void again(struct validate *v)
{
	struct pair p;
	struct mem m;

	both(v, &p);
	m = mem_new(v, &p, SIZE);
	for (uint64_t i = 0; i < 20; i++) {
		step(v, "other memory at the same address, %d of 20", (int)i + 1);
		mem_move(v, &p, &m, 0, SIZE, i + 1);
		mem_dereg(v, &p, &m);
		munmap(m.from, SIZE);
		munmap(m.to, SIZE);
		map_at(m.from, SIZE);
		map_at(m.to, SIZE);
		mem_reg(v, &p, &m);
	}
	mem_move(v, &p, &m, 0, SIZE, 99);
	mem_dereg(v, &p, &m);
	pair_close(v->net, &p);
	saw(v, "20 times");
}

static void twice(struct validate *v)
{
	struct pair p;
	struct mem a, b;

	both(v, &p);
	a = mem_new(v, &p, SIZE);
	b = a;
	mem_reg(v, &p, &b);
	mem_dereg(v, &p, &a);
	step(v, "registered twice, deregistered once");
	mem_move(v, &p, &b, 0, SIZE, 1);
	mem_dereg(v, &p, &b);
	pair_close(v->net, &p);
}

static void other_comm(struct validate *v)
{
	struct pair p, q;
	struct mem m, n;

	both(v, &p);
	pair_open(v->net, &q);
	m = mem_new(v, &p, SIZE);
	n = m;
	mem_reg(v, &q, &n);
	mem_move(v, &p, &m, 0, SIZE, 1);
	mem_dereg(v, &p, &m);
	pair_close(v->net, &p);
	step(v, "the second comm, after the first is closed");
	mem_move(v, &q, &n, 0, SIZE, 2);
	mem_dereg(v, &q, &n);
	pair_close(v->net, &q);
}

static void many(struct validate *v)
{
	enum { N = 1000, EACH = 8192 };
	static struct mem m[N];
	struct counts first, last;
	struct pair p;

	both(v, &p);
	first = counts_now();
	for (int i = 0; i < N; i++) {
		m[i] = (struct mem){ .from = map_at(NULL, EACH), .to = map_at(NULL, EACH),
				     .size = EACH };
		mem_reg(v, &p, &m[i]);
	}
	mem_move(v, &p, &m[0], 0, EACH, 1);
	mem_move(v, &p, &m[N - 1], 0, EACH, 2);
	for (int i = 0; i < N; i++)
		mem_dereg(v, &p, &m[i]);
	last = counts_now();
	if (last.fds > first.fds + 8)
		FAIL("%u descriptors became %u", first.fds, last.fds);
	pair_close(v->net, &p);
	saw(v, "%d at each end", N);
}

/* Deregister other memory while a message is under way. */
static void meanwhile(struct validate *v)
{
	struct buf from, to;
	struct op ops[2];
	struct pair p;
	struct mem m;

	both(v, &p);
	m = mem_new(v, &p, SIZE);
	from = buf_new(v->net, p.send, 4 << 20, 0);
	to = buf_new(v->net, p.recv, 4 << 20, 0);
	fill(from.data, from.size, 1);
	ops[0] = op_recv(v->net, p.recv, &to, to.size, 0);
	ops[1] = op_send(v->net, p.send, &from, from.size, 0);
	ops_step(ops, 2);
	ops_step(ops, 2);
	mem_dereg(v, &p, &m);
	munmap(m.from, SIZE);
	munmap(m.to, SIZE);
	step(v, "a message that was under way while other memory was deregistered");
	ops_run(ops, 2);
	filled(to.data, to.size, 1);
	buf_free(v->net, &from);
	buf_free(v->net, &to);
	pair_close(v->net, &p);
}

static void tiny(struct validate *v)
{
	struct pair p;
	struct mem m;
	char one[2] = { 0, 0 };

	both(v, &p);
	m = (struct mem){ .from = one, .to = one + 1, .size = 1 };
	mem_reg(v, &p, &m);
	mem_move(v, &p, &m, 0, 1, 7);
	mem_dereg(v, &p, &m);
	pair_close(v->net, &p);
}

static void read_only(struct validate *v)
{
	struct pair p;
	struct buf from, to;
	struct op ops[2];
	char *page = map_at(NULL, SIZE);
	void *mr = NULL;

	both(v, &p);
	fill(page, SIZE, 1);
	TRUE(mprotect(page, SIZE, PROT_READ) == 0);
	if (net_reg(v->net, p.send, page, SIZE, NCCL_PTR_HOST, &mr) != ncclSuccess)
		skip(v, "memory that can't be written is refused at once");
	from = (struct buf){ .data = (uint8_t *)page, .mr = mr };
	to = buf_new(v->net, p.recv, SIZE, 0);
	ops[0] = op_recv(v->net, p.recv, &to, SIZE, 0);
	ops[1] = op_send(v->net, p.send, &from, SIZE, 0);
	ops_run(ops, 2);
	filled(to.data, SIZE, 1);
	OK(net_dereg(v->net, p.send, mr));
	buf_free(v->net, &to);
	pair_close(v->net, &p);
}

static void large(struct validate *v)
{
	struct pair p;
	struct mem m;

	both(v, &p);
	m = mem_new(v, &p, (size_t)1 << 30);
	mem_move(v, &p, &m, 0, 100000, 1);
	mem_move(v, &p, &m, ((size_t)1 << 30) - 100000, 100000, 2);
	mem_dereg(v, &p, &m);
	pair_close(v->net, &p);
}

static const char memlock[] = "ulimit -l unlimited, and see braid doctor --only limits";

const struct vcheck validate_mr[] = {
	{ "mr-tiny", "One byte can be registered", REPORT, tiny, V_HERE, 0 },
	{ "mr-part", "Messages from anywhere within registered memory", REPORT, part,
	  V_HERE | V_SOAK, 0 },
	{ "mr-overlap", "Registrations overlap, and one goes", REPORT, overlap, V_HERE | V_SOAK,
	  0 },
	{ "mr-twice", "Memory is registered twice, and goes once", REPORT, twice, V_HERE, 0 },
	{ "mr-comms", "Memory is registered with two comms, and one goes", REPORT, other_comm,
	  V_HERE, 0 },
	{ "mr-again", "Other memory at the same address is not taken for the old",
	  "Old data is sent: report it to who made the plugin", again,
	  V_HERE | V_SOAK, 0 },
	{ "mr-meanwhile", "Memory goes while messages of other memory are under way", REPORT,
	  meanwhile, V_HERE | V_SOAK, 0 },
	{ "mr-many", "1000 registrations leave nothing behind", memlock, many, V_HERE, 60 },
	{ "mr-read-only", "Memory that can only be read can be sent", REPORT, read_only, V_HERE,
	  0 },
	{ "mr-1g", "1 GiB can be registered", memlock, large, V_HERE | V_FULL, 60 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
