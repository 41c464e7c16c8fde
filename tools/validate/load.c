/* SPDX-License-Identifier: BSD-3-Clause */
/* load.c - does the plugin load as NCCL loads it, again and again, and is it a good guest? */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/validate/far.h"

extern char **environ;

static void opens(struct validate *v)
{
	void *dl = dlopen(v->w->plugin, RTLD_NOW | RTLD_LOCAL);

	if (!dl)
		FAIL("%s", dlerror());
	saw(v, "%s", v->w->plugin);
}

/* Call each() with every version that the plugin has; returns how many. */
static unsigned versions(struct validate *v, void (*each)(struct validate *v, struct net *net))
{
	unsigned n = 0;
	char err[512];

	for (int abi = NET_ABI_OLDEST; abi <= NET_ABI_NEWEST; abi++) {
		struct net *net = net_load(v->w->plugin, abi, err, sizeof(err));

		if (!net)
			continue;
		step(v, "version %d", abi);
		each(v, net);
		net_unload(net);
		n++;
	}
	if (!n)
		FAIL("%s", err);
	return n;
}

static char list[128];

static void name_version(struct validate *v, struct net *net)
{
	(void)v;
	snprintf(list + strlen(list), sizeof(list) - strlen(list), " v%d", net->abi);
}

static void symbols(struct validate *v)
{
	versions(v, name_version);
	saw(v, "ncclNetPlugin%s", list);
}

static char first_name[64];

static void same_name(struct validate *v, struct net *net)
{
	(void)v;
	if (!net->name || !*net->name)
		FAIL("version %d has no name", net->abi);
	if (!*first_name)
		snprintf(first_name, sizeof(first_name), "%s", net->name);
	if (strcmp(first_name, net->name) != 0)
		FAIL("version %d is called %s, another %s", net->abi, net->name, first_name);
}

static void name(struct validate *v)
{
	versions(v, same_name);
	saw(v, "%s", first_name);
}

