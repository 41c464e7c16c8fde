/* SPDX-License-Identifier: BSD-3-Clause */
/* wakeup.c - see wakeup.h. */
#include "core/base/wakeup.h"

#include <errno.h>

#include "core/base/os.h"

static struct {
	struct braid_lock lock;
	int fd;
} wakeup = { .fd = -1 };

void braid_wake_service(void)
{
	braid_lock_wait(&wakeup.lock);	/* rarely held, and only for one write */
	if (wakeup.fd >= 0)
		braid_os->wake(wakeup.fd);
	braid_unlock(&wakeup.lock);
}

int braid_wakeup_open(void)
{
	int fd;

	braid_lock_wait(&wakeup.lock);
	fd = wakeup.fd = braid_os->eventfd();
	braid_unlock(&wakeup.lock);
	return fd < 0 ? -errno : fd;
}

void braid_wakeup_close(void)
{
	braid_lock_wait(&wakeup.lock);
	if (wakeup.fd >= 0)
		braid_os->close(wakeup.fd);
	wakeup.fd = -1;
	braid_unlock(&wakeup.lock);
}
