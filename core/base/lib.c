/* SPDX-License-Identifier: BSD-3-Clause */
/* lib.c - see lib.h. */
#include "core/base/lib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* dlerror() also says if a library is of the wrong kind, or needs one that is missing. */
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

/* memcpy(), since dlsym() returns a pointer to data, which C does not convert to a function's. */
bool braid_lib_find(void *lib, const char *name, void *member)
{
	void *at = dlsym(lib, name);

	memcpy(member, &at, sizeof(at));
	return at;
}
