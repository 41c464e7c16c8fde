/* SPDX-License-Identifier: BSD-3-Clause */
/* hosts.c - see hosts.h. */
#include "tests/faults/hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "tests/faults/stage.h"

static char why[512];

const char *hosts_why(void)
{
	return why;
}

__attribute__((format(printf, 1, 2)))
static bool because(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return false;
}

/* -- going there -------------------------------------------------------------------------- */

bool host_enter(const struct hosts *h, int host)
{
	return setns(h->ns[host], CLONE_NEWNET) == 0 || because("setns: %s", strerror(errno));
}

void host_leave(const struct hosts *h)
{
	if (setns(h->home, CLONE_NEWNET))
		abort();		/* everything after would happen in the wrong place */
}

/*
 * Mounts a /sys of this process's own, since programs look for interfaces there.  Not where / is no
 * mount point, as in a bare chroot: every process would see the mount.
 */
void host_own_sysfs(void)
{
	if (!unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL))
		(void)mount("sysfs", "/sys", "sysfs", 0, NULL);
}

const char *host_address(const struct hosts *h, int host, int path)
{
	static char text[HOSTS][2][40];

	/* The wire joins the two TAP devices, so both hosts are in one subnet. */
	if (h->kind == WIRE_TAP)
		snprintf(text[host][path], sizeof(text[host][path]), "10.%d.1.%d", 77 + path, host + 1);
	else
		snprintf(text[host][path], sizeof(text[host][path]), "10.%d.%d.1", 77 + path, host + 1);
	return text[host][path];
}

/* -- commands ----------------------------------------------------------------------------- */

