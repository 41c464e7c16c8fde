/* SPDX-License-Identifier: BSD-3-Clause */
/* lib.c - see lib.h. */
#include "ucx/lib.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/lib.h"

struct braid_ucp braid_ucp;

int braid_ucp_errno(ucs_status_t status)
{
	switch (status) {
	case UCS_OK:
		return 0;
	case UCS_INPROGRESS:
	case UCS_ERR_BUSY:
	case UCS_ERR_NO_RESOURCE:
		return -EAGAIN;
	case UCS_ERR_NO_MEMORY:
		return -ENOMEM;
	case UCS_ERR_UNREACHABLE:
		return -EHOSTUNREACH;
	case UCS_ERR_NO_DEVICE:
	case UCS_ERR_NO_ELEM:
		return -ENODEV;
	case UCS_ERR_CONNECTION_RESET:
	case UCS_ERR_NOT_CONNECTED:
		return -ECONNRESET;
	case UCS_ERR_TIMED_OUT:
	case UCS_ERR_ENDPOINT_TIMEOUT:
		return -ETIMEDOUT;
	case UCS_ERR_UNSUPPORTED:
	case UCS_ERR_NOT_IMPLEMENTED:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}

void braid_ucp_guard(struct braid_ucp_guard *g)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &g->mask);
	for (int i = 1; i < _NSIG; i++) {
		if (sigaction(i, NULL, &g->action[i]))
			g->action[i].sa_handler = SIG_ERR;	/* libc keeps it for itself */
	}
}

void braid_ucp_unguard(const struct braid_ucp_guard *g)
{
	for (int i = 1; i < _NSIG; i++) {
		struct sigaction now;

		if (g->action[i].sa_handler != SIG_ERR && !sigaction(i, NULL, &now) &&
		    now.sa_handler != g->action[i].sa_handler)
			sigaction(i, &g->action[i], NULL);
	}
	pthread_sigmask(SIG_SETMASK, &g->mask, NULL);
}

/*
 * UCX logs to stdout, which belongs to the job.  We log what matters, by the status of its calls;
 * a user who wants UCX's own log sets UCX_LOG_LEVEL.
 */
static void silence(void *lib)
{
	ucs_status_t (*set)(const char *name, const char *value);

	if (!getenv("UCX_LOG_LEVEL") && braid_lib_find(lib, "ucs_global_opts_set_value", &set))
		set("LOG_LEVEL", "fatal");
}

static int load(char *why, size_t len)
{
	void *lib = braid_lib_open("libucp.so.0", "libucx0 for UCX", why, len);

	if (!lib)
		return -ENOENT;
#define NEED(name, symbol) \
	if (!braid_lib_find(lib, #symbol, &braid_ucp.name)) { \
		braid_ucp.init_version = NULL; \
		snprintf(why, len, "libucp is too old: it has no " #symbol \
			 "; install UCX 1.13 or newer"); \
		return -ENOSYS; \
	}
	BRAID_UCP_NEEDED(NEED)
#undef NEED
	silence(lib);
	return 0;
}

int braid_ucp_load(char *why, size_t len)
{
	struct braid_ucp_guard g;
	int err;

	if (braid_ucp.init_version)
		return 0;
	braid_ucp_guard(&g);
	err = load(why, len);
	braid_ucp_unguard(&g);
	return err;
}
