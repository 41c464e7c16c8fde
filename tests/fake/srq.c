/* SPDX-License-Identifier: BSD-3-Clause */
/* srq.c - shared receive queues: making them, posting to them, taking from them. */
#include "tests/fake/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct fctx *c = to_ctx(pd->context);
	uint32_t n = init->attr.max_wr, sge = init->attr.max_sge;
	struct fsrq *s;

	call_takes(pd->context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(pd->context))
		return NULL;
	errno = c->dev->has_srq ? EINVAL : EOPNOTSUPP;
	if (!c->dev->has_srq || !n || n > c->dev->max.max_wr || sge > c->dev->max.max_sge)
		return NULL;
	errno = ENOMEM;
	if (atomic_fetch_add(&c->dev->srqs, 1) >= c->dev->max.max_srq)
		goto full;
	s = calloc(1, sizeof(*s));
	if (!s)
		goto full;
	s->ring = calloc(n, sizeof(*s->ring));
	if (s->ring)
		s->ring[0].sge = calloc((size_t)n * sge + 1, sizeof(struct ibv_sge));
	if (!s->ring || !s->ring[0].sge) {
		free(s->ring);
		free(s);
		goto full;
	}
	for (uint32_t i = 1; i < n; i++)
		s->ring[i].sge = s->ring[0].sge + (size_t)i * sge;
	s->size = n;
	s->max_sge = sge;
	s->ibv.context = pd->context;
	s->ibv.srq_context = init->srq_context;
	s->ibv.pd = pd;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->ibv.mutex, NULL);
	pthread_cond_init(&s->ibv.cond, NULL);
	atomic_fetch_add(&TO(fpd, pd)->users, 1);
	atomic_fetch_add(&live_srq, 1);
	return &s->ibv;
full:
	atomic_fetch_sub(&c->dev->srqs, 1);
	errno = ENOMEM;
	return NULL;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *ibv)
{
	struct fsrq *s = TO(fsrq, ibv);
	struct fctx *c = to_ctx(ibv->context);

	call_takes(ibv->context, __func__);
	if (!c->dead) {
		if (atomic_load(&s->users))
			return EBUSY;
		ctx_events_drop(c, s);
		ctx_events_wait(c, &s->async_events, &ibv->events_completed);
	}
	atomic_fetch_sub(&live_posted, (int)(s->tail - s->head));
	atomic_fetch_sub(&TO(fpd, ibv->pd)->users, 1);
	atomic_fetch_sub(&c->dev->srqs, 1);
	free(s->ring[0].sge);
	free(s->ring);
	free(s);
	atomic_fetch_sub(&live_srq, 1);
	return 0;
}

EXPORT int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct fsrq *s = TO(fsrq, ibv);

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(ibv->context))
		return errno;
	if (mask & IBV_SRQ_MAX_WR)
		return EOPNOTSUPP;
	if (!(mask & IBV_SRQ_LIMIT) || attr->srq_limit > s->size)
		return EINVAL;
	pthread_mutex_lock(&s->lock);
	s->limit = attr->srq_limit;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

EXPORT int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct fsrq *s = TO(fsrq, ibv);

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(ibv->context))
		return errno;
	pthread_mutex_lock(&s->lock);
	*attr = (struct ibv_srq_attr){ s->size, s->max_sge, s->limit };
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* False: empty.  Copies the scatter list to ret->sge, since slots are not freed in order. */
bool srq_take(struct fsrq *s, struct rwqe *ret)
{
	bool got, low = false;

	pthread_mutex_lock(&s->lock);
	got = s->head != s->tail;
	if (got) {
		struct rwqe *w = &s->ring[s->head++ % s->size];

		ret->wr_id = w->wr_id;
		ret->num_sge = w->num_sge;
		memcpy(ret->sge, w->sge, (size_t)w->num_sge * sizeof(*w->sge));
		low = s->limit && s->tail - s->head < s->limit;
		if (low)
			s->limit = 0;
		atomic_fetch_sub(&live_posted, 1);
	}
	pthread_mutex_unlock(&s->lock);
	if (low)
		ctx_event(to_ctx(s->ibv.context), IBV_EVENT_SRQ_LIMIT_REACHED, s, 0);
	return got;
}

int post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fsrq *s = TO(fsrq, ibv);
	int err = 0;

	*bad = wr;
	if (call_fails(CALL_POST, "ibv_post_srq_recv") || ctx_is_dead(ibv->context))
		return errno;
	pthread_mutex_lock(&s->lock);
	for (; wr; wr = wr->next) {
		*bad = wr;
		if (atomic_load(&s->broken))
			err = EIO;
		else if (atomic_load(&s->held) >= s->size)
			err = ENOMEM;
		else
			err = recv_take(&s->ring[s->tail % s->size], wr, s->max_sge);
		if (err)
			break;
		s->tail++;
		atomic_fetch_add(&s->held, 1);
		atomic_fetch_add(&live_posted, 1);
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}
