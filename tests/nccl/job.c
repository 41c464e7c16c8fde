/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job.c - the program: starts the ranks of each case, waits for them, and prints the results as TAP.
 *
 * usage: job [OPTION...] CASE...      job --list      job --can (77, and why, if it can't)
 *   --ranks N       instead of the case's own number
 *   --per-host N    so many ranks have the same NCCL_HOSTID (1)
 *   --threads N     so many ranks are threads of one process, each with a GPU of its own (1)
 *   --netns A,B     ranks are in these network namespaces in turn
 *   --label TEXT    stands before each case's name
 *
 * libnccl.so.2 is LIBNCCL, or what the loader finds.
 */
#include "tests/nccl/job.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct options {
	int ranks, per_host;
	int threads;			/* ranks of a process */
	char *netns[RANKS_MAX];
	int nnetns;
	const char *label, *dir;
	bool verbose;			/* BRAID_TEST_VERBOSE: all that ranks print is shown */
	unsigned slow;
};

static struct options opt = { .per_host = 1, .threads = 1, .label = "", .slow = 1 };

/* -- in a rank -------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	size_t at;
} functions[] = {
	{ "ncclGetUniqueId", offsetof(struct nccl_api, get_unique_id) },
	{ "ncclCommInitRank", offsetof(struct nccl_api, comm_init_rank) },
	{ "ncclCommSplit", offsetof(struct nccl_api, comm_split) },
	{ "ncclCommDestroy", offsetof(struct nccl_api, comm_destroy) },
	{ "ncclCommAbort", offsetof(struct nccl_api, comm_abort) },
	{ "ncclCommGetAsyncError", offsetof(struct nccl_api, comm_get_async_error) },
	{ "ncclGetErrorString", offsetof(struct nccl_api, get_error_string) },
	{ "ncclGetLastError", offsetof(struct nccl_api, get_last_error) },
	{ "ncclGroupStart", offsetof(struct nccl_api, group_start) },
	{ "ncclGroupEnd", offsetof(struct nccl_api, group_end) },
	{ "ncclAllReduce", offsetof(struct nccl_api, all_reduce) },
	{ "ncclReduce", offsetof(struct nccl_api, reduce) },
	{ "ncclBroadcast", offsetof(struct nccl_api, broadcast) },
	{ "ncclAllGather", offsetof(struct nccl_api, all_gather) },
	{ "ncclReduceScatter", offsetof(struct nccl_api, reduce_scatter) },
	{ "ncclSend", offsetof(struct nccl_api, send) },
	{ "ncclRecv", offsetof(struct nccl_api, recv) },
	{ "ncclRedOpCreatePreMulSum", offsetof(struct nccl_api, op_create) },
	{ "ncclRedOpDestroy", offsetof(struct nccl_api, op_destroy) },
};

static const struct nccl_api *load_nccl(void)
{
	static struct nccl_api api;
	const char *path = getenv("LIBNCCL"), *why;
	void *lib = gpu_lead(path && *path ? path : "libnccl.so.2", &why);

	if (!lib)
		skip(why);
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *fn = dlsym(lib, functions[i].name);

		if (!fn)
			fail("NCCL has no %s", functions[i].name);
		memcpy((char *)&api + functions[i].at, &fn, sizeof(fn));
	}
	return &api;
}

/* Variables that are set already stay: the case or its caller may need another value. */
static void set_environment(int process)
{
	static const char *const standard[][2] = {
		{ "NCCL_P2P_DISABLE", "1" }, { "NCCL_SHM_DISABLE", "1" }, { "NCCL_CUMEM_ENABLE", "0" },
		{ "NCCL_ALGO", "Ring" }, { "NCCL_PROTO", "^LL128" }, { "NCCL_NET", "Braid" },
		{ "NCCL_DEBUG", "WARN" }, { "NCCL_RAS_ENABLE", "0" }, { "NCCL_NVLS_ENABLE", "0" },
		{ "NCCL_SOCKET_IFNAME", "=lo" }, { "NCCL_MAX_NCHANNELS", "2" },
		{ "NCCL_NET_PLUGIN_REF_COUNT", "1" },
	};
	const char *plugin = getenv("BRAID_TEST_PLUGIN");
	char text[64];

	for (size_t i = 0; i < sizeof(standard) / sizeof(standard[0]); i++)
		setenv(standard[i][0], standard[i][1], 0);
	if (plugin)
		setenv("NCCL_NET_PLUGIN", plugin, 0);
	snprintf(text, sizeof(text), "job-%d-%d", getppid(), process * opt.threads / opt.per_host);
	setenv("NCCL_HOSTID", text, 1);
	snprintf(text, sizeof(text), "%d", process * opt.threads % opt.per_host);
	setenv("BRAID_TEST_GPU_FIRST", text, 1);
	snprintf(text, sizeof(text), "%d", opt.threads);
	setenv("BRAID_TEST_GPU_COUNT", text, 1);
}

