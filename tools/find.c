/* SPDX-License-Identifier: BSD-3-Clause */
/* find.c - which plugin the tools load when no option names one. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"

#define SO "libnccl-net-braid.so"

#ifndef BRAID_LIBDIR
#define BRAID_LIBDIR "/usr/local/lib"
#endif

/* Relative to the program's directory; a program that libtool built is in .libs, one deeper. */
static const char *const places[] = {
	"/" SO, "/../lib/" SO, "/plugin/.libs/" SO, "/../plugin/.libs/" SO,
};

const char *plugin_find(void)
{
	static char path[PATH_MAX + sizeof(SO) + 32];
	char dir[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	unsigned i;
	char *slash;

	dir[n > 0 ? n : 0] = 0;
	slash = strrchr(dir, '/');
	if (slash)
		*slash = 0;
	for (i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", dir, places[i]);
		if (access(path, R_OK) == 0)
			return path;
	}
	snprintf(path, sizeof(path), "%s/%s", BRAID_LIBDIR, SO);
	return access(path, R_OK) == 0 ? path : SO;
}
