/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * abi_util.c - the runner and the tools of the ABI tests; abi.h says what each is for.
 *
 * cmocka sees one test per case and ABI version.  Each forks, the child runs the body and leaves
 * with 0, 1 or 77, and the runner judges by that, by the signal that ended it, or by the clock.
 * The child is a process group of its own, so that nothing it started outlives it.
 */
#include "tests/abi/abi.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { EXIT_SKIPPED = 77, EXIT_HARD = 99 };	/* as automake has them */
enum { GUARD = 64, GUARD_BYTE = 0xa5, BLANK_BYTE = 0xee };

static const char *plugin_path;
static unsigned slow = 1;		/* BRAID_TEST_SLOW */
static uint64_t seed_base;		/* BRAID_TEST_SEED */

static struct {				/* of the case that this process runs */
	char name[256];
	uint64_t seed;
	bool loaded;
	bool warns_expected;
} self;

/* -- verdicts ----------------------------------------------------------------------------- */

void fail_at(const char *file, int line, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s:%d: %s\n", file, line, text);
	if (net_warn_count())
		fprintf(stderr, "  last of %u WARN: %s\n", net_warn_count(), net_last_warn());
	fprintf(stderr, "  in: %s (seed %llu)\n", self.name, (unsigned long long)self.seed);
	_exit(1);
}

void skip_because(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "skipped: %s: ", self.name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	_exit(EXIT_SKIPPED);
}

void warns_expected(void)
{
	self.warns_expected = true;
}

void result_is(const char *file, int line, const char *call, ncclResult_t want, ncclResult_t res)
{
	if (res != want)
		fail_at(file, line, "%s gave %s, not %s", call, net_result_name(res),
			net_result_name(want));
}

void equal(const char *file, int line, const char *what, uint64_t want, uint64_t got)
{
	if (want != got)
		fail_at(file, line, "%s is %lld, not %lld", what, (long long)got, (long long)want);
}

/* -- time and chance ---------------------------------------------------------------------- */

uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t deadline_ms(unsigned ms)
{
	return now_us() + (uint64_t)ms * 1000 * slow;
}

void wait_tick(uint64_t deadline, const char *file, int line, const char *what)
{
	if (now_us() > deadline)
		fail_at(file, line, "waited too long for %s", what);
	sched_yield();
}

void nap_ms(unsigned ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

static uint64_t mix(uint64_t x)		/* splitmix64 */
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

uint64_t rnd(struct abi *t)
{
	t->seed += 0x9e3779b97f4a7c15;
	return mix(t->seed);
}

unsigned rnd_below(struct abi *t, unsigned n)
{
	return (unsigned)(rnd(t) % n);
}

void shuffle(struct abi *t, unsigned *v, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned j = rnd_below(t, i + 1);

		v[i] = v[j];
		v[j] = i;
	}
}

/* -- the runner --------------------------------------------------------------------------- */

struct run {
	const struct abi_case *c;
	int abi;
	char name[256];
};

/* cmocka's handlers would carry on with its list in the child: back to what was before it. */
static const int caught[] = { SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS };
static struct sigaction before_cmocka[sizeof(caught) / sizeof(caught[0])];

void end_well(void)
{
	if (net_warn_count() && !self.warns_expected)
		FAIL("%u WARN that nobody expected", net_warn_count());
	fflush(NULL);
	exit(0);
}

static void *no_work(void *arg)
{
	return arg;
}

/* With a process's first thread comes one of ThreadSanitizer's: before anybody counts them. */
static void first_thread(void)
{
	pthread_t th;

	if (!pthread_create(&th, NULL, no_work, NULL))
		pthread_join(th, NULL);
}

