/* SPDX-License-Identifier: BSD-3-Clause */
/* stopped.c - see stopped.h. */
#include "core/setup/stopped.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/self.h"
#include "core/link/link.h"
#include "core/setup/addr.h"
#include "core/setup/path.h"

/* The state of a thread if it is a Braid service thread, which would answer us; else NUL. */
static char state_of(uint32_t pid, const char *tid)
{
	char path[64], text[512], *p;
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/task/%.16s/stat", pid, tid);
	f = fopen(path, "re");
	if (f) {
		n = fread(text, 1, sizeof(text) - 1, f);
		fclose(f);
	}
	text[n] = '\0';
	p = strrchr(text, ')');
	return p && strstr(text, "(braid-service)") && p[1] == ' ' ? p[2] : '\0';
}

static char state_here(uint32_t pid)
{
	char path[64], state = '\0';
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%u/task", pid);
	d = opendir(path);
	while (d && !state && (e = readdir(d)))
		state = e->d_name[0] == '.' ? '\0' : state_of(pid, e->d_name);
	if (d)
		closedir(d);
	return state;
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

const char *braid_stopped_text(char state, uint32_t pid, char ret[BRAID_STOPPED_TEXT])
{
	const char *what = state == 'T' || state == 't' ?
				   "it is stopped, by SIGSTOP or a debugger" :
			   state == 'R' ? "it gets no CPU" :
			   state == 'D' ? "the kernel holds it up: storage, swap, a driver" : NULL;

	if (state == BRAID_STOPPED_FROZEN)
		snprintf(ret, BRAID_STOPPED_TEXT, "though its host acknowledges what we send: its "
			 "cgroup is frozen, as docker pause and schedulers do (pid %u)", pid);
	else if (state == 'S')
		snprintf(ret, BRAID_STOPPED_TEXT, "though its host acknowledges what we send, and "
			 "the process is not stopped: its service thread sleeps (pid %u is in "
			 "state S); what it sends may get lost", pid);
	else if (what)
		snprintf(ret, BRAID_STOPPED_TEXT, "though its host acknowledges what we send: %s "
			 "(pid %u is in state %c)", what, pid, state);
	else
		snprintf(ret, BRAID_STOPPED_TEXT, "though its host acknowledges what we send: the "
			 "process does not run; on its host ps -L -o stat,wchan,comm -p PID tells "
			 "T, stopped (SIGSTOP, a debugger), from R, no CPU, D, held up by the "
			 "kernel, and S, perhaps a frozen cgroup (docker pause)");
	return ret;
}

/* What the process does, which is on a host of our host's name; NUL: it can't be seen. */
static char look_at(uint32_t pid)
{
	char state = state_here(pid);

	return (state == 'S' || state == 'D') && is_frozen(pid) ? BRAID_STOPPED_FROZEN : state;
}

const char *braid_stopped_peer(const char *host, uint32_t pid, char ret[BRAID_STOPPED_TEXT])
{
	bool here = pid && pid != braid_self.pid && !strcmp(host, braid_self.host);

	return braid_stopped_text(here ? look_at(pid) : '\0', pid, ret);
}

char braid_stopped_seen(const struct braid_link *link)
{
	struct sockaddr_storage to;
	char name[IF_NAMESIZE];

	if (!link->setup.peer_pid || link->setup.peer_pid == braid_self.pid ||
	    !braid_path_sockaddr(&link->setup.path[0], &to) ||
	    !braid_addr_is_own((struct sockaddr *)&to, name))
		return '\0';
	return look_at(link->setup.peer_pid);
}

const char *braid_stopped_why(const struct braid_link *link, char ret[BRAID_STOPPED_TEXT])
{
	return braid_stopped_text(braid_stopped_seen(link), link->setup.peer_pid, ret);
}
