/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gdr.c - GDRCopy for the fake GPU: only the functions that gdr/bar.c calls.
 *
 * A window is a page without access.  The first read faults: the handler delivers the fake NIC's
 * late writes, counts, and allows reads, until the window's callback flag is asked for.
 */
#include "tests/fakecuda/ctl.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))

enum { PAGE = 64 << 10 };

struct mh {
	unsigned long h;
};

static uint8_t *volatile window;
static int driver;			/* its address is the library's handle */

EXPORT void *gdr_open(void);
EXPORT int gdr_pin_buffer(void *g, unsigned long addr, size_t size, uint64_t token, uint32_t space,
			  struct mh *ret);
EXPORT int gdr_unpin_buffer(void *g, struct mh mh);
EXPORT int gdr_map(void *g, struct mh mh, void **ret, size_t size);
EXPORT int gdr_get_callback_flag(void *g, struct mh mh, int *flag);

static void touched(int sig, siginfo_t *info, void *unused)
{
	const uint8_t *at = info->si_addr;

	(void)unused;
	if (!window || at < window || at >= window + PAGE) {
		signal(sig, SIG_DFL);	/* not our page: the program dies of its own fault */
		return;
	}
	braid_fakecuda_seen();
	mprotect(window, PAGE, PROT_READ);
}

void *gdr_open(void)
{
	return braid_fakecuda_fails(__func__) ? NULL : &driver;
}

int gdr_pin_buffer(void *g, unsigned long addr, size_t size, uint64_t token, uint32_t space, struct mh *ret)
{
	if (braid_fakecuda_fails(__func__))
		return EIO;
	if (g != &driver || addr % PAGE || size != PAGE || token || space ||
	    !braid_fakecuda_bytes((void *)addr, size))
		return EINVAL;
	ret->h = addr;
	return 0;
}

int gdr_unpin_buffer(void *g, struct mh mh)
{
	return g != &driver || !mh.h;
}

int gdr_map(void *g, struct mh mh, void **ret, size_t size)
{
	struct sigaction sa = { .sa_sigaction = touched, .sa_flags = SA_SIGINFO };

	if (braid_fakecuda_fails(__func__))
		return EIO;
	if (g != &driver || !mh.h || size != PAGE || window)
		return EINVAL;
	window = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (window == MAP_FAILED || sigaction(SIGSEGV, &sa, NULL))
		abort();
	*ret = window;
	return 0;
}

int gdr_get_callback_flag(void *g, struct mh mh, int *flag)
{
	if (braid_fakecuda_fails(__func__))
		return EIO;
	if (g != &driver || !mh.h)
		return EINVAL;
	*flag = braid_fakecuda_ctl("taken") != 0;
	mprotect(window, PAGE, PROT_NONE);
	if (*flag)
		window = NULL;		/* from now on an access is a fault */
	return 0;
}
