/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * life.c - the memory of a queue pair, and how a queue pair ends.
 *
 *	made ---> its owner lets go of it ---> stopped: the error state ---> destroyed
 *
 * The owner is first the handshake, then the lane.  Neither waits for the NIC: each step is a job
 * of core/mem/later.h.  A queue pair is destroyed when its owner has let go of it and none of its
 * jobs is left.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "verbs/cm.h"
#include "verbs/mr.h"
#include "verbs/qp.h"

enum {
	SPARE_MAX = 8,			/* spare memory that a port keeps, for so many lanes */
	PAGE = 4096,
	COMMAND_MS = 20,		/* a healthy NIC's command takes no longer */
	SEE_MS = 10000,			/* NICs retransmit unanswered packets no longer */
	NAP_NS = 20000, NAP_MAX_NS = 1000000,
};

/* --- memory -------------------------------------------------------------------------------- */

static char *pages(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	return p;
}

enum { BOUNCE_BYTES = BRAID_BOUNCES * BRAID_SLOT };

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

static void memory_free(struct braid_qp_memory *m)
{
	dereg(m->bounce_mr);
	dereg(m->ack_mr);
	braid_slots_free(m->slots);
	unmap(m->bounce, BOUNCE_BYTES);
	unmap((void *)m->ack, PAGE);
	free(m);
}

static int memory_fill(struct braid_ibport *p, struct braid_qp_memory *m)
{
	m->bounce = pages(BOUNCE_BYTES);
	m->ack = (void *)pages(PAGE);
	if (!m->bounce || !m->ack)
		return -ENOMEM;
	m->bounce_mr = braid_ibport_own(p, m->bounce, BOUNCE_BYTES, 0);
	if (m->bounce_mr)
		m->ack_mr = braid_ibport_own(p, (void *)m->ack, PAGE,
					   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return m->ack_mr ? 0 : -ENOMEM;
}

static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;

static struct braid_qp_memory *spare_take(struct braid_ibport *p)
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

struct braid_qp_memory *braid_qp_memory(struct braid_ibport *p, bool own)
{
	struct braid_qp_memory *m = spare_take(p);
	int err = 0;

	if (m) {
		atomic_store(&m->ack[0], 0);
		atomic_store(&m->ack[1], 0);
	} else {
		m = calloc(1, sizeof(*m));
		if (!m)
			return NULL;
		err = memory_fill(p, m);
	}
	if (!err && own && !m->slots)
		m->slots = braid_slots_new(p);
	if (err || (own && !m->slots)) {
		memory_free(m);
		return NULL;
	}
	return m;
}

static void memory_put(struct braid_ibport *p, struct braid_qp_memory *m)
{
	if (braid_srq_wanted(p)) {		/* the next lane needs no slots of its own */
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
		memory_free(m);
}

/* --- signals ------------------------------------------------------------------------------- */

void braid_hush(const struct braid_ibport *p, struct braid_hush *h)
{
	sigset_t set;

	h->on = braid_may_pipe(p);
	if (!h->on)
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &set, &h->old);
	/* A signal that was not blocked was not pending. */
	h->was_pending = sigismember(&h->old, SIGPIPE) && !sigpending(&set) &&
			 sigismember(&set, SIGPIPE);
}

void braid_unhush(const struct braid_hush *h)
{
	static const struct timespec now;
	sigset_t set;

	if (!h->on)
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	while (!h->was_pending && sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR)
		;
	pthread_sigmask(SIG_SETMASK, &h->old, NULL);
}

void braid_hush_look(struct braid_ibport *p)
{
	struct sigaction sa;

	if (p->siw)
		atomic_store(&p->pipe_ignored, !sigaction(SIGPIPE, NULL, &sa) &&
						       sa.sa_handler == SIG_IGN);
}

/* --- rings --------------------------------------------------------------------------------- */

/* If registering fails, what is sent from the ring is copied. */
static void ring_run(struct braid_job *job)
{
	struct braid_ring *r = braid_container(job, struct braid_ring, job);
	struct braid_qp *w = r->qp;

	if (!atomic_load(&w->gone))
		atomic_store(&r->mr, braid_ibport_own(w->port, r->at, r->size, 0));
	braid_qp_put(w);
}

int braid_qp_ring(struct braid_qp *w, char *ring, size_t size)
{
	struct braid_ring *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	*r = (struct braid_ring){
		.next = w->rings, .qp = w, .at = ring, .size = size,
		.job = { .what = "to register a ring", .run = ring_run },
	};
	w->rings = r;
	w->ring = ring;
	braid_qp_get(w);
	braid_later(w->dev, BRAID_MAKE, &r->job);
	return 0;
}

static void rings_free(struct braid_qp *w)
{
	while (w->rings) {
		struct braid_ring *r = w->rings;

		w->rings = r->next;
		dereg(atomic_load(&r->mr));
		free(r);
	}
}

/* --- the end ------------------------------------------------------------------------------- */

void braid_qp_destroy(struct braid_qp *w)
{
	struct braid_hush h;

	braid_hush(w->port, &h);
	if (w->qp && w->id)
		braid_rdma.destroy_qp(w->id);
	else if (w->qp)
		braid_ibv.destroy_qp(w->qp);
	braid_unhush(&h);
	w->qp = NULL;
}

/* In its error state a queue pair neither sends nor takes anything (IBTA vol. 1, 10.3.1.7). */
static void stop_run(struct braid_job *job)
{
	struct braid_qp *w = braid_container(job, struct braid_qp, stop);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	static const struct timespec nap = { .tv_nsec = NAP_NS };
	struct braid_hush h;
	int err;

	braid_hush(w->port, &h);
	err = braid_ibv.modify_qp(w->qp, &a, IBV_QP_STATE);
	braid_unhush(&h);
	if (err) {
		/* Wait for post_bad() to return; afterwards it leaves the queue pair alone. */
		while (atomic_exchange(&w->posting, true))
			nanosleep(&nap, NULL);
		braid_qp_destroy(w);
	}
	braid_stop_end(w->dev, &w->stopping);
	braid_qp_put(w);
}

/* A request with an invalid key can't succeed, and puts the queue pair into the error state. */
static bool post_bad(struct braid_qp *w)
{
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)w->m->bounce, .length = 1,
		.lkey = ~w->m->bounce_mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = BRAID_WR_IS_SEND, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = w->peer_ack, .rkey = ~w->peer_ack_key },
	};
	struct braid_hush h;
	int err;

	if (atomic_exchange(&w->posting, true))
		return false;
	braid_hush(w->port, &h);
	err = ibv_post_send(w->qp, &wr, &bad);
	braid_unhush(&h);
	atomic_store(&w->posting, false);
	return !err;
}

