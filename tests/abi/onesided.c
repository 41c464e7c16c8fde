/* SPDX-License-Identifier: BSD-3-Clause */
/* onesided.c - see onesided.h. */
#include "tests/abi/onesided.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* What all ranks share. */
static struct world {
	atomic_uint present, arrived, turn;
	atomic_bool killed[RANKS_MAX];
	pid_t pid[RANKS_MAX];
	atomic_ullong note[NOTES];
	uint8_t handle[GROUPS_MAX * 64][RANKS_MAX][NCCL_NET_HANDLE_MAXSIZE];
} *world;

static struct {				/* of the ranks that are being started */
	unsigned n, next;
	int version;
	void (*body)(struct rank *r);
} start;

void (*ranks_prepare)(void);

/* -- ranks -------------------------------------------------------------------------------- */

static void rank_up(struct rank *r)
{
	char err[512];
	int ndev = 0;

	if (ranks_prepare)
		ranks_prepare();
	r->rma = rma_load(r->t->plugin, start.version, err, sizeof(err));
	if (!r->rma)
		FAIL("%s", err);
	OK(rma_init(r->rma, &r->ctx, 42, abi_log));
	OK(rma_devices(r->rma, &ndev));
	TRUE(ndev > 0);
}

static void rank_main(struct abi *t, int fd)
{
	struct rank r = { .t = t, .rank = start.next, .n = start.n };

	world->pid[r.rank] = getpid();
	rank_up(&r);
	quietly_together(&r);
	start.body(&r);
	if (r.rma) {
		OK(rma_finalize(r.rma, r.ctx));
		rma_unload(r.rma);
	}
	give(fd, "", 1);
}

/* Wait until all have said that they are done.  One that ends before has failed. */
static void ranks_wait(struct peer *peer, unsigned n)
{
	for (unsigned i = 0; i < n;) {
		struct pollfd pfd[RANKS_MAX];
		unsigned waiting = 0;
		char c;

		for (unsigned k = i; k < n; k++) {
			pfd[waiting].fd = atomic_load(&world->killed[k]) ? -1 : peer[k].fd;
			pfd[waiting++].events = POLLIN;
		}
		poll(pfd, waiting, 20);
		for (unsigned k = i; k < n; k++) {
			if (pfd[k - i].fd >= 0 && pfd[k - i].revents &&
			    recv(peer[k].fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) == 0 &&
			    !atomic_load(&world->killed[k]))
				FAIL("rank %u has failed", k);
		}
		while (i < n && (atomic_load(&world->killed[i]) ||
				 recv(peer[i].fd, &c, 1, MSG_DONTWAIT) == 1))
			i++;
	}
}

static void run_version(struct abi *t, unsigned n, int version, void (*body)(struct rank *r))
{
	struct peer peer[RANKS_MAX];

	TRUE(n <= RANKS_MAX);
	memset(world, 0, sizeof(*world));
	world->present = n;
	start.n = n;
	start.version = version;
	start.body = body;
	for (start.next = 0; start.next < n; start.next++) {
		peer[start.next] = peer_start(t, rank_main);
		t->seed++;
	}
	ranks_wait(peer, n);
	for (unsigned i = 0; i < n; i++) {
		if (atomic_load(&world->killed[i])) {
			peer_kill(&peer[i]);
			continue;
		}
		shutdown(peer[i].fd, SHUT_WR);	/* later ranks have a copy of the descriptor */
		peer_join(&peer[i]);
	}
}

static void world_new(void)
{
	setenv("BRAID_RMA", "on", 0);
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	TRUE(world != MAP_FAILED);
}

void ranks_run_each(struct abi *t, unsigned n, void (*body)(struct rank *r))
{
	world_new();
	for (int v = RMA_ABI_OLDEST; v <= RMA_ABI_NEWEST; v++)
		run_version(t, n, v, body);
}

void ranks_run(struct abi *t, unsigned n, void (*body)(struct rank *r))
{
	world_new();
	run_version(t, n, RMA_ABI_NEWEST, body);
}

