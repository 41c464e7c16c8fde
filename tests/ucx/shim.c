/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shim.c - libucp.so.0 that passes every call on to the real one, whose path is BRAID_TEST_UCP, and
 * fails some of them.
 *
 * BRAID_TEST_UCP_FAIL=K	the K-th call in a process fails, if it can; =K+: all from then on
 * BRAID_TEST_UCP_BREAK=K	the K-th ucp_worker_progress() of a process reports all endpoints of its
 *				worker broken, and the next endpoint cannot be made; =K+: later calls
 *				report every new endpoint, too, and endpoints can be made
 * BRAID_TEST_UCP_FLIP=K	a bit of every K-th message of a process is changed on the way
 * BRAID_TEST_UCP_CUDA=1	UCX claims support for GPU memory, and moves that of tests/fakecuda;
 *				calls from a thread without a context fail; =broken: every send fails;
 *				=lies: the first half of the bytes sent is zeroed
 * BRAID_TEST_UCP_LONG=1	a worker's address is longer than any handshake takes
 * BRAID_TEST_UCP_COUNT=FILE	each ucp_worker_destroy() appends how many calls could have failed so far
 * BRAID_TEST_UCP_TIMES=FILE	"THREAD CALL MICROSECONDS" is appended by calls that make a worker or an
 *				endpoint or destroy a worker, by the first ucp_worker_arm() of a thread,
 *				and by other calls that take a millisecond or more
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define OUT __attribute__((visibility("default")))

enum { ENDPOINTS = 4096, SLOW_US = 1000 };

static struct {
	unsigned long at;		/* 0: never */
	bool on;			/* and all after it */
} fail, broken;
static atomic_ulong calls, turns, sends;
static unsigned long flip_each;		/* 0: none */
static atomic_bool refuse;		/* the next endpoint */
static struct {
	ucp_worker_h worker;
	ucp_ep_h ep;
	ucp_err_handler_t handler;
	bool told;
} ends[ENDPOINTS];
static atomic_uint nends;

static void *real;
static const char *times;
static const char *cuda;

static void read_point(const char *env, unsigned long *at, bool *on)
{
	const char *text = getenv(env);
	char *end = NULL;

	if (text)
		*at = strtoul(text, &end, 10);
	*on = end && *end == '+';
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("BRAID_TEST_UCP");

	bool on;

	read_point("BRAID_TEST_UCP_FLIP", &flip_each, &on);
	times = getenv("BRAID_TEST_UCP_TIMES");
	cuda = getenv("BRAID_TEST_UCP_CUDA");
	real = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	read_point("BRAID_TEST_UCP_FAIL", &fail.at, &fail.on);
	read_point("BRAID_TEST_UCP_BREAK", &broken.at, &broken.on);
}

static void *find(const char *name)
{
	void *at = real ? dlsym(real, name) : NULL;

	if (!at)
		abort();
	return at;
}