/* Every pointer of each table must be set, except those that may be NULL for NCCL. */
#define HAS(V, m)								\
	(((const ncclNet_v##V##_t *)net->table)->m ? (void)0 :			\
		FAIL("version %d has no " #m, net->abi))

static void full_table(struct validate *v, struct net *net)
{
	(void)v;
	if (net->abi == 5) {
		HAS(5, init), HAS(5, devices), HAS(5, getProperties), HAS(5, listen);
		HAS(5, connect), HAS(5, accept), HAS(5, regMr), HAS(5, deregMr), HAS(5, isend);
		HAS(5, irecv), HAS(5, test), HAS(5, closeSend), HAS(5, closeRecv);
		HAS(5, closeListen);
		return;
	}
	HAS(6, init), HAS(6, devices), HAS(6, getProperties), HAS(6, listen), HAS(6, connect);
	HAS(6, accept), HAS(6, regMr), HAS(6, deregMr), HAS(6, isend), HAS(6, irecv);
	HAS(6, test), HAS(6, closeSend), HAS(6, closeRecv), HAS(6, closeListen);
	if (net->abi >= 11)
		HAS(11, finalize);
}

static void members(struct validate *v)
{
	saw(v, "%u tables", versions(v, full_table));
}

static void up_down(struct validate *v, struct net *net)
{
	int n = 0;

	(void)v;
	OK(net_init(net, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, net_log, NULL));
	OK(net_devices(net, &n));
	OK(net_finalize(net));
}

static void init(struct validate *v)
{
	saw(v, "%u versions", versions(v, up_down));
}

static void again(struct validate *v)
{
	enum { ROUNDS = 100 };
	struct counts first;
	void *ctx;

	net_up(v);
	if (v->abi < 11)
		skip(v, "there is no finalize in version %d", v->abi);
	first = counts_now();
	for (int i = 0; i < ROUNDS; i++) {
		step(v, "init %d of %d", i + 1, ROUNDS);
		OK(net_init_ctx(v->net, &ctx, (uint64_t)i, NCCL_NET_TRAFFIC_CLASS_UNDEF, net_log,
				NULL));
		OK(net_finalize_ctx(v->net, ctx));
	}
	check_growth(v, first, counts_now(), ROUNDS);
}

static void contexts(struct validate *v)
{
	struct pair p;
	void *ctx;

	net_up(v);
	needs_abi(v, 11);
	OK(net_init_ctx(v->net, &ctx, 7, NCCL_NET_TRAFFIC_CLASS_UNDEF, net_log, NULL));
	OK(net_finalize_ctx(v->net, ctx));
	step(v, "a message over the context that is left");
	pair_open(v->net, &p);
	exchange(v->net, p.send, p.recv, 4096, 1);
	pair_close(v->net, &p);
	OK(net_finalize(v->net));
}

static void forks(struct validate *v)
{
	struct pair p;
	int status;
	pid_t pid;

	net_up(v);
	pair_open(v->net, &p);
	exchange(v->net, p.send, p.recv, 100, 1);
	pid = fork();
	TRUE(pid >= 0);
	if (pid == 0)
		exit(0);
	step(v, "waiting for the child");
	TRUE(waitpid(pid, &status, 0) == pid);
	if (status)
		FAIL("a child that does nothing but exit() ends with status %d", status);
	step(v, "a message after the fork");
	exchange(v->net, p.send, p.recv, 100000, 2);
	pair_close(v->net, &p);
}

static void reload(struct validate *v)
{
	struct counts first = { 0, 0 };

	for (int i = 0; i < 10; i++) {
		step(v, "load %d of 10", i + 1);
		net_up(v);
		OK(net_finalize(v->net));
		net_unload(v->net);
		if (i == 1)
			first = counts_now();
	}
	check_growth(v, first, counts_now(), 10);
}

/* A plugin runs in a process whose output others read. */
static void quiet(struct validate *v)
{
	int fds[2], kept = dup(STDOUT_FILENO);
	char said[80] = "";
	struct pair p;
	ssize_t n;

	TRUE(pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0);
	dup2(fds[1], STDOUT_FILENO);
	net_up(v);
	pair_open(v->net, &p);
	exchange(v->net, p.send, p.recv, 100, 1);
	pair_close(v->net, &p);
	OK(net_finalize(v->net));
	fflush(stdout);
	dup2(kept, STDOUT_FILENO);
	n = read(fds[0], said, sizeof(said) - 1);
	if (n > 0)
		FAIL("it wrote to stdout: '%s'", said);
}

static void signals(struct validate *v)
{
	struct sigaction before[NSIG], now;
	struct pair p;

	for (int s = 1; s < NSIG; s++)
		sigaction(s, NULL, &before[s]);
	net_up(v);
	pair_open(v->net, &p);
	pair_close(v->net, &p);
	for (int s = 1; s < NSIG; s++)
		if (sigaction(s, NULL, &now) == 0 && now.sa_handler != before[s].sa_handler)
			FAIL("it changed what becomes of signal %d (%s)", s, strsignal(s));
}

static uint64_t environment(void)
{
	uint64_t sum = 0;

	for (char **e = environ; *e; e++)
		for (const char *c = *e; *c; c++)
			sum = mix(sum + (unsigned char)*c);
	return sum;
}

static void environ_kept(struct validate *v)
{
	uint64_t before = environment();

	net_up(v);
	OK(net_finalize(v->net));
	if (environment() != before)
		FAIL("it changed the environment of its process");
}

static void bad_version(struct validate *v)
{
	void *dl = dlopen(v->w->plugin, RTLD_NOW | RTLD_LOCAL);

	if (!dl)
		FAIL("%s", dlerror());
	for (int i = 0; i < 100; i += 99) {
		char symbol[32];

		snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", i);
		if (dlsym(dl, symbol))
			FAIL("it has %s, which there is not", symbol);
	}
	if (dlsym(dl, "ncclCollNetPlugin_v8"))
		note(v, "it has collNet as well, which is not looked at here");
}

const struct vcheck validate_load[] = {
	{ "load-open", "The file can be loaded, all its symbols bound",
	  "ldd on the file says what is missing; install that, or build the plugin for this host",
	  opens, V_HERE, 0 },
	{ "load-symbols", "It has a table that NCCL looks for",
	  "It is no net plugin, or of versions that are not known here: see nm -D on the file",
	  symbols, V_HERE, 0 },
	{ "load-name", "All its tables have one name", REPORT,
	  name, V_HERE, 0 },
	{ "load-members", "No table lacks a call that NCCL makes unasked",
	  "NCCL would crash: report it to who made the plugin", members, V_HERE, 0 },
	{ "load-init", "Every version can be initialized and finalized",
	  "braid info --verbose says what it complains of", init, V_HERE, 0 },
	{ "load-versions", "It has no table that NCCL could take for another",
	  REPORT, bad_version, V_HERE, 0 },
	{ "load-again", "100 times init and finalize leave nothing behind",
	  "Jobs that make many communicators run out of descriptors: report it", again, V_HERE,
	  60 },
	{ "load-contexts", "Of two contexts one can be finalized, and the other works",
	  "Communicators that end break others: report it", contexts, V_HERE, 0 },
	{ "load-fork", "A child that only exits does no harm",
	  "Data loaders and popen() break jobs: set IBV_FORK_SAFE=1, or report it", forks, V_HERE,
	  0 },
	{ "load-reload", "It can be unloaded and loaded again", REPORT,
	  reload, V_HERE, 60 },
	{ "load-stdout", "It writes nothing to stdout",
	  "Set its log file (NCCL_DEBUG_FILE), or report it", quiet, V_HERE, 0 },
	{ "load-signals", "It leaves signals alone", REPORT, signals,
	  V_HERE, 0 },
	{ "load-environment", "It leaves the environment alone",
	  REPORT, environ_kept, V_HERE, 0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