static _Noreturn void run_child(const struct run *r)
{
	struct abi t = {
		.abi = r->abi,
		.newest = r->abi == NET_ABI_NEWEST,
		.plugin = plugin_path,
		.seed = seed_base + (uint64_t)r->abi,
	};

	for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
		sigaction(caught[i], &before_cmocka[i], NULL);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	memcpy(self.name, r->name, sizeof(self.name));
	self.seed = seed_base;
	first_thread();
	r->c->body(&t);
	end_well();
}

/* True if it ended in time; *status as waitpid() has it. */
static bool reap(pid_t pid, uint64_t deadline, int *status)
{
	unsigned nap_us = 100;

	for (;;) {
		pid_t got = waitpid(pid, status, WNOHANG);

		if (got == pid)
			return true;
		if (got < 0 && errno != EINTR)
			return false;
		if (now_us() > deadline)
			return false;
		usleep(nap_us);
		nap_us = nap_us < 1000 ? nap_us * 2 : 1000;
	}
}

static void run_case(void **state)
{
	const struct run *r = *state;
	unsigned seconds = r->c->seconds ? (unsigned)r->c->seconds : 20;
	bool ended;
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_return_code(pid, errno);
	if (pid == 0)
		run_child(r);
	setpgid(pid, pid);		/* both do: whoever comes first */
	ended = reap(pid, deadline_ms(seconds * 1000), &status);
	kill(-pid, SIGKILL);
	if (!ended) {
		waitpid(pid, &status, 0);
		fail_msg("still running after %u s", seconds * slow);
	}
	if (WIFSIGNALED(status))
		fail_msg("killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	if (WEXITSTATUS(status) == EXIT_SKIPPED)
		skip();
	if (WEXITSTATUS(status))
		fail_msg("ended with status %d", WEXITSTATUS(status));
}

static void read_environment(void)
{
	const char *text;

	plugin_path = getenv("BRAID_TEST_PLUGIN");
	if (!plugin_path || !*plugin_path)
		plugin_path = "plugin/.libs/libnccl-net-braid.so";
	plugin_path = realpath(plugin_path, NULL);
	if (!plugin_path) {
		fprintf(stderr, "no plugin to test: build it, or set BRAID_TEST_PLUGIN: %s\n",
			strerror(errno));
		exit(EXIT_HARD);
	}
	text = getenv("BRAID_TEST_SLOW");
	if (text && atoi(text) > 1)
		slow = (unsigned)atoi(text);
	text = getenv("BRAID_TEST_SEED");
	seed_base = text ? strtoull(text, NULL, 0) : 1;
	net_log_verbose(getenv("BRAID_TEST_VERBOSE") != NULL);
	cmocka_set_test_filter(getenv("BRAID_TEST_FILTER"));

	/* The plugin warns of BRAID_ variables it does not know, and it is right. */
	unsetenv("BRAID_TEST_PLUGIN");
	unsetenv("BRAID_TEST_SLOW");
	unsetenv("BRAID_TEST_SEED");
	unsetenv("BRAID_TEST_VERBOSE");
	unsetenv("BRAID_TEST_FILTER");
	setenv("BRAID_SOCKET_IFNAME", "lo", 0);
}

static bool is_for(const struct abi_case *c, int abi)
{
	return abi >= c->since && (!c->until || abi <= c->until);
}

int abi_main(const char *group, const struct abi_case *cases, size_t n)
{
	size_t max = n * (NET_ABI_NEWEST - NET_ABI_OLDEST + 1), count = 0;
	struct CMUnitTest *tests = calloc(max, sizeof(*tests));
	struct run *runs = calloc(max, sizeof(*runs));
	int failed;

	if (!tests || !runs)
		return EXIT_HARD;
	read_environment();
	for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
		sigaction(caught[i], NULL, &before_cmocka[i]);
	for (size_t i = 0; i < n; i++) {
		for (int abi = NET_ABI_OLDEST; abi <= NET_ABI_NEWEST; abi++) {
			struct run *r = &runs[count];

			if (!is_for(&cases[i], abi))
				continue;
			r->c = &cases[i];
			r->abi = abi;
			snprintf(r->name, sizeof(r->name), "v%d %s", abi, cases[i].promise);
			tests[count].name = r->name;
			tests[count].test_func = run_case;
			tests[count].initial_state = r;
			count++;
		}
	}
	failed = _cmocka_run_group_tests(group, tests, count, NULL, NULL);
	free(tests);
	free(runs);
	free((char *)plugin_path);
	return failed;
}

/* -- the plugin --------------------------------------------------------------------------- */

bool over_rdma(void)
{
	return getenv("BRAID_TEST_RDMA") || getenv("BRAID_TEST_UCX") || getenv("BRAID_TEST_SMC");
}

void streams_are_ours(void)
{
	const char *ucx = getenv("BRAID_TEST_UCX");

	if (getenv("BRAID_TEST_SMC"))
		skip_because("SMC has TCP connections of its own, which can't be told from ours");
	if (ucx && !strcmp(ucx, "tcp"))
		skip_because("UCX has TCP connections of its own, which can't be told from ours");
}

static const char *listened_for;
static char heard[512];

ncclDebugLogger_t abi_hear(const char *word)
{
	listened_for = word;
	return abi_log;
}

void abi_heard(const char *want)
{
	if (strcmp(heard, want) != 0)
		FAIL("what is told is \"%s\", not \"%s\"", heard, want);
	heard[0] = '\0';
}

void abi_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	const char *nic = getenv("BRAID_TEST_RDMA");
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (nic && strcmp(nic, "roce2") && strstr(text, "RoCE v1 is not routed"))
		level = NCCL_LOG_INFO;
	if (listened_for && strstr(text, listened_for))
		snprintf(heard, sizeof(heard), "%s", strstr(text, listened_for));
	net_log(level, flags, file, line, "%s", text);
}

