/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks.c - see ranks.h: the processes of ranks, what they share, and their groups. */
#include "config.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/validate/ranks.h"

enum { CHECK_S = 20, SPARE_S = 4, LOOK_US = 1000 };
enum { STEP_LEN = 96, SAW_LEN = 200 };

enum fate { FATE_NONE, FATE_FAIL, FATE_SKIP };

static struct world {			/* what the check's process and all ranks share */
	atomic_uint present, arrived, turn;
	atomic_bool killed[RANKS_MAX], done[RANKS_MAX];
	pid_t pid[RANKS_MAX];
	atomic_ullong note[NOTES];
	atomic_bool is_told;		/* a rank writes the next three, and then `fate` */
	_Atomic enum fate fate;
	bool late;
	char text[FINDING_LINE];
	char step[RANKS_MAX][STEP_LEN], saw[SAW_LEN];
	_Alignas(16) uint8_t handle[OPENED_MAX][RANKS_MAX][NCCL_NET_HANDLE_MAXSIZE];
} *world;

static struct rank *self;		/* of this process; NULL in the check's own */

/* -- what a rank says --------------------------------------------------------------------- */

void at(struct rank *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(world->step[r->rank], STEP_LEN, fmt, ap);
	va_end(ap);
}

void rank_saw(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(world->saw, SAW_LEN, fmt, ap);
	va_end(ap);
}

/* The first one counts: the others may fail because of it. */
static _Noreturn void tell(enum fate fate, const char *text)
{
	if (!atomic_exchange(&world->is_told, true)) {
		snprintf(world->text, sizeof(world->text), "%s", text);
		world->late = drive_late;
		atomic_store(&world->fate, fate);
	}
	_exit(1);
}

static void rank_failed(const char *file, int line, const char *text)
{
	const char *warn = net_last_warn(), *step = world->step[self->rank];
	char all[FINDING_LINE];

	(void)file, (void)line;
	snprintf(all, sizeof(all), "rank %u%s%s: %.220s%s%.180s", self->rank, *step ? ", " : "",
		 step, text, *warn ? "; the plugin's last warning: " : "", warn);
	tell(FATE_FAIL, all);
}

void rank_skip(const char *fmt, ...)
{
	char text[SAW_LEN];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	tell(FATE_SKIP, text);
}

/* -- a rank's process --------------------------------------------------------------------- */

bool rma_is_offered(const char *path, int version)
{
	void *dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	bool found = false;
	char symbol[32];

	for (int i = RMA_ABI_OLDEST; dl && i <= RMA_ABI_NEWEST; i++) {
		snprintf(symbol, sizeof(symbol), "ncclRmaPlugin_v%d", i);
		found |= (!version || i == version) && dlsym(dl, symbol);
	}
	if (dl)
		dlclose(dl);
	return found;
}

/* The device that --device names, by number or name; 0 if it names none. */
static int device(struct rma *rma, const char *want, int n)
{
	ncclNetProperties_v12_t p;
	char *end;
	long i = want ? strtol(want, &end, 10) : 0;

	if (!want || (*want && !*end && i >= 0 && i < n))
		return (int)i;
	for (i = 0; i < n; i++)
		if (rma_props(rma, (int)i, &p) == ncclSuccess && p.name &&
		    strcmp(p.name, want) == 0)
			return (int)i;
	rank_skip("device '%s' is not one of those for one-sided operations", want);
}

static void rank_up(struct rank *r, int version)
{
	ncclNetProperties_v12_t p;
	char err[512];
	int n = 0;

	at(r, "loading the plugin");
	setenv("BRAID_RMA", "on", 0);
	if (!rma_is_offered(r->v->w->plugin, version))
		rank_skip("it offers no one-sided operations: no ncclRmaPlugin_v%d to v%d",
			  RMA_ABI_OLDEST, RMA_ABI_NEWEST);
	r->rma = rma_load(r->v->w->plugin, version, err, sizeof(err));
	if (!r->rma)
		rank_skip("its table can't be used: --only rma-load says why");
	at(r, "init");
	/* A plugin may decline: NCCL then looks for another, and says nothing. */
	if (rma_init(r->rma, &r->ctx, 42, net_log) != ncclSuccess)
		rank_skip("it declines one-sided operations here: init fails%s%.120s",
			  *net_last_warn() ? ": " : "", net_last_warn());
	OK(rma_devices(r->rma, &n));
	if (n < 1)
		rank_skip("it offers no device for one-sided operations here");
	r->dev = device(r->rma, r->v->w->dev, n);
	OK(rma_props(r->rma, r->dev, &p));
	r->budget = p.maxRecvs > 0 && p.maxRecvs <= RECVS_MAX ? 32u * (unsigned)p.maxRecvs : 32;
}

