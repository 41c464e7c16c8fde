/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plugin.c - a plugin after its init, as JSON.
 *
 * The ABI can't report a device's address and transports, or why an RDMA port is not used: these
 * are read from what Braid logs at init.
 */
#include "config.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/info/info.h"
#include "tools/proxy.h"
#include "tools/rma.h"
#include "tools/tcp.h"

enum { LINE = 1024 };

static _Thread_local json_t *collected;	/* lines of the log; NULL: not collecting */

static void on_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
static void on_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	static const char prefix[] = "braid: ";
	char text[LINE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	net_log(level, flags, file, line, "%s", text);
	if (collected && !strncmp(text, prefix, strlen(prefix)))
		json_array_append_new(collected, json_string(text + strlen(prefix)));
}

/* From "device 0: NAME ADDRESS, 25000 Mbit/s, verbs, tcp", the part after NAME; or NULL. */
static const char *device_line(const json_t *lines, int dev, const char *name)
{
	char head[LINE];
	json_t *x;
	size_t i, len;

	len = (size_t)snprintf(head, sizeof(head), "device %d: %s ", dev, name);
	json_array_foreach(lines, i, x) {
		if (!strncmp(json_string_value(x), head, len))
			return json_string_value(x) + len;
	}
	return NULL;
}

/* Notes: why ports and interfaces are not used, what keeps pinned memory over a fork, GPUs. */
static json_t *notes_json(const json_t *lines)
{
	json_t *list = json_array(), *x;
	size_t i;

	json_array_foreach(lines, i, x) {
		const char *text = json_string_value(x);

		if (!strncmp(text, "verbs: ", 7) || !strncmp(text, "ucx: ", 5) ||
		    !strncmp(text, "smc: ", 5) ||
		    !strncmp(text, "fork: ", 6) || !strncmp(text, "not heeded: ", 12) ||
		    !strncmp(text, "interfaces: ", 12) || !strncmp(text, "encrypt: ", 9) ||
		    !strncmp(text, "secret: ", 8) ||
		    !strncmp(text, "gpu: ", 5))
			json_array_append(list, x);
	}
	return list;
}

static json_t *transports_json(const char *line)
{
	static const char unit[] = " Mbit/s";
	json_t *list = json_array();
	const char *p = line ? strstr(line, unit) : NULL;

	for (p = p ? strchr(p, ',') : NULL; p; p = strchr(p, ',')) {
		p += strspn(p, ", ");
		json_array_append_new(list, json_stringn(p, strcspn(p, ",")));
	}
	return list;
}

static json_t *rma_abis_json(const char *path)
{
	json_t *list = json_array();
	char err[INFO_ERR];
	struct rma *rma;

	for (int v = RMA_ABI_OLDEST; v <= RMA_ABI_NEWEST; v++) {
		rma = rma_load(path, v, err, sizeof(err));
		if (!rma)
			continue;
		json_array_append_new(list, json_integer(v));
		rma_unload(rma);
	}
	return list;
}

static json_t *abis_json(const char *path)
{
	json_t *list = json_array();
	char err[INFO_ERR];
	struct net *net;
	int v;

	for (v = NET_ABI_OLDEST; v <= NET_ABI_NEWEST; v++) {
		net = net_load(path, v, err, sizeof(err));
		if (!net)
			continue;
		json_array_append_new(list, json_integer(v));
		net_unload(net);
	}
	return list;
}

/* The address that was logged, or that of the interface; or NULL. */
static json_t *address_json(const char *line, const char *name)
{
	char text[INET6_ADDRSTRLEN];
	union tcp_addr a;

	if (line)
		return json_stringn(line, strcspn(line, ","));
	if (!name || tcp_addr_of_if(name, &a) != 0)
		return json_null();
	tcp_addr_text(&a, text, sizeof(text));
	return json_string(text);
}

static json_t *memory_json(int mask)
{
	json_t *list = json_array();

	if (mask & NCCL_PTR_HOST)
		json_array_append_new(list, json_string("host"));
	if (mask & NCCL_PTR_CUDA)
		json_array_append_new(list, json_string("cuda"));
	if (mask & NCCL_PTR_DMABUF)
		json_array_append_new(list, json_string("dmabuf"));
	return list;
}