/* Has a request completed with an error?  Then the queue pair is in the error state. */
static bool is_stopped(struct braid_qp *w)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(w->cq, 1, &wc) > 0) {
		if (!(wc.wr_id & BRAID_WR_IS_SEND)) {
			braid_slot_wr(&wc)->next = w->kept;
			w->kept = braid_slot_wr(&wc);
		}
		if (wc.status != IBV_WC_SUCCESS)
			return true;
	}
	return false;
}

static bool stops_within(struct braid_qp *w, unsigned ms, bool look)
{
	uint64_t until = braid_os->now_ns() + ms * UINT64_C(1000000);
	struct timespec nap = { .tv_nsec = NAP_NS };

	while (!atomic_load(&w->stopping.over)) {
		if (look && is_stopped(w))
			return true;
		if (braid_os->now_ns() >= until)
			return false;
		nanosleep(&nap, NULL);
		if (nap.tv_nsec < NAP_MAX_NS)
			nap.tv_nsec *= 2;
	}
	return true;
}

/*
 * The command of stop_run() hangs if the firmware does, while the data path may still work.  Then
 * an invalid request stops the queue pair, after all requests before it.  It is posted only if the
 * command takes long, since libmlx5 prints such completions.
 */
static void see_run(struct braid_job *job)
{
	struct braid_qp *w = braid_container(job, struct braid_qp, see);

	if (!stops_within(w, COMMAND_MS, false) && post_bad(w) && stops_within(w, SEE_MS, true))
		braid_stop_end(w->dev, &w->stopping);
	braid_qp_put(w);
}

static void hand_over(struct braid_qp *w, enum braid_turn turn, struct braid_job *job)
{
	braid_qp_get(w);
	braid_later(w->dev, turn, job);
}

void braid_qp_fence(struct braid_qp *w)
{
	if (w->over)
		return;
	w->over = true;
	/* A peer can't reach it before it is made; iWARP can't stop one that never connected. */
	if (!atomic_load(&w->made) ||
	    (w->port->fabric == BRAID_FABRIC_IWARP && !atomic_load(&w->connected)) || !w->qp)
		return;
	braid_stop_begin(w->dev, &w->stopping);
	w->stop = (struct braid_job){ .what = "to stop a queue pair", .run = stop_run };
	w->see = (struct braid_job){ .run = see_run };
	hand_over(w, BRAID_STOP, &w->stop);
	hand_over(w, BRAID_SEE, &w->see);
}

/* The shared receives that this lane was handed and has not posted again. */
static struct ibv_recv_wr *held(struct braid_qp *w)
{
	struct ibv_recv_wr *first = w->kept, *next;

	for (; w->nagain; w->nagain--, w->again = next) {
		next = w->nagain > 1 ? w->again->next : NULL;
		w->again->next = first;
		first = w->again;
	}
	do {
		for (; w->wc_beg < w->wc_end; w->wc_beg++) {
			if (w->wc[w->wc_beg].wr_id & BRAID_WR_IS_SEND)
				continue;
			next = braid_slot_wr(&w->wc[w->wc_beg]);
			next->next = first;
			first = next;
		}
		w->wc_beg = 0;
		w->wc_end = w->cq ? ibv_poll_cq(w->cq, BRAID_POLL_MAX, w->wc) : 0;
	} while (w->wc_end > 0);
	return first;
}

void braid_qp_end(struct braid_qp *w)
{
	if (braid_cm_leave(w))
		return;
	braid_qp_destroy(w);
	braid_cm_close(w);
	if (w->srq)
		braid_srq_leave(w->srq, held(w));
	if (w->cq)
		braid_ibv.destroy_cq(w->cq);
	if (w->channel) {
		braid_os->note(w->channel->fd, false);
		braid_ibv.destroy_comp_channel(w->channel);
	}
	rings_free(w);
	if (w->m)
		memory_put(w->port, w->m);
	free(w);
}

static void end_run(struct braid_job *job)
{
	braid_qp_end(braid_container(job, struct braid_qp, end));
}

void braid_qp_get(struct braid_qp *w)
{
	atomic_fetch_add(&w->users, 1);
}

void braid_qp_put(struct braid_qp *w)
{
	if (atomic_fetch_sub(&w->users, 1) != 1)
		return;
	w->end = (struct braid_job){ .what = "to destroy a queue pair", .run = end_run };
	/* Only one thread at a time may use rdma_cm: that of BRAID_MAKE. */
	braid_later(w->dev, w->port->cm ? BRAID_MAKE : BRAID_END, &w->end);
}

void braid_qp_free(struct braid_qp *w)
{
	if (!w)
		return;
	atomic_store(&w->gone, true);
	braid_qp_fence(w);
	braid_qp_put(w);
}
