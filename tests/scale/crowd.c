/* SPDX-License-Identifier: BSD-3-Clause */
/* crowd.c - see crowd.h. */
#include "tests/scale/crowd.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TURN_US = 10000 };
enum order { CONNECT, CLOSE, SEND, CUT, END };

struct request {
	uint32_t order, n;
};

unsigned crowd_at_once = UINT_MAX;

static void put(int fd, const void *data, size_t len)
{
	for (const char *p = data; len; ) {
		ssize_t n = write(fd, p, len);

		if (n <= 0)
			FAIL("a process of the crowd has ended");
		p += n;
		len -= (size_t)n;
	}
}

static void get(int fd, void *data, size_t len)
{
	for (char *p = data; len; ) {
		ssize_t n = read(fd, p, len);

		if (n <= 0)
			FAIL("a process of the crowd has ended");
		p += n;
		len -= (size_t)n;
	}
}

/* --- a crowd's own process ----------------------------------------------------------------- */

static struct {
	struct net *net;
	struct handle *handle;
	void **send;
	unsigned n, cut, turn, left;
	int fd;
} own;

void crowd_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	static const char *const busy[] = { "[no-cpu]", "[peer-silent]", "[peer-starved]", "[peer-late]",
					    "[accept-waits]" };
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (unsigned i = 0; i < sizeof(busy) / sizeof(busy[0]); i++) {
		if (strstr(text, busy[i]))
			return;
	}
	net_log(level, flags, file, line, "%s", text);
}

/* As a rank whose CPUs are its own: it does not keep a core from those that share this host. */
void crowd_waits(bool (*over)(void))
{
	uint64_t end = deadline_ms(drive_hang_ms);

	while (!over()) {
		if (now_us() > end)
			LATE("the connections are not made");
		usleep(TURN_US);
	}
}

static bool all_connected(void)
{
	unsigned under_way = 0;

	for (unsigned i = 0; i < own.n && under_way < crowd_at_once; i++)
		under_way += !own.send[i] &&
			     !connect_step(own.net, own.handle[i].at, &own.send[i]);
	return !under_way;
}

static void close_all(void)
{
	for (unsigned i = 0; i < own.n; i++) {
		if (own.send[i])
			OK(net_close_send(own.net, own.send[i]));
		own.send[i] = NULL;
	}
}

static void send_all(uint32_t size)
{
	for (unsigned i = 0; i < own.n; i++)
		send_one(own.net, own.send[i], size, size);
}

/* Streams come in the order of their descriptors: each order breaks the next few. */
static bool cut_next(int fd)
{
	if (own.turn++ < own.cut || !own.left)
		return false;
	own.left--;
	return !shutdown(fd, SHUT_RDWR);
}

static void cut(uint32_t n)
{
	own.turn = 0;
	own.left = n;
	count_streams(cut_next);
	own.cut = own.left ? 0 : own.cut + n;
}

static void obey(const struct request *r)
{
	switch ((enum order)r->order) {
	case CONNECT:
		close_all();
		get(own.fd, own.handle, own.n * sizeof(*own.handle));
		crowd_waits(all_connected);
		break;
	case CLOSE:
		close_all();
		break;
	case SEND:
		send_all(r->n);
		break;
	case CUT:
		cut(r->n);
		break;
	case END:
		break;
	}
}

static _Noreturn void crowd_main(const char *plugin)
{
	struct request r = { .order = CLOSE };
	char why[256];
	int ndev = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	own.handle = calloc(own.n, sizeof(*own.handle));
	own.send = calloc(own.n, sizeof(*own.send));
	own.net = net_load(plugin, 0, why, sizeof(why));
	if (!own.net || !own.handle || !own.send)
		FAIL("%s", why);
	OK(net_init(own.net, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, crowd_log, NULL));
	OK(net_devices(own.net, &ndev));
	while (r.order != END) {
		get(own.fd, &r, sizeof(r));
		obey(&r);
		put(own.fd, &r, sizeof(r));
	}
	close_all();
	if (net_warn_count())
		FAIL("%u WARN, the last: %s", net_warn_count(), net_last_warn());
	net_finalize(own.net);
	_exit(0);
}