static int text_file(const char *text)
{
	int fd = memfd_create("text", MFD_CLOEXEC);
	size_t len = strlen(text);

	if (fd >= 0 && (write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) != 0)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Runs argv in that host's namespace, with `input` on stdin.  hosts_why() then returns its output. */
static bool command(const struct hosts *h, int host, char *const argv[], const char *input)
{
	int in = text_file(input), err = text_file(""), status = -1;
	pid_t pid = in < 0 || err < 0 ? -1 : fork();
	bool well;

	if (pid == 0) {
		if (setns(h->ns[host], CLONE_NEWNET) || dup2(in, 0) < 0 || dup2(err, 1) < 0 ||
		    dup2(err, 2) < 0)
			_exit(126);
		execvp(argv[0], argv);
		_exit(127);
	}
	if (pid > 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	well = pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	if (!well) {
		char said[200] = "";
		ssize_t n = err < 0 ? 0 : pread(err, said, sizeof(said) - 1, 0);

		said[n > 0 ? strcspn(said, "\n") : 0] = '\0';
		because("%s: %s", argv[0], status == 127 << 8 ? "not installed" : said);
	}
	close(in);
	close(err);
	return well;
}

__attribute__((format(printf, 4, 0)))
static bool batch(const struct hosts *h, int host, const char *program, const char *fmt, va_list ap)
{
	char *const argv[] = { (char *)program, (char[]){ "-batch" }, (char[]){ "-" }, NULL };
	char lines[4096];

	vsnprintf(lines, sizeof(lines), fmt, ap);
	return command(h, host, argv, lines);
}

bool host_ip(const struct hosts *h, int host, const char *fmt, ...)
{
	va_list ap;
	bool well;

	va_start(ap, fmt);
	well = batch(h, host, "ip", fmt, ap);
	va_end(ap);
	return well;
}

bool host_tc(const struct hosts *h, int host, const char *fmt, ...)
{
	va_list ap;
	bool well;

	va_start(ap, fmt);
	well = batch(h, host, "tc", fmt, ap);
	va_end(ap);
	return well;
}

bool host_sysctl(const struct hosts *h, int host, const char *name, const char *value)
{
	char path[128];
	size_t len = strlen(value);
	bool well;
	int fd;

	snprintf(path, sizeof(path), "/proc/sys/net/%s", name);
	if (!host_enter(h, host))
		return false;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	well = fd >= 0 && write(fd, value, len) == (ssize_t)len;
	if (!well)
		because("%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	host_leave(h);
	return well;
}

bool host_link(const struct hosts *h, int host, const char *dev, bool up)
{
	struct ifreq req = { 0 };
	bool well;
	int fd;

	if (!host_enter(h, host))
		return false;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", dev);
	well = fd >= 0 && !ioctl(fd, SIOCGIFFLAGS, &req);
	if (well) {
		if (up)
			req.ifr_flags |= IFF_UP;
		else
			req.ifr_flags &= ~IFF_UP;
		well = !ioctl(fd, SIOCSIFFLAGS, &req);
	}
	if (!well)
		because("%s %s: %s", dev, up ? "up" : "down", strerror(errno));
	if (fd >= 0)
		close(fd);
	host_leave(h);
	return well;
}

uint64_t host_received(const struct hosts *h, int host, const char *dev)
{
	char line[256], name[32];
	unsigned long long bytes = 0;
	FILE *f;

	if (!host_enter(h, host))
		return 0;
	f = fopen("/proc/thread-self/net/dev", "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, " %31[^:]: %llu", name, &bytes) == 2 && strcmp(name, dev) == 0)
			break;
		bytes = 0;
	}
	if (f)
		fclose(f);
	host_leave(h);
	return bytes;
}

/* -- trouble ------------------------------------------------------------------------------ */

static bool trouble_by_netem(const struct hosts *h, const struct wire_trouble *t)
{
	static const char *const devs[] = { "b0", "a0" };	/* frames from A leave M by b0 */

	for (unsigned from = 0; from < 2; from++) {
		char *const argv[] = { (char[]){ "tc" }, (char[]){ "-batch" }, (char[]){ "-" }, NULL };
		bool cut = t->cut & 1U << from;
		char line[400];
		int n;

		n = snprintf(line, sizeof(line), "qdisc replace dev %s root netem limit 20000",
			     devs[from]);
		if (t->delay_us || t->jitter_us || t->reorder)
			n += snprintf(line + n, sizeof(line) - (size_t)n, " delay %uus %uus",
				      t->delay_us + t->jitter_us / 2 + (t->reorder ? 1000 : 0),
				      t->jitter_us / 2);
		if (cut || t->loss)
			n += snprintf(line + n, sizeof(line) - (size_t)n, " loss %.4f%%",
				      cut ? 100 : t->loss / 1e4);
		if (t->reorder)
			n += snprintf(line + n, sizeof(line) - (size_t)n, " reorder %.4f%% 50%%",
				      100 - t->reorder / 1e4);
		if (t->twice)
			n += snprintf(line + n, sizeof(line) - (size_t)n, " duplicate %.4f%%",
				      t->twice / 1e4);
		if (t->damage)
			n += snprintf(line + n, sizeof(line) - (size_t)n, " corrupt %.4f%%",
				      t->damage / 1e4);
		snprintf(line + n, sizeof(line) - (size_t)n, "\n");
		if (!command(h, HOST_M, argv, line))
			return false;
	}
	return true;
}

bool hosts_trouble(struct hosts *h, const struct wire_trouble *t)
{
	if (h->kind == WIRE_NETEM)
		return trouble_by_netem(h, t);
	h->wire->version++;
	h->wire->trouble = *t;
	h->wire->version++;
	usleep(6000);			/* the wire's process looks every 5 ms */
	return true;
}

/* -- making them -------------------------------------------------------------------------- */

static bool make_namespaces(struct hosts *h)
{
	h->home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (h->home < 0)
		return because("/proc/self/ns/net: %s", strerror(errno));
	for (int i = 0; i < HOSTS; i++) {
		if (unshare(CLONE_NEWNET))
			return because("network namespaces can't be made here: %s", strerror(errno));
		h->ns[i] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		h->diag[i] = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
		if (h->ns[i] < 0 || h->diag[i] < 0)
			return because("NETLINK_SOCK_DIAG: %s", strerror(errno));
		host_leave(h);
		if (!host_link(h, i, "lo", true))
			return false;
		/* No limit on ICMP errors: hosts_reach() waits for one. */
		host_sysctl(h, i, "ipv4/icmp_ratelimit", "0");
	}
	return true;
}

bool host_route(const struct hosts *h, int host, int path)
{
	if (h->kind == WIRE_TAP)
		return true;
	return host_ip(h, host, "route replace 10.%d.%d.0/24 via 10.%d.%d.254 dev w%d\n", 77 + path,
		       2 - host, 77 + path, host + 1, path);
}

/* The kernel sets IFF_RUNNING a while after frames pass; a plugin uses no interface without it. */
static bool wait_running(const struct hosts *h, int host, int p)
{
	struct ifreq req = { 0 };
	bool runs = false;
	int fd;

	if (!host_enter(h, host))
		return false;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(req.ifr_name, sizeof(req.ifr_name), "w%d", p);
	for (int n = 0; n < 1000 && !runs; n++) {
		runs = fd >= 0 && !ioctl(fd, SIOCGIFFLAGS, &req) && req.ifr_flags & IFF_RUNNING;
		if (!runs)
			usleep(10000);
	}
	if (fd >= 0)
		close(fd);
	host_leave(h);
	return runs || because("w%d does not run", p);
}

bool hosts_spare(const struct hosts *h, int host)
{
	return host_ip(h, host, "link add w1 type veth peer name spare netns /proc/%d/fd/%d\n"
		       "addr add %s/24 dev w1\n" "link set w1 up\n", getpid(), h->ns[HOST_NOWHERE],
		       host_address(h, host, 1)) &&
	       host_link(h, HOST_NOWHERE, "spare", true) && wait_running(h, host, 1);
}

static bool make_path(struct hosts *h, int p)
{
	int self = getpid();

	for (int i = 0; i < 2; i++) {
		char m = (char)('a' + i);

		if (!host_ip(h, HOST_M, "link add %c%d type veth peer name w%d netns /proc/%d/fd/%d\n"
			     "addr add 10.%d.%d.254/24 dev %c%d\n" "link set %c%d up\n", m, p, p, self,
			     h->ns[i], 77 + p, i + 1, m, p, m, p) ||
		    !host_ip(h, i, "addr add %s/24 dev w%d\n" "link set w%d up\n",
			     host_address(h, i, p), p, p) || !host_route(h, i, p))
			return false;
	}
	if (!hosts_reach(h, p, 5000))
		return because("no way through the router");
	return wait_running(h, HOST_A, p) && wait_running(h, HOST_B, p);
}

static int make_tap(const struct hosts *h, int host)
{
	struct ifreq req = { .ifr_name = "w0", .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd;

	if (!host_enter(h, host))
		return -1;
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &req)) {
		because("/dev/net/tun: %s", strerror(errno));
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	host_leave(h);
	return fd;
}

static bool make_wire(struct hosts *h, uint64_t seed)
{
	int tap[2];

	for (int i = 0; i < 2; i++) {
		tap[i] = make_tap(h, i);
		if (tap[i] < 0 || !host_ip(h, i, "addr add %s/24 dev w0\n" "link set w0 txqueuelen 4000\n"
					   "link set w0 up\n", host_address(h, i, 0)))
			return false;
	}
	h->wire = mmap(NULL, sizeof(*h->wire), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (h->wire == MAP_FAILED)
		return because("mmap: %s", strerror(errno));
	h->wire_pid = fork();
	if (h->wire_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		wire_run(h->wire, tap[0], tap[1], seed);
	}
	close(tap[0]);
	close(tap[1]);
	if (!hosts_reach(h, 0, 5000))
		return because("no way through the wire");
	return wait_running(h, HOST_A, 0) && wait_running(h, HOST_B, 0);
}

bool hosts_make(struct hosts *h, enum wire_kind kind, int paths, uint64_t seed)
{
	*h = (struct hosts){ .kind = kind, .paths = paths };
	if (!make_namespaces(h))
		return false;
	if (kind == WIRE_TAP)
		return make_wire(h, seed);
	if (!host_sysctl(h, HOST_M, "ipv4/ip_forward", "1"))
		return false;
	for (int p = 0; p < paths; p++) {
		if (!make_path(h, p))
			return false;
	}
	return true;
}

static bool has_netem(void)
{
	struct wire_trouble none = { .delay_us = 1 };
	struct hosts h;
	bool well = hosts_make(&h, WIRE_NETEM, 1, 0) && hosts_trouble(&h, &none);

	for (int i = 0; i < HOSTS; i++) {
		close(h.ns[i]);
		close(h.diag[i]);
	}
	return well;
}

enum wire_kind wire_choose(const char *word)
{
	if (strcmp(word, "netem") != 0 && access("/dev/net/tun", R_OK | W_OK) == 0)
		return WIRE_TAP;
	if (strcmp(word, "tap") == 0) {
		because("/dev/net/tun: %s", strerror(errno));
		return WIRE_NONE;
	}
	return has_netem() ? WIRE_NETEM : WIRE_NONE;
}

/* Sends datagrams to a closed port of B: the ICMP error shows that both directions work. */
bool hosts_reach(const struct hosts *h, int path, unsigned ms)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	uint64_t end = now_ns() + ms * 1000000ULL;
	bool well = false;
	int fd = -1;

	inet_pton(AF_INET, host_address(h, HOST_B, path), &to.sin_addr);
	if (!host_enter(h, HOST_A))
		return false;
	while (!well && now_ns() < end) {
		struct pollfd p = { .events = POLLIN };

		if (fd < 0) {
			fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
			if (connect(fd, (struct sockaddr *)&to, sizeof(to))) {
				close(fd);
				fd = -1;
				usleep(1000);
				continue;
			}
		}
		p.fd = fd;
		well = send(fd, "?", 1, 0) < 0 && errno == ECONNREFUSED;
		if (!well && poll(&p, 1, 2) == 1 && recv(fd, &p, 1, 0) < 0)
			well = errno == ECONNREFUSED;
		if (!well && now_ns() % 8 == 0) {	/* the socket may have cached a route that is gone */
			close(fd);
			fd = -1;
		}
	}
	if (fd >= 0)
		close(fd);
	host_leave(h);
	return well;
}

/* -- TCP sockets -------------------------------------------------------------------------- */

struct diag_request {
	struct nlmsghdr head;
	struct inet_diag_req_v2 req;
};

static bool diag_ask(int fd, int type, int flags, unsigned states, const struct inet_diag_sockid *id)
{
	struct diag_request r = {
		.head = { .nlmsg_len = sizeof(r), .nlmsg_type = (uint16_t)type,
			  .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags) },
		.req = { .sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP,
			 .idiag_states = states },
	};

	if (id)
		r.req.id = *id;
	return send(fd, &r, sizeof(r), 0) == (ssize_t)sizeof(r);
}

unsigned host_sockets(const struct hosts *h, int host, unsigned states,
		      struct inet_diag_sockid *ret, unsigned room)
{
	_Alignas(struct nlmsghdr) char buf[32768];
	unsigned n = 0;

	if (!diag_ask(h->diag[host], SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, states, NULL))
		return 0;
	for (;;) {
		ssize_t len = recv(h->diag[host], buf, sizeof(buf), 0);
		struct nlmsghdr *m = (struct nlmsghdr *)buf;

		if (len <= 0)
			return n;
		for (; NLMSG_OK(m, (unsigned)len); m = NLMSG_NEXT(m, len)) {
			const struct inet_diag_msg *msg = NLMSG_DATA(m);

			if (m->nlmsg_type == NLMSG_DONE || m->nlmsg_type == NLMSG_ERROR)
				return n;
			if (n < room)
				ret[n++] = msg->id;
		}
	}
}

bool host_kill(const struct hosts *h, int host, const struct inet_diag_sockid *id)
{
	_Alignas(struct nlmsghdr) char buf[1024];
	struct nlmsghdr *m = (struct nlmsghdr *)buf;
	ssize_t len;

	if (!diag_ask(h->diag[host], SOCK_DESTROY, NLM_F_ACK, ~0U, id))
		return false;
	len = recv(h->diag[host], buf, sizeof(buf), 0);
	return len > 0 && NLMSG_OK(m, (unsigned)len) && m->nlmsg_type == NLMSG_ERROR &&
	       ((struct nlmsgerr *)NLMSG_DATA(m))->error == 0;
}
