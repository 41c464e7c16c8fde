/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fail.c - how a comm fails, and what is logged of it.
 *
 * Only the first failure counts.  If this end fails the comm, a FAIL frame names the reason to the
 * peer.  If the peer ended the comm, an INFO line says so at once.  A WARN follows only when test()
 * returns the error: a peer that aborts closes every comm of a link, and NCCL may need none.
 * Each of these lines is written once per link for all comms that end at about the same time.
 */
#include "core/msg/comm.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/msg/msg_int.h"

void braid_comm_fail(struct braid_comm *c, int err)
{
	int none = 0;

	braid_assert_locked(&c->link->lock);
	assert(err < 0);
	if (!atomic_compare_exchange_strong(&c->err, &none, err))
		return;
	braid_event(BRAID_EVENT_COMM_FAIL, c->link->number, BRAID_FLIGHT_NONE, c->id, err);
	if (c->kind)
		c->kind->failed(c, err);
}

static void send_fail(struct braid_comm *c, uint16_t code, uint64_t size, uint64_t room)
{
	c->fail_due = true;
	c->fail_code = code;
	c->fail_size = size;
	c->fail_room = room;
	braid_comm_control_due(c);
	braid_link_urge(c->link);
}

/* A message does not fit its receive: both ends log both sizes. */
BRAID_APART void braid_comm_oversize(struct braid_comm *c, uint64_t size, uint64_t room,
				    int32_t tag)
{
	braid_assert_locked(&c->link->lock);
	if (atomic_load(&c->err))
		return;
	braid_warn("device %s, peer %s: a message of %llu bytes (tag %d) was sent to a receive "
		   "posted "
		   "with %llu bytes; nothing was delivered. Make both ranks use the same size "
		   "[size-mismatch]",
		   c->link->key.dev->net.name, c->link->peer, (unsigned long long)size, tag,
		   (unsigned long long)room);
	braid_comm_fail(c, -EMSGSIZE);	/* after the WARN, which explains err */
	send_fail(c, EMSGSIZE, size, room);
}

/* Log that the peer ended the comm, and why (c->why). */
static void log_end(const struct braid_comm *c, enum braid_log_level level)
{
	const struct braid_link *link = c->link;
	const char *what = c->sender ? "send" : "receive";

	if (c->why == BRAID_WHY_CLOSED)
		braid_log(level, __FILE__, __LINE__,
			  "device %s, peer %s: the peer closed this connection while a %s was "
			  "waiting for it: usually its rank called ncclCommAbort, or takes part "
			  "in fewer operations than this one [peer-closed]",
			  link->key.dev->net.name, link->peer, what);
	else
		braid_log(level, __FILE__, __LINE__,
			  "device %s, peer %s: the peer gave up this connection with a %s "
			  "unfinished: usually its rank called ncclCommAbort; if it had an error, "
			  "its log has a warning before that [peer-gave-up]",
			  link->key.dev->net.name, link->peer, what);
}

/* The peer ended the comm.  braid_comm_report() writes the WARN, if NCCL gets the error. */
BRAID_APART void braid_comm_ended(struct braid_comm *c, enum braid_why why)
{
	braid_assert_locked(&c->link->lock);
	if (atomic_load(&c->err) || c->closed)
		return;
	c->why = why;
	if (braid_log_gate_open(&c->link->msg.ended, braid_os->now_ns()))
		log_end(c, BRAID_LOG_INFO);
	braid_comm_fail(c, -EREMOTEIO);
}

BRAID_APART void braid_comm_orphaned(struct braid_comm *c)
{
	braid_assert_locked(&c->link->lock);
	braid_comm_ended(c, BRAID_WHY_CLOSED);
}

/* Return the comm's error to NCCL; log the reason first. */
BRAID_APART int braid_comm_report(struct braid_comm *c, int err)
{
	if (!c->reported && c->why &&
	    braid_log_gate_open(&c->link->msg.reported, braid_os->now_ns()))
		log_end(c, BRAID_LOG_WARN);
	c->reported = true;
	return err;
}

/* This end gives up a comm whose requests are not finished; `how`: by which call. */
BRAID_APART void braid_comm_give_up(struct braid_comm *c, const char *how)
{
	braid_assert_locked(&c->link->lock);
	if (braid_log_gate_open(&c->link->msg.given_up, braid_os->now_ns()))
		braid_info("device %s, peer %s: %s with a %s unfinished, as ncclCommAbort does: "
			   "the peer is told that this end gave it up",
			   c->link->key.dev->net.name, c->link->peer, how,
			   c->sender ? "send" : "receive");
	send_fail(c, ECANCELED, 0, 0);
}

/* Neither NIC nor driver could copy GPU memory; `copy` NULL: no host memory to copy through. */
void braid_comm_no_gpu(struct braid_comm *c, const struct braid_gpucopy *copy)
{
	const char *call = copy && copy->of->stage_why ? copy->of->stage_why : "";

	braid_assert_locked(&c->link->lock);
	if (atomic_load(&c->err) || c->closed)
		return;
	if (copy)
		braid_warn("device %s, peer %s: %s memory of a GPU, which had to go through the "
			   "CPU, could not be copied by the NIC (%s), nor by the driver (%s%s%s); "
			   "docs/user/gpu.md says when that is [gpu-copy-failed]",
			   c->link->key.dev->net.name, c->link->peer,
			   c->sender ? "a message from" : "a message to",
			   copy->nic_err ? strerror(-copy->nic_err) : "not asked",
			   call, *call ? ": " : "", strerror(-copy->stage_err));
	else
		braid_no_memory("a message from memory of a GPU");
	braid_comm_fail(c, -EIO);
	send_fail(c, ECANCELED, 0, 0);
}

void braid_send_no_gpu(struct braid_xfer *x, const struct braid_gpucopy *copy)
{
	braid_comm_no_gpu(braid_container(x, struct braid_send, x)->req.comm, copy);
}