/* --- the hub's side ------------------------------------------------------------------------ */

void crowd_start(struct crowd *c, const char *plugin, unsigned n, bool share)
{
	int pair[2];

	c->n = n;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		FAIL("%s", strerror(errno));
	fflush(NULL);
	c->pid = fork();
	if (c->pid < 0)
		FAIL("%s", strerror(errno));
	c->fd = pair[0];
	if (!c->pid) {
		close(pair[0]);
		own.fd = pair[1];
		own.n = n;
		setenv("BRAID_SHARE", share ? "1" : "0", 1);
		crowd_main(plugin);
	}
	close(pair[1]);
}

static void order(struct crowd *c, enum order what, uint32_t n)
{
	struct request r = { .order = what, .n = n };

	put(c->fd, &r, sizeof(r));
}

void crowd_connect(struct crowd *c, const struct handle *h)
{
	order(c, CONNECT, 0);
	put(c->fd, h, c->n * sizeof(*h));
}

void crowd_close(struct crowd *c)
{
	order(c, CLOSE, 0);
}

void crowd_send(struct crowd *c, uint32_t size)
{
	order(c, SEND, size);
}

void crowd_cut(struct crowd *c, uint32_t n)
{
	order(c, CUT, n);
}

void crowd_wait(struct crowd *c)
{
	struct request r;

	get(c->fd, &r, sizeof(r));
}

void crowd_end(struct crowd *c)
{
	int status;

	order(c, END, 0);
	crowd_wait(c);
	if (waitpid(c->pid, &status, 0) != c->pid || status)
		FAIL("a process of the crowd failed");
	close(c->fd);
}

/* --- strangers ----------------------------------------------------------------------------- */

static int stranger(uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) && errno != EINPROGRESS) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Speak, each in its way; false: thrown out. */
static bool stranger_lives(int fd, unsigned i, unsigned turn)
{
	static const char magic[] = "!BRAIDWL", noise[] = "GET / HTTP/1.1\r\n\r\n";
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char buf[64];

	if (poll(&p, 1, 0) && (p.revents & (POLLERR | POLLHUP) ||
			       (p.revents & POLLIN && recv(fd, buf, sizeof(buf), 0) <= 0)))
		return false;
	if (i % 3 == 1)
		send(fd, noise, sizeof(noise) - 1, MSG_NOSIGNAL);
	else if (i % 3 == 2 && turn < 8)
		send(fd, magic + turn, 1, MSG_NOSIGNAL);
	return true;
}

static _Noreturn void strangers_main(int stop, uint16_t port, unsigned n)
{
	int *fd = calloc(n, sizeof(*fd));
	unsigned made = 0, turn = 0;
	struct pollfd p = { .fd = stop, .events = POLLIN };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned i = 0; i < n; i++)
		fd[i] = -1;
	for (; turn == 0 || !poll(&p, 1, 50); turn++) {
		for (unsigned i = 0; i < n; i++) {
			if (fd[i] >= 0 && !stranger_lives(fd[i], i, turn)) {
				close(fd[i]);
				fd[i] = -1;
			}
			if (fd[i] < 0) {
				fd[i] = stranger(port);
				made += fd[i] >= 0;
			}
		}
		if (!turn)
			put(stop, &made, sizeof(made));
	}
	put(stop, &made, sizeof(made));
	_exit(0);
}

void strangers_start(struct strangers *s, uint16_t port, unsigned n)
{
	unsigned made;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		FAIL("%s", strerror(errno));
	fflush(NULL);
	s->pid = fork();
	if (s->pid < 0)
		FAIL("%s", strerror(errno));
	if (!s->pid) {
		close(pair[0]);
		all_descriptors();
		strangers_main(pair[1], port, n);
	}
	close(pair[1]);
	s->fd = pair[0];
	get(s->fd, &made, sizeof(made));
}

unsigned strangers_end(struct strangers *s)
{
	unsigned made = 0;

	put(s->fd, "x", 1);
	get(s->fd, &made, sizeof(made));
	waitpid(s->pid, NULL, 0);
	close(s->fd);
	return made;
}

