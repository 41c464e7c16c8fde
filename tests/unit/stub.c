/* SPDX-License-Identifier: BSD-3-Clause */
/* stub.c - see stub.h. */
#include "tests/unit/stub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/wakeup.h"
#include "core/link/lane_io.h"
#include "core/link/link_int.h"

enum { IOV = 16 };

struct stub stub;
static char payload[STUB_PAYLOAD];	/* of all that is sent */

/* --- the transport ------------------------------------------------------------------------- */

static struct stub_lane *of(const struct braid_lane *lane)
{
	return &stub.lane[lane->index];
}

static void note(const struct braid_lane *lane)
{
	if (stub.norder < sizeof(stub.order) / sizeof(stub.order[0]))
		stub.order[stub.norder++] = lane->index;
}

static int push(struct braid_lane *lane)
{
	struct stub_lane *s = of(lane);

	braid_assert_locked(&lane->link->lock);
	s->pushes++;
	note(lane);
	if (s->push_err)
		return s->push_err;
	while (lane->tx.unsent) {
		struct iovec iov[IOV];
		struct braid_can can = { .iov = iov, .niov = IOV, .max = SIZE_MAX / 2 };
		struct braid_piece p = { .bytes = 0 };
		size_t bytes, left;

		braid_lane_next(lane, &can, &p);
		left = bytes = p.bytes < s->takes ? p.bytes : s->takes;
		if (!bytes)
			return -EAGAIN;
		assert_true(s->n + bytes <= STUB_WIRE);
		for (int i = 0; i < p.niov && left; i++) {
			size_t len = iov[i].iov_len < left ? iov[i].iov_len : left;

			memcpy(s->wire + s->n, iov[i].iov_base, len);
			s->n += len;
			left -= len;
		}
		s->takes -= bytes;
		braid_tx_advance(lane, bytes);
	}
	return 0;
}

static int poll(struct braid_lane *lane)
{
	of(lane)->polls++;
	note(lane);
	return of(lane)->poll;
}

static int lane_open(struct braid_lane *lane)
{
	return of(lane)->open_err;
}

static int lane_attach(struct braid_lane *lane)
{
	of(lane)->attaches++;
	return of(lane)->attach_err;
}

static void lane_detach(struct braid_lane *lane)
{
	of(lane)->detaches++;
}

static void lane_fence(struct braid_lane *lane)
{
	of(lane)->fences++;
}

static void lane_close(struct braid_lane *lane)
{
	of(lane)->closes++;
	of(lane)->closed_fd = lane->fd;
	lane->fd = -1;
}

#define STUB_TRANSPORT \
	.id = BRAID_TRANSPORT_TCP, .lane_size = sizeof(struct braid_lane) + 16, \
	.lane_open = lane_open, .lane_attach = lane_attach, .lane_detach = lane_detach, \
	.lane_fence = lane_fence, .lane_close = lane_close, .push = push, .poll = poll

const struct braid_transport stub_socket = { .name = "stub socket", .copies = true, STUB_TRANSPORT };
const struct braid_transport stub_nic = { .name = "stub NIC", .dma = true, .blob = true, STUB_TRANSPORT };

/* --- the message layer --------------------------------------------------------------------- */

int braid_comms_init(struct braid_link *link)
{
	(void)link;
	return stub.init_err;
}

void braid_comms_end(struct braid_link *link)
{
	(void)link;
	stub.ended++;
}

static bool send_cut(struct braid_lane *lane, struct braid_xfer *x)
{
	struct stub_send *s = braid_container(x, struct stub_send, x);
	struct braid_hdr start = { .type = BRAID_F_START, .size = 1 };
	struct braid_hdr h = { .type = BRAID_F_CHUNK, .len = s->len, .size = s->len };

	braid_assert_locked(&lane->link->lock);
	if (s->start_due && !braid_link_ctl(lane->link, &start, NULL))
		return false;
	if (s->start_due)
		braid_link_home(lane->link)->tx.starts += BRAID_HDR_SIZE;
	s->start_due = false;
	if (!braid_txq_room(&lane->tx, 0))
		return false;
	s->x.parts++;
	braid_tx_add(lane, &h, NULL, payload, &s->x);
	if (--s->left)
		return true;
	braid_list_del(&s->x.node);
	braid_xfer_part_done(&s->x);
	return true;
}

static void send_no_gpu(struct braid_xfer *x, const struct braid_gpucopy *copy)
{
	(void)x, (void)copy;
	stub.fails++;
}