static void enter_netns(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		fail("network namespace %s: %s", name, strerror(errno));
	close(fd);
}

struct thread {
	struct rank rank;
	const struct nccl_case *c;
	int status;
};

static void *thread_main(void *arg)
{
	struct thread *t = arg;
	int (*set_device)(int);

	*(void **)&set_device = gpu_runtime_entry("cudaSetDevice");
	set_device(t->rank.rank % opt.threads);
	t->status = t->c->body(&t->rank);
	return NULL;
}

static int run_threads(const struct nccl_case *c, const struct rank *first)
{
	struct thread threads[RANKS_MAX];
	pthread_t ids[RANKS_MAX];
	int status = 0;

	for (int i = 0; i < opt.threads; i++) {
		threads[i] = (struct thread){ .rank = *first, .c = c };
		threads[i].rank.rank += i;
		if (pthread_create(&ids[i], NULL, thread_main, &threads[i]))
			fail("no thread");
	}
	for (int i = 0; i < opt.threads; i++) {
		pthread_join(ids[i], NULL);
		status |= threads[i].status;
	}
	return status;
}

static int process_main(const struct nccl_case *c, struct rank *r, int process)
{
	struct thread t = { .c = c };
	char why[64];

	if (freopen(r->log, "w", stdout) == NULL || dup2(1, 2) < 0)
		_exit(1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (opt.nnetns)
		enter_netns(opt.netns[process % opt.nnetns]);
	set_environment(process);
	r->rank = process * opt.threads;
	r->nccl = load_nccl();
	if (!gpu_known && !c->unknown_too) {
		snprintf(why, sizeof(why), "the layouts of NCCL %d are not known", gpu_version);
		skip(why);
	}
	if (opt.threads > 1)
		return run_threads(c, r);
	t.rank = *r;
	thread_main(&t);
	return t.status;
}

/* -- the launcher ----------------------------------------------------------------------------------- */

static void show(const char *path)
{
	FILE *f = fopen(path, "r");
	char line[1024];
	long size;

	if (!f)
		return;
	fseek(f, 0, SEEK_END);
	size = ftell(f);
	fseek(f, size > 3000 && !opt.verbose ? size - 3000 : 0, SEEK_SET);
	printf("# ---- %s\n", path);
	while (fgets(line, sizeof(line), f))
		printf("# %s", line);
	fclose(f);
}

static void skip_reason(const char *path, char *ret, size_t len)
{
	FILE *f = fopen(path, "r");
	char line[1024];

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "skip: ", 6)) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(ret, len, "%.200s", line + 6);
		}
	}
	if (f)
		fclose(f);
}

static void kill_all(const struct board *b, int n)
{
	for (int i = 0; i < n; i++) {
		if (b->pids[i] > 0)
			kill(b->pids[i], SIGKILL);
	}
}

/* Counts ranks that exited with 0, with 77, and otherwise.  If one fails, the others are killed. */
static void wait_all(const struct nccl_case *c, struct board *b, int n, unsigned seconds, int *ret_good,
	int *ret_skipped, int *ret_bad)
{
	double end = now_s() + seconds;
	int left = n, lost = 0;

	while (left) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid <= 0) {
			if (now_s() > end) {
				printf("# not done after %u s\n", seconds);
				kill_all(b, n);
				end += 1e6;
				++*ret_bad;
			}
			sleep_ms(2);
			continue;
		}
		left--;
		for (int i = 0; i < n; i++)
			b->pids[i] = b->pids[i] == pid ? 0 : b->pids[i];
		if (WIFEXITED(status) && !WEXITSTATUS(status)) {
			++*ret_good;
		} else if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
			++*ret_skipped;
			kill_all(b, n);
		} else if (c->loses_rank && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !lost++) {
			++*ret_good;
		} else {
			++*ret_bad;
			if (!*ret_skipped && *ret_bad == 1)
				printf("# a rank ended with %s %d\n", WIFEXITED(status) ? "status" : "signal",
					WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
			kill_all(b, n);
		}
	}
}