/* --- what this process uses ---------------------------------------------------------------- */

/* The number at place `index`, from 1, of the last line that begins with `name`. */
static uint64_t field_of(const char *path, const char *name, unsigned index)
{
	char line[512];
	uint64_t v = 0;
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f)) {
		char *rest, *word = strtok_r(line, " \t", &rest);

		if (!word || strcmp(word, name))
			continue;
		for (unsigned i = 0; word && i < index; i++)
			word = strtok_r(NULL, " \t", &rest);
		v = word ? strtoull(word, NULL, 10) : 0;
	}
	if (f)
		fclose(f);
	return v;
}

static void service_time(struct usage *u)
{
	DIR *d = opendir("/proc/self/task");
	unsigned long long ns, waited, runs;
	char path[300], name[32];
	struct dirent *e;
	FILE *f;

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		*name = '\0';
		if (fscanf(f, "%31s", name) != 1)
			*name = '\0';
		fclose(f);
		if (strcmp(name, "braid-service"))
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
		f = fopen(path, "re");
		if (f && fscanf(f, "%llu %llu %llu", &ns, &waited, &runs) == 3) {
			u->service_ns = ns;
			u->switches = runs;
		}
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
}

static void count_sockets(struct usage *u)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;

	while (d && (e = readdir(d))) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		struct stat st;

		if (*e->d_name == '.' || fstat(atoi(e->d_name), &st) || !S_ISSOCK(st.st_mode))
			continue;
		u->sockets++;
		if (getpeername(atoi(e->d_name), (struct sockaddr *)&peer, &len) ||
		    (peer.ss_family != AF_INET && peer.ss_family != AF_INET6))
			continue;
		u->connected++;
		u->inodes += st.st_ino;
	}
	if (d)
		closedir(d);
}

/* tests/fake says what exists, in the library that the plugin has loaded. */
static void fake_now(struct usage *u)
{
	void *so = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	long (*ctl)(const char *cmd) = so ? (long (*)(const char *))dlsym(so, "braid_fake_ctl") : NULL;

	u->fake = ctl;
	if (!ctl)
		return;
	u->qp = ctl("live qp");
	u->cq = ctl("live cq");
	u->srq = ctl("live srq");
	u->mr = ctl("live mr");
	u->pinned = ctl("live pinned");
}

void usage_now(struct usage *ret)
{
	struct timespec ts;

	memset(ret, 0, sizeof(*ret));
	service_time(ret);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ret->at_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	ret->rss = field_of("/proc/self/status", "VmRSS:", 1) * 1024;
	ret->heap = mallinfo2().uordblks + mallinfo2().hblkhd;
	ret->fds = count_fds();
	count_sockets(ret);
	fake_now(ret);
}

void opens_now(struct opens *ret)
{
	char names[4096], values[4096];
	unsigned long long drops = 0;
	FILE *f = fopen("/proc/net/netstat", "re");

	ret->active = field_of("/proc/net/snmp", "Tcp:", 5);
	while (f && fgets(names, sizeof(names), f) && fgets(values, sizeof(values), f)) {
		char *a, *b, *n = strtok_r(names, " ", &a), *v = strtok_r(values, " ", &b);

		for (; n && v; n = strtok_r(NULL, " ", &a), v = strtok_r(NULL, " ", &b)) {
			if (!strcmp(n, "ListenDrops"))
				drops = strtoull(v, NULL, 10);
		}
	}
	if (f)
		fclose(f);
	ret->dropped = drops;
}

uint16_t listening_port(void)
{
	for (int fd = 0; fd < 1024; fd++) {
		struct sockaddr_in at = { 0 };
		socklen_t len = sizeof(at), size = sizeof(int);
		int listens = 0;

		if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) && listens &&
		    !getsockname(fd, (struct sockaddr *)&at, &len) && at.sin_family == AF_INET)
			return ntohs(at.sin_port);
	}
	return 0;
}

void all_descriptors(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim))
		return;
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
}
