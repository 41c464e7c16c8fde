/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sealed.c - see sealed.h.
 *
 * Sending: a piece of frames is sealed into a buffer, record by record, and the buffer is sent.  To
 * core the piece is sent, but for its last byte, which is only once the buffer has left: so the
 * frame that it belongs to stays as it is, and push() is called again.
 *
 * Receiving: records are opened from one buffer into another, so no byte reaches its receive before
 * the tag of its record was checked.
 */
#include "socket/sealed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "socket/ktls.h"

enum {
	IOV_MAX_TX = 64,
	OUT_SIZE = BRAID_SEALED_ROOM + BRAID_SEALED_RECORDS * BRAID_RECORD_UPDATE,
	IN_SIZE = BRAID_SEALED_ROOM,
	PART_READS = 4, PART_NS = 2000000000,	/* for one record: see check_part() */
};

int braid_seal_init(struct braid_seal *s, uint8_t cipher, const uint8_t *secret, bool peer_keeps)
{
	s->records = braid_records_new(cipher, secret, true);
	if (!s->records)
		return -ENOMEM;
	braid_records_limit(s->records, (uint64_t)braid_param.key_records);
	if (peer_keeps)
		braid_records_keep_key(s->records);
	return 0;
}

void braid_seal_fini(struct braid_seal *s)
{
	braid_records_free(s->records);
	free(s->out);
	*s = (struct braid_seal){ 0 };
}

void braid_seal_idle(struct braid_seal *s)
{
	if (s->held)
		return;
	free(s->out);
	s->out = NULL;
}

int braid_unseal_init(struct braid_unseal *u, uint8_t cipher, const uint8_t *secret)
{
	u->records = braid_records_new(cipher, secret, false);
	return u->records ? 0 : -ENOMEM;
}

void braid_unseal_fini(struct braid_unseal *u)
{
	braid_records_free(u->records);
	free(u->in);
	*u = (struct braid_unseal){ 0 };
}

void braid_unseal_idle(struct braid_unseal *u)
{
	if (u->at != u->end)
		return;
	free(u->in);
	u->in = NULL;
	u->at = u->end = 0;
}

/* --- sending ------------------------------------------------------------------------------- */

/* Send what is sealed: 0, or -EAGAIN: the socket is full. */
static int send_out(struct braid_seal *s, int fd)
{
	while (s->at != s->end) {
		ssize_t n = braid_os->send(fd, s->out + s->at, s->end - s->at,
					   MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n >= 0)
			s->at += (size_t)n;
		else if (errno != EINTR)
			return -errno;
	}
	s->at = s->end = 0;
	return 0;
}

static int seal(struct braid_seal *s, const struct braid_piece *p, const struct iovec *iov)
{
	size_t done = 0, len;
	ssize_t n;

	for (; done < p->len; done += len) {
		len = p->len - done < BRAID_RECORD_DATA_MAX ?
			      p->len - done : BRAID_RECORD_DATA_MAX;
		n = braid_records_seal(s->records, iov, p->niov, done, len, s->out + s->end);
		if (n < 0)
			return (int)n;
		s->end += (size_t)n;
	}
	if (braid_records_due(s->records))
		braid_hint(&s->old_key, true);
	return 0;
}

/* Seal the next piece and send it: its bytes; 0: there is none; or a negative errno. */
static ssize_t seal_next(struct braid_seal *s, struct braid_lane *lane, int fd, size_t max)
{
	struct braid_lock *lock = &lane->link->lock;
	struct iovec iov[IOV_MAX_TX];
	struct braid_can can = { .iov = iov, .niov = IOV_MAX_TX, .max = max };
	struct braid_piece p;
	int err = braid_lane_next(lane, &can, &p);

	if (err <= 0)
		return err;
	if (p.len > BRAID_COPY_LOCKED)
		braid_unlock(lock);
	err = seal(s, &p, iov);
	if (!err)
		err = send_out(s, fd);
	if (p.len > BRAID_COPY_LOCKED)
		braid_lock_wait(lock);
	if (err && err != -EAGAIN)
		return err;
	s->held = err == -EAGAIN;	/* the last byte counts as unsent */
	braid_tx_advance(lane, p.len - s->held);
	return err ? err : (ssize_t)p.len;
}

/* Send what an earlier push left. */
static int send_rest(struct braid_seal *s, struct braid_lane *lane, int fd)
{
	int err;

	if (!s->held)
		return 0;
	braid_unlock(&lane->link->lock);
	err = send_out(s, fd);
	braid_lock_wait(&lane->link->lock);
	if (err)
		return err;
	s->held = false;
	braid_tx_advance(lane, 1);
	return 0;
}

int braid_seal_count(struct braid_seal *s, size_t n)
{
	const uint64_t limit = (uint64_t)braid_param.key_records;

	if (s->sealed >= 2 * limit)
		return -EKEYEXPIRED;
	s->sealed += braid_ktls_records(n);
	if (s->sealed >= limit)
		braid_hint(&s->old_key, true);
	return 0;
}

int braid_seal_push(struct braid_seal *s, struct braid_lane *lane, int fd)
{
	size_t budget = BRAID_CALL_BUDGET;
	int err;

	if (!s->out)
		s->out = malloc(OUT_SIZE);
	if (!s->out)
		return braid_no_memory("records");
	err = send_rest(s, lane, fd);
	while (!err && lane->tx.unsent && budget) {
		size_t max = budget < BRAID_SEALED_DATA ? budget : BRAID_SEALED_DATA;
		ssize_t n = seal_next(s, lane, fd, max);

		if (n <= 0)
			return (int)n;
		budget -= (size_t)n;
	}
	return err;
}

/* --- receiving ----------------------------------------------------------------------------- */

/* Read more behind the records that are here: > 0; 0: the end of the stream; or -errno. */
static ssize_t read_more(struct braid_unseal *u, int fd, bool *dry)
{
	size_t left = u->end - u->at;
	ssize_t n;

	if (!u->in)
		u->in = malloc(IN_SIZE);
	if (!u->in)
		return braid_no_memory("records");
	memmove(u->in, u->in + u->at, left);
	u->at = 0;
	u->end = left;
	do
		n = braid_os->recv(fd, u->in + left, IN_SIZE - left, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	u->end += (size_t)n;
	*dry = u->end < IN_SIZE;
	return n;
}

/*
 * A changed bit in its length makes a record longer than what was sent.  Rare small records would
 * fill it, for many seconds, and nothing would be opened meanwhile.  0, or -ETIMEDOUT.
 */
static int check_part(struct braid_unseal *u)
{
	uint64_t now = braid_os->now_ns();

	if (!u->part_ns) {
		u->part_ns = now;
		u->part_reads = 0;
	}
	return ++u->part_reads > PART_READS && braid_since(u->part_ns, now) >= PART_NS ?
		       -ETIMEDOUT : 0;
}

ssize_t braid_unseal_read(struct braid_unseal *u, int fd, char *to, bool *dry)
{
	bool more = false;
	ssize_t n;
	size_t used;

	for (;;) {
		if (u->at != u->end) {
			n = braid_records_open(u->records, u->in + u->at, u->end - u->at,
					       (uint8_t *)to, BRAID_SEALED_ROOM, &used);
			u->at += used;
			if (used)
				u->part_ns = 0;
			if (n)
				return n;
			if (used)
				continue;	/* only a change of keys */
			if (more && check_part(u))
				return -ETIMEDOUT;
		}
		if (*dry)
			return -EAGAIN;
		n = read_more(u, fd, dry);
		if (n <= 0)
			return n;
		more = true;
	}
}
