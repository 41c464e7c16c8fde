/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * abi_util.c - the runner and the common functions of the ABI tests; see abi.h.
 *
 * cmocka sees one test per case and ABI version.  Each forks, the child runs the body and leaves
 * with 0, 1 or 77, and the runner judges by that, by the signal that ended it, or by the clock.
 * The child is a process group of its own, so that nothing it started outlives it.
 */
#include "tests/abi/abi.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
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
enum { HANG_MS = 30000, CASE_S = 90 };		/* long enough with six other tests on a CPU */

static const char *plugin_path;
static bool all_versions, filtered;
static uint64_t seed_base;		/* BRAID_TEST_SEED */

static struct {				/* of the case that this process runs */
	char name[256];
	uint64_t seed;
	bool loaded;
	bool warns_expected;
} self;

/* Ids of all WARN of all processes of a case, "[a][b]". */
static struct reported {
	atomic_uint used;
	char ids[4000];
} *reported;

/* -- verdicts ----------------------------------------------------------------------------- */

static void failed(const char *file, int line, const char *text)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, text);
	if (net_warn_count())
		fprintf(stderr, "  last of %u WARN: %s\n", net_warn_count(), net_last_warn());
	fprintf(stderr, "  in: %s (seed %llu)\n", self.name, (unsigned long long)self.seed);
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

/* -- time and chance ---------------------------------------------------------------------- */

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

/* Signals that cmocka handles: in the child its handlers would run more tests, so they are reset. */
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

/* ThreadSanitizer adds a thread with a process's first: start one before a case counts threads. */
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
	reported = mmap(NULL, sizeof(*reported), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	TRUE(reported != MAP_FAILED);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	memcpy(self.name, r->name, sizeof(self.name));
	self.seed = seed_base;
	first_thread();
	r->c->body(&t);
	for (const char *id = r->c->warns; id && *id; id += strspn(id, " ")) {
		char one[64];

		snprintf(one, sizeof(one), "%.*s", (int)strcspn(id, " "), id);
		warned_with(one);
		id += strcspn(id, " ");
	}
	end_well();
}

/* True if the process ended in time; *status is waitpid()'s. */
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
	unsigned seconds = r->c->seconds ? (unsigned)r->c->seconds : CASE_S;
	bool ended;
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_return_code(pid, errno);
	if (pid == 0)
		run_child(r);
	setpgid(pid, pid);		/* parent and child both call it, so neither must wait */
	ended = reap(pid, deadline_ms(seconds * 1000), &status);
	kill(-pid, SIGKILL);
	if (!ended) {
		waitpid(pid, &status, 0);
		fail_msg("still running after %u s", seconds * drive_slow());
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
	unsigned slow = 1;
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
	drive_set(failed, slow);
	drive_any_order(true);		/* Braid's promise is more than NCCL asks for */
	drive_hang_ms = HANG_MS;
	text = getenv("BRAID_TEST_SEED");
	seed_base = text ? strtoull(text, NULL, 0) : 1;
	net_log_verbose(getenv("BRAID_TEST_VERBOSE") != NULL);
	cmocka_set_test_filter(getenv("BRAID_TEST_FILTER"));
	cmocka_set_skip_filter(getenv("BRAID_TEST_WITHOUT"));
	text = getenv("BRAID_TEST_VERSIONS");
	all_versions = text && !strcmp(text, "all");
	filtered = getenv("BRAID_TEST_FILTER") != NULL;

	/* The plugin would warn of these, since it warns of BRAID_ variables that it does not know. */
	unsetenv("BRAID_TEST_PLUGIN");
	unsetenv("BRAID_TEST_SLOW");
	unsetenv("BRAID_TEST_SEED");
	unsetenv("BRAID_TEST_VERBOSE");
	unsetenv("BRAID_TEST_FILTER");
	unsetenv("BRAID_TEST_VERSIONS");
	unsetenv("BRAID_TEST_WITHOUT");
	setenv("BRAID_SOCKET_IFNAME", "lo", 0);
}

bool abi_versions_all(void)
{
	return all_versions;
}

