/* SPDX-License-Identifier: BSD-3-Clause */
/* lib.c - see lib.h. */
#include "core/lib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* dlopen() says more than that it is not there: a library of the wrong kind, one it needs. */
void *braid_lib_open(const char *name, const char *install, char *why, size_t len)
{
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	const char *text;

	if (lib)
		return lib;
	text = dlerror();
	snprintf(why, len, "%s; install %s", text ? text : name, install);
	return NULL;
}

/* Through memcpy(), for dlsym() gives a pointer to data. */
bool braid_lib_find(void *lib, const char *name, void *member)
{
	void *at = dlsym(lib, name);

	memcpy(member, &at, sizeof(at));
	return at;
}
