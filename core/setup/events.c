/* SPDX-License-Identifier: BSD-3-Clause */
/* events.c - see events.h. */
#include "core/setup/events.h"

#include <errno.h>
#include <stddef.h>

#include "core/base/os.h"

static int epoll = -1;

int braid_events_open(void)
{
	epoll = braid_os->epoll_create();
	return epoll < 0 ? -errno : 0;
}

void braid_events_close(void)
{
	braid_os->close(epoll);
	epoll = -1;
}

int braid_events_wait(struct epoll_event *ret, int ms)
{
	return braid_os->epoll_wait(epoll, ret, 1, ms);
}

int braid_watch(int op, int fd, uint32_t events, void *obj, enum braid_tag tag)
{
	struct epoll_event ev = { .events = events, .data.u64 = (uint64_t)(uintptr_t)obj | tag };

	return braid_os->epoll_ctl(epoll, op, fd, &ev) ? -errno : 0;
}

void braid_unwatch(int fd)
{
	braid_os->epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
}
