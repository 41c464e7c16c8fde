/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gdr.c - GDRCopy for the fake GPU: only the functions that gdr/bar.c calls.
 *
 * A mapping is of the GPU's memory, without access.  The first read faults: the handler delivers
 * the fake NIC's late writes, counts, and allows reads.  The first write faults, too: it is counted
 * and delivers nothing.  Access ends when the mapping's callback flag is asked for.
 */
#include "tests/fakecuda/ctl.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define EXPORT __attribute__((visibility("default")))

enum { PAGE = 64 << 10, RANGES = 64 };

struct mh {
	unsigned long h;		/* 1 and more: a range */
};

static struct range {
	unsigned long gpu;		/* 0: not pinned */
	size_t size;
	uint8_t *volatile at;		/* NULL: not mapped */
} ranges[RANGES];
static int driver;			/* its address is the library's handle */

EXPORT void *gdr_open(void);
EXPORT int gdr_pin_buffer(void *g, unsigned long addr, size_t size, uint64_t token, uint32_t space,
			  struct mh *ret);
EXPORT int gdr_unpin_buffer(void *g, struct mh mh);
EXPORT int gdr_map(void *g, struct mh mh, void **ret, size_t size);
EXPORT int gdr_unmap(void *g, struct mh mh, void *at, size_t size);
EXPORT int gdr_get_callback_flag(void *g, struct mh mh, int *flag);

static bool is_write(const ucontext_t *was)
{
#ifdef __x86_64__
	return was->uc_mcontext.gregs[REG_ERR] & 2;
#else
	return !was;			/* gdr/bar.c maps nothing there */
#endif
}

static void touched(int sig, siginfo_t *info, void *was)
{
	const uint8_t *at = info->si_addr;

	for (unsigned i = 0; i < RANGES; i++) {
		struct range *r = &ranges[i];

		if (!r->at || at < r->at || at >= r->at + r->size)
			continue;
		if (is_write(was)) {
			braid_fakecuda_count(1, 0);
			mprotect(r->at, r->size, PROT_READ | PROT_WRITE);
		} else {
			braid_fakecuda_seen();
			mprotect(r->at, r->size, PROT_READ);
		}
		return;
	}
	signal(sig, SIG_DFL);		/* not our page: the program dies of its own fault */
}

static struct range *range_of(const void *g, struct mh mh)
{
	if (g != &driver || !mh.h || mh.h > RANGES || !ranges[mh.h - 1].gpu)
		return NULL;
	return &ranges[mh.h - 1];
}

void *gdr_open(void)
{
	return braid_fakecuda_fails(__func__) ? NULL : &driver;
}

int gdr_pin_buffer(void *g, unsigned long addr, size_t size, uint64_t token, uint32_t space, struct mh *ret)
{
	unsigned i = 0;

	if (braid_fakecuda_fails(__func__))
		return EIO;
	if (g != &driver || addr % PAGE || !size || size % PAGE || token || space ||
	    !braid_fakecuda_bytes((void *)addr, size))
		return EINVAL;
	while (i < RANGES && ranges[i].gpu)
		i++;
	if (i == RANGES)
		return ENOMEM;
	ranges[i].gpu = addr;
	ranges[i].size = size;
	ret->h = i + 1;
	braid_fakecuda_count(0, 1);
	return 0;
}

/* A range that is mapped stays pinned. */
int gdr_unpin_buffer(void *g, struct mh mh)
{
	struct range *r = range_of(g, mh);

	if (!r || r->at)
		return EINVAL;
	r->gpu = 0;
	braid_fakecuda_count(0, -1);
	return 0;
}

int gdr_map(void *g, struct mh mh, void **ret, size_t size)
{
	struct sigaction sa = { .sa_sigaction = touched, .sa_flags = SA_SIGINFO };
	struct range *r = range_of(g, mh);

	if (braid_fakecuda_fails(__func__))
		return EIO;
	if (!r || r->at || size != r->size)
		return EINVAL;
	*ret = braid_fakecuda_map((void *)r->gpu, size);
	if (!*ret || sigaction(SIGSEGV, &sa, NULL))
		abort();
	r->at = *ret;
	return 0;
}

/* A mapping that was taken away can no longer be used. */
int gdr_unmap(void *g, struct mh mh, void *at, size_t size)
{
	struct range *r = range_of(g, mh);

	if (!r || size != r->size || (r->at && r->at != at))
		return EINVAL;
	r->at = NULL;
	return munmap(at, size) ? errno : 0;
}

int gdr_get_callback_flag(void *g, struct mh mh, int *flag)
{
	struct range *r = range_of(g, mh);
	sigset_t faults;

	if (braid_fakecuda_fails(__func__))
		return EIO;
	if (!r || !r->at)
		return EINVAL;
	sigemptyset(&faults);		/* threads of Braid block signals */
	sigaddset(&faults, SIGSEGV);
	pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
	*flag = braid_fakecuda_ctl("taken") != 0;
	mprotect(r->at, r->size, PROT_NONE);
	if (*flag)
		r->at = NULL;		/* from now on an access is a fault */
	return 0;
}