static bool fails(void)
{
	unsigned long n = atomic_fetch_add(&calls, 1) + 1;

	return fail.at && (n == fail.at || (fail.on && n > fail.at));
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void took(const char *call, uint64_t begun, uint64_t least)
{
	uint64_t us = now_us() - begun;
	FILE *f = times && us >= least ? fopen(times, "ae") : NULL;

	if (!f)
		return;
	fprintf(f, "%ld %s %llu\n", syscall(SYS_gettid), call, (unsigned long long)us);
	fclose(f);
}

/* The real function of that name, called with these arguments. */
#define REAL(name, ...) (((__typeof__(name) *)find(#name))(__VA_ARGS__))

OUT const char *ucp_get_version_string(void)
{
	return REAL(ucp_get_version_string);
}

OUT const char *ucs_status_string(ucs_status_t status)
{
	return REAL(ucs_status_string, status);
}

OUT ucs_status_t ucp_config_read(const char *prefix, const char *file, ucp_config_t **ret)
{
	return fails() ? UCS_ERR_NO_MEMORY : REAL(ucp_config_read, prefix, file, ret);
}

OUT ucs_status_t ucp_config_modify(ucp_config_t *config, const char *name, const char *value)
{
	return fails() ? UCS_ERR_NO_ELEM : REAL(ucp_config_modify, config, name, value);
}

OUT void ucp_config_release(ucp_config_t *config)
{
	REAL(ucp_config_release, config);
}

OUT ucs_status_t ucp_init_version(unsigned major, unsigned minor, const ucp_params_t *params,
				  const ucp_config_t *config, ucp_context_h *ret)
{
	return fails() ? UCS_ERR_NO_DEVICE :
			 REAL(ucp_init_version, major, minor, params, config, ret);
}

OUT void ucp_cleanup(ucp_context_h context)
{
	REAL(ucp_cleanup, context);
}

OUT ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attr)
{
	ucs_status_t status = fails() ? UCS_ERR_UNSUPPORTED : REAL(ucp_context_query, context, attr);

	if (cuda && attr->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES)
		attr->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
	return status;
}

OUT ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t *params,
				   ucp_worker_h *ret)
{
	uint64_t begun = now_us();
	ucs_status_t status = fails() ? UCS_ERR_NO_RESOURCE :
					REAL(ucp_worker_create, context, params, ret);

	took("ucp_worker_create", begun, 0);
	return status;
}

static void tell_count(void)
{
	const char *path = getenv("BRAID_TEST_UCP_COUNT");
	FILE *f = path ? fopen(path, "ae") : NULL;

	if (f) {
		fprintf(f, "%lu\n", atomic_load(&calls));
		fclose(f);
	}
}

OUT void ucp_worker_destroy(ucp_worker_h worker)
{
	uint64_t begun = now_us();

	tell_count();
	for (unsigned i = 0; i < atomic_load(&nends); i++) {
		if (ends[i].worker == worker)
			ends[i].worker = NULL;
	}
	REAL(ucp_worker_destroy, worker);
	took("ucp_worker_destroy", begun, 0);
}

OUT ucs_status_t ucp_worker_get_address(ucp_worker_h worker, ucp_address_t **ret, size_t *len)
{
	ucs_status_t status = fails() ? UCS_ERR_NO_MEMORY :
					REAL(ucp_worker_get_address, worker, ret, len);

	if (status == UCS_OK && getenv("BRAID_TEST_UCP_LONG"))
		*len = 100000;
	return status;
}

OUT void ucp_worker_release_address(ucp_worker_h worker, ucp_address_t *address)
{
	REAL(ucp_worker_release_address, worker, address);
}

OUT ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int *fd)
{
	return fails() ? UCS_ERR_UNSUPPORTED : REAL(ucp_worker_get_efd, worker, fd);
}

OUT ucs_status_t ucp_worker_arm(ucp_worker_h worker)
{
	static _Thread_local bool has;
	uint64_t begun = now_us();
	ucs_status_t status = fails() ? UCS_ERR_IO_ERROR : REAL(ucp_worker_arm, worker);

	took("ucp_worker_arm", begun, has ? SLOW_US : 0);
	has = true;
	return status;
}

OUT unsigned ucp_worker_progress(ucp_worker_h worker)
{
	unsigned long n = atomic_fetch_add(&turns, 1) + 1;
	uint64_t begun = times ? now_us() : 0;
	unsigned done;

	for (unsigned i = 0; broken.at && n >= broken.at && i < atomic_load(&nends); i++) {
		if (ends[i].worker != worker || ends[i].told || (n > broken.at && !broken.on))
			continue;
		ends[i].told = true;
		refuse = !broken.on;
		ends[i].handler.cb(ends[i].handler.arg, ends[i].ep, UCS_ERR_CONNECTION_RESET);
	}
	done = REAL(ucp_worker_progress, worker);
	if (times)
		took("ucp_worker_progress", begun, SLOW_US);
	return done;
}