struct net *abi_up_with(struct abi *t, int traffic_class, ncclProfilerCallback_t prof)
{
	struct net *net;
	char err[512];
	int ndev = 0;

	self.loaded = true;
	net = net_load(t->plugin, t->abi, err, sizeof(err));
	if (!net)
		FAIL("%s", err);
	OK(net_init(net, rnd(t), traffic_class, abi_log, prof));
	OK(net_devices(net, &ndev));
	if (ndev < 1)
		FAIL("no devices");
	return net;
}

struct net *abi_up(struct abi *t)
{
	return abi_up_with(t, NCCL_NET_TRAFFIC_CLASS_UNDEF, NULL);
}

void abi_down(struct net *net)
{
	OK(net_finalize(net));
	net_unload(net);
}

/* -- buffers ------------------------------------------------------------------------------ */

struct buf buf_new(struct net *net, void *comm, size_t size, unsigned misaligned)
{
	struct buf b = {
		.size = size,
		.comm = comm,
		.map_len = GUARD + misaligned + size + GUARD,
	};

	b.map = mmap(NULL, b.map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b.map == MAP_FAILED)
		FAIL("mmap of %zu bytes: %s", b.map_len, strerror(errno));
	b.data = b.map + GUARD + misaligned;
	memset(b.data - GUARD, GUARD_BYTE, GUARD);
	memset(b.data + size, GUARD_BYTE, GUARD);
	if (comm)
		OK(net_reg(net, comm, b.data, size ? size : 1, NCCL_PTR_HOST, &b.mr));
	return b;
}

void buf_guards(const struct buf *b)
{
	for (size_t i = 0; i < GUARD; i++) {
		if (b->data[b->size + i] != GUARD_BYTE)
			FAIL("byte %zu after a buffer of %zu was written", i, b->size);
		if (b->data[i - GUARD] != GUARD_BYTE)
			FAIL("byte %zu before a buffer of %zu was written", GUARD - i, b->size);
	}
}

void buf_free(struct net *net, struct buf *b)
{
	buf_guards(b);
	if (b->comm)
		OK(net_dereg(net, b->comm, b->mr));
	munmap(b->map, b->map_len);
	memset(b, 0, sizeof(*b));
}

