/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream.c - frames over a byte stream.
 *
 * Sending gathers queued frames, headers and payloads alike, into one sendmsg().  Receiving has
 * two ways.  Small frames are read many at a time into a staging buffer and copied out.  A large
 * payload is read straight to its destination, together with just enough behind it for the next
 * header.  A read that came short means the socket is empty, so a small message costs one
 * recvmsg().
 */
#include "socket/stream.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "core/link/lane_io.h"
#include "core/base/log.h"
#include "core/base/os.h"

enum {
	STAGE = 64 << 10,
	AHEAD = 4 * BRAID_HDR_SIZE,	/* behind a large payload: control frames, next header */
	IOV_MAX_TX = 64,
};

static struct braid_stream *stream_of(struct braid_lane *lane)
{
	return braid_container(lane, struct braid_stream, lane);
}

/* The staging buffer is guarded by the io lock, so the first poll() allocates it. */
int braid_stream_attach(struct braid_lane *lane)
{
	(void)lane;
	return 0;
}

void braid_stream_detach(struct braid_lane *lane)
{
	struct braid_stream *s = stream_of(lane);

	braid_assert_locked(&lane->io);
	if (s->beg != s->end)
		return;
	free(s->stage);
	s->stage = NULL;
	s->beg = s->end = 0;
}

void braid_stream_close(struct braid_lane *lane)
{
	struct braid_stream *s = stream_of(lane);

	if (lane->fd >= 0)
		braid_os->close(lane->fd);
	lane->fd = -1;
	lane->rx_dst = NULL;
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

static ssize_t rx(int fd, struct msghdr *msg)
{
	if (msg->msg_iovlen == 1)
		return braid_os->recv(fd, msg->msg_iov->iov_base, msg->msg_iov->iov_len,
				      MSG_DONTWAIT);
	return braid_os->recvmsg(fd, msg, MSG_DONTWAIT);
}

BRAID_HOT int braid_stream_push(struct braid_lane *lane)
{
	const struct braid_stream *s = stream_of(lane);
	struct braid_lock *lock = &lane->link->lock;
	struct iovec iov[IOV_MAX_TX];
	struct braid_can can = { .iov = iov, .niov = IOV_MAX_TX, .max = BRAID_CALL_BUDGET };

	if (lane->fd < 0)
		return -EPIPE;
	while (lane->tx.unsent && can.max) {
		struct msghdr msg = { .msg_iov = iov };
		struct braid_piece p;
		ssize_t n;
		int err = braid_lane_next(lane, &can, &p);

		if (err <= 0)
			return err;
		msg.msg_iovlen = (size_t)p.niov;
		if (p.len > BRAID_COPY_LOCKED)
			braid_unlock(lock);
		n = tx(s->fd, &msg);
		err = n < 0 ? -errno : 0;
		if (p.len > BRAID_COPY_LOCKED)
			braid_lock_wait(lock);
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
static ssize_t receive(struct braid_stream *s, size_t budget, bool *ret_short)
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
	if (n <= 0)
		return n < 0 ? -errno : 0;
	*ret_short = (size_t)n < direct + ahead;
	if ((size_t)n < direct)
		direct = (size_t)n;
	if (direct)
		braid_rx_filled(&s->lane, direct);
	s->end += (unsigned)((size_t)n - direct);
	return n;
}

/* Take staged bytes: 0; -EAGAIN: the link or a GPU is busy; else the peer sent malformed data. */
static BRAID_HOT int take(struct braid_stream *s)
{
	struct braid_lane *lane = &s->lane;
	size_t done;
	int err;

	s->again = true;
	if (!braid_trylock(&lane->link->lock))
		return -EAGAIN;
	err = braid_rx_bytes(lane, s->stage + s->beg, s->end - s->beg, &done);
	braid_unlock(&lane->link->lock);
	s->again = err == -EAGAIN;
	s->beg += (unsigned)done;
	if (s->beg) {
		memmove(s->stage, s->stage + s->beg, s->end - s->beg);
		s->end -= s->beg;
		s->beg = 0;
	}
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
		s->stage = malloc(STAGE);
		if (!s->stage)
			return braid_no_memory("a stream's buffer");
	}
	if (s->end || s->again) {
		err = take(s);		/* left over from the last poll */
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
		if (braid_rx_rest(lane).len && s->beg == s->end)
			continue;	/* inside a large payload: nothing to take */
		err = take(s);
		if (err)
			return err == -EAGAIN ? taken : err;
	}
	/* An idle link keeps no staging buffer: free the one this poll allocated. */
	if (!taken && !braid_rx_rest(lane).len && !lane->tx.ring)
		braid_stream_detach(lane);
	return taken;
}
