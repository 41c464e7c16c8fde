/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rx.c - receiving: a frame begins, its payload comes, it ends.
 *
 * Frames about lanes are handled here; those of comms go to the message layer.
 */
#include "core/link/control.h"
#include "core/link/lane_io.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/copy.h"
#include "core/base/crc32c.h"
#include "core/base/flight.h"
#include "core/link/link_int.h"
#include "core/link/upcalls.h"

static int rx_ack(struct braid_link *link, const struct braid_hdr *h)
{
	if (h->n >= link->nlanes)
		return -EBADMSG;
	return braid_tx_acked(link->lane[h->n], h->seq);
}

static int rx_down(struct braid_link *link, const struct braid_hdr *h)
{
	bool writes = h->tag == BRAID_DOWN_WRITES;
	struct braid_lane *lane;

	if (h->n >= link->lanes_max)
		return -EBADMSG;
	if (h->n >= link->nlanes) {		/* lost there before its handshake ended here */
		if (link->dialler && link->lanes.peer <= h->n)
			link->lanes.peer = h->n + 1u;
		braid_link_wake(link);
		return 0;
	}
	lane = link->lane[h->n];
	if ((uint16_t)(writes ? ~h->rseq : h->rseq) != (uint16_t)lane->epoch)
		return 0;			/* the lane has been dialled again since */
	if (lane->loss.peer_down && writes)
		return 0;			/* late: the plain DOWN overtook it */
	if (!lane->loss.peer_down)
		lane->loss.avoid_path = braid_lane_up(lane);
	braid_lane_lost(lane, -ECONNRESET);
	lane->loss.peer_down = true;
	lane->loss.peer_writes = writes;
	lane->loss.peer_frames = h->seq;
	braid_lane_orphan(lane);
	return 0;
}

/* The peer has used its key for a lane for long, or the lane's path is slow; it can't dial. */
static int rx_renew(struct braid_link *link, const struct braid_hdr *h)
{
	if (!link->dialler || h->n >= link->nlanes)
		return -EBADMSG;
	if (h->rseq != link->lane[h->n]->epoch)
		return 0;			/* the lane has been dialled again since */
	if (h->tag == BRAID_RENEW_SLOW)
		atomic_store(&link->lane[h->n]->loss.slow, true);
	else
		atomic_store(&link->lane[h->n]->loss.old_key, true);
	braid_link_wake(link);
	return 0;
}

/* The end that does not dial wants more lanes, or the end that dials can't reach us. */
static int rx_lanes(struct braid_link *link, const struct braid_hdr *h)
{
	bool call = h->tag == BRAID_LANES_CALL && !link->dialler;

	if (call ? h->n >= link->lanes_max : !h->n || h->n > link->lanes_max || !link->dialler)
		return -EBADMSG;
	if (call)
		link->lanes.call = h->n + 1u;
	else
		link->lanes.want = h->n;
	braid_link_wake(link);
	return 0;
}

static BRAID_APART int rx_link_frame(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_link *link = lane->link;

	switch (h->type) {
	case BRAID_F_ACK:
		return rx_ack(link, h);
	case BRAID_F_OPEN:
		lane->rx_kind = BRAID_RX_CTL;
		lane->rx_dst = (char *)lane->rx_ctl;
		return 0;
	case BRAID_F_LANES:
		return rx_lanes(link, h);
	case BRAID_F_DOWN:
		return rx_down(link, h);
	case BRAID_F_RENEW:
		return rx_renew(link, h);
	case BRAID_F_ALIVE:
		link->rx.peer_rest_s = h->n < BRAID_ALIVE_REST_S ? h->n : BRAID_ALIVE_REST_S;
		if (h->tag != BRAID_ALIVE_CPU)
			return 0;
		link->rx.peer_used_ms = h->seq;
		link->rx.peer_queued_ms = h->rseq;
		link->rx.peer_announced++;
		return 0;
	case BRAID_F_CLOSE:
	default:
		braid_event(BRAID_EVENT_PEER_CLOSED, link->number, BRAID_FLIGHT_NONE, 0, 0);
		link->rx.peer_gone = true;
		return 0;
	}
}

int braid_rx_stage(struct braid_lane *lane)
{
	braid_assert_locked(&lane->link->lock);
	if (!braid_rx_rest(lane).gpu || !lane->rx_left)
		return 0;
	lane->rx_stage = malloc(lane->rx_left);
	if (!lane->rx_stage)
		return -ENOMEM;
	lane->rx_gpu = lane->rx_dst;
	lane->rx_dst = lane->rx_stage;
	return 0;
}

