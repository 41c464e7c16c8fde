/* SPDX-License-Identifier: BSD-3-Clause */
/* libs.c - the optional libraries, and whether they can be loaded here. */
#include "config.h"

#include <dlfcn.h>

#include "tools/info/info.h"

static const struct {
	const char *so, *what;
} libraries[] = {
	{ "libibverbs.so.1", "InfiniBand, RoCE and iWARP" },
	{ "librdmacm.so.1", "RDMA connections" },
	{ "libucp.so.0", "UCX" },
	{ "libcuda.so.1", "GPU memory" },
	{ "libgdrapi.so.2", "flushes of GPU memory" },
	{ "libhwloc.so.15", "topology" },
};

/* They stay open: not every library survives being closed. */
json_t *info_libraries(void)
{
	json_t *list = json_array();
	unsigned i;
	void *dl;

	for (i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
		dl = dlopen(libraries[i].so, RTLD_LAZY | RTLD_LOCAL);
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:b, s:o}", "name", libraries[i].so,
						"for", libraries[i].what, "found", dl != NULL,
						"why", dl ? json_null() : json_string(dlerror())));
	}
	return list;
}
