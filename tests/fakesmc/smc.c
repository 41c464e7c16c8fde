/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * smc.c - fakes SMC on a kernel without it, as a preloaded library.  A socket of AF_SMC or
 * IPPROTO_SMC is a TCP socket here.  A NETLINK_SOCK_DIAG socket is one end of a pair, at whose other
 * end this file answers as the kernel's smc_diag would.  SMC itself is not imitated: tests/vm has
 * the real one.
 *
 * FAKE_SMC says what becomes of connections:
 *
 *	none		the kernel has no SMC sockets
 *	nodiag		the kernel has no smc_diag
 *	smcr, smcd	what the name says (smcr)
 *	tcp:CODE[:PEER]	a fallback, with the kernel's codes, in hexadecimal
 *	hang:SECONDS	connect() takes that long; signals don't end it
 *	hard:SECONDS	the same, and close() too
 *	flip:BYTES	smcr, but a bit of each socket's stream is changed after so many bytes
 *	break:BYTES	smcr, but each socket fails once so many bytes were sent on it
 * FAKE_SMC_INET=1: the kernel has IPPROTO_SMC.
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/smc_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FDS = 65536, FAKE_AF_SMC = 43, FAKE_IPPROTO_SMC = 256 };

#define STAND_IN __attribute__((visibility("default")))

static atomic_bool is_smc[FDS];
static atomic_ullong sent_on[FDS];
static atomic_int diag_end[FDS];	/* of a diag socket, the other end + 1 */

/* libc's function, looked up once. */
#define REAL(name) ({ \
	static __typeof__(&name) f; \
	if (!f) \
		*(void **)(void *)&f = dlsym(RTLD_NEXT, #name); \
	f; \
})

static bool known(int fd)
{
	return fd >= 0 && fd < FDS && is_smc[fd];
}

static int mark(int fd)
{
	if (fd >= 0 && fd < FDS) {
		is_smc[fd] = true;
		sent_on[fd] = 0;
	}
	return fd;
}

static const char *mode(void)
{
	const char *m = getenv("FAKE_SMC");

	return m ? m : "smcr";
}

static bool is(const char *name)
{
	return !strncmp(mode(), name, strlen(name));
}

static int fail(int err)
{
	errno = err;
	return -1;
}

/* Sleeps like an uninterruptible call: signals do not end it. */
static void sit(void)
{
	struct timespec left = { .tv_sec = atoi(mode() + strlen("hang:")) };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static int diag_socket(int type)
{
	int pair[2];

	if (is("nodiag"))
		return fail(EPROTONOSUPPORT);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | (type & SOCK_CLOEXEC), 0, pair))
		return -1;
	if (pair[0] < FDS)
		diag_end[pair[0]] = pair[1] + 1;
	return pair[0];
}

STAND_IN int socket(int domain, int type, int protocol)
{
	bool inet = domain == AF_INET || domain == AF_INET6;
	int family = inet ? domain : protocol == 1 ? AF_INET6 : AF_INET;

	if (domain == AF_NETLINK && protocol == NETLINK_SOCK_DIAG)
		return diag_socket(type);
	if (domain != FAKE_AF_SMC && (!inet || protocol != FAKE_IPPROTO_SMC))
		return REAL(socket)(domain, type, protocol);
	if (is("none"))
		return fail(inet ? EPROTONOSUPPORT : EAFNOSUPPORT);
	if (inet && !getenv("FAKE_SMC_INET"))
		return fail(EPROTONOSUPPORT);
	return mark(REAL(socket)(family, type, IPPROTO_TCP));
}

STAND_IN int connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	if (known(fd) && (is("hang:") || is("hard:")))
		sit();
	return REAL(connect)(fd, sa, len);
}

STAND_IN int accept4(int fd, struct sockaddr *sa, socklen_t *len, int flags)
{
	int got = REAL(accept4)(fd, sa, len, flags);

	return known(fd) ? mark(got) : got;
}

STAND_IN int close(int fd)
{
	if (known(fd)) {
		is_smc[fd] = false;
		if (is("hard:"))
			sit();
	}
	if (fd >= 0 && fd < FDS && diag_end[fd])
		REAL(close)(atomic_exchange(&diag_end[fd], 0) - 1);
	return REAL(close)(fd);
}

/* --- smc_diag ------------------------------------------------------------------------------ */

static size_t put_attribute(char *at, uint16_t type, const void *data, size_t len)
{
	struct nlattr a = { .nla_len = (uint16_t)(sizeof(a) + len), .nla_type = type };

	memcpy(at, &a, sizeof(a));
	memcpy(at + sizeof(a), data, len);
	return (size_t)NLA_ALIGN(a.nla_len);
}