struct braid_rx_rest braid_rx_ahead(const struct braid_lane *lane, const char *p, size_t n)
{
	struct braid_rx_rest rest = { 0 };
	struct braid_hdr h;

	braid_assert_locked(&lane->link->lock);
	/* A sealed header can't be checked before its turn, so it says no place ahead. */
	if (lane->link->checksums || !braid_frames_lack(p, n, &h))
		return rest;
	rest.len = h.len;
	rest.comm = h.comm;
	rest.dst = braid_comm_rx_place(lane, &h, &rest.gpu);
	return rest;
}

/* The resent message that was half received when its lane was lost: same destination. */
static BRAID_APART int rx_begin_again(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;
	const struct braid_hdr *h = &lane->rx_hdr, *was = &link->rx.again.hdr;

	if (h->comm != was->comm || h->seq != was->seq || h->rseq != was->rseq ||
	    h->tag != was->tag || h->len != was->len || h->flags != was->flags)
		return -EBADMSG;
	lane->rx_kind = link->rx.again.kind;
	lane->rx_target = link->rx.again.target;
	lane->rx_dst = lane->rx_kind == BRAID_RX_DRAIN ? NULL : link->rx.again.dst;
	link->rx.again.kind = BRAID_RX_NONE;
	lane->rx_mr = link->rx.again.mr;
	return lane->gpu ? 0 : braid_rx_stage(lane);
}

#define OF(TYPE) (1u << BRAID_F_##TYPE)

enum {
	LINKS = OF(ACK) | OF(OPEN) | OF(LANES) | OF(CLOSE) | OF(DOWN) | OF(ALIVE) |
		OF(RENEW),
	ROAMING = OF(CHUNK) | OF(VOID) | OF(DOWN),	/* all other types are sent at home only */
};

static bool is_one_of(unsigned type, unsigned types)
{
	return types >> type & 1;
}

/* The frame in lane->rx_hdr begins: decide where its payload goes. */
static int rx_frame(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_link *link = lane->link;

	lane->rx_kind = BRAID_RX_DRAIN;
	lane->rx_target = NULL;
	lane->rx_dst = NULL;
	lane->rx_left = braid_hdr_follows(h);
	if (atomic_load_explicit(&link->rx.home, memory_order_relaxed) != lane->index &&
	    !is_one_of(h->type, ROAMING))
		atomic_store(&link->rx.home, lane->index);
	if (is_one_of(h->type, LINKS))
		return rx_link_frame(lane);
	if (link->rx.again.kind && h->type == BRAID_F_EAGER)
		return rx_begin_again(lane);
	if (link->rx.again.kind && h->type == BRAID_F_VOID && h->comm == link->rx.again.hdr.comm &&
	    h->seq == link->rx.again.hdr.seq)
		link->rx.again.kind = BRAID_RX_NONE;
	return braid_comm_rx_begin(lane);
}

static void rx_count(struct braid_lane *lane, unsigned type, size_t len)
{
	lane->rx_frames++;
	lane->rx_quiet += BRAID_HDR_SIZE + len;
	if (type != BRAID_F_ACK)
		lane->rx_some = true;
	/* The sender waits for payload that it did not copy, and at some point for room. */
	if (type == BRAID_F_CHUNK || len > BRAID_COPY_MAX ||
	    lane->rx_frames - lane->rx_acked >= lane->ack_frames ||
	    lane->rx_quiet >= BRAID_ACK_BYTES) {
		lane->rx_ack_due = true;
		braid_link_urge(lane->link);
	}
}

static int rx_end(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	int err = 0;

	if (lane->rx_kind == BRAID_RX_CTL && h->type == BRAID_F_OPEN)
		err = braid_open_came(lane);
	else if (lane->rx_kind != BRAID_RX_DRAIN)
		err = braid_comm_rx_end(lane);
	if (err == -EAGAIN)
		return err;
	lane->rx_kind = BRAID_RX_NONE;
	rx_count(lane, h->type, h->len);
	return err;
}

int braid_rx_broken(struct braid_lane *lane, const char *what, int err)
{
	if (err == -EBADMSG || err == -EPROTO)
		lane->rx_broken = what;
	return err;
}

static int of_frame(struct braid_lane *lane, int err)
{
	return err ? braid_rx_broken(lane, braid_frame_name(lane->rx_hdr.type), err) : 0;
}

/* --- checksums ----------------------------------------------------------------------------- */

void braid_rx_sum(struct braid_lane *lane, const char *p, size_t n)
{
	if (p && !braid_rx_rest(lane).gpu)
		lane->rx_crc = braid_crc32c(lane->rx_crc, p, n);
	else
		lane->rx_checks = false;
}

