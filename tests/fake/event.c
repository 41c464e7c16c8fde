/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * event.c - asynchronous events of an opened device, and libibverbs' names of codes.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ctx_event(struct fctx *c, enum ibv_event_type type, void *element, int port)
{
	struct fevent *e = calloc(1, sizeof(*e));
	uint64_t one = 1;

	if (!e)
		return;
	e->event.event_type = type;
	if (element)
		e->event.element.qp = element;
	else
		e->event.element.port_num = port;
	pthread_mutex_lock(&c->ev_lock);
	*c->ev_last = e;
	c->ev_last = &e->next;
	if (write(c->vctx.context.async_fd, &one, sizeof(one)) < 0)
		perror("fake libibverbs: eventfd");
	pthread_mutex_unlock(&c->ev_lock);
}

/* Drops the events of an object that is destroyed, as far as the user has not taken them. */
void ctx_events_drop(struct fctx *c, void *element)
{
	pthread_mutex_lock(&c->ev_lock);
	for (struct fevent **p = &c->ev_first; *p;) {
		struct fevent *e = *p;
		uint64_t one;

		if ((void *)e->event.element.qp != element) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		free(e);
		if (read(c->vctx.context.async_fd, &one, sizeof(one)) < 0)
			perror("fake libibverbs: eventfd");
	}
	for (c->ev_last = &c->ev_first; *c->ev_last; c->ev_last = &(*c->ev_last)->next)
		;
	pthread_mutex_unlock(&c->ev_lock);
}

/* Waits until the user has acknowledged all events taken of an object, as libibverbs does. */
void ctx_events_wait(struct fctx *c, const unsigned *given, const uint32_t *acked)
{
	pthread_mutex_lock(&c->ev_lock);
	while (*given != *acked) {
		struct timespec ts;

		clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_sec += 5;
		if (pthread_cond_timedwait(&c->ev_acked, &c->ev_lock, &ts) == ETIMEDOUT)
			fprintf(stderr, "fake libibverbs: waiting for events to be acknowledged\n");
	}
	pthread_mutex_unlock(&c->ev_lock);
}

static bool is_cq_event(enum ibv_event_type type)
{
	return type == IBV_EVENT_CQ_ERR;
}

static bool is_srq_event(enum ibv_event_type type)
{
	return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}

static bool is_port_event(enum ibv_event_type type)
{
	return type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_PORT_ERR ||
	       type == IBV_EVENT_GID_CHANGE || type == IBV_EVENT_LID_CHANGE;
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct fctx *c = to_ctx(context);
	struct fevent *e;
	uint64_t one;

	do {
		if (read(context->async_fd, &one, sizeof(one)) < 0)
			return -1;
		pthread_mutex_lock(&c->ev_lock);
		e = c->ev_first;
		if (e) {
			c->ev_first = e->next;
			if (!e->next)
				c->ev_last = &c->ev_first;
			if (is_cq_event(e->event.event_type))
				TO(fcq, e->event.element.cq)->async_events++;
			else if (is_srq_event(e->event.event_type))
				TO(fsrq, e->event.element.srq)->async_events++;
			else if (!is_port_event(e->event.event_type))
				TO(fqp, e->event.element.qp)->async_events++;
		}
		pthread_mutex_unlock(&c->ev_lock);
	} while (!e);
	*event = e->event;
	free(e);
	return 0;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct fctx *c;

	if (is_port_event(event->event_type))
		return;
	c = to_ctx(is_cq_event(event->event_type) ? event->element.cq->context :
		   is_srq_event(event->event_type) ? event->element.srq->context :
						     event->element.qp->context);
	pthread_mutex_lock(&c->ev_lock);
	if (is_cq_event(event->event_type))
		event->element.cq->async_events_completed++;
	else if (is_srq_event(event->event_type))
		event->element.srq->events_completed++;
	else
		event->element.qp->events_completed++;
	pthread_cond_broadcast(&c->ev_acked);
	pthread_mutex_unlock(&c->ev_lock);
}

/* --- words ---------------------------------------------------------------------------------------- */

#define NAMED(table, i) \
	((unsigned)(i) < sizeof(table) / sizeof((table)[0]) && (table)[i] ? (table)[i] : "unknown")

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const names[] = {
		"success", "local length error", "local QP operation error", "local EE context operation error",
		"local protection error", "Work Request Flushed Error", "memory management operation error",
		"bad response error", "local access error", "remote invalid request error",
		"remote access error", "remote operation error", "transport retry counter exceeded",
		"RNR retry counter exceeded", "local RDD violation error", "remote invalid RD request",
		"aborted error", "invalid EE context number", "invalid EE context state", "fatal error",
		"response timeout error", "general error", "TM error", "TM software rendezvous",
	};

	return NAMED(names, status);
}

EXPORT const char *ibv_event_type_str(enum ibv_event_type event)
{
	static const char *const names[] = {
		"CQ error", "local work queue catastrophic error", "invalid request local work queue error",
		"local access violation work queue error", "communication established",
		"send queue drained", "path migrated", "path migration request error",
		"local catastrophic error", "port active", "port error", "LID change", "P_Key change",
		"SM change", "SRQ catastrophic error", "SRQ limit reached", "last WQE reached",
		"client reregistration", "GID table change", "WQ fatal",
	};

	return NAMED(names, event);
}

EXPORT const char *ibv_port_state_str(enum ibv_port_state state)
{
	static const char *const names[] = {
		"no state change (NOP)", "down", "init", "armed", "active", "active defer",
	};

	return NAMED(names, state);
}

EXPORT const char *ibv_node_type_str(enum ibv_node_type type)
{
	static const char *const names[] = {
		NULL, "InfiniBand channel adapter", "InfiniBand switch", "InfiniBand router", "iWARP NIC",
	};

	return NAMED(names, type);
}
