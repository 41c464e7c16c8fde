/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * litmus.cu - the kernel of litmus.h, and what surrounds it.
 *
 * All calls that may wait for the GPU are made before a kernel is started or after it has ended:
 * while it polls, whoever synchronises would wait for it.  It polls the host's memory for the
 * counter, and now and then for the wish that it end; it gives up by its own clock, so that it
 * always ends.  Loads are volatile, as NCCL's are: from the L2 cache or the host.
 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/litmus.h"

enum { BLOCKS = 16, THREADS = 256, ALL = BLOCKS * THREADS, STRAY_NS = 20000 };

struct shared {				/* with the host, in its memory */
	volatile uint32_t ready, stop;
	volatile uint32_t seen[BLOCKS];
	volatile uint32_t gave_up;
	unsigned long long lines, early, torn;	/* written at the end */
};

struct tally {				/* the GPU's own */
	unsigned long long lines, early, torn;
};

struct lm_watch {
	struct shared *shared;
	struct tally *tally;
	cudaStream_t stream;
};

struct quad {
	uint32_t w[4];
};

__device__ static struct quad load(const void *p)
{
	struct quad q;

	asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(q.w[0]), "=r"(q.w[1]), "=r"(q.w[2]), "=r"(q.w[3])
		     : "l"(p) : "memory");
	return q;
}