static size_t describe(int fd, char *at)
{
	struct smc_diag_fallback f = { 0 };
	struct smc_diag_lgrinfo l = { .lnk = { { .ibname = "fake0", .ibport = 1 } } };
	struct smc_diag_msg m = { .diag_family = FAKE_AF_SMC };
	struct nlmsghdr h = { .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_MULTI };
	struct stat st;
	char *end;
	size_t n = NLMSG_HDRLEN + sizeof(m);

	if (fstat(fd, &st))
		return 0;
	m.diag_inode = st.st_ino;
	m.diag_mode = is("smcd") ? SMC_DIAG_MODE_SMCD : SMC_DIAG_MODE_SMCR;
	if (is("tcp:")) {
		m.diag_mode = SMC_DIAG_MODE_FALLBACK_TCP;
		f.reason = (uint32_t)strtoul(mode() + strlen("tcp:"), &end, 16);
		f.peer_diagnosis = *end ? (uint32_t)strtoul(end + 1, NULL, 16) : 0;
	}
	memcpy(at + NLMSG_HDRLEN, &m, sizeof(m));
	if (m.diag_mode == SMC_DIAG_MODE_SMCR)
		n += put_attribute(at + n, SMC_DIAG_LGRINFO, &l, sizeof(l));
	n += put_attribute(at + n, SMC_DIAG_FALLBACK, &f, sizeof(f));
	h.nlmsg_len = (uint32_t)n;
	memcpy(at, &h, sizeof(h));
	return NLMSG_ALIGN(n);
}

static void answer(int to)
{
	char buf[8192];
	struct nlmsghdr done = { .nlmsg_len = NLMSG_HDRLEN + 4, .nlmsg_type = NLMSG_DONE };
	size_t n = 0;

	memset(buf, 0, sizeof(buf));
	for (int fd = 0; fd < FDS; fd++) {
		if (!is_smc[fd])
			continue;
		n += describe(fd, buf + n);
		if (n > sizeof(buf) - 1024) {
			REAL(send)(to, buf, n, MSG_NOSIGNAL);
			memset(buf, 0, sizeof(buf));
			n = 0;
		}
	}
	if (n)
		REAL(send)(to, buf, n, MSG_NOSIGNAL);
	memset(buf, 0, sizeof(buf));
	memcpy(buf, &done, sizeof(done));
	REAL(send)(to, buf, done.nlmsg_len, MSG_NOSIGNAL);
}

/* --- sending ------------------------------------------------------------------------------- */

static bool breaks(int fd)
{
	if (!known(fd) || !is("break:") || sent_on[fd] < strtoull(mode() + strlen("break:"), NULL, 10))
		return false;
	shutdown(fd, SHUT_RDWR);
	return true;
}

static ssize_t count(int fd, ssize_t n)
{
	if (n > 0 && known(fd))
		sent_on[fd] += (unsigned long long)n;
	return n;
}

/* Is the byte to be changed among those to be sent now? */
static bool flips(int fd, size_t len)
{
	unsigned long long at = is("flip:") ? strtoull(mode() + strlen("flip:"), NULL, 10) : 0;

	return known(fd) && at && sent_on[fd] <= at && at < sent_on[fd] + len;
}

static ssize_t send_flipped(int fd, const struct msghdr *msg, size_t len, int flags)
{
	char *copy = malloc(len);
	size_t n = 0;
	ssize_t res;

	for (size_t i = 0; i < msg->msg_iovlen; n += msg->msg_iov[i++].iov_len)
		memcpy(copy + n, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
	copy[strtoull(mode() + strlen("flip:"), NULL, 10) - sent_on[fd]] ^= 4;
	res = REAL(send)(fd, copy, len, flags);
	free(copy);
	return res;
}

STAND_IN ssize_t send(int fd, const void *data, size_t len, int flags)
{
	if (fd >= 0 && fd < FDS && diag_end[fd]) {
		answer(diag_end[fd] - 1);
		return (ssize_t)len;
	}
	if (flips(fd, len)) {
		struct iovec one = { (void *)(uintptr_t)data, len };

		return count(fd, send_flipped(fd, &(struct msghdr){ .msg_iov = &one, .msg_iovlen = 1 },
					      len, flags));
	}
	return breaks(fd) ? fail(ECONNRESET) : count(fd, REAL(send)(fd, data, len, flags));
}

STAND_IN ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	size_t len = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++)
		len += msg->msg_iov[i].iov_len;
	if (flips(fd, len))
		return count(fd, send_flipped(fd, msg, len, flags));
	return breaks(fd) ? fail(ECONNRESET) : count(fd, REAL(sendmsg)(fd, msg, flags));
}
