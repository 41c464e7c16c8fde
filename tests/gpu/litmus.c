/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * litmus.c - does what Braid promises to NCCL's kernels hold on this GPU?  For tests/gpu/run.
 *
 *	litmus PLUGIN.so
 *
 * A kernel (litmus.h) polls lines of LL and LL128, or the data behind a counter (Simple), in
 *
 *	- memory where flags are put before their data, on purpose: each line must be found torn
 *	- the GPU's memory, while gdr/stage.c copies into it: whole messages in pieces, in any
 *	  order, some begun and begun again, as after a lost lane
 *	- pinned memory of the host, while the plugin receives there over four TCP lanes, of which
 *	  the sender shuts down some again and again
 *	- the GPU's memory, likewise, if the device offers it
 *
 * Of LL128 over TCP no more is asked than that what was early is there 20 us later: the kernel
 * copies a line as it likes (tests/abi/test_order.c).  All else must never be early.
 *
 * Each case is a line: "ok", "not ok" or "skip", its name, a colon and what was seen.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gdr/stage.h"
#include "tests/gpu/litmus.h"
#include "tools/proxy.h"

enum {
	ROUNDS = 200, STAGED_ROUNDS = 120,
	LOSE_EACH = 4,			/* of so many messages one loses sockets */
	SECONDS = 30, NOT_IN_TIME = 10,
};

static const char *const names[] = { "Simple", "LL", "LL128" };
static bool failed;

