/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib.h - libucp, loaded at run time, and only if UCX is wanted: loading it has consequences for
 * the process (docs/user/ucx.md).
 *
 * The build needs its headers.  Their inline functions call the functions named here.
 */
#ifndef BRAID_UCX_LIB_H
#define BRAID_UCX_LIB_H

#include <signal.h>
#include <stddef.h>
#include <ucp/api/ucp.h>

/* X(our name, the library's): functions that its header declares. */
#define BRAID_UCP_NEEDED(X) \
	X(version_string, ucp_get_version_string) \
	X(config_read, ucp_config_read) \
	X(config_modify, ucp_config_modify) \
	X(config_release, ucp_config_release) \
	X(init_version, ucp_init_version) \
	X(cleanup, ucp_cleanup) \
	X(context_query, ucp_context_query) \
	X(worker_create, ucp_worker_create) \
	X(worker_destroy, ucp_worker_destroy) \
	X(worker_get_address, ucp_worker_get_address) \
	X(worker_release_address, ucp_worker_release_address) \
	X(worker_get_efd, ucp_worker_get_efd) \
	X(worker_arm, ucp_worker_arm) \
	X(worker_progress, ucp_worker_progress) \
	X(ep_create, ucp_ep_create) \
	X(ep_close, ucp_ep_close_nbx) \
	X(tag_send, ucp_tag_send_nbx) \
	X(tag_recv, ucp_tag_recv_nbx) \
	X(request_free, ucp_request_free) \
	X(request_cancel, ucp_request_cancel) \
	X(request_status, ucp_request_check_status) \
	X(status_string, ucs_status_string)

struct braid_ucp {
#define BRAID_UCP_MEMBER(name, symbol) __typeof__(symbol) *name;
	BRAID_UCP_NEEDED(BRAID_UCP_MEMBER)
#undef BRAID_UCP_MEMBER
};

extern struct braid_ucp braid_ucp;

/* Once per process, at init: 0, or -ENOENT, -ENOSYS and `why` in one line, with what to do. */
int braid_ucp_load(char *why, size_t len);

/* The negative errno for a status of UCX; 0 for UCS_OK. */
int braid_ucp_errno(ucs_status_t status);

/*
 * Around calls in which UCX may start threads, or install signal handlers to catch crashes: all
 * signals are blocked meanwhile, and every signal's action is restored.
 */
struct braid_ucp_guard {
	sigset_t mask;
	struct sigaction action[_NSIG];
};
void braid_ucp_guard(struct braid_ucp_guard *g);
void braid_ucp_unguard(const struct braid_ucp_guard *g);

#endif
