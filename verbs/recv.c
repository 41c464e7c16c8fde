/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recv.c - see recv.h.
 *
 * A destroyed queue pair may take shared receives along.  It takes none if the NIC has reported its
 * last one before, and all completions were polled (life.c).  Else their number is unknown, but
 * lower than what one lane brings, and the next lane brings new ones.  A queue that may have lost
 * more than half of its receives takes no new lane, and is destroyed with its last lane.  Should
 * the queue run dry before, the peers' lanes make no progress, are given up (verbs_health() in
 * verbs.c), and are made anew on another queue.
 */
#include "verbs/recv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "verbs/mr.h"

enum {
	SHARED_MAX = 64,		/* times BRAID_SLOTS_RX: 33 MiB */
	SPARE_MAX = 8,			/* times BRAID_SLOTS_RX: kept when no lane uses the queue */
};

/* --- slots --------------------------------------------------------------------------------- */

static struct ibv_mr *slots_reg(struct braid_ibport *p, struct ibv_pd *pd, void *rx, size_t size)
{
	return p ? braid_ibport_own(p, pd, rx, size, IBV_ACCESS_LOCAL_WRITE) :
		   braid_ibv.reg_mr(pd, rx, size, IBV_ACCESS_LOCAL_WRITE);
}

struct braid_slots *braid_slots_part(struct braid_ibport *p, struct ibv_pd *pd, unsigned n)
{
	size_t size = (size_t)n * BRAID_SLOT;
	struct braid_slots *s = calloc(1, sizeof(*s) + n * (sizeof(*s->wr) + sizeof(*s->sge)));
	void *rx = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (s && rx != MAP_FAILED)
		s->mr = slots_reg(p, pd, rx, size);
	if (!s || !s->mr) {
		if (rx != MAP_FAILED)
			munmap(rx, size);
		free(s);
		return NULL;
	}
	s->n = n;
	s->rx = rx;
	s->sge = (void *)(s->wr + n);
	for (unsigned i = 0; i < n; i++) {
		s->sge[i] = (struct ibv_sge){
			(uint64_t)(uintptr_t)(s->rx + i * BRAID_SLOT), BRAID_SLOT, s->mr->lkey,
		};
		s->wr[i] = (struct ibv_recv_wr){
			.wr_id = (uint64_t)(uintptr_t)&s->wr[i],
			.sg_list = &s->sge[i], .num_sge = 1,
		};
	}
	return s;
}

struct braid_slots *braid_slots_new(struct braid_ibport *p, struct ibv_pd *pd)
{
	return braid_slots_part(p, pd, BRAID_SLOTS_RX);
}

void braid_slots_free(struct braid_slots *s)
{
	if (!s)
		return;
	braid_ibv.dereg_mr(s->mr);
	munmap(s->rx, (size_t)s->n * BRAID_SLOT);
	free(s);
}

struct ibv_recv_wr *braid_slots_chain(struct braid_slots *s)
{
	for (unsigned i = 0; i < s->n; i++)
		s->wr[i].next = i + 1 < s->n ? &s->wr[i + 1] : NULL;
	return s->wr;
}

/* --- shared -------------------------------------------------------------------------------- */

static int post(struct braid_srq *s, struct braid_slots *slots)
{
	struct ibv_recv_wr *bad;
	int err = -ibv_post_srq_recv(s->srq, braid_slots_chain(slots), &bad);

	s->broken |= err != 0;
	return err;
}

/* Makes the queue, and posts the slots kept from the queue before. */
static int srq_open(struct braid_srq *s)
{
	struct ibv_srq_init_attr a = {
		.attr = { .max_wr = s->nslots_max * BRAID_SLOTS_RX, .max_sge = 1 },
	};
	int err = 0;

	s->broken = false;
	atomic_store(&s->port->srq_broke, NULL);
	errno = 0;
	s->srq = braid_ibv.create_srq(s->port->pd, &a);
	if (!s->srq)
		return errno ? -errno : -EIO;
	for (struct braid_slots *slots = s->slots; slots && !err; slots = slots->next)
		err = post(s, slots);
	return err;
}

static void srq_close(struct braid_srq *s)
{
	if (s->srq)
		braid_ibv.destroy_srq(s->srq);
	s->srq = NULL;
	s->left = 0;
}

static int srq_grow(struct braid_srq *s)
{
	struct braid_slots *slots = braid_slots_new(s->port, s->port->pd);

	if (!slots)
		return -ENOMEM;
	slots->next = s->slots;
	s->slots = slots;
	s->nslots++;
	return post(s, slots);
}

static void srq_shrink(struct braid_srq *s, unsigned keep)
{
	while (s->nslots > keep) {
		struct braid_slots *slots = s->slots;

		s->slots = slots->next;
		s->nslots--;
		braid_slots_free(slots);
	}
}

/* The last lane has left: free what no other will use. */
static void srq_rest(struct braid_srq *s)
{
	bool stays = s->port->srq == s;

	srq_close(s);
	srq_shrink(s, stays ? SPARE_MAX : 0);
	if (!stays)
		free(s);
}

static bool worn(const struct braid_srq *s)
{
	return s->broken || atomic_load(&s->port->srq_broke) == s->srq ||
	       (s->left && 2 * s->left > s->nslots);
}

static struct braid_srq *current(struct braid_ibport *p)
{
	struct braid_srq *s = p->srq;

	if (s && s->lanes && worn(s))
		s = p->srq = NULL;
	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->port = p;
	s->nslots_max = p->srq_max / BRAID_SLOTS_RX;
	if (s->nslots_max > SHARED_MAX)
		s->nslots_max = SHARED_MAX;
	p->srq = s;
	return s;
}

static int join(struct braid_srq *s)
{
	int err = 0;

	while (!err && s->nslots < s->nslots_max && s->nslots <= s->lanes + s->left)
		err = srq_grow(s);
	if (err && !s->lanes)
		srq_rest(s);
	if (err)
		return err;
	s->lanes++;
	atomic_store(&s->repost, s->lanes <= s->nslots ? BRAID_REPOST : 1);
	return 0;
}

bool braid_srq_used(const struct braid_ibport *p)
{
	return braid_param.ib_srq && !braid_param.rdma_strict && p->fabric != BRAID_FABRIC_IWARP &&
	       p->srq_max >= BRAID_SLOTS_RX;
}

int braid_srq_join(struct braid_ibport *p, struct braid_srq **ret)
{
	static struct braid_log_gate gate;
	struct braid_srq *s;
	int err = 0;

	*ret = NULL;
	if (!braid_srq_used(p))
		return 0;
	pthread_mutex_lock(&p->srq_lock);
	s = current(p);
	if (!s) {
		err = -ENOMEM;
	} else if (!s->srq && srq_open(s)) {
		if (braid_log_gate_open(&gate, braid_os->now_ns()))
			braid_info("port %s: has no shared receive queue for us: each lane has "
				   "receives of its own", p->name);
		srq_rest(s);
	} else {
		err = join(s);
		*ret = err ? NULL : s;
	}
	pthread_mutex_unlock(&p->srq_lock);
	return err;
}

void braid_srq_leave(struct braid_srq *s, struct ibv_recv_wr *held, bool lost)
{
	struct braid_ibport *p = s->port;
	struct ibv_recv_wr *bad;
	bool failed = held && ibv_post_srq_recv(s->srq, held, &bad);

	pthread_mutex_lock(&p->srq_lock);
	s->broken |= failed;
	s->lanes--;
	s->left += lost;
	if (!s->lanes)
		srq_rest(s);
	pthread_mutex_unlock(&p->srq_lock);
}