__device__ static uint64_t now_ns(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

struct patience {
	uint64_t until;
	const struct shared *shared;
	uint32_t polls;
};

/* Looked at by every 1024th poll: the host is far. */
__device__ static bool over(struct patience *p)
{
	return !(++p->polls & 1023) && (p->shared->stop || now_ns() > p->until);
}

/* -- one round, by one thread; false: gave up -------------------------------------------------- */

__device__ static bool simple_right(const char *at, uint32_t round, uint32_t l)
{
	struct quad q = load(at + 16 * (size_t)l);

	for (uint32_t k = 0; k < 4; k++)
		if (q.w[k] != lm_word(round, 4 * l + k))
			return false;
	return true;
}

__device__ static bool ll_right(const char *at, uint32_t round, uint32_t l)
{
	struct quad q = load(at + 16 * (size_t)l);

	return q.w[0] == lm_word(round, 2 * l) && q.w[2] == lm_word(round, 2 * l + 1);
}

/* It was wrong: will it be right soon? */
template <typename Right>
__device__ static void again(struct tally *t, Right right)
{
	uint64_t until = now_ns() + STRAY_NS;
	bool good = false;

	while (!good && now_ns() <= until)
		good = right();
	t->early++;
	t->torn += !good;
}

__device__ static bool see_simple(struct tally *t, struct patience *p, const char *at,
				  uint32_t round, uint32_t n, uint32_t me)
{
	while ((int32_t)(p->shared->ready - round) < 0)
		if (over(p))
			return false;
	__threadfence_system();
	for (uint32_t l = me; l < n; l += ALL) {
		t->lines++;
		if (!simple_right(at, round, l))
			again(t, [=] { return simple_right(at, round, l); });
	}
	return true;
}

__device__ static bool see_ll(struct tally *t, struct patience *p, const char *at, uint32_t round,
			      uint32_t n, uint32_t me)
{
	for (uint32_t l = me; l < n; l += ALL) {
		struct quad q;

		for (;;) {
			q = load(at + 16 * (size_t)l);
			if (q.w[1] == round && q.w[3] == round)
				break;
			if (over(p))
				return false;
		}
		t->lines++;
		if (q.w[0] != lm_word(round, 2 * l) || q.w[2] != lm_word(round, 2 * l + 1))
			again(t, [=] { return ll_right(at, round, l); });
	}
	return true;
}

/* The lane's 16 bytes of a line: four words of data, or two and the flag. */
__device__ static bool ll128_right(struct quad q, uint32_t round, uint32_t l, uint32_t lane)
{
	for (uint32_t k = 0; k < (lane == 7 ? 2u : 4u); k++)
		if (q.w[k] != lm_word(round, 30 * l + 4 * lane + k))
			return false;
	return true;
}

/* A warp has four lines, a line eight lanes; what is past the end is taken for seen. */
__device__ static bool see_ll128(struct tally *t, struct patience *p, const char *at,
				 uint32_t round, uint32_t n, uint32_t me)
{
	const unsigned every = 0xffffffff;
	uint32_t lane = me % 8, bad;

	for (uint32_t l = me / 8; l - me % 32 / 8 < n; l += ALL / 8) {
		const char *mine = at + 128 * (size_t)l + 16 * lane;
		bool in = l < n, missing, wrong;
		uint64_t until;
		struct quad q;

		do {
			missing = false;
			if (in) {
				q = load(mine);
				missing = lane == 7 && (q.w[2] != round || q.w[3]);
			}
			if (__any_sync(every, over(p)))
				return false;
		} while (__any_sync(every, missing));
		if (in)
			q = load(mine);
		wrong = in && !ll128_right(q, round, l, lane);
		t->lines += in && lane == 0;
		bad = __ballot_sync(every, wrong);	/* by all lanes: no && before it */
		if (!bad)
			continue;
		/* Of each line the first lane counts, whichever was wrong. */
		t->early += lane == 0 && (bad >> me % 32 & 0xff);
		until = now_ns() + STRAY_NS;
		while (wrong && now_ns() <= until) {
			q = load(mine);
			wrong = !ll128_right(q, round, l, lane);
		}
		__syncwarp();
		bad = __ballot_sync(every, wrong);
		t->torn += lane == 0 && (bad >> me % 32 & 0xff);
	}
	return true;
}

__global__ static void watch(int kind, const char *at, uint32_t rounds, uint64_t ns,
			     struct shared *shared, struct tally *tally)
{
	__shared__ int quit;
	uint32_t me = blockIdx.x * THREADS + threadIdx.x;
	struct patience p = { now_ns() + ns, shared, 0 };
	struct tally t = { 0, 0, 0 };

	bool over = false;

	if (threadIdx.x == 0)
		quit = 0;
	__syncthreads();
	for (uint32_t round = 1; round <= rounds && !over; round++) {
		uint32_t n = lm_bytes(kind, round) / lm_line(kind);
		bool good = kind == LM_SIMPLE ? see_simple(&t, &p, at, round, n, me) :
			    kind == LM_LL ? see_ll(&t, &p, at, round, n, me) :
					    see_ll128(&t, &p, at, round, n, me);

		if (!good)
			quit = 1;
		__syncthreads();
		over = quit;
		if (threadIdx.x == 0 && !over) {
			__threadfence_system();
			shared->seen[blockIdx.x] = round;
		}
		__syncthreads();		/* who is quick does not write quit before all have it */
	}
	atomicAdd(&tally->lines, t.lines);
	atomicAdd(&tally->early, t.early);
	atomicAdd(&tally->torn, t.torn);
	if (over && threadIdx.x == 0)
		shared->gave_up = 1;
}

/* -- the host's side -------------------------------------------------------------------------- */

extern "C" const char *lm_init(void)
{
	cudaError_t err = cudaSetDevice(0);

	if (!err)
		err = cudaFree(NULL);
	return err ? cudaGetErrorString(err) : NULL;
}

extern "C" void *lm_host(size_t size)
{
	void *p;

	if (cudaHostAlloc(&p, size, cudaHostAllocMapped | cudaHostAllocPortable))
		return NULL;
	memset(p, 0, size);
	return p;
}

extern "C" void *lm_gpu(size_t size)
{
	void *p;

	if (cudaMalloc(&p, size))
		return NULL;
	if (cudaMemset(p, 0, size) || cudaDeviceSynchronize()) {
		cudaFree(p);
		return NULL;
	}
	return p;
}

extern "C" void lm_host_free(void *p)
{
	cudaFreeHost(p);
}

extern "C" void lm_gpu_free(void *p)
{
	cudaFree(p);
}

static void forget(struct lm_watch *w)
{
	if (w->stream)
		cudaStreamDestroy(w->stream);
	cudaFree(w->tally);
	cudaFreeHost(w->shared);
	free(w);
}

extern "C" struct lm_watch *lm_start(int kind, const void *buf, uint32_t rounds, unsigned seconds)
{
	struct lm_watch *w = (struct lm_watch *)calloc(1, sizeof(*w));
	uint64_t ns = (uint64_t)seconds * 1000000000u;

	if (!w)
		return NULL;
	w->shared = (struct shared *)lm_host(sizeof(*w->shared));
	w->tally = (struct tally *)lm_gpu(sizeof(*w->tally));
	if (!w->shared || !w->tally ||
	    cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking)) {
		forget(w);
		return NULL;
	}
	watch<<<BLOCKS, THREADS, 0, w->stream>>>(kind, (const char *)buf, rounds, ns, w->shared,
						 w->tally);
	if (cudaGetLastError()) {
		forget(w);
		return NULL;
	}
	return w;
}

extern "C" void lm_ready(struct lm_watch *w, uint32_t round)
{
	__sync_synchronize();
	w->shared->ready = round;
}

extern "C" int lm_seen(const struct lm_watch *w, uint32_t round)
{
	for (int i = 0; i < BLOCKS; i++)
		if (w->shared->seen[i] < round)
			return 0;
	return 1;
}

extern "C" const char *lm_end(struct lm_watch *w, struct lm_count *ret)
{
	struct tally t = { 0, 0, 0 };
	cudaError_t err;

	w->shared->stop = 1;
	err = cudaStreamSynchronize(w->stream);
	if (!err)
		err = cudaMemcpy(&t, w->tally, sizeof(t), cudaMemcpyDeviceToHost);
	ret->lines = t.lines;
	ret->early = t.early;
	ret->torn = t.torn;
	ret->whole = !w->shared->gave_up;
	forget(w);
	return err ? cudaGetErrorString(err) : NULL;
}
