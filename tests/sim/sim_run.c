/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_run.c - the clock, coroutines, processes.
 *
 * All future events are in one heap, by time; events at the same time are in random order.  The
 * resumption of a coroutine is such an event, too.  The clock stands still while a coroutine runs,
 * and jumps to the next event when it yields.
 *
 * A process is a copy of the module, loaded from a file of its own so that the loader makes a new
 * copy.  Its writable memory (.data and .bss) is saved when it is loaded, and restored for each new
 * process at its place, which thus starts like a fresh one.  Its allocations are on a list: they are
 * freed when it is killed, and fail the run when it ends by itself.
 */
#undef _FORTIFY_SOURCE			/* it aborts a longjmp() to another stack */
#include "tests/sim/sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK = 256 << 10 };

struct sim sim;

/* --- chance -------------------------------------------------------------------------------- */

uint64_t sim_next(struct sim_rng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint64_t sim_below(struct sim_rng *r, uint64_t n)
{
	return sim_next(r) % n;
}

uint64_t sim_between(struct sim_rng *r, uint64_t least, uint64_t most)
{
	unsigned bits = 0;
	uint64_t v;

	while (bits < 63 && (most - least) >> bits)
		bits++;
	v = sim_below(r, (1ull << sim_below(r, bits + 1u)));
	return v > most - least ? most : least + v;
}

bool sim_chance(struct sim_rng *r, unsigned per_mille)
{
	return sim_below(r, 1000) < per_mille;
}

/* --- events -------------------------------------------------------------------------------- */

struct event {
	uint64_t when, lot;
	sim_fn *fn;
	void *arg;
	uint64_t a, b;
};

static struct event *heap;
static size_t nheap, heap_room;

static bool before(const struct event *x, const struct event *y)
{
	return x->when != y->when ? x->when < y->when : x->lot < y->lot;
}

void sim_at(uint64_t when, sim_fn *fn, void *arg, uint64_t a, uint64_t b)
{
	struct event e = { when > sim.now ? when : sim.now, sim_next(&sim.sched), fn, arg, a, b };
	size_t i = nheap++;

	if (nheap > heap_room) {
		heap_room = 2 * nheap;
		heap = realloc(heap, heap_room * sizeof(*heap));
		if (!heap)
			abort();
	}
	for (; i && before(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = e;
}

static struct event heap_pop(void)
{
	struct event first = heap[0], last = heap[--nheap];
	size_t i = 0;

	for (;;) {
		size_t c = 2 * i + 1;

		if (c >= nheap)
			break;
		if (c + 1 < nheap && before(&heap[c + 1], &heap[c]))
			c++;
		if (!before(&heap[c], &last))
			break;
		heap[i] = heap[c];
		i = c;
	}
	heap[i] = last;
	return first;
}

void sim_event_at(const char *name, uint64_t a, uint64_t b, uint64_t c)
{
	const uint64_t words[] = { sim.now, (uint64_t)(unsigned char)name[0] << 8 |
					    (unsigned char)name[1], a, b, c };

	sim.events++;
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		sim.hash = ((sim.hash ^ words[i]) * 0x9ddfea08eb382d69u) ^ (sim.hash >> 29);
	if (sim.verbose)
		fprintf(stderr, "%12.6f ms  %-10s %llu %llu %llu\n", (double)sim.now / 1e6, name,
			(unsigned long long)a, (unsigned long long)b, (unsigned long long)c);
}

void sim_fail(const char *fmt, ...)
{
	va_list ap;

	if (sim.failure[0])
		return;
	va_start(ap, fmt);
	vsnprintf(sim.failure, sizeof(sim.failure), fmt, ap);
	va_end(ap);
	if (sim.verbose)
		fprintf(stderr, "%12.6f ms  FAILED     %s\n", (double)sim.now / 1e6, sim.failure);
}

void sim_run(void)
{
	while (nheap && !sim.over && !sim.failure[0]) {
		struct event e = heap_pop();

		sim.now = e.when;
		e.fn(e.arg, e.a, e.b);
	}
}

/* --- coroutines ---------------------------------------------------------------------------- */

struct sim_co {
	struct braid_list node;		/* of its process, or of `spare` */
	struct sim_proc *proc;
	uint64_t id;
	void *(*fn)(void *);
	void *arg;
	ucontext_t ctx;			/* for the first switch; later the cheaper env */
	jmp_buf env;
	bool begun;
	char *stack;
	uint64_t ticket;		/* of the event that is to wake it; others are stale */
	bool parked;
	bool due;			/* it was to run while its process was stopped */
	bool over;
	struct sim_co *joiner;
	unsigned yields;		/* in a row */
	void *fake_stack;		/* AddressSanitizer's */
};

static struct braid_list spare;		/* coroutines that are over, with their stacks */
static struct sim_co *running;
static uint64_t last_id;
static jmp_buf loop;
static void *loop_fake;
static const void *loop_bottom;
static size_t loop_size;

struct sim_co *sim_self(void)
{
	return running;
}

struct sim_proc *sim_proc(void)
{
	return running->proc;
}

static void leave_for(void **fake, const void *bottom, size_t size)
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_start_switch_fiber(fake, bottom, size);
#else
	(void)fake, (void)bottom, (void)size;
#endif
}

static void arrive(void *fake, const void **bottom, size_t *size)
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(fake, bottom, size);
#else
	(void)fake, (void)bottom, (void)size;
#endif
}

/* Neither of the two may be inlined: a caller's variables need not survive setjmp(). */
__attribute__((noinline)) static void co_switch_to(struct sim_co *co)
{
	running = co;
	leave_for(&loop_fake, co->stack, STACK);
	if (!_setjmp(loop)) {
		if (co->begun)
			_longjmp(co->env, 1);
		co->begun = true;
		setcontext(&co->ctx);
	}
	arrive(loop_fake, NULL, NULL);
	running = NULL;
}

__attribute__((noinline)) static void co_leave(struct sim_co *co)
{
	leave_for(co->over ? NULL : &co->fake_stack, loop_bottom, loop_size);
	if (!_setjmp(co->env))
		_longjmp(loop, 1);
	arrive(running->fake_stack, &loop_bottom, &loop_size);
}

static void co_main(void)
{
	struct sim_co *co = running;

	arrive(NULL, &loop_bottom, &loop_size);
	co->fn(co->arg);
	co->over = true;
	if (co->joiner)
		sim_wake(co->joiner);
	co_leave(co);
}

static void co_event(void *arg, uint64_t ticket, uint64_t unused)
{
	struct sim_co *co = arg;

	(void)unused;
	if (co->ticket != ticket || co->over)
		return;
	if (co->proc->stopped) {
		co->due = true;
		return;
	}
	co->parked = false;
	co_switch_to(co);
	if (co->over) {
		braid_list_del(&co->node);
		braid_list_add_tail(&spare, &co->node);
	}
}

static void co_schedule(struct sim_co *co, uint64_t when)
{
	sim_at(when, co_event, co, ++co->ticket, 0);
}

struct sim_co *sim_spawn(struct sim_proc *p, void *(*fn)(void *), void *arg)
{
	struct sim_co *co;
	uint64_t ticket;
	char *stack;

	if (braid_list_empty(&spare)) {
		co = calloc(1, sizeof(*co));
		if (!co)
			abort();
		co->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (co->stack == MAP_FAILED || mprotect(co->stack, 4096, PROT_NONE))
			abort();
	} else {
		co = braid_list_entry(spare.next, struct sim_co, node);
		braid_list_del(&co->node);
	}
	ticket = co->ticket;
	stack = co->stack;
#ifdef __SANITIZE_ADDRESS__
	__asan_unpoison_memory_region(stack, STACK);	/* a killed coroutine has not returned */
#endif
	*co = (struct sim_co){
		.proc = p, .id = ++last_id, .fn = fn, .arg = arg, .stack = stack, .ticket = ticket,
	};
	getcontext(&co->ctx);
	co->ctx.uc_stack.ss_sp = stack;
	co->ctx.uc_stack.ss_size = STACK;
	makecontext(&co->ctx, co_main, 0);
	braid_list_add_tail(&p->cos, &co->node);
	co_schedule(co, sim.now);
	return co;
}

void sim_sleep(uint64_t ns)
{
	co_schedule(running, sim.now + ns);
	co_leave(running);
}

void sim_park(uint64_t until)
{
	running->parked = true;
	if (until == UINT64_MAX)
		running->ticket++;
	else
		co_schedule(running, until);
	co_leave(running);
}

void sim_wake(struct sim_co *co)
{
	if (!co->parked)
		return;
	co->parked = false;
	co_schedule(co, sim.now);
}

void sim_preempt(void)
{
	running->yields = 0;
	sim_rma_look();
	if (sim.preempt && sim_chance(&sim.sched, sim.preempt))
		sim_sleep(sim_between(&sim.sched, 0, 100 * US));
}

/* A coroutine that yields repeatedly waits for one that sleeps: so sleep longer each time. */
static void yield(void)
{
	unsigned n = running->yields < 8 ? running->yields++ : 8;

	sim_sleep(US << n);
	if (!n)
		running->yields = 1;
}

/* --- memory of a process ------------------------------------------------------------------- */

struct block {
	struct braid_list node;
	size_t size;
	size_t pad;			/* so that the memory after it is aligned as by malloc() */
};

/* NULL: the plan wants this allocation to fail. */
static void *node_alloc(size_t size)
{
	struct sim_proc *p = running->proc;
	struct block *b;

	if (p->short_in && !--p->short_in) {
		sim.short_of_memory = true;
		sim_event("no memory", p->index, p->life, size);
		return NULL;
	}
	b = malloc(sizeof(*b) + size);
	if (!b)
		abort();
	b->size = size;
	braid_list_add_tail(&p->blocks, &b->node);
	return b + 1;
}

static void node_release(void *p)
{
	struct block *b = p;

	if (!b)
		return;
	b--;
	braid_list_del(&b->node);
	free(b);
}

static void *node_resize(void *p, size_t size)
{
	void *q = node_alloc(size);

	if (p && q) {
		size_t old = ((struct block *)p - 1)->size;

		memcpy(q, p, old < size ? old : size);
		node_release(p);
	}
	return q;
}

static int node_pid(void)
{
	return (int)(1000 * (running->proc->index + 1) + running->proc->life);
}

static bool plant(enum sim_plant which)
{
	sim.planted |= which == sim.plant;
	return which == sim.plant;
}

static int slow_lane(unsigned nlanes)
{
	struct sim_proc *p = sim_proc();

	if (nlanes < 2 || !p->slow_paths)
		return -1;
	p->slow_paths--;
	return (int)sim_below(&p->rng, nlanes);
}

static void looks(void)
{
	running->proc->looks++;
}

static const struct sim_host host = {
	.alloc = node_alloc, .resize = node_resize, .release = node_release,
	.yield = yield, .pid = node_pid, .plant = plant, .slow_lane = slow_lane, .looks = looks,
};

static void forget_blocks(struct sim_proc *p)
{
	while (!braid_list_empty(&p->blocks))
		node_release(braid_list_entry(p->blocks.next, struct block, node) + 1);
}

/* Bytes of a block that are in memory. */
static uint64_t resident(const struct block *b)
{
	unsigned char in[1024];
	uintptr_t page = (uintptr_t)(b + 1) & ~4095ull, end = (uintptr_t)(b + 1) + b->size;
	uint64_t n = b->size;

	for (; page < end; page += sizeof(in) << 12) {
		size_t pages = (end - page + 4095) >> 12;

		if (pages > sizeof(in))
			pages = sizeof(in);
		if (mincore((void *)page, pages << 12, in))
			abort();
		for (size_t i = 0; i < pages; i++) {
			uintptr_t at = page + (i << 12);

			/* At the edges of a block others may use the page. */
			if (!(in[i] & 1) && at >= (uintptr_t)(b + 1) && at + 4096 <= end)
				n -= 4096;
		}
	}
	return n;
}

void sim_proc_memory(const struct sim_proc *p, uint64_t *ret_allocated, uint64_t *ret_resident)
{
	const struct block *b;

	*ret_allocated = *ret_resident = 0;
	braid_list_for(b, &p->blocks, node) {
		*ret_allocated += b->size;
		*ret_resident += resident(b);
	}
}

/* --- modules ------------------------------------------------------------------------------- */

static struct image {
	char *at;			/* the module's writable memory */
	size_t len;
	char *saved;
} images[SIM_PROCS];

static int find_image(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t beg = 0, end = 0, relro = 0, within = (uintptr_t)((void **)arg)[0];
	struct image *image = ((void **)arg)[1];
	bool ours = false;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type == PT_LOAD && within >= at && within < at + ph->p_memsz)
			ours = true;
		if (ph->p_type == PT_LOAD && ph->p_flags & PF_W) {
			beg = at;
			end = at + ph->p_memsz;
		}
		if (ph->p_type == PT_GNU_RELRO)
			relro = (at + ph->p_memsz + 4095) & ~4095ull;
	}
	if (!ours)
		return 0;
	image->at = (char *)(relro > beg ? relro : beg);
	image->len = end - (uintptr_t)image->at;
	return 1;
}