/* A sealed header. */
static BRAID_APART int rx_open(struct braid_lane *lane, const char *p)
{
	struct braid_hdr *h = &lane->rx_hdr;
	int err = braid_hdr_open(p, lane->rx_frames, h, &lane->rx_sum);

	if (err)
		return err;
	lane->rx_checks = h->len && !(h->flags & BRAID_FLAG_UNSUMMED);
	lane->rx_crc = 0;
	h->flags &= (uint8_t)~BRAID_FLAG_UNSUMMED;
	return 0;
}

/* If the payload is here whole, check it before the frame begins. */
static BRAID_APART int rx_check_whole(struct braid_lane *lane, const char *p, size_t n)
{
	const struct braid_hdr *h = &lane->rx_hdr;

	if (h->flags & BRAID_FLAG_PLACED || n < h->len)
		return 0;
	if (braid_crc32c(0, p, h->len) != lane->rx_sum)
		return -EILSEQ;
	lane->rx_checks = false;
	return 0;
}

/* The frame is complete.  What a NIC wrote is read here, unless it is memory of a GPU. */
static BRAID_APART int rx_check(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;

	if (h->flags & BRAID_FLAG_PLACED) {
		if (lane->rx_kind == BRAID_RX_DRAIN || braid_rx_rest(lane).gpu)
			return 0;
		lane->rx_crc = braid_crc32c(0, lane->rx_dst, h->len);
	}
	if (lane->rx_crc != lane->rx_sum)
		return -EILSEQ;
	lane->rx_checks = false;	/* rx_end() may be called again */
	return 0;
}

/* A header came: check it, and take its acknowledgement. */
static int rx_header(struct braid_lane *lane, const char *p)
{
	struct braid_hdr *h = &lane->rx_hdr;
	int err = lane->link->checksums ? rx_open(lane, p) : braid_hdr_unpack(p, h);

	if (err)
		return err;
	if (h->type == BRAID_F_CHUNK || h->type == BRAID_F_EAGER)
		lane->rx_large = h->len > BRAID_COPY_MAX;
	else if (h->type == BRAID_F_START)
		lane->rx_large = true;
	if (h->lseq != lane->rx_frames || (h->flags & BRAID_FLAG_PLACED && !lane->tr->dma))
		return -EBADMSG;
	return braid_tx_acked(lane, h->ack);
}

/* Can a message that is here whole go to its receive at once?  Not if the lane becomes home. */
static bool may_be_fast(const struct braid_lane *lane)
{
	const struct braid_link *link = lane->link;

	return !link->rx.again.kind &&
	       atomic_load_explicit(&link->rx.home, memory_order_relaxed) == lane->index;
}

/* The fast path of a small message that is here whole.  False: take the other path. */
static bool rx_whole(struct braid_lane *lane, const char *payload, size_t n)
{
	const struct braid_hdr *h = &lane->rx_hdr;

	if (h->type != BRAID_F_EAGER || n < h->len || !may_be_fast(lane) ||
	    !braid_comm_rx_fast(lane, payload))
		return false;
	rx_count(lane, BRAID_F_EAGER, h->len);
	return true;
}

/* A part of the present frame's payload came. */
static int rx_payload(struct braid_lane *lane, const char *p, size_t n)
{
	int err = lane->gpu ? braid_rx_stage(lane) : 0;

	if (err)
		return err;
	if (lane->rx_checks)
		lane->rx_crc = braid_crc32c(lane->rx_crc, p, n);
	if (lane->rx_dst) {
		braid_copy_up(lane->rx_dst, p, n);
		lane->rx_dst += n;
	}
	lane->rx_left -= n;
	return 0;
}

/* The receive loop. */
int braid_rx_bytes(struct braid_lane *lane, const char *p, size_t n, size_t *ret_done)
{
	size_t at = 0, len;
	int err = 0;

	braid_assert_locked(&lane->link->lock);
	do {
		if (lane->rx_kind == BRAID_RX_NONE) {
			if (n - at < BRAID_HDR_SIZE)
				break;
			err = rx_header(lane, p + at);
			at += BRAID_HDR_SIZE;
			if (!err && lane->rx_checks)
				err = rx_check_whole(lane, p + at, n - at);
			if (!err && rx_whole(lane, p + at, n - at)) {
				at += lane->rx_hdr.len;
				continue;
			}
			err = of_frame(lane, err ? err : rx_frame(lane));
			if (err)
				break;
		}
		len = n - at < lane->rx_left ? n - at : lane->rx_left;
		if (len) {
			err = rx_payload(lane, p + at, len);
			at += len;
		}
		if (err || lane->rx_left || (lane->rx_checks && (err = rx_check(lane))))
			break;
		err = of_frame(lane, rx_end(lane));
	} while (!err);
	braid_count(&lane->rx_bytes, at);
	*ret_done = at;
	return err;
}

