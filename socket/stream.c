/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream.c - frames over a byte stream.
 *
 * Sending gathers queued frames, headers and payloads alike, into one sendmsg().  Receiving has
 * two ways.  Small frames are read many at a time into a staging buffer and copied out.  A large
 * payload is read straight to its destination, together with just enough behind it for the next
 * header.  A read that came short means the socket is empty, so a small message costs one
 * recvmsg().
 *
 * Where a direction is encrypted in user space, sealed.c has the rest of it.
 */
#include "socket/stream.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "core/link/lane_io.h"
#include "core/base/copy.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "socket/ktls.h"
#include "socket/zerocopy.h"

enum {
	STAGE = BRAID_SEALED_DATA,
	AHEAD = 4 * BRAID_HDR_SIZE,	/* behind a large payload: control frames, next header */
	IOV_MAX_TX = 64,
};

static struct braid_stream *stream_of(struct braid_lane *lane)
{
	return braid_container(lane, struct braid_stream, lane);
}

int braid_stream_encrypt(struct braid_lane *lane)
{
	struct braid_stream *s = stream_of(lane);
	const struct braid_lane_keys *k = lane->keys;
	int err;

	if (!k)
		return 0;
	s->cipher = k->cipher;
	s->seal.kernel = braid_ktls_take(lane->fd, k->cipher, k->send, false);
	s->unseal.kernel = braid_ktls_take(lane->fd, k->cipher, k->receive, true);
	err = s->seal.kernel ? 0 : braid_seal_init(&s->seal, k->cipher, k->send, k->peer_keeps);
	if (!err && !s->unseal.kernel)
		err = braid_unseal_init(&s->unseal, k->cipher, k->receive);
	if (err)
		braid_seal_fini(&s->seal);
	return err;
}

/* The staging buffer is guarded by the io lock, so the first poll() allocates it. */
int braid_stream_attach(struct braid_lane *lane)
{
	(void)lane;
	return 0;
}

/* An idle link keeps no buffers for receiving. */
static void drop_buffers(struct braid_stream *s)
{
	braid_assert_locked(&s->lane.io);
	braid_unseal_idle(&s->unseal);
	if (s->beg != s->end)
		return;
	braid_os_discard(s->stage, STAGE);	/* the heap may keep it, but not its pages */
	free(s->stage);
	s->stage = NULL;
	s->beg = s->end = 0;
}

void braid_stream_detach(struct braid_lane *lane)
{
	drop_buffers(stream_of(lane));
	braid_seal_idle(&stream_of(lane)->seal);
}

void braid_stream_close(struct braid_lane *lane)
{
	struct braid_stream *s = stream_of(lane);

	if (s->zerocopy)
		braid_zerocopy_close(lane, s->zerocopy);
	else if (lane->fd >= 0)
		braid_os->close(lane->fd);
	s->zerocopy = NULL;
	lane->lent = false;
	lane->fd = -1;
	lane->rx_dst = NULL;
	braid_seal_fini(&s->seal);
	braid_unseal_fini(&s->unseal);
	free(s->stage);
	s->stage = NULL;
	s->beg = s->end = 0;
	s->again = false;
}