const struct braid_xfer_ops stub_xfer_ops = { .cut = send_cut, .no_gpu = send_no_gpu };

bool braid_comms_send_control(struct braid_link *link)
{
	struct braid_hdr h = { .type = BRAID_F_ALIVE };

	braid_assert_locked(&link->lock);
	stub.ctl_calls++;
	if (stub.ctl_due && !braid_link_ctl(link, &h, NULL))
		return false;
	stub.ctl_due = false;
	return true;
}

int braid_comm_rx_begin(struct braid_lane *lane)
{
	braid_assert_locked(&lane->link->lock);
	stub.begins++;
	stub.begun = lane->rx_hdr;
	lane->rx_kind = BRAID_RX_ENTRY;
	lane->rx_target = &stub;
	lane->rx_mr = stub.in_mr;
	lane->rx_dst = lane->rx_left ? stub.in : NULL;
	assert_true(lane->rx_left <= sizeof(stub.in));
	return stub.begin_err;
}

int braid_comm_rx_end(struct braid_lane *lane)
{
	braid_assert_locked(&lane->link->lock);
	stub.ends++;
	return stub.end_err;
}

int braid_open_came(struct braid_lane *lane)
{
	braid_assert_locked(&lane->link->lock);
	stub.opens++;
	return stub.open_err;
}

void braid_comm_rx_nohdr(struct braid_lane *lane, uint16_t seq)
{
	braid_assert_locked(&lane->link->lock);
	lane->rx_hdr.seq = seq;
}

static bool rx_fast(struct braid_link *link, const char *from, size_t size)
{
	braid_assert_locked(&link->lock);
	if (!stub.fast)
		return false;
	stub.fasts++;
	memcpy(stub.in, from, size);
	return true;
}

bool braid_comm_rx_fast(struct braid_lane *lane, const char *from)
{
	return rx_fast(lane->link, from, lane->rx_hdr.len);
}

bool braid_comm_rx_nohdr_fast(struct braid_link *link, uint32_t imm, const char *from, size_t size)
{
	(void)imm;
	return rx_fast(link, from, size);
}

int braid_comm_rx_imm(struct braid_lane *lane, unsigned slot, bool whole)
{
	braid_assert_locked(&lane->link->lock);
	stub.imms++;
	stub.imm_slot = slot;
	stub.imm_whole = whole;
	return stub.imm_err;
}

char *braid_comm_rx_place(const struct braid_lane *lane, const struct braid_hdr *h,
			  const struct braid_mr **ret_gpu)
{
	(void)h;
	braid_assert_locked(&lane->link->lock);
	*ret_gpu = stub.in_mr;
	return stub.in;
}

void braid_comm_rx_undo(struct braid_lane *lane)
{
	braid_assert_locked(&lane->link->lock);
	stub.undos++;
}

bool braid_comm_deliver(struct braid_link *link)
{
	braid_assert_locked(&link->lock);
	stub.deliveries++;
	return !stub.copying;
}

void braid_comm_leave(struct braid_link *link)
{
	braid_assert_locked(&link->lock);
	stub.leaves++;
}

bool braid_comms_wait(const struct braid_link *link)
{
	braid_assert_locked(&link->lock);
	return stub.waits;
}

void braid_comms_fail(struct braid_link *link, int err)
{
	braid_assert_locked(&link->lock);
	stub.failed = err;
	stub.fails++;
}

/* --- the process around it ----------------------------------------------------------------- */

void braid_wake_service(void)
{
	stub.wakes++;
	if (stub.on_wake)
		stub.on_wake();
}

static uint64_t now_ns(void)
{
	return stub.ns;
}

static void hear(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file, (void)line;
	if (level == BRAID_LOG_WARN) {
		stub.warns++;
		snprintf(stub.warn, sizeof(stub.warn), "%s", text);
	} else if (level == BRAID_LOG_INFO) {
		stub.infos++;
		snprintf(stub.info, sizeof(stub.info), "%s", text);
	}
}

/* --- the link ------------------------------------------------------------------------------ */

void stub_lock(void)
{
	braid_lock_wait(&stub.link->lock);
}

void stub_unlock(void)
{
	braid_unlock(&stub.link->lock);
}

struct braid_lane *stub_at(unsigned lane)
{
	assert_true(lane < stub.link->nlanes);
	return stub.link->lane[lane];
}