/* Receive a message of whole frames, or a part of one. */
static BRAID_APART int rx_frames(struct braid_lane *lane, const char *p, size_t n)
{
	size_t done;
	int err = braid_rx_bytes(lane, p + lane->rx_at, n - lane->rx_at, &done);

	done += lane->rx_at;
	lane->rx_at = err == -EAGAIN ? done : 0;
	return err || done == n ? err : braid_rx_broken(lane, "a piece of a header", -EBADMSG);
}

/* Make the header of a payload that came without one, at p + at, and receive it as usual. */
static BRAID_APART int rx_nohdr_slow(struct braid_lane *lane, uint32_t imm, const char *p, size_t n,
				     size_t at)
{
	size_t len = n - at;
	int err;

	lane->rx_hdr = (struct braid_hdr){
		.type = BRAID_F_EAGER, .comm = imm >> 16, .len = (uint32_t)len, .size = len,
	};
	braid_comm_rx_nohdr(lane, (uint16_t)imm);
	err = of_frame(lane, len ? rx_frame(lane) : -EBADMSG);
	if (err)
		return err;
	lane->rx_at = at;
	return rx_frames(lane, p, n);
}

static int rx_nohdr(struct braid_lane *lane, uint32_t imm, const char *p, size_t n, size_t at)
{
	if (n == at || !may_be_fast(lane) ||
	    !braid_comm_rx_nohdr_fast(lane->link, imm, p + at, n - at))
		return rx_nohdr_slow(lane, imm, p, n, at);
	rx_count(lane, BRAID_F_EAGER, n - at);
	braid_count(&lane->rx_bytes, n);
	return 0;
}

int braid_rx_message(struct braid_lane *lane, const char *p, size_t n)
{
	uint32_t imm;

	braid_assert_locked(&lane->link->lock);
	return lane->rx_kind == BRAID_RX_NONE && !lane->link->checksums &&
	       braid_short_unpack(p, n, &imm) ?
		       rx_nohdr(lane, imm, p, n, BRAID_SHORT_SIZE) : rx_frames(lane, p, n);
}

int braid_rx_placed(struct braid_lane *lane, size_t n)
{
	size_t none;

	braid_assert_locked(&lane->link->lock);
	if (lane->rx_left && n != lane->rx_left)
		return braid_rx_broken(lane, "payload", -EBADMSG);
	braid_rx_filled(lane, lane->rx_dst, lane->rx_left);
	return braid_rx_bytes(lane, NULL, 0, &none);
}

/* The NIC wrote a chunk of len bytes into its receive. */
static BRAID_APART int rx_written(struct braid_lane *lane, uint32_t imm, uint32_t len)
{
	bool whole = (imm & 0xff) == BRAID_IMM_WHOLE;
	int err;

	lane->rx_hdr = (struct braid_hdr){
		.type = BRAID_F_CHUNK, .flags = BRAID_FLAG_PLACED, .comm = imm >> 16, .len = len,
		.n = whole ? 0 : imm & 0xff, .size = len,
	};
	lane->rx_kind = BRAID_RX_DRAIN;
	lane->rx_left = 0;
	lane->rx_frames += whole;
	braid_count(&lane->rx_bytes, len);
	err = braid_comm_rx_imm(lane, imm >> 8 & 0xff, whole);
	return of_frame(lane, err ? err : rx_end(lane));
}

int braid_rx_imm(struct braid_lane *lane, uint32_t imm, const char *p, size_t n)
{
	braid_assert_locked(&lane->link->lock);
	if (lane->link->checksums)
		return braid_rx_broken(lane, "immediate data in place of a header", -EBADMSG);
	if (!p)
		return rx_written(lane, imm, (uint32_t)n);
	return lane->rx_kind == BRAID_RX_NONE ?
		       rx_nohdr(lane, imm, p, n, 0) : rx_frames(lane, p, n);
}

int braid_rx_count(struct braid_lane *lane, uint32_t frames)
{
	int err;

	braid_assert_locked(&lane->link->lock);
	err = braid_tx_acked(lane, frames);
	if (err)
		return braid_rx_broken(lane, "a count of more than was sent", err);
	braid_count(&lane->rx_bytes, 1);
	return 0;
}
