/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c - see thread.h. */
#include "topo/thread.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topo/sys.h"

static void read_times(const char *path, struct braid_thread *ret)
{
	unsigned long long ran, queued;
	char text[96];

	if (braid_sys_read(path, text, sizeof(text)) < 0 ||
	    sscanf(text, "%llu %llu", &ran, &queued) != 2)
		return;
	ret->ran_ms = ran / 1000000;
	ret->queued_ms = queued / 1000000;
}

uint64_t braid_thread_queued_ms(void)
{
	struct braid_thread t = { 0 };

	read_times("/proc/thread-self/schedstat", &t);
	return t.queued_ms;
}

/* Looks at one thread; false: it has another name. */
static bool look_at(uint32_t pid, const char *tid, const char *name, struct braid_thread *ret)
{
	char path[64], text[512], wanted[32], *p;

	snprintf(path, sizeof(path), "/proc/%u/task/%.16s/stat", pid, tid);
	if (braid_sys_read(path, text, sizeof(text)) < 0)
		return false;
	snprintf(wanted, sizeof(wanted), "(%s)", name);
	p = strrchr(text, ')');
	if (!p || !strstr(text, wanted) || p[1] != ' ')
		return false;
	ret->state = p[2];
	snprintf(path, sizeof(path), "/proc/%u/task/%.16s/schedstat", pid, tid);
	read_times(path, ret);
	return true;
}

/* Does a line of the cgroup's file `name` begin with `word`? */
static bool says(const char *mount, const char *path, const char *name, const char *word)
{
	char file[320], line[64];
	bool found = false;
	FILE *f;

	snprintf(file, sizeof(file), "/sys/fs/cgroup%s%s/%s", mount, path, name);
	f = fopen(file, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strncmp(line, word, strlen(word)) == 0;
	if (f)
		fclose(f);
	return found;
}

/* Is its cgroup frozen?  ps shows a frozen process as S or D, like one that merely waits. */
static bool is_frozen(uint32_t pid)
{
	char path[64], line[256], *at;
	bool frozen = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/cgroup", pid);
	f = fopen(path, "re");
	while (f && !frozen && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		at = strchr(line, ':');
		if (at && at[1] == ':')		/* version 2, alone or beside version 1 */
			frozen = says("", at + 2, "cgroup.events", "frozen 1") ||
				 says("/unified", at + 2, "cgroup.events", "frozen 1");
		else if (at && strncmp(at, ":freezer:", 9) == 0)
			frozen = says("/freezer", at + 9, "freezer.state", "FROZEN");
	}
	if (f)
		fclose(f);
	return frozen;
}

struct braid_thread braid_thread_of(uint32_t pid, const char *name)
{
	struct braid_thread ret = { 0 };
	struct dirent *e;
	char path[64];
	bool found = false;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%u/task", pid);
	d = opendir(path);
	while (d && !found && (e = readdir(d)))
		found = e->d_name[0] != '.' && look_at(pid, e->d_name, name, &ret);
	if (d)
		closedir(d);
	if ((ret.state == 'S' || ret.state == 'D') && is_frozen(pid))
		ret.state = BRAID_THREAD_FROZEN;
	return ret;
}