/* Is case i run for this version?  Most code is common to all versions, so two versions do. */
static bool is_for(const struct abi_case *c, size_t i, int abi)
{
	int first = c->since > NET_ABI_OLDEST ? c->since : NET_ABI_OLDEST;
	int last = c->until ? c->until : NET_ABI_NEWEST;
	const char *text = c->promise;
	unsigned turn = 0;

	if (abi < first || abi > last)
		return false;
	if (all_versions || filtered || c->every || abi == last)
		return true;
	while (*text)			/* so that programs with few cases begin with different versions */
		turn += (unsigned char)*text++;
	return abi == first + (int)((i + turn) % (unsigned)(last - first));
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

			if (!is_for(&cases[i], i, abi))
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

void lines_add(struct lines *l, const char *line)
{
	unsigned len = (unsigned)strlen(line), at = atomic_fetch_add(&l->used, len + 1);

	if (at + len + 2 > sizeof(l->text))
		return;
	memcpy(l->text + at, line, len);
	l->text[at + len] = '\n';
}

void lines_clear(struct lines *l)
{
	memset(l->text, 0, sizeof(l->text));
	atomic_store(&l->used, 0);
}

static const char *listened_for;
static pthread_mutex_t heard_lock = PTHREAD_MUTEX_INITIALIZER;
static char heard[512];			/* under heard_lock: the plugin's threads write it */
static atomic_bool has_heard;
static atomic_uint heard_lines[2];	/* 1: WARNs */

ncclDebugLogger_t abi_hear(const char *word)
{
	listened_for = word;
	return abi_log;
}

void abi_heard(const char *want)
{
	char got[sizeof(heard)];

	pthread_mutex_lock(&heard_lock);
	memcpy(got, heard, sizeof(got));
	heard[0] = '\0';
	atomic_store(&has_heard, false);
	pthread_mutex_unlock(&heard_lock);
	if (strcmp(got, want) != 0)
		FAIL("what is reported is \"%s\", not \"%s\"", got, want);
}

unsigned abi_heard_lines(bool warns)
{
	return atomic_load(&heard_lines[warns]);
}

bool abi_has_heard(void)
{
	return atomic_load(&has_heard);
}

static void note_id(const char *text)
{
	const char *id = strrchr(text, '[');
	unsigned at, len = id ? (unsigned)strlen(id) : 0;

	if (!id || strstr(reported->ids, id))
		return;
	at = atomic_fetch_add(&reported->used, len);
	if (at + len < sizeof(reported->ids))
		memcpy(reported->ids + at, id, len);
}

void warned_with(const char *id)
{
	char text[64];

	snprintf(text, sizeof(text), "[%s]", id);
	if (!strstr(reported->ids, text))
		FAIL("no warning has %s: there were \"%s\"", text, reported->ids);
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
	if (getenv("BRAID_TEST_UCX") && strstr(text, "[ucx-listens]"))
		level = NCCL_LOG_INFO;		/* tests/ucx/tcp.sh reads it */
	if (level == NCCL_LOG_WARN)
		note_id(text);
	if (listened_for && strstr(text, listened_for)) {
		atomic_fetch_add(&heard_lines[level == NCCL_LOG_WARN], 1);
		pthread_mutex_lock(&heard_lock);
		snprintf(heard, sizeof(heard), "%s", strstr(text, listened_for));
		atomic_store(&has_heard, true);
		pthread_mutex_unlock(&heard_lock);
	}
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
	if (!reap(p->pid, deadline_ms(drive_hang_ms), &status))
		FAIL("the peer process does not end");
	if (WIFSIGNALED(status))
		FAIL("the peer process was killed by signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status))
		FAIL("the peer process ended with status %d", WEXITSTATUS(status));
}

void peer_stopped(const struct peer *p)
{
	int status;

	TRUE(waitpid(p->pid, &status, WUNTRACED) == p->pid && WIFSTOPPED(status));
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

		if (!poll(&pfd, 1, (int)(drive_hang_ms * drive_slow()) * 3 / 2))
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

	OK(net_listen(net, the_device(), handle, &listen));
	give(fd, handle, sizeof(handle));
	WAIT_FOR(accept_step(net, listen, &recv));
	OK(net_close_listen(net, listen));
	return recv;
}
