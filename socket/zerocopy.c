/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zerocopy.c - see zerocopy.h.
 *
 * The kernel numbers the calls that sent something, and notifies the socket's error queue of ranges
 * of these numbers.  It is enough to count them: once as many calls are notified as were made, the
 * kernel reads no memory any more.  A notification that says "copied" means that the bytes were
 * copied after all, on this path: then the lane sends the rest as ever.
 */
#include "socket/zerocopy.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/dev.h"
#include "core/link/lane_io.h"
#include "core/mem/later.h"

enum {
	COLLECT_AFTER = 8,		/* calls without a notification, after which to look */
	COLLECT_MAX = 64,		/* notifications read in one go */
	NAP_NS = 50000, NAP_MAX_NS = 20000000,
};

struct braid_zerocopy {
	int fd;
	bool closes;			/* the last to let go closes it */
	bool stopping;			/* its connection was aborted; a job may be collecting */
	atomic_uint users;		/* the lane, and that job */
	atomic_uint sent, notified;	/* calls, ever; both wrap */
	struct braid_dev *dev;		/* the link's, which counts */
	struct braid_dev *nic;		/* the member of it that the lane uses */
	struct braid_job job;
	struct braid_stop stop;
};

struct braid_zerocopy *braid_zerocopy_new(struct braid_lane *lane)
{
	const struct braid_link *link = lane->link;
	struct braid_zerocopy *z;
	int on = 1;

	if (braid_os->setsockopt(lane->fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on))) {
		braid_info("device %s, peer %s: lane %u: the kernel can't send without a copy "
			   "(SO_ZEROCOPY: %s)", link->key.dev->net.name, link->peer, lane->index,
			   strerror(errno));
		return NULL;
	}
	z = calloc(1, sizeof(*z));
	if (!z)
		return NULL;
	z->fd = lane->fd;
	z->dev = link->key.dev;
	z->nic = z->dev->member[lane->member];
	atomic_store(&z->users, 1);
	atomic_store(&lane->lends, true);
	return z;
}

/* --- notifications ------------------------------------------------------------------------- */

struct news {
	uint32_t calls, copied;		/* that notifications named; of these: copied after all */
	int err;			/* 0, or why the error queue can't be read */
};

