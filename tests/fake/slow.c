/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slow.c - slow calls, like commands of a NIC whose firmware is ill; see ctl.h.  The caller sleeps
 * first; the effect of the call comes after that.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 32 };

static struct row {
	char call[48], nic[NAME_LEN];	/* "": any */
	unsigned ms;
} rows[ROWS];
static atomic_uint nrows;
static atomic_ulong slept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* "ibv_modify_qp" matches it with every state. */
static bool is_named(const struct row *r, const char *call)
{
	size_t len = strlen(r->call);

	return !strcmp(r->call, "all") ||
	       (!strncmp(r->call, call, len) && (!call[len] || call[len] == ':'));
}

static unsigned takes(const char *nic, const char *call)
{
	unsigned ms = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < nrows; i++) {
		if (is_named(&rows[i], call) && (!rows[i].nic[0] || (nic && !strcmp(rows[i].nic, nic))))
			ms = rows[i].ms;
	}
	pthread_mutex_unlock(&lock);
	return ms;
}

void call_takes(const struct ibv_context *ctx, const char *call)
{
	struct timespec left;
	unsigned ms;

	if (!atomic_load(&nrows))
		return;
	ms = takes(ctx ? ctx->device->name : NULL, call);
	if (!ms)
		return;
	atomic_fetch_add(&slept, 1);
	left = (struct timespec){ ms / 1000, ms % 1000 * 1000000L };
	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

void fake_call_takes(const struct ibv_context *ctx, const char *call)
{
	call_takes(ctx, call);
}

long slow_calls(void)
{
	return (long)atomic_load(&slept);
}

long slow_add(const char *call, const char *ms, const char *nic)
{
	struct row *r;
	long err = 0;

	pthread_mutex_lock(&lock);
	if (!strcmp(call, "none")) {
		nrows = 0;
	} else if (nrows == ROWS) {
		err = -ENOSPC;
	} else {
		r = &rows[nrows];
		snprintf(r->call, sizeof(r->call), "%s", call);
		snprintf(r->nic, sizeof(r->nic), "%s", nic ? nic : "");
		r->ms = (unsigned)strtoul(ms, NULL, 0);
		nrows++;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

void slow_forked(void)
{
	pthread_mutex_init(&lock, NULL);
}