static _Noreturn void rank_main(struct validate *v, unsigned rank, unsigned n, int version,
				void (*body)(struct rank *r))
{
	struct rank r = { .v = v, .rank = rank, .n = n };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(v->out);
	v->out = -1;
	self = &r;
	drive_set(rank_failed, 1);
	drive_hang_ms = WAIT_MS;
	rank_up(&r, version);
	quietly_together(&r);
	at(&r, "%s", "");
	body(&r);
	at(&r, "finalize");
	OK(rma_finalize(r.rma, r.ctx));
	rma_unload(r.rma);
	atomic_store(&world->done[rank], true);
	_exit(0);
}

/* -- the check's process ------------------------------------------------------------------ */

static void pass_on(struct validate *v)
{
	drive_late = world->late;
	if (world->fate == FATE_SKIP)
		skip(v, "%s", world->text);
	FAIL("%s", world->text);
}

/* A rank that ends by itself, and has not said why, has crashed. */
static bool look_at(struct validate *v, unsigned i)
{
	const char *step = world->step[i];
	int status;

	if (atomic_load(&world->done[i]) || atomic_load(&world->killed[i]))
		return true;
	if (waitpid(world->pid[i], &status, WNOHANG) != world->pid[i])
		return false;
	if (atomic_load(&world->done[i]))
		return true;
	if (atomic_load(&world->fate))
		pass_on(v);
	if (WIFSIGNALED(status))
		FAIL("rank %u was killed by signal %d (%s)%s%s", i, WTERMSIG(status),
		     strsignal(WTERMSIG(status)), *step ? ", at: " : "", step);
	if (!atomic_load(&world->is_told))
		FAIL("rank %u has ended%s%s", i, *step ? ", at: " : "", step);
	return false;
}

static void watch_ranks(struct validate *v, unsigned n)
{
	int seconds = (v->check->seconds ? v->check->seconds : CHECK_S) - SPARE_S;
	uint64_t end = deadline_ms((unsigned)seconds * 1000);
	unsigned over;

	do {
		usleep(LOOK_US);
		over = 0;
		for (unsigned i = 0; i < n; i++)
			over += look_at(v, i);
		if (atomic_load(&world->fate))
			pass_on(v);
		for (unsigned i = 0; now_us() > end && i < n; i++)
			if (!atomic_load(&world->done[i]) && !atomic_load(&world->killed[i]))
				LATE("rank %u hangs: no end after %d s%s%s", i, seconds,
				     *world->step[i] ? ", at: " : "", world->step[i]);
	} while (over < n);
}

void ranks_run_version(struct validate *v, int version, unsigned n, void (*body)(struct rank *r))
{
	TRUE(n <= RANKS_MAX);
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	TRUE(world != MAP_FAILED);
	atomic_store(&world->present, n);
	for (unsigned i = 0; i < n; i++) {
		pid_t pid = fork();

		TRUE(pid >= 0);
		if (pid == 0)
			rank_main(v, i, n, version, body);
		world->pid[i] = pid;
	}
	watch_ranks(v, n);
	if (*world->saw)
		saw(v, "%s", world->saw);
	munmap(world, sizeof(*world));
}

void ranks_run(struct validate *v, unsigned n, void (*body)(struct rank *r))
{
	step(v, "%u ranks", n);
	ranks_run_version(v, 0, n, body);
}

static void nothing(struct rank *r)
{
	(void)r;
}

void needs_rma(struct validate *v)
{
	ranks_run(v, 1, nothing);
}

/* -- what ranks share --------------------------------------------------------------------- */

static void meet_all(struct rank *r, bool ticks)
{
	unsigned turn = atomic_load(&world->turn);
	uint64_t end = deadline_ms(drive_hang_ms);

	if (atomic_fetch_add(&world->arrived, 1) + 1 == atomic_load(&world->present)) {
		atomic_store(&world->arrived, 0);
		atomic_store(&world->turn, turn + 1);
		return;
	}
	while (atomic_load(&world->turn) == turn) {
		for (unsigned i = 0; ticks && i < GROUPS_MAX; i++)
			if (r->groups[i] && r->groups[i]->ctx)
				tick(r->groups[i]);
		wait_tick(end, __FILE__, __LINE__, "the other ranks");
	}
}

