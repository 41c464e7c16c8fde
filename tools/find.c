/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * find.c - which plugin the tools load when no option names one.
 *
 * The code of a plugin runs with the caller's rights.  So one that somebody else could have put
 * there, beside a program in a shared folder, say, is not loaded unless the caller names it.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/opt.h"

#define SO "libnccl-net-braid.so"

#ifndef BRAID_LIBDIR
#define BRAID_LIBDIR "/usr/local/lib"
#endif

enum { WHY_SIZE = PATH_MAX + 128 };

/* Relative to the program's directory; a program that libtool built is in .libs, one deeper. */
static const char *const places[] = {
	"/" SO, "/../lib/" SO, "/plugin/.libs/" SO, "/../plugin/.libs/" SO,
};

/* The owner of this program could change the program itself, and so is trusted as the caller is. */
static bool is_trusted(uid_t uid)
{
	struct stat program;

	return uid == 0 || uid == geteuid() ||
	       (!stat("/proc/self/exe", &program) && uid == program.st_uid);
}

/* Could others have written this file, or put another in its place in this folder? */
static bool is_open_to_others(const char *path, char *why)
{
	struct stat st;
	unsigned mode;

	if (stat(path, &st))
		return false;
	mode = st.st_mode & 07777;
	/* In a folder with the sticky bit, such as /tmp, only its owner replaces a file. */
	if (!is_trusted(st.st_uid))
		snprintf(why, WHY_SIZE, "%s belongs to user %u", path, (unsigned)st.st_uid);
	else if (mode & S_IWOTH && !(S_ISDIR(st.st_mode) && mode & S_ISVTX))
		snprintf(why, WHY_SIZE, "every user can write to %s (mode %04o)", path, mode);
	else if (mode & S_IWGRP && st.st_uid && st.st_gid != getegid())
		snprintf(why, WHY_SIZE, "group %u can write to %s (mode %04o)", (unsigned)st.st_gid,
			 path, mode);
	else
		return false;
	return true;
}

static bool is_in_open_folder(const char *path, char *why)
{
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s", path);
	*strrchr(dir, '/') = 0;
	return is_open_to_others(*dir ? dir : "/", why);
}

/* The file, its folder, and the folder of the file that a link leads to. */
static bool is_unsafe(const char *path, char *why)
{
	char real[PATH_MAX];

	return is_open_to_others(path, why) || is_in_open_folder(path, why) ||
	       (realpath(path, real) && is_in_open_folder(real, why));
}

static const char *find(void)
{
	static char path[PATH_MAX];
	char dir[PATH_MAX - sizeof(SO) - 32];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	unsigned i;
	char *slash;

	dir[n > 0 ? n : 0] = 0;
	slash = strrchr(dir, '/');
	if (slash)
		*slash = 0;
	for (i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
		const char *place = places[i], *up = strrchr(dir, '/');
		int len = (int)strlen(dir);

		if (up && strncmp(place, "/..", 3) == 0) {	/* the kernel's path has no links */
			len = (int)(up - dir);
			place += 3;
		}
		snprintf(path, sizeof(path), "%.*s%s", len, dir, place);
		if (access(path, R_OK) == 0)
			return path;
	}
	snprintf(path, sizeof(path), "%s/%s", BRAID_LIBDIR, SO);
	return access(path, R_OK) == 0 ? path : SO;
}

int plugin_find(const char *prog, const char **path)
{
	char why[WHY_SIZE];

	if (*path)
		return 0;
	*path = find();
	if (**path != '/' || !is_unsafe(*path, why))
		return 0;
	if (!prog)
		return 1;
	return opt_fail(prog, "[unsafe-plugin]",
			"%s is not loaded: %s. Close it to others, or name the plugin that you "
			"trust: --plugin PATH", *path, why);
}