OUT ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *ret)
{
	uint64_t begun = now_us();
	bool no = fails() || atomic_exchange(&refuse, false);
	ucs_status_t status = no ? UCS_ERR_UNREACHABLE :
				   REAL(ucp_ep_create, worker, params, ret);
	unsigned i;

	took("ucp_ep_create", begun, 0);
	if (status != UCS_OK)
		return status;
	i = atomic_fetch_add(&nends, 1);
	if (i >= ENDPOINTS)
		abort();
	ends[i].ep = *ret;
	ends[i].handler = params->err_handler;
	ends[i].told = false;
	ends[i].worker = worker;
	return status;
}

OUT ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
{
	uint64_t begun = now_us();
	ucs_status_ptr_t req = REAL(ucp_ep_close_nbx, ep, param);

	took("ucp_ep_close_nbx", begun, SLOW_US);
	return req;
}

/* --- GPU memory ------------------------------------------------------------------------------ */

struct moved {				/* a transfer in flight, through host memory of ours */
	void *bytes;
	const void *gpu;
	ucp_request_param_t theirs;
};

static bool is_gpu(const ucp_request_param_t *param)
{
	return param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE &&
	       param->memory_type == UCS_MEMORY_TYPE_CUDA;
}

static bool has_context(void)
{
	int (*get)(int *ret), device;
	void *at = dlsym(RTLD_DEFAULT, "cuCtxGetDevice");

	memcpy(&get, &at, sizeof(get));
	return at && get(&device) == 0;
}

/* The host address of bytes in fake GPU memory.  Freed memory has none: that ends the process. */
static void *bytes_of(const void *gpu, size_t size)
{
	void *(*find_bytes)(const void *ptr, size_t size), *bytes;
	void *at = dlsym(RTLD_DEFAULT, "braid_fakecuda_bytes");

	memcpy(&find_bytes, &at, sizeof(find_bytes));
	bytes = at ? find_bytes(gpu, size ? size : 1) : NULL;
	if (!bytes) {
		fprintf(stderr, "shim: %zu bytes at %p are no GPU's\n", size, gpu);
		abort();
	}
	return bytes;
}

static struct moved *moved_new(const void *gpu, size_t size, const ucp_request_param_t *param,
			       ucp_request_param_t *ret)
{
	struct moved *m = malloc(sizeof(*m));

	*m = (struct moved){ .bytes = malloc(size ? size : 1), .gpu = gpu, .theirs = *param };
	*ret = *param;
	ret->memory_type = UCS_MEMORY_TYPE_HOST;
	ret->user_data = m;
	return m;
}

static void moved_free(struct moved *m)
{
	free(m->bytes);
	free(m);
}

static void moved_sent(void *req, ucs_status_t status, void *arg)
{
	struct moved *m = arg;

	m->theirs.cb.send(req, status, m->theirs.user_data);
	moved_free(m);
}

static void moved_here(void *req, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
	struct moved *m = arg;

	if (status == UCS_OK && !has_context())
		status = UCS_ERR_NO_DEVICE;
	if (status == UCS_OK)
		memcpy(bytes_of(m->gpu, info->length), m->bytes, info->length);
	m->theirs.cb.recv(req, status, info, m->theirs.user_data);
	moved_free(m);
}

static bool flips(size_t count, const ucp_request_param_t *param)
{
	return flip_each && count && !is_gpu(param) && (atomic_fetch_add(&sends, 1) + 1) % flip_each == 0;
}

/* Sends a copy, of which a bit is changed. */
static ucs_status_ptr_t send_flipped(ucp_ep_h ep, const void *data, size_t count, ucp_tag_t tag,
				     const ucp_request_param_t *param)
{
	unsigned long chance = atomic_load(&sends) * 2654435761u;
	ucp_request_param_t ours;
	struct moved *m = moved_new(NULL, count, param, &ours);
	ucs_status_ptr_t req;

	ours.cb.send = moved_sent;
	memcpy(m->bytes, data, count);
	((char *)m->bytes)[(chance >> 3) % count] ^= (char)(1 << (chance & 7));
	req = REAL(ucp_tag_send_nbx, ep, m->bytes, count, tag, &ours);
	if (!UCS_PTR_IS_PTR(req))
		moved_free(m);
	return req;
}