void together(struct rank *r)
{
	meet_all(r, true);
}

void quietly_together(struct rank *r)
{
	meet_all(r, false);
}

void rank_kill(struct rank *r, unsigned rank)
{
	TRUE(rank != r->rank);
	atomic_store(&world->killed[rank], true);
	atomic_fetch_sub(&world->present, 1);
	TRUE(!kill(world->pid[rank], SIGKILL));
}

void rank_stop(struct rank *r, unsigned rank, bool stop)
{
	TRUE(rank != r->rank);
	TRUE(!kill(world->pid[rank], stop ? SIGSTOP : SIGCONT));
}

atomic_ullong *note_of_all(unsigned i)
{
	TRUE(i < NOTES);
	return &world->note[i];
}

uint8_t *handle_of_all(unsigned i)
{
	TRUE(i < RANKS_MAX);
	return world->handle[OPENED_MAX - 1][i];
}

/* -- groups ------------------------------------------------------------------------------- */

void tick(struct group *g)
{
	bool failed;

	OK(rma_progress(g->r->rma, g->ctx));
	OK(rma_last_error(g->r->rma, g->ctx, &failed));
	if (failed)
		FAIL("queryLastError says that something failed");
}

struct group *group_connect(struct rank *r, const unsigned *members, unsigned n, void *ctx)
{
	struct group *g = calloc(1, sizeof(*g));
	_Alignas(16) uint8_t theirs[RANKS_MAX][NCCL_NET_HANDLE_MAXSIZE];
	void *handles[RANKS_MAX];
	unsigned slot = r->opened++, place = 0;

	TRUE(g && slot < OPENED_MAX - 1);
	*g = (struct group){ .r = r, .n = n, .rank = n };
	OK(rma_listen(r->rma, r->ctx, r->dev, world->handle[slot][r->rank], &g->listen));
	quietly_together(r);
	for (unsigned i = 0; i < n; i++) {
		unsigned who = members ? members[i] : i;

		memcpy(theirs[i], world->handle[slot][who], NCCL_NET_HANDLE_MAXSIZE);
		handles[i] = theirs[i];
		if (who == r->rank)
			g->rank = i;
	}
	TRUE(g->rank < n);
	OK(rma_connect(r->rma, ctx, handles, (int)n, (int)g->rank, g->listen, &g->coll));
	if (!g->coll)
		FAIL("connect gave success, and no collComm");
	while (place < GROUPS_MAX && r->groups[place])
		place++;
	TRUE(place < GROUPS_MAX);
	r->groups[place] = g;
	return g;
}

void group_contexts(struct group *g, int contexts)
{
	OK(rma_context(g->r->rma, g->coll, contexts, NCCL_NET_TRAFFIC_CLASS_UNDEF, 1, &g->ctx));
	if (!g->ctx)
		FAIL("createContext gave success, and no context");
}

void group_close_listen(struct group *g)
{
	OK(rma_close_listen(g->r->rma, g->listen));
	g->listen = NULL;
}

struct group *group_of(struct rank *r, const unsigned *members, unsigned n, int contexts)
{
	struct group *g = group_connect(r, members, n, r->ctx);

	group_close_listen(g);
	group_contexts(g, contexts);
	return g;
}

struct group *group_new(struct rank *r, int contexts)
{
	return group_of(r, NULL, r->n, contexts);
}

void group_close(struct group *g)
{
	struct rank *r = g->r;

	if (g->ctx)
		OK(rma_context_end(r->rma, g->ctx));
	if (g->coll)
		OK(rma_close_coll(r->rma, g->coll));
	if (g->listen)
		OK(rma_close_listen(r->rma, g->listen));
	for (unsigned i = 0; i < GROUPS_MAX; i++)
		if (r->groups[i] == g)
			r->groups[i] = NULL;
	free(g);
}

void groups_close(struct rank *r)
{
	together(r);
	quietly_together(r);
	at(r, "closing");
	for (unsigned i = 0; i < GROUPS_MAX; i++)
		if (r->groups[i])
			group_close(r->groups[i]);
}