static uint64_t word(uint64_t seed, size_t i)
{
	uint64_t x = (seed + i) * 0x9e3779b97f4a7c15;

	return x ^ (x >> 32);
}

void fill(void *data, size_t size, uint64_t seed)
{
	uint8_t *p = data;
	size_t i = 0;

	seed = mix(seed);
	for (; i < size / 8; i++) {
		uint64_t x = word(seed, i);

		memcpy(p + 8 * i, &x, 8);
	}
	if (size % 8) {
		uint64_t x = word(seed, i);

		memcpy(p + 8 * i, &x, size % 8);
	}
}

void filled(const void *data, size_t size, uint64_t seed)
{
	const uint8_t *p = data;
	uint64_t base = mix(seed);

	for (size_t i = 0; 8 * i < size; i++) {
		size_t n = size - 8 * i < 8 ? size - 8 * i : 8;
		uint64_t want = word(base, i), got = want;

		memcpy(&got, p + 8 * i, n);
		if (got != want)
			FAIL("bytes %zu of %zu of message %llu are %016llx, not %016llx", 8 * i,
			     size, (unsigned long long)seed, (unsigned long long)got,
			     (unsigned long long)want);
	}
}

void blank(void *data, size_t size)
{
	memset(data, BLANK_BYTE, size);
}

/* -- operations --------------------------------------------------------------------------- */

static char unwritten;			/* its address: a *request that nobody wrote */

struct op op_group(struct net *net, void *comm)
{
	return (struct op){ .net = net, .comm = comm, .is_recv = true };
}

void op_add(struct op *op, const struct buf *b, size_t size, int tag)
{
	TRUE(op->n < RECVS_MAX);
	op->data[op->n] = b->data;
	op->size[op->n] = size;
	op->tag[op->n] = tag;
	op->mr[op->n] = b->mr;
	op->n++;
}

struct op op_send(struct net *net, void *comm, const struct buf *b, size_t size, int tag)
{
	struct op op = { .net = net, .comm = comm };

	op_add(&op, b, size, tag);
	return op;
}

struct op op_recv(struct net *net, void *comm, const struct buf *b, size_t size, int tag)
{
	struct op op = op_group(net, comm);

	op_add(&op, b, size, tag);
	return op;
}

static ncclResult_t op_call(struct op *op)
{
	if (op->is_recv) {
		op->req = op->optional ? NCCL_NET_OPTIONAL_RECV_COMPLETION : NULL;
		return net_irecv(op->net, op->comm, op->n, op->data, op->size, op->tag, op->mr,
				 op->phandle, &op->req);
	}
	op->req = &unwritten;
	return net_isend(op->net, op->comm, op->data[0], op->size[0], op->tag[0], op->mr[0],
			 op->phandle[0], &op->req);
}

bool op_post(struct op *op)
{
	op->res = op_call(op);
	if (op->res != ncclSuccess) {
		op->posted = true;
		op->done = true;
		return true;
	}
	if (op->req == &unwritten || op->req == NCCL_NET_OPTIONAL_RECV_COMPLETION)
		FAIL("success, but *request was not written");
	op->posted = op->req != NULL;
	return op->posted;
}

bool op_test(struct op *op)
{
	enum { SIZES = 64, UNTOUCHED = -77 };	/* NCCL gives 64, zeroed */
	int sizes[SIZES];
	int done = UNTOUCHED;

	for (int i = 0; i < SIZES; i++)
		sizes[i] = i < op->n ? 0 : UNTOUCHED;
	op->res = net_test(op->net, op->req, &done, op->no_sizes ? NULL : sizes);
	if (op->res != ncclSuccess) {
		op->done = true;
		return true;
	}
	if (done != 0 && done != 1)
		FAIL("test() said success and left done at %d", done);
	for (int i = op->n; i < SIZES; i++)
		if (sizes[i] != UNTOUCHED)
			FAIL("test() wrote size %d of a request of %d", i, op->n);
	op->done = done;
	memcpy(op->got, sizes, sizeof(op->got[0]) * (size_t)op->n);
	return op->done;
}

