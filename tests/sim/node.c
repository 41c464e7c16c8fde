/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node.c - the product as the simulator loads it: libbraid-core unchanged, in a module.  Some libc
 * functions are replaced by calls to the simulator (see the --wrap options in tests/local.mk), which
 * must know what memory a process holds, and when a thread waits for another.
 */
#include "tests/sim/node.h"
#include "tests/lib/req.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/link/state.h"
#include "core/proto/aead.h"
#include "core/rma/rma_int.h"
#include "core/setup/reap.h"
#include "core/setup/slow.h"

static const struct sim_host *host;

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void __wrap_free(void *p);
int __wrap_sched_yield(void);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_detach(pthread_t thread);
int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
pid_t __wrap_getpid(void);
int __wrap_gethostname(char *name, size_t len);
uint64_t __wrap_braid_tries_patience(void);
void __wrap_braid_slow_tick(struct braid_link *link, uint64_t now);
bool __real_braid_reap_link(struct braid_link *link, uint64_t now);
bool __wrap_braid_reap_link(struct braid_link *link, uint64_t now);
int __real_braid_rma_end_epoch(struct braid_rma_channel *ch, struct braid_rma_order *o,
			       const struct braid_rma_hdr *h);
int __wrap_braid_rma_end_epoch(struct braid_rma_channel *ch, struct braid_rma_order *o,
			       const struct braid_rma_hdr *h);

void *__wrap_malloc(size_t size)
{
	return host->alloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	void *p = host->alloc(n * size);

	return p ? memset(p, 0, n * size) : NULL;
}

void *__wrap_realloc(void *p, size_t size)
{
	return host->resize(p, size);
}

void __wrap_free(void *p)
{
	host->release(p);
}

int __wrap_sched_yield(void)
{
	host->yield();
	return 0;
}

/* All threads are coroutines of one thread, so a held lock needs its holder to run: yield. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
	while (pthread_mutex_trylock(m))
		host->yield();
	return 0;
}

int __wrap_pthread_detach(pthread_t thread)
{
	(void)thread;
	return 0;
}

int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	(void)prepare, (void)parent, (void)child;
	return 0;
}

pid_t __wrap_getpid(void)
{
	return host->pid();
}

/* So many connects find an answer late, whose way beside is in doubt itself. */
uint64_t __wrap_braid_tries_patience(void)
{
	return (uint64_t)braid_param.connect_timeout * 5000;	/* 0.1 or 0.3 ms */
}

/* A run is too short for rates: the simulator says which lane is slow. */
void __wrap_braid_slow_tick(struct braid_link *link, uint64_t now)
{
	int slow = host->slow_lane(link->nlanes);

	if (slow >= 0 && braid_lane_up(link->lane[slow]))
		braid_slow_leave(link->lane[slow], 0, 0, now);
}

/* With this the service thread begins to look at a link. */
bool __wrap_braid_reap_link(struct braid_link *link, uint64_t now)
{
	host->looks();
	return __real_braid_reap_link(link, now);
}

int __wrap_gethostname(char *name, size_t len)
{
	snprintf(name, len, "sim");
	return 0;
}

/* --- planted faults ------------------------------------------------------------------------ */

int __wrap_braid_rma_end_epoch(struct braid_rma_channel *ch, struct braid_rma_order *o,
			       const struct braid_rma_hdr *h)
{
	struct braid_rma_hdr wrong = *h;

	if (ch->due > 0 && host->plant(SIM_PLANT_EARLY)) {
		braid_rma_apply_signal(ch, h->signal_window, h->signal_offset, h->value);
		wrong.value = 0;
	} else if (host->plant(SIM_PLANT_TWICE)) {
		wrong.value *= 2;
	} else if (host->plant(SIM_PLANT_LOST)) {
		wrong.value = 0;
	}
	return __real_braid_rma_end_epoch(ch, o, &wrong);
}

static int coll_test(struct braid_coll *coll, struct braid_rma_op *op)
{
	int res = braid_coll_test(coll, op);

	return res || !host->plant(SIM_PLANT_DONE) ? res : 1;
}

static char *closed;			/* the memory of a window that was closed */

static int coll_close_window(struct braid_coll *coll, struct braid_rma_window *w)
{
	char *data = w->data;
	int err = braid_coll_close_window(coll, w);

	if (!err)
		closed = data;
	return err;
}

static int coll_progress(struct braid_coll *coll)
{
	if (closed && host->plant(SIM_PLANT_LATE))
		*closed ^= 1;
	return braid_coll_progress(coll);
}

static int service_init(void)
{
	extern const struct braid_transport braid_tcp;
	static const struct braid_transport *const tcp[] = { &braid_tcp, NULL };

	/* libcrypto's memory is not the process's own: it would outlive one that is killed. */
	braid_aead_use_libcrypto(false);
	braid_aead_init();
	braid_transports_use(tcp);
	return braid_service_init(NULL);
}

__attribute__((visibility("default"))) const struct sim_node sim_node = {
	.os = &braid_os,
	.param = &braid_param,
	.host = &host,
	.log_to = braid_log_to,
	.service_init = service_init,
	.service_get = braid_service_get,
	.service_put = braid_service_put,
	.listen = braid_listen_new,
	.accept = braid_listen_accept,
	.close_listen = braid_listen_close,
	.connect = braid_connect,
	.isend = braid_comm_isend,
	.irecv = braid_comm_irecv,
	.test = req_test,
	.close = braid_comm_close,
	.coll_listen = braid_coll_listen,
	.coll_connect = braid_coll_connect,
	.coll_close_listen = braid_coll_close_listen,
	.coll_close = braid_coll_close,
	.coll_order = braid_coll_order,
	.coll_open = braid_coll_open,
	.coll_close_window = coll_close_window,
	.coll_put = braid_coll_put,
	.coll_get = braid_coll_get,
	.coll_test = coll_test,
	.coll_progress = coll_progress,
};