static void meet_all(struct rank *r, bool ticks)
{
	unsigned turn = atomic_load(&world->turn);

	if (atomic_fetch_add(&world->arrived, 1) + 1 == atomic_load(&world->present)) {
		atomic_store(&world->arrived, 0);
		atomic_store(&world->turn, turn + 1);
		return;
	}
	WAIT_FOR(atomic_load(&world->turn) != turn || (ticks ? tick(r) : (void)0, false));
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

atomic_ullong *note(unsigned i)
{
	TRUE(i < NOTES);
	return &world->note[i];
}

void tick(struct rank *r)
{
	for (unsigned i = 0; i < GROUPS_MAX; i++) {
		struct group *g = r->groups[i];
		bool failed;

		if (!g || !g->ctx || g->may_fail)
			continue;
		OK(rma_progress(r->rma, g->ctx));
		OK(rma_last_error(r->rma, g->ctx, &failed));
		TRUE(!failed);
	}
}

/* -- groups ------------------------------------------------------------------------------- */

struct group *group_connect(struct rank *r, const unsigned *members, unsigned n, void *ctx)
{
	struct group *g = calloc(1, sizeof(*g));
	_Alignas(16) uint8_t theirs[RANKS_MAX][NCCL_NET_HANDLE_MAXSIZE];
	void *handles[RANKS_MAX];
	unsigned slot = r->opened++;

	TRUE(g && slot < GROUPS_MAX * 64);
	*g = (struct group){ .r = r, .n = n, .rank = n };
	OK(rma_listen(r->rma, r->ctx, the_device(), world->handle[slot][r->rank], &g->listen));
	quietly_together(r);
	for (unsigned i = 0; i < n; i++) {
		unsigned who = members ? members[i] : i;

		memcpy(theirs[i], world->handle[slot][who], NCCL_NET_HANDLE_MAXSIZE);
		handles[i] = theirs[i];
		if (who == r->rank)
			g->rank = i;
	}
	TRUE(g->rank < n);
	/* NCCL may give another plugin's context here. */
	OK(rma_connect(r->rma, ctx, handles, (int)n, (int)g->rank, g->listen, &g->coll));
	TRUE(g->coll);
	for (unsigned i = 0; i < GROUPS_MAX; i++) {
		if (!r->groups[i]) {
			r->groups[i] = g;
			return g;
		}
	}
	FAIL("too many groups");
}

void group_contexts(struct group *g, int contexts)
{
	OK(rma_context(g->r->rma, g->coll, contexts, NCCL_NET_TRAFFIC_CLASS_UNDEF, 1, &g->ctx));
	TRUE(g->ctx);
}

void group_close_listen(struct group *g)
{
	OK(rma_close_listen(g->r->rma, g->listen));
	g->listen = NULL;
}

struct group *group_of(struct rank *r, const unsigned *members, unsigned n, int contexts)
{
	struct group *g = group_connect(r, members, n, (void *)1);

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
	for (unsigned i = 0; i < GROUPS_MAX; i++) {
		if (r->groups[i] == g)
			r->groups[i] = NULL;
	}
	free(g);
}

void groups_close(struct rank *r)
{
	together(r);
	quietly_together(r);
	for (unsigned i = 0; i < GROUPS_MAX; i++) {
		if (r->groups[i])
			group_close(r->groups[i]);
	}
}

/* -- windows ------------------------------------------------------------------------------ */

struct window memory_new(size_t size)
{
	struct window w = { .size = size };
	size_t body = (size + PAGE - 1) / PAGE * PAGE;

	w.map_len = body + 2 * PAGE;
	w.map = mmap(NULL, w.map_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TRUE(w.map != MAP_FAILED);
	TRUE(!body || !mprotect(w.map + PAGE, body, PROT_READ | PROT_WRITE));
	w.data = w.map + PAGE + body - size;
	return w;
}

void memory_free(struct window *w)
{
	munmap(w->map, w->map_len);
	w->map = NULL;
}

void window_reg(struct group *g, struct window *w, uint64_t flags)
{
	OK(rma_reg(g->r->rma, g->coll, w->data, w->size, NCCL_PTR_HOST, flags, &w->mh));
	TRUE(w->mh);
}

void window_dereg(struct group *g, struct window *w)
{
	OK(rma_dereg(g->r->rma, g->coll, w->mh));
	w->mh = NULL;
}

struct window window_new(struct group *g, size_t size)
{
	struct window w = memory_new(size);

	window_reg(g, &w, 0);
	return w;
}

struct window words_new(struct group *g, unsigned n)
{
	struct window w = memory_new(n * sizeof(uint64_t));

	window_reg(g, &w, NCCL_RMA_FORCE_SO);
	return w;
}

void window_free(struct group *g, struct window *w)
{
	window_dereg(g, w);
	memory_free(w);
}

uint64_t word(const struct window *words, unsigned i)
{
	const uint64_t *w = (const uint64_t *)(const void *)words->data;

	TRUE((i + 1) * sizeof(*w) <= words->size);
	return __atomic_load_n(&w[i], __ATOMIC_ACQUIRE);
}

void word_wait(struct group *g, const struct window *words, unsigned i, uint64_t least)
{
	WAIT_FOR(word(words, i) >= least || (tick(g->r), false));
}

/* -- operations --------------------------------------------------------------------------- */

ncclResult_t put_try(struct group *g, const struct put *p, void **req)
{
	void *src = p->src ? p->src->mh : NULL, *dst = p->dst ? p->dst->mh : NULL;
	uint32_t flags = p->more ? NCCL_RMA_AGGREGATE : 0;

	*req = NULL;
	if (!p->words)
		return rma_iput(g->r->rma, g->ctx, p->context, p->src_off, src, p->size, p->dst_off,
				dst, p->rank, flags, req);
	return rma_iput_signal(g->r->rma, g->ctx, p->context, p->src_off, src, p->size, p->dst_off,
			       dst, p->rank, p->word * sizeof(uint64_t), p->words->mh,
			       p->add ? p->add : 77,
			       p->add ? NCCL_RMA_SIGNAL_ADD : NCCL_RMA_SIGNAL_INC, !p->weak, flags,
			       req);
}

void *put_post(struct group *g, const struct put *p)
{
	void *req;

	OK(put_try(g, p, &req));
	TRUE(req);
	return req;
}

void *get_post(struct group *g, int context, unsigned rank, const struct window *from, size_t from_off,
	       size_t size, const struct window *to, size_t to_off)
{
	void *req = NULL;

	OK(rma_iget(g->r->rma, g->ctx, context, from_off, from->mh, size, to_off, to->mh, rank, 0,
		    &req));
	TRUE(req);
	return req;
}

bool req_done(struct group *g, void *req)
{
	int done = 0;

	OK(rma_test(g->r->rma, g->coll, req, &done));
	return done;
}

void req_wait(struct group *g, void *req)
{
	WAIT_FOR(req_done(g, req) || (tick(g->r), false));
}

ncclResult_t req_settle(struct group *g, void *req)
{
	ncclResult_t res;
	int done = 0;

	WAIT_FOR((res = rma_test(g->r->rma, g->coll, req, &done)) != ncclSuccess || done);
	return res;
}

void put_run(struct group *g, const struct put *p)
{
	req_wait(g, put_post(g, p));
}

void flush_run(struct group *g, int context, const struct window *w, unsigned rank)
{
	void *req = NULL;

	OK(rma_iflush(g->r->rma, g->ctx, context, w->mh, rank, &req));
	if (req)
		req_wait(g, req);
}

/* -- flows -------------------------------------------------------------------------------- */

enum { PIECES = 6, SLOT = 1 << 20 };
enum { WORD_ROUNDS, WORD_ACKS, WORD_WEAK, FLOW_WORDS };

struct flow *flow_new(struct group *g, int context, unsigned peer, unsigned rounds, unsigned id)
{
	struct flow *f = calloc(1, sizeof(*f));

	TRUE(f);
	*f = (struct flow){ .g = g, .peer = peer, .context = context, .rounds = rounds, .id = id };
	f->src = window_new(g, FLOW_SLOTS * SLOT);
	f->dst = memory_new(FLOW_SLOTS * SLOT);
	blank(f->dst.data, f->dst.size);	/* puts may come as soon as it is registered */
	window_reg(g, &f->dst, 0);
	f->words = words_new(g, FLOW_WORDS);
	return f;
}

/* One put of a round: its size and place follow from the numbers.  Sum over PIECES: below SLOT. */
static size_t piece(const struct flow *f, unsigned round, unsigned i, size_t *off, uint64_t *seed)
{
	static const size_t sizes[] = { 1, 8, 130, 4000, 8144, 8145, 30001, 65536, 150000 };
	size_t at = round % FLOW_SLOTS * SLOT;
	size_t size = 0;

	for (unsigned k = 0; k <= i; k++) {
		uint64_t x = mix(f->id * 1000003u + round * PIECES + k);

		at += size + x % 9;
		size = sizes[x / 16 % (sizeof(sizes) / sizeof(sizes[0]))];
		*seed = x;
	}
	*off = at;
	return size;
}

static void flow_keep(struct flow *f, void *req, uint8_t *src, size_t size)
{
	unsigned i = f->tail++ % (sizeof(f->queue) / sizeof(f->queue[0]));

	TRUE(f->tail - f->head <= sizeof(f->queue) / sizeof(f->queue[0]));
	f->queue[i].req = req;
	f->queue[i].src = src;
	f->queue[i].size = size;
}

/* Tests in order, as NCCL does.  The source of what is done is the caller's: it is overwritten. */
static void flow_test(struct flow *f)
{
	while (f->head != f->tail) {
		unsigned i = f->head % (sizeof(f->queue) / sizeof(f->queue[0]));

		if (!req_done(f->g, f->queue[i].req))
			return;
		if (f->queue[i].size)
			memset(f->queue[i].src, 0xdd, f->queue[i].size);
		f->head++;
	}
}

static void flow_post(struct flow *f)
{
	struct put p = { .context = f->context, .rank = f->peer };

	for (unsigned i = 0; i < PIECES; i++) {
		uint64_t seed;

		p.src = &f->src;
		p.dst = &f->dst;
		p.size = piece(f, f->sent, i, &p.src_off, &seed);
		p.dst_off = p.src_off;
		p.more = seed & 1 << 20;
		p.words = seed & 1 << 21 ? &f->words : NULL;
		p.word = WORD_WEAK;
		p.weak = true;
		f->weak_sent += p.words != NULL;
		fill(f->src.data + p.src_off, p.size, seed);
		flow_keep(f, put_post(f->g, &p), f->src.data + p.src_off, p.size);
	}
	flow_keep(f, POST(f->g, .context = f->context, .rank = f->peer, .words = &f->words,
			  .word = WORD_ROUNDS, .add = 1), NULL, 0);
	f->posted[f->sent++ % FLOW_SLOTS] = f->tail;
}

static void flow_look(struct flow *f)
{
	for (unsigned i = 0; i < PIECES; i++) {
		uint64_t seed;
		size_t off, size = piece(f, f->seen, i, &off, &seed);

		filled(f->dst.data + off, size, seed);
		blank(f->dst.data + off, size);
	}
	f->seen++;
	flow_keep(f, POST(f->g, .context = f->context, .rank = f->peer, .words = &f->words,
			  .word = WORD_ACKS), NULL, 0);
}

bool flow_step(struct flow *f)
{
	uint64_t acked = word(&f->words, WORD_ACKS);

	TRUE(acked <= f->sent);
	TRUE(word(&f->words, WORD_ROUNDS) <= f->seen + FLOW_SLOTS);
	flow_test(f);
	if (f->sent < f->rounds && f->sent < acked + FLOW_SLOTS &&
	    (int)(f->head - f->posted[f->sent % FLOW_SLOTS]) >= 0)
		flow_post(f);
	while (word(&f->words, WORD_ROUNDS) > f->seen)
		flow_look(f);
	tick(f->g->r);
	return acked == f->rounds && f->seen == f->rounds && f->head == f->tail;
}

void flows_run(struct flow **f, unsigned n)
{
	uint64_t end = deadline_ms(60000);
	bool all = false;

	while (!all) {
		all = true;
		for (unsigned i = 0; i < n; i++)
			all = flow_step(f[i]) && all;
		if (!all)
			wait_tick(end, __FILE__, __LINE__, "all rounds");
	}
}

void flow_free(struct flow *f)
{
	/* The peer's pieces are as many as this rank's, if both have the same id. */
	EQ(f->rounds, word(&f->words, WORD_ROUNDS));
	EQ(f->rounds, word(&f->words, WORD_ACKS));
	EQ(f->weak_sent, word(&f->words, WORD_WEAK));
	window_free(f->g, &f->words);
	window_free(f->g, &f->dst);
	window_free(f->g, &f->src);
	free(f);
}
