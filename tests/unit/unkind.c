/* SPDX-License-Identifier: BSD-3-Clause */
/* unkind.c - see unkind.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sys/socket.h>

#include "tests/unit/unkind.h"

struct unkind unkind;
static const struct braid_os *real;

static bool refused(size_t *n)
{
	if (unkind.interrupt && !null_below(&unkind.rnd, unkind.interrupt)) {
		errno = EINTR;
		return true;
	}
	if (unkind.again && !null_below(&unkind.rnd, unkind.again)) {
		errno = EAGAIN;
		return true;
	}
	if (unkind.most) {
		size_t most = 1 + null_below(&unkind.rnd, unkind.most);

		*n = *n < most ? *n : most;
	}
	return false;
}

/* The first n bytes of a list of blocks, as another list. */
static size_t shorten(const struct msghdr *msg, size_t n, struct iovec *ret)
{
	size_t count = 0;

	for (size_t i = 0; i < msg->msg_iovlen && n; i++) {
		ret[count] = msg->msg_iov[i];
		if (ret[count].iov_len > n)
			ret[count].iov_len = n;
		n -= ret[count++].iov_len;
	}
	return count;
}

static size_t length(const struct msghdr *msg)
{
	size_t n = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++)
		n += msg->msg_iov[i].iov_len;
	return n;
}

static ssize_t count(ssize_t n)
{
	if (n > 0)
		unkind.moved += (size_t)n;
	return n;
}

static ssize_t os_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct iovec iov[128];
	struct msghdr part = { .msg_iov = iov };
	size_t n = length(msg);

	unkind.sends++;
	assert_true(flags & MSG_NOSIGNAL);
	assert_true(flags & MSG_DONTWAIT);
	assert_true(n > 0);
	if (refused(&n))
		return -1;
	part.msg_iovlen = shorten(msg, n, iov);
	return count(real->sendmsg(fd, &part, flags));
}

static ssize_t os_send(int fd, const void *buf, size_t len, int flags)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return os_sendmsg(fd, &msg, flags);
}

static ssize_t os_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct iovec iov[128];
	struct msghdr part = { .msg_iov = iov };
	size_t n = length(msg);

	unkind.recvs++;
	assert_true(flags & MSG_DONTWAIT);
	assert_true(n > 0);
	if (refused(&n))
		return -1;
	part.msg_iovlen = shorten(msg, n, iov);
	return count(real->recvmsg(fd, &part, flags));
}

static ssize_t os_recv(int fd, void *buf, size_t len, int flags)
{
	struct iovec iov = { buf, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return os_recvmsg(fd, &msg, flags);
}

const struct braid_os *unkind_os(const struct braid_os *real_)
{
	static struct braid_os table;

	real = real_;
	table = *real;
	table.sendmsg = os_sendmsg;
	table.recvmsg = os_recvmsg;
	table.send = os_send;
	table.recv = os_recv;
	return &table;
}
