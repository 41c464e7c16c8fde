/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp_mem.c - see qp_mem.h.
 *
 * Pinning memory takes long.  So a port keeps the memory of a few queue pairs that have ended.
 */
#include "verbs/qp_mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/base/param.h"
#include "verbs/mr.h"
#include "verbs/qp.h"

enum {
	SPARE_MAX = 8,			/* a port keeps the memory of so many ended lanes */
	PAGE = 4096,
};

static char *pages(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	return p;
}

static void dereg(struct ibv_mr *mr)
{
	if (mr)
		braid_ibv.dereg_mr(mr);
}

static void unmap(void *p, size_t size)
{
	if (p)
		munmap(p, size);
}

static void memory_free(struct braid_ibport *p, struct braid_qp_memory *m)
{
	dereg(m->ack_mr);
	braid_slots_free(m->slots);
	braid_slots_free(m->more);
	braid_bounces_free(&m->own);
	unmap((void *)m->ack, PAGE);
	if (m->pd && m->pd != p->pd)
		braid_ibv.dealloc_pd(m->pd);
	free(m);
}

static int memory_fill(struct braid_ibport *p, struct braid_qp_memory *m, bool apart)
{
	m->pd = apart ? braid_ibv.alloc_pd(p->ctx) : p->pd;
	m->ack = (void *)pages(PAGE);
	braid_bounces_init(&m->own);
	return m->pd && m->ack ? 0 : -ENOMEM;
}

/* Each queue pair's page has a key of its own: the peer of an earlier one knows that one's. */
static int ack_open(struct braid_ibport *p, struct braid_qp_memory *m)
{
	atomic_store(&m->ack[0], 0);
	atomic_store(&m->ack[1], 0);
	atomic_store(&m->ack[2], 0);
	atomic_store(&m->ack[BRAID_ACK_WINDOW], 0);
	m->ack_mr = braid_ibport_own(p, m->pd, (void *)m->ack, PAGE,
				     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return m->ack_mr ? 0 : -ENOMEM;
}

static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;

static struct braid_qp_memory *spare_pop(struct braid_ibport *p)
{
	struct braid_qp_memory *m;

	pthread_mutex_lock(&spare_lock);
	m = p->spare;
	if (m) {
		p->spare = m->next;
		p->nspare--;
	}
	pthread_mutex_unlock(&spare_lock);
	return m;
}

static int bounces_join(struct braid_ibport *p, struct braid_qp_memory *m)
{
	struct braid_bounces *b = m->pd == p->pd ? &p->bounces : &m->own;
	int err = braid_bounces_join(b, p, m->pd);

	if (!err)
		m->bounces = b;
	return err;
}

/* n slots in one piece.  An earlier queue pair's are kept if they are as many. */
static int slots_want(struct braid_ibport *p, struct braid_qp_memory *m, unsigned n)
{
	if (m->slots && m->slots->n == n)
		return 0;
	braid_slots_free(m->slots);
	m->slots = braid_slots_part(p, m->pd, n);
	return m->slots ? 0 : -ENOMEM;
}

struct braid_qp_memory *braid_qp_memory(struct braid_ibport *p, bool slots, bool loop)
{
	bool apart = braid_param.rdma_strict && !loop;
	struct braid_qp_memory *m = apart ? NULL : spare_pop(p);
	int err = 0;

	if (!m) {
		m = calloc(1, sizeof(*m));
		if (!m)
			return NULL;
		err = memory_fill(p, m, apart);
	}
	if (!err)
		err = ack_open(p, m);
	if (!err && slots)
		err = slots_want(p, m, loop ? BRAID_SLOTS_RX : BRAID_SLOTS_FEW);
	if (err || (!loop && bounces_join(p, m))) {
		memory_free(p, m);
		return NULL;
	}
	return m;
}

void braid_qp_memory_put(struct braid_ibport *p, struct braid_qp_memory *m)
{
	if (m->bounces)
		braid_bounces_leave(m->bounces);
	m->bounces = NULL;
	if (m->pd != p->pd) {
		memory_free(p, m);
		return;
	}
	dereg(m->ack_mr);
	m->ack_mr = NULL;
	braid_slots_free(m->more);
	m->more = NULL;
	if (braid_srq_used(p)) {		/* the next lane needs no slots of its own */
		braid_slots_free(m->slots);
		m->slots = NULL;
	}
	pthread_mutex_lock(&spare_lock);
	if (p->nspare < SPARE_MAX) {
		m->next = p->spare;
		p->spare = m;
		p->nspare++;
		m = NULL;
	}
	pthread_mutex_unlock(&spare_lock);
	if (m)
		memory_free(p, m);
}

/* If registering fails, what is sent from the ring is copied until the lane has rested. */
static void ring_run(struct braid_job *job)
{
	struct braid_ring *r = braid_container(job, struct braid_ring, job);
	struct braid_qp *w = r->qp;

	if (!atomic_load(&w->gone)) {
		braid_bounces_use(w->m->bounces, w->port, w->m->pd);
		atomic_store(&r->mr, braid_ibport_own(w->port, w->m->pd, r->at, r->size, 0));
	}
	atomic_store(&r->busy, false);
	braid_qp_put(w);
}

static void ring_leave(struct braid_job *job)
{
	struct braid_ring *r = braid_container(job, struct braid_ring, job);
	struct braid_qp *w = r->qp;

	dereg(r->old);
	r->old = NULL;
	atomic_store(&r->busy, false);
	braid_qp_put(w);
}

static void ring_job(struct braid_ring *r, enum braid_job_kind kind, const char *what,
		     void (*run)(struct braid_job *job))
{
	r->job = (struct braid_job){ .what = what, .run = run };
	atomic_store(&r->busy, true);
	braid_qp_get(r->qp);
	braid_later(r->qp->dev, kind, &r->job);
}

int braid_qp_ring(struct braid_qp *w, char *ring, size_t size)
{
	struct braid_ring *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	*r = (struct braid_ring){
		.next = w->rings, .qp = w, .at = ring, .size = size, .rests = true,
	};
	w->rings = r;
	w->ring = ring;
	return 0;
}

void braid_qp_ring_use(struct braid_qp *w)
{
	struct braid_ring *r = w->rings;

	if (!r->rests || atomic_load(&r->busy))
		return;
	r->rests = false;
	ring_job(r, BRAID_MAKE, "to register a ring", ring_run);
}

bool braid_qp_rings_rest(struct braid_qp *w, bool done)
{
	bool all = true;

	for (struct braid_ring *r = w->rings; r; r = r->next) {
		bool busy = atomic_load(&r->busy);	/* before r->mr, which its job sets */
		struct ibv_mr *mr = atomic_load(&r->mr);

		if (r->rests)
			continue;
		r->rests = !busy && (!mr || done);
		all &= r->rests;
		if (!r->rests || !mr)
			continue;
		atomic_store(&r->mr, NULL);
		r->old = mr;
		ring_job(r, BRAID_END, "to deregister a ring", ring_leave);
	}
	return all;
}

void braid_qp_rings_free(struct braid_qp *w)
{
	while (w->rings) {
		struct braid_ring *r = w->rings;

		w->rings = r->next;
		dereg(atomic_load(&r->mr));
		free(r);
	}
}
