/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm.c - see cm.h.
 *
 *	connects   resolve address -> resolve route -> connect (nonce) ----------> established
 *	waits                           connect request: whose nonce? -> accept -> established
 *
 * The dialler of the handshake connects, unless only the accepter can (core/setup/reverse.h).
 *
 * One event channel per port serves all its ids.
 *
 * A queue pair is not destroyed between connect or accept and the event that answers this call:
 * drivers would block until the event comes, ten seconds if the peer is silent.
 *
 * rdma_cm chooses port numbers from a range of its own, but soft-iWARP also binds them in TCP,
 * where another socket may use the number already.  Then another number is tried.  With
 * BRAID_PORT_RANGE we choose the numbers, of that range.
 */
#include "verbs/cm.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/ports.h"
#include "verbs/events.h"

enum { BACKLOG = 128, RESOLVE_MS = 2000, PORTS_TRIED = 16 };

static int last_error(void)
{
	return errno ? -errno : -EIO;
}

/* --- ports --------------------------------------------------------------------------------- */

/* Sets the traffic class of the connection's packets, if one is configured. */
static void mark(const struct braid_ibport *p, struct rdma_cm_id *id, uint8_t byte)
{
	static struct braid_log_gate gate;

	if (byte && braid_rdma.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte,
					  sizeof(byte)) &&
	    braid_log_gate_open(&gate, braid_os->now_ns()))
		braid_info("port %s: packets are not of traffic class %u: rdma_set_option: %s",
			   p->name, byte, strerror(errno));
}

static bool is_same(const struct rdma_cm_id *id, const struct braid_ibport *p)
{
	return id->verbs && !strcmp(id->verbs->device->name, p->ctx->device->name) &&
	       id->port_num == p->num;
}

/*
 * Listens at the device's address.  0; -ENODEV: rdma_cm does not find our port at that address; or
 * the errno of listen.
 */
static int try_port(struct braid_ibport *p, const struct braid_dev *dev, uint16_t port)
{
	struct sockaddr_storage sa = { 0 };
	int err = -ENODEV;

	memcpy(&sa, &dev->net.addr, sizeof(dev->net.addr));
	braid_ports_set((struct sockaddr *)&sa, port);
	if (braid_rdma.create_id(p->cm, &p->listen, NULL, RDMA_PS_TCP)) {
		p->listen = NULL;
		return err;
	}
	/* Without a class of its own, the listener answers with the class of the request. */
	mark(p, p->listen, braid_qp_class(-1));
	if (braid_rdma.bind_addr(p->listen, (struct sockaddr *)&sa))
		err = port && errno == EADDRINUSE ? -EADDRINUSE : -ENODEV;
	else if (is_same(p->listen, p))
		err = braid_rdma.listen(p->listen, BACKLOG) ? last_error() : 0;
	if (!err) {
		p->cm_port = ntohs(braid_rdma.get_src_port(p->listen));
		return 0;
	}
	braid_rdma.destroy_id(p->listen);
	p->listen = NULL;
	return err;
}

/* Does rdma_cm find the port at this device's address? */
static bool try_dev(struct braid_ibport *p, const struct braid_dev *dev)
{
	unsigned rounds = braid_ports_given() ? 1 : PORTS_TRIED;
	struct braid_ports walk;
	int err = -EADDRINUSE;
	uint16_t port;

	for (unsigned i = 0; i < rounds && err == -EADDRINUSE; i++) {
		braid_ports_begin(&walk);
		while (err == -EADDRINUSE && braid_ports_next(&walk, &port))
			err = try_port(p, dev, port);
	}
	return !err;
}

struct braid_dev *braid_cm_find(struct braid_ibport *p, struct braid_dev *table, unsigned count,
				const char **why)
{
	static char text[256];

	if (braid_rdma_load(text, sizeof(text))) {
		*why = text;
		return NULL;
	}
	p->cm = braid_rdma.create_event_channel();
	if (!p->cm) {
		*why = "can't have an rdma_cm event channel";
		return NULL;
	}
	braid_os->note(p->cm->fd, true);
	fcntl(p->cm->fd, F_SETFL, fcntl(p->cm->fd, F_GETFL) | O_NONBLOCK);
	for (unsigned i = 0; i < count; i++) {
		if (table[i].port[BRAID_TRANSPORT_VERBS] || !try_dev(p, &table[i]))
			continue;
		p->ctx = p->listen->verbs;
		braid_ibport_adopt(p->ctx);
		return &table[i];
	}
	return NULL;
}

