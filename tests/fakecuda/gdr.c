/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gdr.c - GDRCopy for the fake GPU: what gdr/bar.c calls, and no more.
 *
 * A window is a page that nobody may touch: who reads it has first what the fake NIC's writes left
 * on the bus delivered, and is counted.  Then it may be read, until its callback flag is asked for.
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
static int driver;			/* where it is, is the library's state */

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
		signal(sig, SIG_DFL);	/* somebody else's, who dies of it now */
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
		window = NULL;		/* from now on it is nobody's */
	return 0;
}