/* Word by word: AddressSanitizer would reject memcpy() across the space between variables. */
__attribute__((no_sanitize("address")))
static void copy_words(void *to, const void *from, size_t len)
{
	volatile uint64_t *t = to;
	const uint64_t *f = from;

	for (size_t i = 0; i < len / sizeof(*f); i++) {
		if (t[i] != f[i])
			t[i] = f[i];
	}
}

static void load_one(unsigned i, const char *module)
{
	void *args[] = { NULL, &images[i] };
	int from = open(module, O_RDONLY | O_CLOEXEC), to = memfd_create("node", MFD_CLOEXEC);
	char path[64];
	void *so;

	if (from < 0 || to < 0) {
		fprintf(stderr, "can't open %s\n", module);
		_exit(99);
	}
	while (sendfile(to, from, NULL, 1 << 20) > 0)
		;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
	so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	sim.proc[i].node = so ? dlsym(so, "sim_node") : NULL;
	if (!sim.proc[i].node) {
		fprintf(stderr, "can't load %s: %s\n", module, dlerror());
		_exit(99);
	}
	close(from);		/* `to` stays open: the loader identifies files by their names, too */
	*sim.proc[i].node->host = &host;
	*sim.proc[i].node->os = &sim_os;
	args[0] = (void *)(uintptr_t)sim.proc[i].node->param;
	dl_iterate_phdr(find_image, args);
	images[i].at = (char *)(((uintptr_t)images[i].at + 7) & ~7ull);
	images[i].len &= ~7ull;
	images[i].saved = malloc(images[i].len);
	if (!images[i].saved)
		abort();
	copy_words(images[i].saved, images[i].at, images[i].len);
}

