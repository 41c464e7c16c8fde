/* SPDX-License-Identifier: BSD-3-Clause */
/* service.c - see service.h. */
#include "core/setup/service.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/wakeup.h"
#include "core/setup/events.h"
#include "core/setup/links.h"
#include "core/setup/loop.h"

/* How long finalize() waits for the thread to end. */
enum { JOIN_MS = BRAID_LOOP_LINGER_MS + BRAID_LOOP_STOP_MS + 2000 };

struct braid_service_hooks braid_service_hooks;

static struct {				/* under braid_svc.lock */
	unsigned contexts;
	bool running, stop;
	pthread_t thread;
	int efd;			/* braid_wake_service() writes to it */
	void (*loop)(void);
} svc;

void braid_service_runs(void (*loop)(void))
{
	braid_svc_assert_locked();
	svc.loop = loop;
}

bool braid_service_stopping(void)
{
	braid_svc_assert_locked();
	return svc.stop;
}

void braid_service_woken(void)
{
	braid_svc_assert_locked();
	braid_os->unwake(svc.efd);
}

static void *service_thread(void *arg)
{
	(void)arg;
	svc.loop();
	if (!svc.stop)
		pthread_detach(svc.thread);
	svc.running = false;
	braid_svc_unlock();
	return NULL;
}

int braid_service_failed(int err)
{
	return braid_error(err, "can't start the service thread: %s%s [no-start]", strerror(-err),
			   err == -EMFILE ? ". Raise the limit: ulimit -n" : "");
}

int braid_service_try(void)
{
	int err;

	braid_svc_assert_locked();
	if (svc.running)
		return 0;
	err = braid_events_open();
	if (err)
		return err;
	svc.efd = braid_wakeup_open();
	err = svc.efd < 0 ? svc.efd :
			    braid_watch(EPOLL_CTL_ADD, svc.efd, EPOLLIN, NULL, BRAID_TAG_WAKE);
	svc.stop = false;
	if (!err)
		err = braid_os->thread_start(&svc.thread, service_thread, NULL,
					     BRAID_SERVICE_THREAD);
	if (err) {
		braid_wakeup_close();
		braid_events_close();
		return err;
	}
	svc.running = true;
	if (braid_service_hooks.started)
		braid_service_hooks.started();
	return 0;
}

int braid_service_start(void)
{
	int err = braid_service_try();

	braid_svc_assert_locked();
	return err ? braid_service_failed(err) : 0;
}

void braid_service_get(void)
{
	braid_svc_lock();
	svc.contexts++;
	braid_svc_unlock();
}

void braid_service_put(void)
{
	bool last;

	braid_svc_lock();
	last = --svc.contexts == 0;
	braid_svc_unlock();
	if (last)
		braid_service_stop();
}

void braid_service_stop(void)
{
	pthread_t thread;
	bool running;

	braid_svc_lock();
	running = svc.running;
	thread = svc.thread;
	svc.stop = true;
	braid_svc_unlock();
	if (!running)
		return;
	braid_wake_service();
	if (braid_os->thread_join(thread, JOIN_MS))
		braid_warn("the service thread did not end within %d s; it is left behind "
			   "[thread-left]", JOIN_MS / 1000);
}
