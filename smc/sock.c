/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sock.c - sockets of AF_SMC, and how they are closed.
 *
 * close() of such a socket has been seen to block in the kernel for minutes, without being
 * interruptible.  So it runs in a thread of its own (core/base/work.h), for which nothing waits.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "core/base/os.h"
#include "core/base/work.h"
#include "smc/conn.h"

#ifndef AF_SMC
#define AF_SMC 43
#endif

enum {
	SMCPROTO_SMC, SMCPROTO_SMC6,	/* of AF_SMC: over IPv4, over IPv6 */
	IPPROTO_SMC = 256,		/* of AF_INET and AF_INET6: Linux 6.11 */
};

static bool inet;			/* the kernel has IPPROTO_SMC */

int braid_smc_socket(int family)
{
	int fd = inet ? braid_os->socket(family, IPPROTO_SMC) :
			braid_os->socket(AF_SMC, family == AF_INET6 ? SMCPROTO_SMC6 : SMCPROTO_SMC);

	return fd < 0 ? -errno : fd;
}

int braid_smc_find(void)
{
	int fd;

	inet = true;
	fd = braid_smc_socket(AF_INET);
	if (fd >= 0)
		return fd;
	inet = false;
	return braid_smc_socket(AF_INET);
}

struct end {
	struct braid_work work;
	int fd;
};

static void end_run(struct braid_work *work)
{
	braid_os->close(braid_container(work, struct end, work)->fd);
}

static void end_free(struct braid_work *work)
{
	free(braid_container(work, struct end, work));
}

void braid_smc_close(int fd)
{
	struct end *e;

	if (fd < 0)
		return;
	e = calloc(1, sizeof(*e));
	if (!e) {
		braid_os->close(fd);	/* no memory for a thread: close() may block here */
		return;
	}
	e->fd = fd;
	if (!braid_work_start(&e->work, "close() of an SMC socket", end_run, end_free)) {
		braid_work_leave(&e->work);
		return;
	}
	free(e);
	braid_os->close(fd);
}