void sim_load(const char *module)
{
	braid_list_init(&spare);
	for (unsigned i = 0; i < SIM_PROCS; i++)
		load_one(i, module);
}

/* --- processes ----------------------------------------------------------------------------- */

static char log_tail[32][200];		/* the last lines that the processes logged */
static unsigned nlog;

/* What the threads of BRAID_THREADS have moved, as a process says when it ends by itself. */
static void note_threads(const char *text)
{
	unsigned long long sent, received;

	if (text && sscanf(text, "moved large messages: %llu bytes sent, %llu received", &sent,
			   &received) == 2) {
		sim.threads_sent += sent;
		sim.threads_received += received;
	}
}

static void log_line(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file, (void)line;
	if (!running || level == BRAID_LOG_TRACE)
		return;
	snprintf(log_tail[nlog++ % 32], sizeof(log_tail[0]), "%12.6f ms  process %u.%u: %s: %s",
		 (double)sim.now / 1e6, running->proc->index, running->proc->life,
		 level == BRAID_LOG_WARN ? "WARN" : "INFO", text);
	if (sim.verbose)
		fprintf(stderr, "%s\n", log_tail[(nlog - 1) % 32]);
	sim.cut |= strstr(text, "Key has expired") != NULL;
	if (level == BRAID_LOG_WARN && strstr(text, "[peer-silent]"))
		sim.silences++;
	sim.left |= strstr(text, "[lane-left]") != NULL;
	sim.renewed += strstr(text, "has new keys") != NULL;
	sim.repathed += strstr(text, "has another port") != NULL;
	note_threads(strstr(text, "moved large messages: "));
	/* Warnings about waiting are right whenever a fault takes long enough. */
	if (level == BRAID_LOG_WARN && !sim.short_of_memory && !sim_comms_doomed() &&
	    !strstr(text, "not a word for") &&
	    !strstr(text, "has waited for") &&
	    !(sim.moved && strstr(text, "[cannot-listen]")) &&
	    !(sim.lossy && strstr(text, "[path-down]")) &&
	    !(sim_rma_dropped() && strstr(text, "[rma-range]")) &&
	    !((sim.flipped || sim.encrypted) &&
	      (strstr(text, "[corrupt-data]") || strstr(text, "[lane-left]"))))
		sim_fail("process %u.%u warns without a reason: %s", running->proc->index,
			 running->proc->life, text);
}

