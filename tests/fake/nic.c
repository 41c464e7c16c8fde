/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nic.c - a NIC's own work: for one queue pair, and a thread for each opened device.
 *
 * qp_run() does the work of a queue pair, under its lock.  The device's thread calls it, and every
 * post and poll.
 */
#include "tests/fake/nic.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	NAP_NS = 200000,		/* while callers poll, the thread only checks so often */
	SPINS = 500,
};

/* --- one queue pair ----------------------------------------------------------------------------- */

static void wake_at(struct fqp *qp, uint64_t ns)
{
	struct fctx *c = qp->ctx;

	atomic_store(&qp->wake, ns);
	if (!ns)
		return;
	atomic_fetch_or(&c->timed[qp->slot / 64], UINT64_C(1) << qp->slot % 64);
	if (atomic_load(&c->wake_ns) > ns)
		fab_kick(qp->slot);
}

static void set_wake(struct fqp *qp)
{
	uint64_t t = qp->timer;

	if (qp->rnr_until && (!t || qp->rnr_until < t))
		t = qp->rnr_until;
	if (qp->due && (!t || qp->due < t))
		t = qp->due;
	if (qp->last_at && (!t || qp->last_at < t))
		t = qp->last_at;
	if (t != atomic_load(&qp->wake))
		wake_at(qp, t);
}

static void obey(struct fqp *qp)
{
	uint32_t force = atomic_exchange(&qp->fab->force, 0);

	if (!force || qp->ibv.state == IBV_QPS_RESET || qp->ibv.state == IBV_QPS_ERR)
		return;
	qp_error(qp);
	if (force != FORCE_CLOSED)
		ctx_event(qp->ctx, IBV_EVENT_QP_FATAL, qp, 0);
}

static bool has_peer(const struct fqp *qp)
{
	return qp->ibv.state == IBV_QPS_RTR || qp->ibv.state == IBV_QPS_RTS || qp->ibv.state == IBV_QPS_SQD;
}

void qp_run(struct fqp *qp)
{
	bool more = false;

	qp->due = 0;
	if (atomic_load(&qp->fab->force))
		obey(qp);
	if (qp->last_at && now_ns() >= qp->last_at)
		qp_last_wqe(qp);
	if (has_peer(qp))
		route(qp);
	if (has_peer(qp))
		more |= resp_in(qp);
	if (has_peer(qp))
		more |= req_in(qp);
	if (has_peer(qp) && qp->ibv.state != IBV_QPS_RTR) {
		timer_check(qp);
		more |= req_out(qp);
	}
	if (qp->draining && qp->ibv.state == IBV_QPS_SQD && qp->sq_una == qp->sq_next) {
		qp->draining = false;
		ctx_event(qp->ctx, IBV_EVENT_SQ_DRAINED, qp, 0);
	}
	set_wake(qp);
	if (more)
		fab_kick(qp->slot);
}

static void run_slot(struct fctx *c, unsigned slot)
{
	struct fqp *qp = qp_get(c, slot);

	if (!qp)
		return;
	pthread_mutex_lock(&qp->lock);
	qp_run(qp);
	pthread_mutex_unlock(&qp->lock);
	qp_put(qp);
}

/* --- a device ----------------------------------------------------------------------------------- */

/* Takes all bits of a word; most words have none. */
static uint64_t take_bits(_Atomic uint64_t *word)
{
	return atomic_load(word) ? atomic_exchange(word, 0) : 0;
}

static bool drain(struct fctx *c)
{
	struct fab_nic *n = &fab_get()->nic[c->nic];
	bool some = false;

	for (unsigned k = 0; k < (WORDS + 63) / 64; k++)
		for (uint64_t words = take_bits(&n->some[k]); words; words &= words - 1) {
			unsigned i = k * 64 + (unsigned)__builtin_ctzll(words);

			for (uint64_t bits = take_bits(&n->pending[i]); bits; bits &= bits - 1) {
				some = true;
				run_slot(c, i * 64 + (unsigned)__builtin_ctzll(bits));
			}
		}
	return some;
}

void nic_help(struct fctx *c)
{
	unsigned polls = atomic_fetch_add_explicit(&c->polls, 1, memory_order_relaxed);

	/* a poll in vain may leave the CPU to the peer: a machine may have few CPUs */
	if (!drain(c) && polls % 64 == 0)
		sched_yield();
}

