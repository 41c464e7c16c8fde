/* SPDX-License-Identifier: BSD-3-Clause */
/* events.c - see events.h. */
#include "verbs/events.h"

#include <fcntl.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "verbs/qp.h"

static struct braid_ibport *ports;
static struct braid_log_gate gate_event;

void braid_ibport_adopt(const struct ibv_context *ctx)
{
	braid_os->note(ctx->cmd_fd, true);
	braid_os->note(ctx->async_fd, true);
	fcntl(ctx->async_fd, F_SETFL, fcntl(ctx->async_fd, F_GETFL) | O_NONBLOCK);
}

void braid_ibport_watch(struct braid_ibport *p)
{
	p->next = ports;
	ports = p;
}

bool braid_ibport_any(void)
{
	return ports;
}

/*
 * A queue pair that fails flushes its own receives, each as a failed completion.  With a shared
 * receive queue this event is the only sign.  `qp` is valid until the event is acknowledged.
 */
static void qp_ended(const struct ibv_qp *qp, bool last_wqe)
{
	struct braid_qp *w = qp->srq ? qp->qp_context : NULL;

	if (!w)
		return;
	atomic_store(&w->broken, true);
	if (!last_wqe)
		return;
	atomic_store(&w->last_wqe, true);
	atomic_store(&w->port->no_last_wqe, false);
}

/* The queue pair's completions are reported no more. */
static void cq_ended(const struct ibv_cq *cq)
{
	struct braid_qp *w = cq->cq_context;

	if (!w)
		return;
	atomic_store(&w->lost, true);
	atomic_store(&w->broken, true);
}

static bool event_is_for_port(const struct braid_ibport *p, const struct ibv_async_event *ev)
{
	return ev->event_type == IBV_EVENT_DEVICE_FATAL || ev->event_type == IBV_EVENT_SRQ_ERR ||
	       ev->element.port_num == p->num;
}

static void port_event(struct braid_ibport *p, const struct ibv_async_event *ev)
{
	if (!event_is_for_port(p, ev))
		return;
	switch (ev->event_type) {
	case IBV_EVENT_PORT_ERR:
		atomic_store(&p->down, true);
		break;
	case IBV_EVENT_PORT_ACTIVE:
		atomic_store(&p->down, false);
		break;
	case IBV_EVENT_LID_CHANGE:
		atomic_fetch_add(&p->moves, 1);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		atomic_store(&p->down, true);
		break;
	case IBV_EVENT_SRQ_ERR:
		atomic_store(&p->srq_broke, ev->element.srq);
		break;
	default:
		return;
	}
	if (braid_log_gate_open(&gate_event, braid_os->now_ns()))
		braid_info("port %s: %s", p->name, braid_ibv.event_type_str(ev->event_type));
}

void braid_ibport_events(struct braid_ibport *p)
{
	struct ibv_async_event ev;

	while (!braid_ibv.get_async_event(p->ctx, &ev)) {
		switch (ev.event_type) {
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
		case IBV_EVENT_QP_LAST_WQE_REACHED:
			qp_ended(ev.element.qp, ev.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
			break;
		case IBV_EVENT_CQ_ERR:
			cq_ended(ev.element.cq);
			break;
		default:
			for (struct braid_ibport *q = ports; q; q = q->next) {
				if (q->ctx == p->ctx)
					port_event(q, &ev);
			}
		}
		braid_ibv.ack_async_event(&ev);
	}
}

bool braid_ibport_usable(const struct braid_dev *dev)
{
	struct braid_ibport *p = braid_ibport_of(dev);

	if (!p)
		return false;
	braid_ibport_events(p);
	return !atomic_load(&p->down);
}