void sim_log_tell(void)
{
	for (unsigned i = nlog > 32 ? nlog - 32 : 0; i < nlog; i++)
		fprintf(stderr, "%s\n", log_tail[i % 32]);
}

void sim_world_begin(uint64_t seed)
{
	sim.seed = sim.plan.state = seed;
	sim.net.state = ~seed;
	sim.sched.state = seed ^ 0x5555555555555555u;
	sim.hash = seed;
	sim.now = SEC;			/* a time of 0 often means "not set" */
	sim.events = 0;
	sim.failure[0] = '\0';
	sim.over = false;
	nheap = 0;
	nlog = 0;
	for (unsigned i = 0; i < SIM_PROCS; i++) {
		struct sim_proc *p = &sim.proc[i];

		p->index = i;
		p->life = 0;
		p->alive = p->stopped = p->orderly = false;
		p->short_in = p->slow_paths = 0;
		p->rounds = p->looks = 0;
		braid_list_init(&p->cos);
		braid_list_init(&p->blocks);
	}
}

void sim_world_end(void)
{
	for (unsigned i = 0; i < SIM_PROCS; i++) {
		if (sim.proc[i].alive)
			sim_proc_kill(&sim.proc[i]);
	}
	nheap = 0;
}

struct sim_proc *sim_proc_start(unsigned index, void *(*fn)(void *))
{
	struct sim_proc *p = &sim.proc[index];