/* Does it say that the kernel has let go of its calls ee_info to ee_data, both included? */
static bool is_of_zerocopy(const struct cmsghdr *c, struct sock_extended_err *ret)
{
	if (c->cmsg_len < CMSG_LEN(sizeof(*ret)) ||
	    !((c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
	      (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR)))
		return false;
	memcpy(ret, CMSG_DATA(c), sizeof(*ret));
	return ret->ee_origin == SO_EE_ORIGIN_ZEROCOPY && !ret->ee_errno;
}

/* One message of the error queue, or false: none is left. */
static bool read_one(int fd, struct news *news)
{
	union {
		struct cmsghdr align;
		char room[128];
	} control;
	struct msghdr msg = { .msg_control = &control, .msg_controllen = sizeof(control) };
	struct sock_extended_err is;

	if (braid_os->recvmsg(fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
		news->err = errno == EAGAIN || errno == EINTR ? 0 : -errno;
		return false;
	}
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (!is_of_zerocopy(c, &is))
			continue;
		news->calls += is.ee_data - is.ee_info + 1;
		if (is.ee_code == SO_EE_CODE_ZEROCOPY_COPIED)
			news->copied += is.ee_data - is.ee_info + 1;
	}
	return true;
}

static struct news collect(struct braid_zerocopy *z)
{
	struct news news = { 0 };

	for (unsigned i = 0; i < COLLECT_MAX && read_one(z->fd, &news); i++)
		;
	atomic_fetch_add(&z->notified, news.calls);
	atomic_fetch_add(&z->dev->zerocopy_copied, news.copied);
	return news;
}

/* Has the kernel let go of all that it was lent? */
static bool is_free(const struct braid_zerocopy *z)
{
	return atomic_load(&z->sent) == atomic_load(&z->notified);
}

/* Send the rest with copies. */
static BRAID_APART void give_up(struct braid_lane *lane, const char *why)
{
	if (atomic_exchange(&lane->lends, false))
		braid_info("device %s, peer %s: lane %u sends with copies from now on: %s",
			   lane->link->key.dev->net.name, lane->link->peer, lane->index, why);
}

void braid_zerocopy_collect(struct braid_lane *lane, struct braid_zerocopy *z)
{
	struct news news;

	if (is_free(z))
		return;
	news = collect(z);
	if (news.err)
		give_up(lane, "the socket's error queue can't be read");
	else if (news.copied)
		give_up(lane, "the kernel copied what it was to send without a copy, as it does "
			"within a host (loopback, veth), for a NIC without scatter-gather, and "
			"while packets are captured");
}

/* --- sending ------------------------------------------------------------------------------- */

BRAID_APART ssize_t braid_zerocopy_send(struct braid_lane *lane, struct braid_zerocopy *z,
					const void *p, size_t n)
{
	const int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
	ssize_t done;

	if (atomic_load(&z->sent) - atomic_load(&z->notified) >= COLLECT_AFTER)
		braid_zerocopy_collect(lane, z);
	done = braid_os->send(z->fd, p, n, flags | MSG_ZEROCOPY);
	if (done > 0) {
		atomic_fetch_add(&z->sent, 1);
		atomic_fetch_add(&z->dev->zerocopy_bytes, (uint64_t)done);
		return done;
	}
	/* ENOBUFS: limits of pinned pages, of notifications.  EFAULT: memory of a device. */
	if (errno != ENOBUFS && errno != EFAULT)
		return done;
	if (errno == EFAULT)
		give_up(lane, "the kernel can't pin this memory");
	else
		braid_zerocopy_collect(lane, z);
	done = braid_os->send(z->fd, p, n, flags);
	if (done > 0)
		atomic_fetch_add(&z->dev->zerocopy_copied, 1);
	return done;
}

/* --- the end ------------------------------------------------------------------------------- */

static void put(struct braid_zerocopy *z)
{
	if (atomic_fetch_sub(&z->users, 1) != 1)
		return;
	if (z->closes)
		braid_os->close(z->fd);
	free(z);
}

static void wait_run(struct braid_job *job)
{
	struct braid_zerocopy *z = braid_container(job, struct braid_zerocopy, job);
	struct timespec nap = { .tv_nsec = NAP_NS };

	while (collect(z), !is_free(z)) {
		nanosleep(&nap, NULL);
		if (nap.tv_nsec < NAP_MAX_NS)
			nap.tv_nsec *= 2;
	}
	braid_stop_end(z->nic, &z->stop);
	put(z);
}

/*
 * To disconnect drops what is queued and resets the connection, but keeps the socket, which gets
 * the notifications.  What the NIC has in hand it may still read and send.
 */
void braid_zerocopy_fence(struct braid_lane *lane, struct braid_zerocopy *z)
{
	const struct sockaddr none = { .sa_family = AF_UNSPEC };

	if (z->stopping || is_free(z) || !braid_lane_has_payloads(lane))
		return;
	collect(z);
	if (is_free(z))
		return;
	z->stopping = true;
	braid_os->connect(z->fd, &none, sizeof(none));
	collect(z);
	if (is_free(z))
		return;
	atomic_fetch_add(&z->users, 1);
	braid_stop_begin(z->nic, &z->stop);
	z->job = (struct braid_job){ .run = wait_run };
	braid_later(z->nic, BRAID_STOP_CHECK, &z->job);
}

void braid_zerocopy_close(struct braid_lane *lane, struct braid_zerocopy *z)
{
	z->closes = lane->fd >= 0;
	if (z->closes)
		braid_zerocopy_fence(lane, z);
	put(z);
}