/* Requests of a comm are posted in the order in which they stand. */
static bool op_next(const struct op *ops, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (!ops[k].posted && ops[k].comm == ops[i].comm)
			return false;
	return true;
}

bool ops_step(struct op *ops, size_t n)
{
	bool all = true;

	for (size_t i = 0; i < n; i++) {
		if (!ops[i].posted && op_next(ops, i))
			op_post(&ops[i]);
		else if (ops[i].posted && !ops[i].done)
			op_test(&ops[i]);
		all = all && ops[i].done;
	}
	return all;
}

void ops_settle(struct op *ops, size_t n)
{
	WAIT_FOR(ops_step(ops, n));
}

static void ops_well(const struct op *ops, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ops[i].res != ncclSuccess)
			FAIL("%s %zu of %zu: %s", ops[i].is_recv ? "receive" : "send", i, n,
			     net_result_name(ops[i].res));
}

void ops_run(struct op *ops, size_t n)
{
	uint64_t end = deadline_ms(10000);

	while (!ops_step(ops, n)) {
		ops_well(ops, n);
		if (now_us() > end)
			for (size_t i = 0; i < n; i++)
				if (!ops[i].done)
					FAIL("%s %zu of %zu, %zu bytes, tag %d, is %s for ever",
					     ops[i].is_recv ? "receive" : "send", i, n,
					     ops[i].size[0], ops[i].tag[0],
					     ops[i].posted ? "under way" : "refused");
		sched_yield();
	}
	ops_well(ops, n);
}

void ops_post(struct op *ops, size_t n)
{
	for (size_t i = 0; i < n; i++)
		WAIT_FOR(op_post(&ops[i]));
	ops_well(ops, n);
}

void exchange(struct net *net, void *send, void *recv, size_t size, uint64_t seed)
{
	struct buf from = buf_new(net, send, size, 0), to = buf_new(net, recv, size, 0);
	struct op ops[] = {
		op_recv(net, recv, &to, size, 0),
		op_send(net, send, &from, size, 0),
	};

	fill(from.data, size, seed);
	ops_run(ops, 2);
	EQ(size, ops[0].got[0]);
	filled(to.data, size, seed);
	buf_free(net, &from);
	buf_free(net, &to);
}

void send_one(struct net *net, void *send, size_t size, uint64_t seed)
{
	struct buf b = buf_new(net, send, size, 0);
	struct op op = op_send(net, send, &b, size, 0);

	fill(b.data, size, seed);
	ops_run(&op, 1);
	EQ(size, op.got[0]);
	buf_free(net, &b);
}

void recv_one(struct net *net, void *recv, size_t size, uint64_t seed)
{
	struct buf b = buf_new(net, recv, size, 0);
	struct op op = op_recv(net, recv, &b, size, 0);

	ops_run(&op, 1);
	EQ(size, op.got[0]);
	filled(b.data, size, seed);
	buf_free(net, &b);
}

/* -- connections -------------------------------------------------------------------------- */

static int device;

void on_device(int dev)
{
	device = dev;
}

bool connect_step(struct net *net, void *handle, void **send)
{
	if (!*send)
		OK(net_connect(net, device, handle, send));
	return *send;
}

bool accept_step(struct net *net, void *listen, void **recv)
{
	if (!*recv)
		OK(net_accept(net, listen, recv));
	return *recv;
}

void pair_listen(struct net *net, struct pair *p)
{
	memset(p, 0, sizeof(*p));
	OK(net_listen(net, device, p->handle, &p->listen));
	TRUE(p->listen);
}

bool pair_step(struct net *net, struct pair *p)
{
	bool connected = connect_step(net, p->handle, &p->send);

	return accept_step(net, p->listen, &p->recv) && connected;
}