/* Reports what has happened to our ports since the last call. */
static void port_events(struct fctx *c)
{
	for (uint32_t p = 0; p < c->dev->nports; p++) {
		struct fab_port *port = fab_port(PORT_ID(c->dev->index, p + 1));
		uint32_t n = atomic_load(&port->events);

		for (; c->events_seen[p] != n; c->events_seen[p]++)
			ctx_event(c, atomic_load(&port->event[c->events_seen[p] % EVENTS_MAX]), NULL,
				  (int)p + 1);
	}
	if (c->fatal_seen || !atomic_load(&fab_get()->dev[c->dev->index].fatal))
		return;
	c->fatal_seen = true;
	ctx_event(c, IBV_EVENT_DEVICE_FATAL, NULL, 0);
	for (unsigned i = 0; i < QPS_MAX; i++) {
		struct fqp *qp = qp_get(c, i);

		if (!qp)
			continue;
		pthread_mutex_lock(&qp->lock);
		if (qp->ibv.state != IBV_QPS_RESET && qp->ibv.state != IBV_QPS_ERR)
			qp_error(qp);
		pthread_mutex_unlock(&qp->lock);
		qp_put(qp);
	}
}

/* Runs the queue pairs whose timers are due; returns when the next one is. */
static uint64_t timers(struct fctx *c)
{
	uint64_t next = UINT64_MAX, now = now_ns();

	for (unsigned i = 0; i < WORDS; i++) {
		uint64_t bits = take_bits(&c->timed[i]), due = 0, later = 0;

		if (!bits)
			continue;
		pthread_mutex_lock(&c->lock);
		for (; bits; bits &= bits - 1) {
			struct fqp *qp = c->qp[i * 64 + (unsigned)__builtin_ctzll(bits)];
			uint64_t wake = qp ? atomic_load(&qp->wake) : 0;

			if (wake && wake <= now)
				due |= bits & -bits;
			else if (wake)
				later |= bits & -bits;
			if (wake && wake < next)
				next = wake;
		}
		pthread_mutex_unlock(&c->lock);
		atomic_fetch_or(&c->timed[i], due | later);
		for (; due; due &= due - 1)
			run_slot(c, i * 64 + (unsigned)__builtin_ctzll(due));
	}
	return next;
}

/* Do callers poll, more than the few times before they wait for an event? */
static bool is_polled(struct fctx *c)
{
	return atomic_load(&c->polls) - atomic_load(&c->armed_at) > 4;
}

/* A caller that arms a queue is about to sleep: so the thread must take over. */
void nic_armed(struct fctx *c)
{
	bool napping = is_polled(c);

	atomic_store(&c->armed_at, atomic_load(&c->polls));
	if (napping)
		syscall(SYS_futex, &fab_get()->nic[c->nic].bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void *nic_main(void *arg)
{
	struct fctx *c = arg;
	struct fab_nic *n = &fab_get()->nic[c->nic];
	unsigned polls = atomic_load(&c->polls);
	uint32_t bell;

	prctl(PR_SET_NAME, "fake-nic");
	/* The bell first: nic_stop() sets `stop` and then rings, so that one of the two is seen. */
	while (bell = atomic_load(&n->bell), !atomic_load(&c->stop)) {
		uint64_t next, now;

		port_events(c);
		if (drain(c))
			continue;
		atomic_store(&c->wake_ns, UINT64_MAX);	/* a thread that starts a timer now rings */
		next = timers(c);
		atomic_store(&c->wake_ns, next);
		now = now_ns();
		if (next <= now) {
			atomic_store(&c->wake_ns, 0);
			continue;
		}
		if (polls != atomic_load(&c->polls) && is_polled(c)) {
			polls = atomic_load(&c->polls);
			futex_wait(&n->bell, bell, NAP_NS);
			atomic_store(&c->wake_ns, 0);
			continue;
		}
		for (unsigned i = 0; i < SPINS && atomic_load(&n->bell) == bell; i++)
			__asm__ volatile("" ::: "memory");
		atomic_store(&n->asleep, 1);
		futex_wait(&n->bell, bell, next == UINT64_MAX ? -1 : (int64_t)(next - now));
		atomic_store(&n->asleep, 0);
		atomic_store(&c->wake_ns, 0);
	}
	return NULL;
}

int nic_start(struct fctx *c)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&c->thread, NULL, nic_main, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = err;
	return err;
}

void nic_stop(struct fctx *c)
{
	struct fab_nic *n = &fab_get()->nic[c->nic];

	atomic_store(&c->stop, true);
	atomic_fetch_add(&n->bell, 1);
	syscall(SYS_futex, &n->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
	pthread_join(c->thread, NULL);
}