	copy_words(images[index].at, images[index].saved, images[index].len);
	p->node->log_to(log_line);
	p->life++;
	p->alive = true;
	p->stopped = p->orderly = false;
	p->rng.state = sim_next(&sim.plan);
	p->files = 0;
	p->free_file = 3;
	sim_event("start", index, p->life, 0);
	sim_spawn(p, fn, p);
	return p;
}

static void drop_threads(struct sim_proc *p)
{
	while (!braid_list_empty(&p->cos)) {
		struct sim_co *co = braid_list_entry(p->cos.next, struct sim_co, node);

		braid_list_del(&co->node);
		if (co == running)
			continue;	/* it ends by returning */
		co->ticket++;
		co->over = true;
		braid_list_add_tail(&spare, &co->node);
	}
}

void sim_proc_exit(struct sim_proc *p)
{
	unsigned files = sim_net_open_files(p), blocks = 0;
	struct block *b;

	braid_list_for(b, &p->blocks, node)
		blocks++;
	if (files || blocks)
		sim_fail("process %u.%u ended and left %u descriptors and %u pieces of memory",
			 p->index, p->life, files, blocks);
	sim_event("exit", p->index, p->life, 0);
	drop_threads(p);
	sim_net_close_all(p);
	forget_blocks(p);
	p->alive = false;
	p->orderly = true;
}

void sim_proc_kill(struct sim_proc *p)
{
	sim_event("kill", p->index, p->life, 0);
	drop_threads(p);
	sim_net_close_all(p);
	forget_blocks(p);
	p->alive = p->stopped = false;
}

void sim_proc_stop(struct sim_proc *p)
{
	sim_event("stop", p->index, p->life, 0);
	p->stopped = true;
}

void sim_proc_cont(struct sim_proc *p)
{
	struct sim_co *co;

	sim_event("cont", p->index, p->life, 0);
	p->stopped = false;
	braid_list_for(co, &p->cos, node) {
		if (co->due)
			co_schedule(co, sim.now);
		co->due = false;
	}
}

/* --- threads for struct braid_os ------------------------------------------------------------ */

int sim_thread_start(pthread_t *ret, void *(*fn)(void *), void *arg, const char *name)
{
	(void)name;
	*ret = (pthread_t)sim_spawn(running->proc, fn, arg)->id;
	return 0;
}

static struct sim_co *co_find(const struct sim_proc *p, uint64_t id)
{
	struct sim_co *co;

	braid_list_for(co, &p->cos, node) {
		if (co->id == id)
			return co;
	}
	return NULL;
}

int sim_thread_join(pthread_t thread, unsigned timeout_ms)
{
	uint64_t until = sim.now + timeout_ms * MS;
	struct sim_co *co = co_find(running->proc, thread);

	if (!co)
		return 0;
	co->joiner = running;
	while (co && sim.now < until) {
		sim_park(until);
		co = co_find(running->proc, thread);
	}
	if (co)
		co->joiner = NULL;
	return co ? -ETIMEDOUT : 0;
}