void braid_cm_forget(struct braid_ibport *p)
{
	if (p->listen)
		braid_rdma.destroy_id(p->listen);
	if (p->cm) {
		braid_os->note(p->cm->fd, false);
		braid_rdma.destroy_event_channel(p->cm);
	}
	p->listen = NULL;
	p->cm = NULL;
}

/* --- connections --------------------------------------------------------------------------- */

static void leave(struct braid_qp *w)
{
	struct braid_qp **at = &w->port->setups;

	while (*at && *at != w)
		at = &(*at)->next;
	if (*at)
		*at = w->next;
}

/* If our TCP port was in use, pump() tries another one once it has acknowledged the event. */
static void failed(struct braid_qp *w, int err)
{
	w->cm_err = err;
	w->redial = w->connects && err == -EADDRINUSE &&
		    (braid_ports_given() ? w->walk.left : w->dials < PORTS_TRIED) &&
		   !atomic_load(&w->gone);
	if (!w->redial)
		atomic_store(&w->cm, BRAID_CM_FAILED);
}

static void proceed(struct braid_qp *w, int err)
{
	if (err)
		failed(w, err);
}

static int make_qp(struct braid_qp *w)
{
	int err = braid_qp_create(w);

	return err ? err : braid_qp_post_all(w);
}

static int send_connect(struct braid_qp *w)
{
	struct rdma_conn_param param = {
		.private_data = &w->nonce, .private_data_len = sizeof(w->nonce),
		.responder_resources = w->reads_in, .initiator_depth = w->reads_out,
		.retry_count = 7, .rnr_retry_count = 7,
	};
	int err = make_qp(w);

	if (!err && braid_rdma.connect(w->id, &param))
		err = braid_qp_failed(w, "rdma_connect", last_error());
	w->asked = !err;
	return err;
}

static int send_accept(struct braid_qp *w)
{
	struct rdma_conn_param param = {
		.responder_resources = w->reads_in, .initiator_depth = w->reads_out,
		.rnr_retry_count = 7,
	};
	int err = make_qp(w);

	if (!err && braid_rdma.accept(w->id, &param))
		err = braid_qp_failed(w, "rdma_accept", last_error());
	if (err)
		braid_rdma.reject(w->id, NULL, 0);
	w->asked = !err;
	return err;
}

/* The set-up whose nonce the request carries, or NULL. */
static struct braid_qp *asked_for(struct braid_ibport *p, const struct rdma_cm_event *ev)
{
	uint64_t nonce;

	if (ev->param.conn.private_data_len < sizeof(nonce))
		return NULL;
	memcpy(&nonce, ev->param.conn.private_data, sizeof(nonce));
	for (struct braid_qp *w = p->setups; w; w = w->next) {
		if (!w->connects && !w->id && w->nonce == nonce)
			return w;
	}
	return NULL;
}

/* The call that a failure event answers. */
static const char *event_text(enum rdma_cm_event_type type)
{
	switch (type) {
	case RDMA_CM_EVENT_ADDR_ERROR:
		return "rdma_resolve_addr";
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return "rdma_resolve_route";
	default:
		return "rdma_connect";
	}
}