static void log_name(char *ret, size_t len, int i)
{
	snprintf(ret, len, "%s/rank%d.log", opt.dir, i);
}

static void start_all(const struct nccl_case *c, struct board *b, int nranks, int nprocesses)
{
	static char log[128];

	fflush(stdout);
	for (int i = 0; i < nprocesses; i++) {
		pid_t pid = fork();

		if (pid < 0)
			fail("fork: %s", strerror(errno));
		if (!pid) {
			struct rank r = { .nranks = nranks, .board = b, .log = log,
				.seconds = c->seconds * opt.slow };

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			log_name(log, sizeof(log), i);
			i = process_main(c, &r, i);
			fflush(stdout);
			_exit(i);
		}
		b->pids[i] = pid;
	}
}

static bool run_case(const struct nccl_case *c)
{
	int nranks = opt.ranks ? opt.ranks : c->ranks, n = nranks / opt.threads, good = 0, skipped = 0, bad = 0;
	struct board *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double begin = now_s();
	char path[128], why[256] = "";

	if (b == MAP_FAILED)
		fail("no memory");
	start_all(c, b, nranks, n);
	wait_all(c, b, n, (c->seconds + 20) * opt.slow, &good, &skipped, &bad);
	munmap(b, sizeof(*b));
	for (int i = 0; i < n; i++) {
		log_name(path, sizeof(path), i);
		skip_reason(path, why, sizeof(why));
		if ((bad && !skipped) || opt.verbose)
			show(path);
	}
	if (skipped)
		printf("ok - %s%s # SKIP %s\n", opt.label, c->promise, why);
	else
		printf("%sok - %s%s\n", bad ? "not " : "", opt.label, c->promise);
	printf("# %s: %.1f s\n", c->name, now_s() - begin);
	fflush(stdout);
	return skipped || !bad;
}

static const struct nccl_case *find_case(const char *name)
{
	static const struct nccl_case *const groups[] = { cases_values, cases_life, cases_faults, cases_bench };

	for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
		for (const struct nccl_case *c = groups[g]; c->name; c++) {
			if (!name)
				printf("%-16s %s\n", c->name, c->promise);
			else if (!strcmp(c->name, name))
				return c;
		}
	}
	return NULL;
}

static char *split(char *list)
{
	for (char *p = strtok(list, ","); p && opt.nnetns < RANKS_MAX; p = strtok(NULL, ","))
		opt.netns[opt.nnetns++] = p;
	return list;
}

static int parse(int argc, char **argv)
{
	const char *slow = getenv("BRAID_TEST_SLOW");
	int i;

	opt.verbose = getenv("BRAID_TEST_VERBOSE") != NULL;
	opt.slow = slow && atoi(slow) > 0 ? (unsigned)atoi(slow) : 1;
	for (i = 1; i < argc && !strncmp(argv[i], "--", 2); i++) {
		bool more = i + 1 < argc;

		if (!strcmp(argv[i], "--threads") && more)
			opt.threads = opt.per_host = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--ranks") && more)
			opt.ranks = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--per-host") && more)
			opt.per_host = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--label") && more)
			opt.label = argv[++i];
		else if (!strcmp(argv[i], "--netns") && more)
			split(argv[++i]);
		else
			return 0;
	}
	return opt.ranks > RANKS_MAX || opt.per_host < 1 || opt.threads < 1 ? 0 : i;
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/braid-nccl-XXXXXX", path[128];
	int i = parse(argc, argv), n = 0;
	bool good = true;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		find_case(NULL);
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "--can"))
		_exit(!load_nccl());
	if (!i || i == argc || !mkdtemp(dir)) {
		fprintf(stderr, "usage: job [--ranks N] [--per-host N] [--threads N] [--netns A,B] "
			"[--label TEXT] CASE... | --list | --can\n");
		return 2;
	}
	opt.dir = dir;
	for (; i < argc; i++, n++) {
		const struct nccl_case *c = find_case(argv[i]);

		if (!c) {
			fprintf(stderr, "no case %s: job --list\n", argv[i]);
			return 2;
		}
		good &= run_case(c);
	}
	printf("1..%d\n", n);
	for (i = 0; i < RANKS_MAX; i++) {
		log_name(path, sizeof(path), i);
		unlink(path);
	}
	rmdir(dir);
	return !good;
}