/* send() is cheaper than sendmsg() for one buffer. */
static ssize_t tx(int fd, const struct msghdr *msg)
{
	if (msg->msg_iovlen == 1)
		return braid_os->send(fd, msg->msg_iov->iov_base, msg->msg_iov->iov_len,
				      MSG_NOSIGNAL | MSG_DONTWAIT);
	return braid_os->sendmsg(fd, msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A large piece, without the link's lock; lend: the kernel may read it where it lies. */
static ssize_t tx_unlocked(struct braid_stream *s, const struct msghdr *msg, bool lend)
{
	struct braid_lane *lane = &s->lane;
	ssize_t n;
	int err;

	lane->lent |= lend;
	braid_unlock(&lane->link->lock);
	n = lend ? braid_zerocopy_send(lane, s->zerocopy, msg->msg_iov->iov_base,
				       msg->msg_iov->iov_len) : tx(s->fd, msg);
	err = errno;
	braid_lock_wait(&lane->link->lock);
	errno = err;
	return n;
}

static ssize_t rx(int fd, struct msghdr *msg)
{
	if (msg->msg_iovlen == 1)
		return braid_os->recv(fd, msg->msg_iov->iov_base, msg->msg_iov->iov_len,
				      MSG_DONTWAIT);
	return braid_os->recvmsg(fd, msg, MSG_DONTWAIT);
}

BRAID_HOT int braid_stream_push(struct braid_lane *lane)
{
	struct braid_stream *s = stream_of(lane);
	struct iovec iov[IOV_MAX_TX];
	struct braid_can can = { .iov = iov, .niov = IOV_MAX_TX, .max = BRAID_CALL_BUDGET };

	if (lane->fd < 0)
		return -EPIPE;
	if (s->seal.records)
		return braid_seal_push(&s->seal, lane, s->fd);
	while (lane->tx.unsent && can.max) {
		struct msghdr msg = { .msg_iov = iov };
		struct braid_piece p;
		ssize_t n;
		int err = braid_lane_next(lane, &can, &p);

		if (err <= 0)
			return err;
		err = s->seal.kernel ? braid_seal_count(&s->seal, p.len) : 0;
		if (err)
			return err;
		msg.msg_iovlen = (size_t)p.niov;
		if (p.len > BRAID_COPY_LOCKED) {
			n = tx_unlocked(s, &msg, p.kind == BRAID_PIECE_PAYLOAD);
		} else {
			n = tx(s->fd, &msg);
		}
		err = n < 0 ? -errno : 0;
		if (err == -EINTR)
			continue;
		if (err)
			return err;
		braid_tx_advance(lane, (size_t)n);
		if ((size_t)n < p.len)
			return -EAGAIN;
		can.max -= (size_t)n;
	}
	return 0;
}

/* One read: its bytes, and *ret_short if it emptied the socket; 0: the end; or -errno. */
static ssize_t receive_plain(struct braid_stream *s, size_t budget, bool *ret_short)
{
	const struct braid_rx_rest rest = braid_rx_rest(&s->lane);
	size_t direct = rest.len < budget ? rest.len : budget, ahead = 0;
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = iov };
	ssize_t n;

	assert(!direct || s->beg == s->end);
	if (direct) {
		if (!rest.dst && direct > STAGE)	/* discard it */
			direct = STAGE;
		iov[msg.msg_iovlen].iov_base = rest.dst ? rest.dst : s->stage;
		iov[msg.msg_iovlen++].iov_len = direct;
		s->beg = s->end = 0;
	}
	if (direct == rest.len && (!direct || rest.dst)) {
		ahead = (rest.large ? AHEAD : STAGE) - s->end;
		iov[msg.msg_iovlen].iov_base = s->stage + s->end;
		iov[msg.msg_iovlen++].iov_len = ahead;
	}
	n = rx(s->fd, &msg);
	if (n < 0)
		return s->unseal.kernel ? braid_ktls_error(errno) : -errno;
	if (!n)
		return 0;
	*ret_short = (size_t)n < direct + ahead;
	if ((size_t)n < direct)
		direct = (size_t)n;
	if (direct)
		braid_rx_filled(&s->lane, iov[0].iov_base, direct);
	s->end += (unsigned)((size_t)n - direct);
	return n;
}

/* The same of encrypted bytes, all into the staging buffer. */
static ssize_t receive_sealed(struct braid_stream *s, bool *ret_short)
{
	ssize_t n = braid_unseal_read(&s->unseal, s->fd, s->stage + s->end, ret_short);

	if (n > 0)
		s->end += (unsigned)n;
	return n;
}

static ssize_t receive(struct braid_stream *s, size_t budget, bool *ret_short)
{
	return s->unseal.records ? receive_sealed(s, ret_short) :
				   receive_plain(s, budget, ret_short);
}

/*
 * Take at most `max` of the staged bytes: 0; -EAGAIN: the link or a GPU is busy; else the peer sent
 * malformed data.
 */
static BRAID_HOT int take(struct braid_stream *s, unsigned max)
{
	struct braid_lane *lane = &s->lane;
	unsigned left = s->end - s->beg;
	size_t done;
	int err;

	s->again = true;
	if (!braid_trylock(&lane->link->lock))
		return -EAGAIN;
	err = braid_rx_bytes(lane, s->stage + s->beg, left < max ? left : max, &done);
	braid_unlock(&lane->link->lock);
	s->again = err == -EAGAIN;
	s->beg += (unsigned)done;
	left -= (unsigned)done;
	if (s->beg && left < BRAID_HDR_SIZE) {
		memmove(s->stage, s->stage + s->beg, left);
		s->end = left;
		s->beg = 0;
	}
	return err;
}

/* Copy staged bytes to where the present payload goes, without the link's lock. */
static void place(struct braid_stream *s)
{
	const struct braid_rx_rest rest = braid_rx_rest(&s->lane);
	size_t n = s->end - s->beg;

	if (n > rest.len)
		n = rest.len;
	if (!n)
		return;
	if (rest.dst)
		braid_copy_up(rest.dst, s->stage + s->beg, n);
	braid_rx_filled(&s->lane, s->stage + s->beg, n);
	s->beg += (unsigned)n;
	if (s->beg == s->end)
		s->beg = s->end = 0;
}

static bool is_in_payload(const struct braid_stream *s)
{
	return braid_rx_rest(&s->lane).len;
}

/* Is so much of a payload to come that another thread may read it? */
static bool is_worth_a_hand(const struct braid_stream *s)
{
	return braid_rx_rest(&s->lane).len >= BRAID_HAND_MIN;
}

/* Take all staged bytes.  What was opened here may be large payloads, as well as frames. */
static int take_all(struct braid_stream *s)
{
	int err;

	if (!s->unseal.records)
		return take(s, STAGE);
	do {
		place(s);
		if (is_in_payload(s) && s->beg == s->end)
			return 0;
		err = take(s, BRAID_COPY_LOCKED);
	} while (!err && s->beg != s->end &&
		 (is_in_payload(s) || s->end - s->beg >= BRAID_HDR_SIZE));
	return err;
}

int braid_stream_poll(struct braid_lane *lane)
{
	struct braid_stream *s = stream_of(lane);
	size_t budget = BRAID_CALL_BUDGET;
	bool dry = false;
	int taken = 0, err;

	if (lane->fd < 0)
		return -EPIPE;
	if (!s->stage) {
		s->stage = malloc(BRAID_SEALED_ROOM + BRAID_HDR_SIZE);
		if (!s->stage)
			return braid_no_memory("a stream's buffer");
	}
	if (s->end || s->again) {
		err = take_all(s);	/* left over from the last poll */
		if (err)
			return err == -EAGAIN ? 1 : err;
	}
	while (!dry && budget) {
		ssize_t n = receive(s, budget, &dry);

		if (!n)
			return -ENOTCONN;
		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			break;
		if (n < 0)
			return (int)n;
		budget -= (size_t)n < budget ? (size_t)n : budget;
		taken++;
		if (!is_in_payload(s) || s->beg != s->end) {	/* else there is nothing to take */
			err = take_all(s);
			if (err)
				return err == -EAGAIN ? taken : err;
		}
		if (!dry && is_worth_a_hand(s) && braid_rx_hand(lane))
			return taken;
	}
	/* An idle link keeps no staging buffer: free the one this poll allocated. */
	if (!taken && !is_in_payload(s) && !lane->tx.ring)
		drop_buffers(s);
	return taken;
}