static void event(struct braid_ibport *p, struct rdma_cm_event *ev, struct rdma_cm_id **ret_stray)
{
	struct braid_qp *w = ev->id->context;

	if (w && ev->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		w->asked = false;
	switch (ev->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		w = asked_for(p, ev);
		if (!w) {
			braid_rdma.reject(ev->id, NULL, 0);
			*ret_stray = ev->id;
			return;
		}
		w->id = ev->id;
		w->id->context = w;
		if (w->has_peer)
			proceed(w, send_accept(w));
		break;
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (braid_rdma.resolve_route(w->id, RESOLVE_MS))
			failed(w, braid_qp_failed(w, "rdma_resolve_route", last_error()));
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		proceed(w, send_connect(w));
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		atomic_store(&w->connected, true);
		atomic_store(&w->cm, BRAID_CM_UP);
		break;
	default:
		if (w)
			failed(w, braid_qp_failed(w, event_text(ev->event), ev->status < 0 ?
						    ev->status : -ECONNREFUSED));
	}
}

/* Runs the rest of the job that braid_cm_leave() had cut short. */
static void end_left(struct braid_qp *w)
{
	atomic_fetch_sub(&w->port->nleft, 1);
	w->asked = false;
	w->end.run(&w->end);
}

static void dial_again(struct braid_qp *w)
{
	int err;

	w->redial = false;
	braid_qp_destroy(w);
	braid_cm_close(w);
	err = braid_cm_connect(w);
	if (err)
		failed(w, err);
}

/* Handles all events.  False: one could not be read. */
static bool pump(struct braid_ibport *p)
{
	struct rdma_cm_event *ev;

	while (!braid_rdma.get_cm_event(p->cm, &ev)) {
		struct rdma_cm_id *stray = NULL;
		struct braid_qp *w = ev->event == RDMA_CM_EVENT_CONNECT_REQUEST ? NULL :
				       ev->id->context;

		event(p, ev, &stray);
		braid_rdma.ack_cm_event(ev);
		if (stray)
			braid_rdma.destroy_id(stray);
		if (w && w->left && !w->asked)
			end_left(w);
		else if (w && w->redial)
			dial_again(w);
	}
	return errno == EAGAIN || errno == EINTR;
}

void braid_cm_accept(struct braid_qp *w)
{
	atomic_store(&w->cm, BRAID_CM_WORKS);
	w->next = w->port->setups;
	w->port->setups = w;
}

void braid_cm_know_peer(struct braid_qp *w)
{
	w->has_peer = true;
	if (w->id)
		proceed(w, send_accept(w));
}

int braid_cm_connect(struct braid_qp *w)
{
	struct sockaddr_storage src = { 0 }, dst = w->to;
	uint16_t port = 0;
	int rc;

	memcpy(&src, &w->dev->net.addr, sizeof(w->dev->net.addr));
	if (!w->dials || !w->walk.left)
		braid_ports_begin(&w->walk);
	braid_ports_set((struct sockaddr *)&dst, w->peer.cm_port);
	if (braid_rdma.create_id(w->port->cm, &w->id, w, RDMA_PS_TCP)) {
		w->id = NULL;
		return braid_qp_failed(w, "rdma_create_id", last_error());
	}
	mark(w->port, w->id, braid_qp_class(w->traffic_class));
	atomic_store(&w->cm, BRAID_CM_WORKS);
	w->dials++;
	w->next = w->port->setups;
	w->port->setups = w;
	do {
		braid_ports_next(&w->walk, &port);
		braid_ports_set((struct sockaddr *)&src, port);
		rc = braid_rdma.resolve_addr(w->id, (struct sockaddr *)&src,
					     (struct sockaddr *)&dst, RESOLVE_MS);
	} while (rc && errno == EADDRINUSE && w->walk.left);
	if (rc)
		return braid_qp_failed(w, "rdma_resolve_addr", last_error());
	return 0;
}

int braid_cm_state(const struct braid_qp *w)
{
	int state = atomic_load(&w->cm);

	return state == BRAID_CM_UP ? 0 : state == BRAID_CM_FAILED ? w->cm_err : -EAGAIN;
}

void braid_cm_close(struct braid_qp *w)
{
	if (atomic_load(&w->cm) == BRAID_CM_NONE)
		return;
	leave(w);
	if (w->id)
		braid_rdma.destroy_id(w->id);
	w->id = NULL;
	atomic_store(&w->cm, BRAID_CM_NONE);
	pump(w->port);			/* rejects a connection request that has come for `w` */
}

/* Tries twice: the first failure may be a lack of memory. */
static bool pump_twice(struct braid_ibport *p)
{
	return pump(p) || pump(p);
}

bool braid_cm_leave(struct braid_qp *w)
{
	if (atomic_load(&w->cm) == BRAID_CM_NONE || !w->asked)
		return false;
	w->left = pump_twice(w->port) && w->asked;	/* pump_twice() may have read the answer */
	if (w->left)
		atomic_fetch_add(&w->port->nleft, 1);
	return w->left;
}

static struct braid_qp *find_left(const struct braid_ibport *p)
{
	struct braid_qp *w = p->setups;

	while (w && !w->left)
		w = w->next;
	return w;
}

static void pump_run(struct braid_job *job)
{
	struct braid_ibport *p = braid_container(job, struct braid_ibport, pump);
	struct braid_qp *w;

	atomic_store(&p->pumping, false);
	while (!pump_twice(p) && (w = find_left(p)))	/* no event comes: destroy it, blocking */
		end_left(w);
}

static bool has_event(const struct braid_ibport *p)
{
	struct pollfd fd = { .fd = p->cm->fd, .events = POLLIN };

	return poll(&fd, 1, 0) != 0;
}

/* A job in vain would be followed by another: its end wakes the thread that calls this. */
bool braid_cm_events(struct braid_ibport *p, struct braid_dev *dev)
{
	if (has_event(p) && !atomic_exchange(&p->pumping, true)) {
		p->pump = (struct braid_job){
			.what = "to answer connections", .run = pump_run,
		};
		braid_later(dev, BRAID_MAKE, &p->pump);
	}
	return atomic_load(&p->nleft) || braid_later_busy(dev, BRAID_MAKE);
}