static void say(const char *verdict, const char *name, int kind, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void say(const char *verdict, const char *name, int kind, const char *fmt, ...)
{
	va_list ap;

	printf("%s %s, %s: ", verdict, name, names[kind]);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	failed |= verdict[0] == 'n';
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint32_t below(uint32_t n)
{
	static uint64_t x = 88172645463325252u;	/* the same in every run */

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (uint32_t)((x >> 32) % n);
}

/* What a round holds; with `bad`, flags that are right over data that is not. */
static void fill(int kind, void *to, uint32_t round, bool bad)
{
	uint32_t n = lm_bytes(kind, round) / lm_line(kind), wrong = bad ? 1 : 0;
	uint32_t *w = to;

	for (uint32_t l = 0; l < n; l++) {
		switch (kind) {
		case LM_SIMPLE:
			for (uint32_t k = 0; k < 4; k++)
				*w++ = lm_word(round, 4 * l + k) ^ wrong;
			break;
		case LM_LL:
			*w++ = lm_word(round, 2 * l) ^ wrong;
			*w++ = round;
			*w++ = lm_word(round, 2 * l + 1);
			*w++ = round;
			break;
		default:
			for (uint32_t k = 0; k < 30; k++)
				*w++ = lm_word(round, 30 * l + k) ^ wrong;
			*w++ = round;
			*w++ = 0;
		}
	}
}

static uint64_t lines_of(int kind, uint32_t rounds)
{
	uint64_t n = 0;

	for (uint32_t r = 1; r <= rounds; r++)
		n += lm_bytes(kind, r) / lm_line(kind);
	return n;
}

/* The kernel has seen the round, or does not in time. */
static bool seen(const struct lm_watch *w, uint32_t round)
{
	double end = now() + NOT_IN_TIME;

	while (!lm_seen(w, round)) {
		if (now() > end)
			return false;
		sched_yield();
	}
	return true;
}

/* `why` is what went wrong before, or NULL; `late`: early lines are told, and no more. */
static void verdict(const char *name, int kind, struct lm_watch *w, uint32_t rounds,
		    const char *why, bool late, const char *more)
{
	struct lm_count c = { 0 };
	const char *err = lm_end(w, &c);
	uint64_t want = lines_of(kind, rounds);
	bool good = !why && !err && c.whole && c.lines == want && !c.torn && (late || !c.early);

	say(good ? "ok" : "not ok", name, kind,
	    "%llu of %llu lines seen, %llu early, %llu torn%s%s%s%s%s",
	    (unsigned long long)c.lines, (unsigned long long)want, (unsigned long long)c.early,
	    (unsigned long long)c.torn, more, why ? "; " : "", why ? why : "", err ? "; " : "",
	    err ? err : "");
}

/* -- that it can fail -------------------------------------------------------------------------- */

static void planted(int kind)
{
	static const char name[] = "planted";
	char *buf = lm_host(LM_MOST);
	struct lm_watch *w = buf ? lm_start(kind, buf, 1, SECONDS) : NULL;
	struct lm_count c = { 0 };
	uint64_t want = lines_of(kind, 1);
	const char *err = "the kernel can't be started";
	bool all = false;

	if (w) {
		fill(kind, buf, 1, true);
		lm_ready(w, 1);
		all = seen(w, 1);
		err = lm_end(w, &c);
	}
	if (err || !all || c.lines != want || c.early != want || c.torn != want)
		say("not ok", name, kind, "of %llu lines with flags before data %llu are found%s%s",
		    (unsigned long long)want, (unsigned long long)c.torn, err ? ": " : "",
		    err ? err : "");
	else
		say("ok", name, kind, "all of %llu lines with flags before data are found",
		    (unsigned long long)want);
	lm_host_free(buf);
}

/* -- copies by the driver ---------------------------------------------------------------------- */

struct copies {
	struct braid_stage *stage;
	struct braid_staged *way[BRAID_STAGE_SLOTS];	/* under way, the oldest first */
	unsigned n;
	unsigned long pieces, replays;
};

/* Until no more than `most` are under way; 0 or a negative errno. */
static int settle(struct copies *c, unsigned most)
{
	double end = now() + NOT_IN_TIME;

	while (c->n > most) {
		int err = braid_stage_test(c->way[0]);

		if (err == -EAGAIN) {
			if (now() > end)
				return -ETIMEDOUT;
			continue;
		}
		braid_stage_end(c->way[0]);
		memmove(c->way, c->way + 1, --c->n * sizeof(c->way[0]));
		if (err)
			return err;
	}
	return 0;
}

static int piece(struct copies *c, char *to, const char *from, size_t len)
{
	struct braid_staged *p;
	int err = settle(c, BRAID_STAGE_SLOTS - 1);

	if (!err)
		err = braid_stage_begin(c->stage, to, from, len, true, &p);
	if (err)
		return err;
	c->way[c->n++] = p;
	c->pieces++;
	return 0;
}

/*
 * Pieces begin at multiples of 128; every other message's last comes first.  Of some pieces whole
 * lines come before, as what was copied when a lane was lost; half a line never does, for what has
 * come of a frame is copied once all of it is here.
 */
static int copied(struct copies *c, char *to, const char *from, size_t size, uint32_t round)
{
	size_t step = 128 * (1 + (size_t)below(BRAID_STAGE_PIECE / 128));
	size_t n = (size + step - 1) / step;
	int err = 0;

	for (size_t i = 0; i < n && !err; i++) {
		size_t at = (round & 1 ? n - 1 - i : i) * step;
		size_t len = size - at < step ? size - at : step;

		if (below(4) == 0) {
			size_t part = 128 * (1 + (size_t)below((uint32_t)(len + 127) / 128));

			err = piece(c, to + at, from + at, part < len ? part : len);
			c->replays++;
		}
		if (!err)
			err = piece(c, to + at, from + at, len);
	}
	return err ? err : settle(c, 0);
}

static void staged(int kind)
{
	static const char name[] = "copies by the driver";
	struct copies c = { 0 };
	char *buf = lm_gpu(LM_MOST), *own = malloc(LM_MOST);
	const char *why = NULL;
	struct lm_watch *w = NULL;
	char more[80];
	int err;

	err = braid_stage_get(0, &c.stage, &why);
	if (!err && buf && own)
		w = lm_start(kind, buf, STAGED_ROUNDS, SECONDS);
	if (!w) {
		say("not ok", name, kind, "can't be set up: %s: %s", why ? why : "memory",
		    strerror(-err));
	} else {
		for (uint32_t r = 1; r <= STAGED_ROUNDS && !why; r++) {
			fill(kind, own, r, false);
			err = copied(&c, buf, own, lm_bytes(kind, r), r);
			if (err) {
				why = strerror(-err);
				break;
			}
			lm_ready(w, r);
			if (!seen(w, r))
				why = "a round is not seen to its end";
		}
		snprintf(more, sizeof(more), "; %lu pieces, %lu of them came again", c.pieces,
			 c.replays);
		verdict(name, kind, w, STAGED_ROUNDS, why, false, more);
	}
	settle(&c, 0);
	braid_stage_put(c.stage);
	free(own);
	lm_gpu_free(buf);
}

/* -- messages through the plugin --------------------------------------------------------------- */

static bool talk(int fd, void *data, size_t len, bool out)
{
	char *p = data;

	while (len) {
		struct pollfd pfd = { .fd = fd, .events = out ? POLLOUT : POLLIN };
		ssize_t n = poll(&pfd, 1, 30000) == 1 ? out ? send(fd, p, len, MSG_NOSIGNAL) :
							      recv(fd, p, len, 0) : 0;

		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static struct net *plugin_up(const char *path, const char **ret_why)
{
	static char err[400];
	struct net *net = net_load(path, 0, err, sizeof(err));
	int ndev = 0;

	*ret_why = err;
	if (!net)
		return NULL;
	*ret_why = NULL;
	if (net_init(net, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, net_log, NULL) ||
	    net_devices(net, &ndev) || !ndev)
		*ret_why = net_last_warn();
	return net;
}

/* Of the TCP sockets every other, by chance; how many. */
static unsigned shut_some(void)
{
	unsigned n = 0;

	for (int fd = 3; fd < 1024; fd++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);

		if (getpeername(fd, (struct sockaddr *)&peer, &len) ||
		    (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) || below(2))
			continue;
		n += !shutdown(fd, SHUT_RDWR);
	}
	return n;
}

struct end {
	struct net *net;
	void *comm, *mr;
	int fd;
};

/* Asked until it is done. */
static const char *done(struct end *e, void *req)
{
	double end = now() + NOT_IN_TIME;
	int is_done = 0, size = 0;

	for (;;) {
		if (net_test(e->net, req, &is_done, &size))
			return net_last_warn();
		if (is_done)
			return NULL;
		if (now() > end)
			return "a message does not come to its end";
		sched_yield();
	}
}

static const char *sent(struct end *e, char *buf, int kind, uint32_t round, unsigned *shut)
{
	void *req = NULL;
	double end = now() + NOT_IN_TIME;

	fill(kind, buf, round, false);
	while (!req) {
		if (net_isend(e->net, e->comm, buf, lm_bytes(kind, round), 0, e->mr, NULL, &req))
			return net_last_warn();
		if (now() > end)
			return "isend takes nothing";
	}
	/* While it is on its way, if it is a long one. */
	if (round % LOSE_EACH == 0) {
		for (double until = now() + below(500) / 1e6; now() < until;)
			;
		*shut += shut_some();
	}
	return done(e, req);
}

static const char *got(struct end *e, void *buf, int kind, uint32_t round, bool gpu)
{
	size_t size = lm_bytes(kind, round);
	void *req = NULL, *phandle = NULL;
	double end = now() + NOT_IN_TIME;
	int tag = 0, flushed = (int)size;
	const char *why;

	while (!req) {
		if (net_irecv(e->net, e->comm, 1, &buf, &size, &tag, &e->mr, &phandle, &req))
			return net_last_warn();
		if (now() > end)
			return "irecv takes nothing";
	}
	why = done(e, req);
	if (why || !gpu)
		return why;
	/* As NCCL does; it is done at once if there is nothing to wait for. */
	req = NULL;
	if (net_iflush(e->net, e->comm, 1, &buf, &flushed, &e->mr, &req))
		return net_last_warn();
	return req ? done(e, req) : NULL;
}

/* The other process: it sends what each handle that comes asks for, until there are no more. */
static int sender(const char *path, int fd)
{
	static char buf[LM_MOST];
	_Alignas(16) char handle[NCCL_NET_HANDLE_MAXSIZE];
	const char *why;
	struct net *net = plugin_up(path, &why);
	int kind;

	while (!why && talk(fd, &kind, sizeof(kind), false) &&
	       talk(fd, handle, sizeof(handle), false)) {
		struct end e = { .net = net, .fd = fd };
		double end = now() + NOT_IN_TIME;
		unsigned shut = 0;

		while (!e.comm && !why) {
			if (net_connect(net, 0, handle, &e.comm))
				why = net_last_warn();
			else if (now() > end)
				why = "no connection";
		}
		if (!why && net_reg(net, e.comm, buf, sizeof(buf), NCCL_PTR_HOST, &e.mr))
			why = net_last_warn();
		for (uint32_t r = 1; r <= ROUNDS && !why; r++)
			why = sent(&e, buf, kind, r, &shut);
		if (!why && !talk(fd, &shut, sizeof(shut), true))
			why = "the receiver has gone";
		if (!why && (net_dereg(net, e.comm, e.mr) || net_close_send(net, e.comm)))
			why = net_last_warn();
	}
	if (why)
		fprintf(stderr, "sender: %s\n", why);
	return why != NULL;
}

static const char *accepted(struct end *e, int kind)
{
	_Alignas(16) char handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	double end = now() + NOT_IN_TIME;
	void *listen = NULL;

	if (net_listen(e->net, 0, handle, &listen))
		return net_last_warn();
	if (!talk(e->fd, &kind, sizeof(kind), true) || !talk(e->fd, handle, sizeof(handle), true))
		return "the sender has gone";
	while (!e->comm) {
		if (net_accept(e->net, listen, &e->comm))
			return net_last_warn();
		if (now() > end)
			return "nobody connects";
	}
	return net_close_listen(e->net, listen) ? net_last_warn() : NULL;
}

static void received(struct net *net, int fd, int kind, bool gpu)
{
	const char *name = gpu ? "messages into the GPU" : "messages into pinned memory";
	struct end e = { .net = net, .fd = fd };
	char *buf = gpu ? lm_gpu(LM_MOST) : lm_host(LM_MOST);
	const char *why = accepted(&e, kind);
	struct lm_watch *w = NULL;
	unsigned shut = 0;
	char more[80];

	if (!why && (!buf || net_reg(net, e.comm, buf, LM_MOST,
				     gpu ? NCCL_PTR_CUDA : NCCL_PTR_HOST, &e.mr)))
		why = buf ? net_last_warn() : "no memory";
	if (!why)
		w = lm_start(kind, buf, ROUNDS, SECONDS);
	if (!w) {
		say("not ok", name, kind, "%s", why ? why : "the kernel can't be started");
		return;			/* the sender waits for us, and ends with us */
	}
	for (uint32_t r = 1; r <= ROUNDS && !why; r++) {
		why = got(&e, buf, kind, r, gpu);
		if (why)
			break;
		lm_ready(w, r);
		if (!seen(w, r))
			why = "a round is not seen to its end";
	}
	if (!why && !talk(fd, &shut, sizeof(shut), false))
		why = "the sender has gone";
	if (!why && !gpu && shut < 5)
		why = "no socket was lost";
	snprintf(more, sizeof(more), "; %d messages, %u sockets shut meanwhile", ROUNDS, shut);
	/* Ended before memory is given back, which may wait for the GPU. */
	verdict(name, kind, w, ROUNDS, why, kind == LM_LL128 && !gpu, more);
	net_dereg(net, e.comm, e.mr);
	net_close_recv(net, e.comm);
	if (gpu)
		lm_gpu_free(buf);
	else
		lm_host_free(buf);
}

static void messages(const char *path, int fd)
{
	struct braid_net_props props;
	const char *why;
	struct net *net = plugin_up(path, &why);

	if (!why && net_props(net, 0, &props))
		why = net_last_warn();
	for (int kind = 0; kind < LM_KINDS && !why; kind++)
		received(net, fd, kind, false);
	for (int kind = 0; kind < LM_KINDS && !why; kind++) {
		if (props.ptr_support & NCCL_PTR_CUDA)
			received(net, fd, kind, true);
		else
			say("skip", "messages into the GPU", kind,
			    "the device offers no GPU memory");
	}
	if (why)
		say("not ok", "messages", 0, "%s", why);
}

/* -- all of it --------------------------------------------------------------------------------- */

/* Before CUDA: a process that has it can't fork. */
static int other_process(const char *path, pid_t *ret_pid)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
		return -1;
	fflush(NULL);
	*ret_pid = fork();
	if (*ret_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		_exit(sender(path, fds[1]));
	}
	close(fds[1]);
	return fds[0];
}

int main(int argc, char **argv)
{
	const char *err;
	pid_t pid = 0;
	int fd;

	if (argc != 2) {
		fprintf(stderr, "usage: litmus PLUGIN.so\n");
		return 2;
	}
	setenv("BRAID_LANES", "4", 0);
	fd = other_process(argv[1], &pid);
	err = fd < 0 || pid < 0 ? strerror(errno) : lm_init();
	if (err) {
		fprintf(stderr, "%s\n", err);
		return 1;
	}
	for (int kind = 0; kind < LM_KINDS; kind++)
		planted(kind);
	for (int kind = 0; kind < LM_KINDS; kind++)
		staged(kind);
	messages(argv[1], fd);
	close(fd);
	waitpid(pid, NULL, 0);
	return failed;
}