static ucs_status_ptr_t send_gpu(ucp_ep_h ep, const void *data, size_t count, ucp_tag_t tag,
				 const ucp_request_param_t *param)
{
	ucp_request_param_t ours;
	struct moved *m;
	ucs_status_ptr_t req;

	if (!cuda || !has_context())
		return UCS_STATUS_PTR(UCS_ERR_NO_DEVICE);
	if (!strcmp(cuda, "broken"))
		return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
	m = moved_new(data, count, param, &ours);
	ours.cb.send = moved_sent;
	memcpy(m->bytes, bytes_of(data, count), count);
	if (!strcmp(cuda, "lies"))
		memset(m->bytes, 0, count / 2);
	req = REAL(ucp_tag_send_nbx, ep, m->bytes, count, tag, &ours);
	if (!UCS_PTR_IS_PTR(req))
		moved_free(m);
	return req;
}

static ucs_status_ptr_t recv_gpu(ucp_worker_h worker, void *data, size_t count, ucp_tag_t tag,
				 ucp_tag_t mask, const ucp_request_param_t *param)
{
	ucp_request_param_t ours;
	struct moved *m;
	ucs_status_ptr_t req;

	if (!cuda || !has_context())
		return UCS_STATUS_PTR(UCS_ERR_NO_DEVICE);
	m = moved_new(data, count, param, &ours);
	ours.cb.recv = moved_here;
	req = REAL(ucp_tag_recv_nbx, worker, m->bytes, count, tag, mask, &ours);
	if (UCS_PTR_IS_ERR(req))
		moved_free(m);
	return req;
}

/* --- messages -------------------------------------------------------------------------------- */

OUT ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void *data, size_t count, ucp_tag_t tag,
				      const ucp_request_param_t *param)
{
	uint64_t begun = times ? now_us() : 0;
	ucs_status_ptr_t req = fails() ? UCS_STATUS_PTR(UCS_ERR_IO_ERROR) :
			       is_gpu(param) ? send_gpu(ep, data, count, tag, param) :
			       flips(count, param) ? send_flipped(ep, data, count, tag, param) :
					 REAL(ucp_tag_send_nbx, ep, data, count, tag, param);

	if (times)
		took("ucp_tag_send_nbx", begun, SLOW_US);
	return req;
}

OUT ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h worker, void *data, size_t count, ucp_tag_t tag,
				      ucp_tag_t mask, const ucp_request_param_t *param)
{
	uint64_t begun = times ? now_us() : 0;
	ucs_status_ptr_t req = fails() ?
			       UCS_STATUS_PTR(UCS_ERR_NO_MEMORY) :
			       is_gpu(param) ? recv_gpu(worker, data, count, tag, mask, param) :
			       REAL(ucp_tag_recv_nbx, worker, data, count, tag, mask, param);

	if (times)
		took("ucp_tag_recv_nbx", begun, SLOW_US);
	return req;
}

OUT void ucp_request_cancel(ucp_worker_h worker, void *request)
{
	REAL(ucp_request_cancel, worker, request);
}

OUT void ucp_request_free(void *request)
{
	REAL(ucp_request_free, request);
}

OUT ucs_status_t ucp_request_check_status(void *request)
{
	return REAL(ucp_request_check_status, request);
}

/* A function of libucs, declared here because its header is not part of UCX's public API. */
OUT ucs_status_t ucs_global_opts_set_value(const char *name, const char *value);
OUT ucs_status_t ucs_global_opts_set_value(const char *name, const char *value)
{
	return REAL(ucs_global_opts_set_value, name, value);
}