void pair_open(struct net *net, struct pair *p)
{
	pair_listen(net, p);
	WAIT_FOR(pair_step(net, p));
	OK(net_close_listen(net, p->listen));
	p->listen = NULL;
}

void pair_close(struct net *net, struct pair *p)
{
	OK(net_close_send(net, p->send));
	OK(net_close_recv(net, p->recv));
	OK(net_close_listen(net, p->listen));
	memset(p, 0, sizeof(*p));
}

void *send_to(struct net *net, int fd)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	void *send = NULL;

	take(fd, handle, sizeof(handle));
	WAIT_FOR(connect_step(net, handle, &send));
	return send;
}

void *recv_from(struct net *net, int fd)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	void *listen = NULL, *recv = NULL;

	OK(net_listen(net, device, handle, &listen));
	give(fd, handle, sizeof(handle));
	WAIT_FOR(accept_step(net, listen, &recv));
	OK(net_close_listen(net, listen));
	return recv;
}

/* -- other processes ---------------------------------------------------------------------- */

struct peer peer_start(const struct abi *t, void (*body)(struct abi *t, int fd))
{
	struct abi theirs = *t;
	struct peer p;
	int fds[2];

	TRUE(!self.loaded);		/* a forked child can't use what the parent has loaded */
	TRUE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	fflush(NULL);
	p.fd = fds[0];
	p.pid = fork();
	TRUE(p.pid >= 0);
	if (p.pid == 0) {
		size_t len = strlen(self.name);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		snprintf(self.name + len, sizeof(self.name) - len, " [peer v%d]", t->abi);
		theirs.seed = mix(t->seed);
		theirs.newest = t->abi == NET_ABI_NEWEST;
		body(&theirs, fds[1]);
		while (recv(fds[1], &(char){ 0 }, 1, 0) > 0)	/* until peer_join() */
			;
		end_well();
	}
	close(fds[1]);
	return p;
}

void peer_join(struct peer *p)
{
	int status;

	close(p->fd);
	if (!reap(p->pid, deadline_ms(10000), &status))
		FAIL("the peer process does not end");
	if (WIFSIGNALED(status))
		FAIL("the peer process was killed by signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status))
		FAIL("the peer process ended with status %d", WEXITSTATUS(status));
}

void peer_kill(struct peer *p)
{
	close(p->fd);
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
}

void give(int fd, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			FAIL("the other process has gone: %s", strerror(errno));
		p += n;
		len -= (size_t)n;
	}
}

void take(int fd, void *data, size_t len)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	uint8_t *p = data;

	while (len) {
		ssize_t n;

		if (!poll(&pfd, 1, 15000 * (int)slow))
			FAIL("the other process says nothing");
		n = recv(fd, p, len, MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			FAIL("the other process has gone");
		p += n;
		len -= (size_t)n;
	}
}

void meet(int fd)
{
	char c = 'm';

	give(fd, &c, 1);
	take(fd, &c, 1);
	EQ('m', c);
}

/* -- this process ------------------------------------------------------------------------- */

static unsigned count_entries(const char *path)
{
	unsigned n = 0;
	DIR *dir = opendir(path);

	TRUE(dir);
	for (struct dirent *e = readdir(dir); e; e = readdir(dir))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

unsigned count_fds(void)
{
	return count_entries("/proc/self/fd");
}

unsigned count_threads(void)
{
	return count_entries("/proc/self/task");
}

static bool is_stream(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(int), peer_len = sizeof(peer);
	int type = 0, domain = 0;

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_STREAM &&
	       !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) &&
	       (domain == AF_INET || domain == AF_INET6) &&
	       !getpeername(fd, (struct sockaddr *)&peer, &peer_len);
}

unsigned count_streams(bool (*each)(int fd))
{
	unsigned n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += is_stream(fd) && each(fd);
	return n;
}
