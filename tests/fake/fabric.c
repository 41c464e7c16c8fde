/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fabric.c - the file that all processes of a test map: their NICs, and the rings between them.
 *
 * All zeros is an empty fabric, so the first process only has to extend the file.  A process that
 * dies leaves its slots, and perhaps a locked lock; the next process that wants one takes it over.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { QPNS = 1 << 24 };	/* queue pair numbers have 24 bits */
enum { LOOK = 16 };	/* tries of a lock, each perhaps a time slice, before checking its holder lives */

static struct fab *_Atomic fab;
static int dir_fd = -1;
static const char *own_dir;
static pid_t own_dir_pid;
static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t timeout_ns)
{
	struct timespec ts = { timeout_ns / 1000000000, timeout_ns % 1000000000 };

	return (int)syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ns < 0 ? NULL : &ts, NULL, 0);
}

static void *map(void)
{
	const char *path = getenv("BRAID_TEST_FAKE_FABRIC");
	struct stat st;
	void *p;
	int fd;

	fd = path && path[0] ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) :
			       memfd_create("braid-fake", MFD_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) < 0 || ((size_t)st.st_size < sizeof(struct fab) &&
				   ftruncate(fd, sizeof(struct fab)) < 0)) {
		close(fd);
		return NULL;
	}
	p = mmap(NULL, sizeof(struct fab), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

struct fab *fab_get(void)
{
	struct fab *f = fab;

	if (f)
		return f;
	pthread_mutex_lock(&map_lock);
	f = fab;
	if (!f) {
		f = map();
		fab = f;
	}
	pthread_mutex_unlock(&map_lock);
	return f;
}

struct fab *fake_fabric(void)
{
	return fab_get();
}

/*
 * A directory beside the file (FABRIC.d), or one of this process alone.  It has rdma_cm's sockets,
 * and an imitation of a piece of /sys.
 */
const char *fab_dir(void)
{
	static char name[PATH_MAX];
	const char *path = getenv("BRAID_TEST_FAKE_FABRIC");

	pthread_mutex_lock(&map_lock);
	if (dir_fd < 0) {
		if (path && path[0]) {
			snprintf(name, sizeof(name), "%s.d", path);
			mkdir(name, 0700);
		} else {
			snprintf(name, sizeof(name), "/tmp/braid-fake-XXXXXX");
			own_dir = mkdtemp(name);
			own_dir_pid = getpid();
		}
		dir_fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (dir_fd < 0)
			perror(name);
	}
	pthread_mutex_unlock(&map_lock);
	return name;
}

int fake_fabric_dir(void)
{
	fab_dir();
	return dir_fd;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

__attribute__((destructor)) static void leave(void)
{
	if (own_dir && own_dir_pid == getpid())
		nftw(own_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* --- one lock, for rare operations -------------------------------------------------------------- */

/* Has that process ended?  A zombie has, too. */
static bool pid_gone(uint32_t pid)
{
	char path[64], text[256] = "", *end;
	FILE *f;

	if (kill((pid_t)pid, 0) < 0 && errno == ESRCH)
		return true;
	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	f = fopen(path, "re");
	if (f && !fgets(text, sizeof(text), f))
		text[0] = '\0';
	if (f)
		fclose(f);
	end = strrchr(text, ')');
	return end && end[1] && (end[2] == 'Z' || end[2] == 'X');
}

void fab_lock(void)
{
	uint32_t me = (uint32_t)getpid();

	for (unsigned n = 1;; n++) {
		uint32_t held = 0;

		if (atomic_compare_exchange_weak(&fab->lock, &held, me))
			return;
		if (held && n % LOOK == 0 && pid_gone(held) &&
		    atomic_compare_exchange_strong(&fab->lock, &held, me))
			return;
		sched_yield();
	}
}

void fab_unlock(void)
{
	atomic_store(&fab->lock, 0);
}

/* --- slots -------------------------------------------------------------------------------------- */

struct fab_dev *fab_port_dev(uint32_t id)
{
	return &fab->dev[id / PORTS_MAX];
}

struct fab_port *fab_port(uint32_t id)
{
	return &fab->dev[id / PORTS_MAX].port[id % PORTS_MAX];
}

bool fab_alive(uint32_t nic)
{
	uint32_t pid = nic ? atomic_load(&fab->nic[nic - 1].pid) : 0;

	return pid && !pid_gone(pid);
}

/* Releases a ring whose reader died, lest the slot's next owner appear to be its reader. */
static void ring_abandon(struct ring *r, uint32_t nic)
{
	atomic_compare_exchange_strong(&r->reader, &nic, 0);
}

int fab_nic_take(uint32_t dev)
{
	int slot = -1;

	fab_lock();
	for (int i = 0; slot < 0 && i < NICS_MAX; i++) {
		uint32_t pid = atomic_load(&fab->nic[i].pid);

		if (pid && !pid_gone(pid))
			continue;
		/* queue pairs that a dead process left */
		for (unsigned q = 0; pid && q < QPS_MAX; q++)
			if (atomic_load(&fab->qp[q].nic) == (uint32_t)i + 1)
				fab_qp_give(q);
		slot = i;
	}
	if (slot >= 0) {
		struct fab_nic *n = &fab->nic[slot];

		for (unsigned q = 0; q < QPS_MAX; q++) {
			ring_abandon(&fab->qp[q].req, (uint32_t)slot + 1);
			ring_abandon(&fab->qp[q].resp, (uint32_t)slot + 1);
		}
		for (unsigned i = 0; i < WORDS; i++)
			atomic_store(&n->pending[i], 0);
		for (unsigned i = 0; i < (WORDS + 63) / 64; i++)
			atomic_store(&n->some[i], 0);
		atomic_store(&n->asleep, 0);
		atomic_store(&n->dev, dev);
		atomic_store(&n->pid, (uint32_t)getpid());
	}
	fab_unlock();
	return slot;
}

void fab_nic_give(unsigned nic)
{
	atomic_store(&fab->nic[nic].pid, 0);
}

int fab_qp_take(unsigned nic)
{
	static _Atomic unsigned next;
	int slot = -1;

	fab_lock();
	/* free ones first, since it takes long to find out that a process has ended */
	for (unsigned n = 0; slot < 0 && n < 2 * QPS_MAX; n++) {
		unsigned i = (next + n) % QPS_MAX;
		struct fab_qp *q = &fab->qp[i];
		uint32_t owner = atomic_load(&q->nic);
		uint32_t generation;

		if (owner && (n < QPS_MAX || fab_alive(owner)))
			continue;
		ring_clear(&q->req, nic);
		ring_clear(&q->resp, nic);
		generation = atomic_load(&q->generation) % (QPNS / QPS_MAX - 1) + 1;
		atomic_store(&q->generation, generation);
		for (unsigned c = 0; c < COUNTERS; c++)
			atomic_store(&q->count[c], 0);
		atomic_store(&q->force, 0);
		atomic_store(&q->state, IBV_QPS_RESET);
		atomic_store(&q->dest_qpn, 0);
		atomic_store(&q->port, PORT_NONE);
		atomic_store(&q->dst_port, PORT_NONE);
		atomic_store(&q->qpn, generation * QPS_MAX + i);	/* slot: its rest */
		atomic_store(&q->nic, nic + 1);
		slot = (int)i;
		next = i + 1;
	}
	fab_unlock();
	return slot;
}

static uint8_t *ring_data(struct ring *r)
{
	size_t at = (size_t)((char *)r - (char *)fab->qp), slot = at / sizeof(fab->qp[0]);

	return fab->data[slot][r == &fab->qp[slot].resp];
}

/* Frees the memory of an empty ring. */
static void ring_free(struct ring *r)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1, data = (uintptr_t)ring_data(r);
	uintptr_t from = (data + page) & ~page, to = (data + RING_BYTES) & ~page;

	if (ring_idle(r))
		madvise((void *)from, to - from, MADV_REMOVE);
}

void fab_qp_give(unsigned slot)
{
	struct fab_qp *q = &fab->qp[slot];

	atomic_store(&q->state, IBV_QPS_RESET);
	atomic_store(&q->qpn, 0);
	ring_free(&q->req);
	ring_free(&q->resp);
	atomic_store(&q->nic, 0);
}

void fab_count(unsigned slot, enum counter c, uint64_t n)
{
	atomic_fetch_add_explicit(&fab->qp[slot].count[c], n, memory_order_relaxed);
	atomic_fetch_add_explicit(&fab->count[c], n, memory_order_relaxed);
}

/* --- doorbells ---------------------------------------------------------------------------------- */

static void ring_bell(struct fab_nic *n)
{
	atomic_fetch_add(&n->bell, 1);
	if (atomic_load(&n->asleep))
		syscall(SYS_futex, &n->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void fab_kick(unsigned slot)
{
	uint32_t owner = atomic_load(&fab->qp[slot].nic);
	struct fab_nic *n;

	if (!owner)
		return;
	n = &fab->nic[owner - 1];
	atomic_fetch_or(&n->pending[slot / 64], UINT64_C(1) << slot % 64);
	atomic_fetch_or(&n->some[slot / 4096], UINT64_C(1) << slot / 64 % 64);
	ring_bell(n);
}

void fab_kick_all(void)
{
	for (unsigned i = 0; i < QPS_MAX; i++)
		fab_kick(i);
	for (unsigned i = 0; i < NICS_MAX; i++)
		if (atomic_load(&fab->nic[i].pid))
			ring_bell(&fab->nic[i]);
}

void fab_event(uint32_t port_id, enum ibv_event_type type)
{
	struct fab_port *p = fab_port(port_id);
	uint32_t n = atomic_load(&p->events);

	atomic_store(&p->event[n % EVENTS_MAX], (uint32_t)type);
	atomic_store(&p->events, n + 1);
	atomic_fetch_add(&fab->routes, 1);
}

/* --- addresses ---------------------------------------------------------------------------------- */

static bool port_has(uint32_t id, const union ibv_gid *gid, uint32_t type, uint32_t net)
{
	struct fab_dev *d = fab_port_dev(id);
	struct fab_port *p = fab_port(id);

	if (id / PORTS_MAX >= atomic_load(&fab->ndevs) || id % PORTS_MAX >= d->nports || d->net != net)
		return false;
	for (unsigned i = 0; i < GIDS_MAX; i++)
		if (p->gid[i].used && p->gid[i].type == type && !memcmp(&p->gid[i].gid, gid, sizeof(*gid)))
			return true;
	return false;
}

/* Two NICs on one interface have the same addresses; hint: the port that is meant. */
uint32_t fab_find_gid(const union ibv_gid *gid, uint32_t type, uint32_t net, uint32_t hint)
{
	if (hint != PORT_NONE && port_has(hint, gid, type, net))
		return hint;
	for (uint32_t id = 0; id < atomic_load(&fab->ndevs) * PORTS_MAX; id++)
		if (port_has(id, gid, type, net))
			return id;
	return PORT_NONE;
}

uint32_t fab_find_lid(uint32_t lid, uint32_t net, uint32_t subnet)
{
	for (uint32_t id = 0; id < atomic_load(&fab->ndevs) * PORTS_MAX; id++) {
		struct fab_dev *d = fab_port_dev(id);

		if (d->kind == KIND_IB && d->net == net && d->subnet == subnet && id % PORTS_MAX < d->nports &&
		    atomic_load(&fab_port(id)->lid) == lid)
			return id;
	}
	return PORT_NONE;
}

static bool port_has_ip(uint32_t id, const struct in6_addr *ip)
{
	const struct fab_port *p = fab_port(id);

	if (id % PORTS_MAX >= fab_port_dev(id)->nports)
		return false;
	for (uint32_t i = 0; i < p->nips; i++)
		if (!memcmp(&p->ip[i], ip, sizeof(*ip)))
			return true;
	return false;
}

/*
 * For rdma_cm: the port of `host` from which `dst` is reached, and dst's port, both of one kind.
 * src, or NULL: the source address; ret_ip: the one that was chosen.
 */
int fake_route(const char *host, const struct in6_addr *src, const struct in6_addr *dst, uint32_t *ret_src,
	       uint32_t *ret_dst, struct in6_addr *ret_ip)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(dst);
	uint32_t n = atomic_load(&fab->ndevs) * PORTS_MAX;
	int err = ENODEV;

	fab_lock();
	for (uint32_t to = 0; err && to < n; to++) {
		if (!port_has_ip(to, dst))
			continue;
		err = EHOSTUNREACH;
		for (uint32_t from = 0; err && from < n; from++) {
			struct fab_dev *a = fab_port_dev(from), *b = fab_port_dev(to);
			struct fab_port *p = fab_port(from);

			if (strcmp(a->host, host) || a->kind != b->kind || a->net != b->net ||
			    from % PORTS_MAX >= a->nports || (src && !port_has_ip(from, src)))
				continue;
			for (uint32_t i = 0; err && i < p->nips; i++)
				if (src || IN6_IS_ADDR_V4MAPPED(&p->ip[i]) == v4) {
					*ret_src = from;
					*ret_dst = to;
					*ret_ip = src ? *src : p->ip[i];
					err = 0;
				}
		}
	}
	fab_unlock();
	return err;
}

/* The port of `host` that has this address. */
uint32_t fake_find_ip(const char *host, const struct in6_addr *ip)
{
	uint32_t n = atomic_load(&fab->ndevs) * PORTS_MAX, found = PORT_NONE;

	fab_lock();
	for (uint32_t id = 0; found == PORT_NONE && id < n; id++)
		if (!strcmp(fab_port_dev(id)->host, host) && port_has_ip(id, ip))
			found = id;
	fab_unlock();
	return found;
}

/* --- rings -------------------------------------------------------------------------------------- */

static uint32_t rec_size(uint32_t bytes)
{
	return (uint32_t)sizeof(struct rec) + ((bytes + 63) & ~63u);
}

struct rec *ring_reserve(struct ring *r, uint32_t bytes)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	uint64_t room = RING_BYTES - (tail - atomic_load(&r->head));
	uint32_t pos = (uint32_t)(tail % RING_BYTES), left = RING_BYTES - pos;
	uint32_t size = rec_size(bytes);

	if (left < size) {
		if (room < (uint64_t)left + size)
			return NULL;
		TO(rec, ring_data(r) + pos)->bytes = REC_SKIP;
		atomic_store(&r->tail, tail + left);
		pos = 0;
	} else if (room < size) {
		return NULL;
	}
	return TO(rec, ring_data(r) + pos);
}

void ring_commit(struct ring *r, uint32_t bytes)
{
	atomic_fetch_add(&r->tail, rec_size(bytes));
}

bool ring_idle(struct ring *r)
{
	return atomic_load(&r->head) == atomic_load(&r->tail);
}

bool ring_lock(struct ring *r, unsigned nic)
{
	uint32_t held = 0;

	return atomic_compare_exchange_strong(&r->reader, &held, nic + 1);
}

void ring_unlock(struct ring *r)
{
	atomic_store(&r->reader, 0);
}

struct rec *ring_peek(struct ring *r)
{
	for (;;) {
		uint64_t head = atomic_load(&r->head);
		uint32_t pos = (uint32_t)(head % RING_BYTES);
		struct rec *rec = TO(rec, ring_data(r) + pos);

		if (head == atomic_load(&r->tail))
			return NULL;
		if (rec->bytes != REC_SKIP)
			return rec;
		atomic_store(&r->head, head + RING_BYTES - pos);
	}
}

void ring_pop(struct ring *r)
{
	uint64_t head = atomic_load(&r->head);

	atomic_store(&r->head, head + rec_size(TO(rec, ring_data(r) + head % RING_BYTES)->bytes));
}

/* Its writer empties it; a reader may have died while it held the ring's lock. */
void ring_clear(struct ring *r, unsigned nic)
{
	for (unsigned n = 1; !ring_lock(r, nic); n++) {
		uint32_t held = atomic_load(&r->reader);

		if (n % LOOK == 0 && held && !fab_alive(held) &&
		    atomic_compare_exchange_strong(&r->reader, &held, nic + 1))
			break;
		sched_yield();
	}
	atomic_store(&r->head, atomic_load(&r->tail));
	ring_unlock(r);
}
