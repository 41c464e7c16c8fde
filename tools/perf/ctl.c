/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ctl.c - messages between a coordinator and its workers.
 *
 * Each is the same struct in the sender's byte order, so there is nothing to parse.  The
 * magic number holds the size and the version, so another build or byte order fails at once.
 */
#include "tools/perf/ctl.h"
#include "tools/perf/stat.h"
#include "tools/text.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

enum { VERSION = 2, SEND_MS = 5000 };

static const uint32_t MAGIC = 0xb3000000u | (uint32_t)VERSION << 16 | sizeof(struct perf_ctl);

static int wait_for(int fd, short events, uint64_t end_ns)
{
	struct pollfd p = { .fd = fd, .events = events };
	uint64_t now = perf_now_ns();
	int n;

	if (now >= end_ns)
		return -ETIMEDOUT;
	n = poll(&p, 1, (int)((end_ns - now) / 1000000 + 1));
	if (n < 0 && errno != EINTR)
		return -errno;
	return 0;
}

/* A worker's end blocks, the coordinator's does not; neither waits past the deadline. */
int perf_ctl_move(int fd, char *p, size_t left, bool out, int timeout_ms)
{
	uint64_t end_ns = perf_now_ns() + (uint64_t)timeout_ms * 1000000;
	ssize_t n;
	int rc;

	while (left > 0) {
		n = out ? send(fd, p, left, MSG_NOSIGNAL | MSG_DONTWAIT) :
			  recv(fd, p, left, MSG_DONTWAIT);
		if (n > 0) {
			p += n;
			left -= (size_t)n;
			continue;
		}
		if (n == 0 || errno == ECONNRESET)
			return -EPIPE;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		rc = wait_for(fd, out ? POLLOUT : POLLIN, end_ns);
		if (rc)
			return rc;
	}
	return 0;
}

int perf_ctl_send(int fd, struct perf_ctl *m)
{
	m->magic = MAGIC;
	return perf_ctl_move(fd, (char *)m, sizeof(*m), true, SEND_MS);
}

int perf_ctl_recv(int fd, struct perf_ctl *ret, int timeout_ms)
{
	struct perf_ctl m;
	int rc = perf_ctl_move(fd, (char *)&m, sizeof(m), false, timeout_ms);

	if (rc)
		return rc;
	if (m.magic != MAGIC)
		return -EPROTO;
	if (m.status || m.type == PERF_CTL_HELLO || m.type == PERF_CTL_MEET)
		text_clean(m.text, sizeof(m.text), "");
	*ret = m;
	return 0;
}

bool perf_ctl_ended(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) == 1;
}