static json_t *device_json(int dev, const struct braid_net_props *p, const json_t *lines)
{
	const char *line = p->name ? device_line(lines, dev, p->name) : NULL;
	char guid[24];
	json_t *o = json_object();

	snprintf(guid, sizeof(guid), "0x%016llx", (unsigned long long)p->guid);
	json_object_set_new(o, "index", json_integer(dev));
	json_object_set_new(o, "name", json_string(p->name ? p->name : "?"));
	json_object_set_new(o, "address", address_json(line, p->name));
	json_object_set_new(o, "transports", transports_json(line));
	json_object_set_new(o, "speed_mbps", json_integer(p->speed_mbps));
	json_object_set_new(o, "pci_path", p->pci_path ? json_string(p->pci_path) : json_null());
	json_object_set_new(o, "guid", json_string(guid));
	json_object_set_new(o, "port", json_integer(p->port));
	json_object_set_new(o, "memory", memory_json(p->ptr_support));
	json_object_set_new(o, "latency_us", json_real((double)p->latency_us));
	json_object_set_new(o, "max_comms", json_integer(p->max_comms));
	json_object_set_new(o, "max_recvs", json_integer(p->max_recvs));
	json_object_set_new(o, "max_p2p_bytes", json_integer((json_int_t)p->max_p2p_bytes));
	json_object_set_new(o, "max_coll_bytes", json_integer((json_int_t)p->max_coll_bytes));
	json_object_set_new(o, "reg_is_global", json_boolean(p->reg_is_global));
	json_object_set_new(o, "force_flush", json_boolean(p->force_flush));
	return o;
}

static json_t *devices_json(struct net *net, const json_t *lines)
{
	json_t *list = json_array();
	struct braid_net_props p;
	int n = 0, i;

	net_devices(net, &n);
	for (i = 0; i < n; i++) {
		memset(&p, 0, sizeof(p));
		if (net_props(net, i, &p) == ncclSuccess)
			json_array_append_new(list, device_json(i, &p, lines));
	}
	return list;
}

bool info_bring_gpu(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *at, *ctx = NULL;
	int (*init)(unsigned flags);
	int (*get)(int *ret, int ordinal);
	int (*retain)(void **ret, int device);
	int (*set)(void *context);
	int gpu = 0;

	if (!lib)
		return false;
#define FIND(call, name) at = dlsym(lib, name), memcpy(&call, &at, sizeof(at))
	FIND(init, "cuInit");
	FIND(get, "cuDeviceGet");
	FIND(retain, "cuDevicePrimaryCtxRetain");
	FIND(set, "cuCtxSetCurrent");
#undef FIND
	return init && get && retain && set && !init(0) && !get(&gpu, 0) && !retain(&ctx, gpu) &&
	       !set(ctx);
}

json_t *info_plugin(const char *path, int abi, char *err)
{
	struct net *net = net_load(path, abi, err, INFO_ERR);
	ncclResult_t res;
	json_t *o, *lines;

	if (!net)
		return NULL;
	info_bring_gpu();
	collected = lines = json_array();
	res = net_init(net, (uint64_t)getpid(), -1, on_log, NULL);
	collected = NULL;
	if (res != ncclSuccess) {
		json_decref(lines);
		snprintf(err, INFO_ERR, "%s: init: %s %.1000s", net->name, net_result_name(res),
			 net_last_warn());
		net_unload(net);
		return NULL;
	}
	o = json_pack("{s:s, s:s, s:i, s:o, s:o, s:b, s:b}", "path", path, "name", net->name, "abi",
		      net->abi, "devices", devices_json(net, lines), "notes", notes_json(lines),
		      "dmabuf", net->has_dmabuf, "fusion", net->has_vdevice);
	json_decref(lines);
	json_object_set_new(o, "warning",
			    *net_last_warn() ? json_string(net_last_warn()) : json_null());
	net_finalize(net);
	net_unload(net);
	json_object_set_new(o, "abis", abis_json(path));
	json_object_set_new(o, "rma_abis", rma_abis_json(path));
	return o;
}