void stub_add_lane(const struct braid_transport *tr)
{
	unsigned i = stub.link->nlanes;
	struct braid_carrier c = { .tr = tr, .fd = 100 + (int)i, .epoch = 1 };

	stub.lane[i].takes = SIZE_MAX;
	stub.lane[i].wire = malloc(STUB_WIRE);
	assert_non_null(stub.lane[i].wire);
	assert_int_equal(braid_link_add_lane(stub.link, i, &c), 0);
}

void stub_up(const struct braid_transport *tr, unsigned n)
{
	static struct braid_os os;
	struct braid_link_key key = { .dev = &stub.dev, .traffic_class = -1 };

	memset(&stub, 0, sizeof(stub));
	os = *braid_os;
	os.now_ns = now_ns;
	braid_os = &os;
	braid_log_to(hear);
	stub.ns = 1000000000;
	stub.dev.nmembers = 1;
	stub.dev.member[0] = &stub.dev;
	strcpy(stub.dev.net.name, "stub0");
	stub.link = braid_link_new(&key);
	assert_non_null(stub.link);
	strcpy(stub.link->peer, "peer");
	stub.link->lanes_max = BRAID_LANES_MAX;
	while (stub.link->nlanes < n)
		stub_add_lane(tr);
	stub.link->lanes.active = n;
	assert_int_equal(braid_link_attach(stub.link), 0);
	atomic_store(&stub.link->state, BRAID_LINK_UP);
}

void stub_down(void)
{
	braid_link_free(stub.link);
	for (unsigned i = 0; i < STUB_LANES; i++)
		free(stub.lane[i].wire);
	braid_log_to(NULL);
}

/* --- frames -------------------------------------------------------------------------------- */

bool stub_sent(unsigned lane, struct braid_hdr *ret)
{
	struct stub_lane *s = &stub.lane[lane];
	size_t len;

	if (!s->n)
		return false;
	assert_true(s->n >= BRAID_HDR_SIZE);
	assert_int_equal(braid_hdr_unpack(s->wire, ret), 0);
	len = BRAID_HDR_SIZE + braid_hdr_follows(ret);
	assert_true(s->n >= len);
	s->n -= len;
	memmove(s->wire, s->wire + len, s->n);
	return true;
}

struct braid_hdr stub_expect(unsigned lane, enum braid_frame type)
{
	struct braid_hdr h = { 0 };

	assert_true(stub_sent(lane, &h));
	assert_string_equal(braid_frame_name(h.type), braid_frame_name(type));
	return h;
}

void stub_expect_none(unsigned lane)
{
	struct braid_hdr h = { 0 };

	if (stub_sent(lane, &h))
		fail_msg("lane %u has sent %s", lane, braid_frame_name(h.type));
}

int stub_receive(unsigned lane, struct braid_hdr h, const void *data)
{
	char *bytes = malloc(BRAID_HDR_SIZE + h.len);
	int err;

	assert_non_null(bytes);
	h.lseq = stub_at(lane)->rx_frames;
	braid_hdr_pack(&h, bytes);
	if (h.len)
		memcpy(bytes + BRAID_HDR_SIZE, data, h.len);
	stub_lock();
	err = braid_rx_message(stub_at(lane), bytes, BRAID_HDR_SIZE + braid_hdr_follows(&h));
	stub_unlock();
	free(bytes);
	return err;
}

void stub_add(unsigned lane, enum braid_frame type)
{
	struct braid_hdr h = { .type = (uint8_t)type };

	stub_lock();
	braid_tx_add(stub_at(lane), &h, NULL, NULL, NULL);
	stub_unlock();
}

void stub_add_chunk(unsigned lane, uint32_t len, struct braid_xfer *owner)
{
	struct braid_hdr h = { .type = BRAID_F_CHUNK, .len = len, .size = len };

	assert_true(len <= STUB_PAYLOAD);
	stub_lock();
	braid_tx_add(stub_at(lane), &h, NULL, payload, owner);
	stub_unlock();
}

size_t stub_push(unsigned lane)
{
	size_t n;

	stub_lock();
	n = braid_lane_push(stub_at(lane));
	stub_unlock();
	return n;
}

void stub_send(struct stub_send *s, unsigned chunks, uint32_t len)
{
	assert_true(len <= STUB_PAYLOAD);
	*s = (struct stub_send){ .start_due = true, .left = chunks, .len = len };
	s->x = (struct braid_xfer){ .ops = &stub_xfer_ops, .parts = 1, .done = &s->done };
	stub_lock();
	braid_link_pending(stub.link, &s->x);
	stub_unlock();
}
