/* SPDX-License-Identifier: BSD-3-Clause */
/* stopped.c - see stopped.h. */
#include "core/setup/stopped.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/self.h"
#include "core/link/link.h"
#include "core/setup/addr.h"
#include "core/setup/path.h"
#include "core/setup/service.h"

/* Starved: it waited for a CPU for so long, and for so many times as long as it ran. */
enum { QUEUED_MS = 200, QUEUED_PART = 4 };

static const struct braid_thread not_seen;

const char *braid_stopped_text(const struct braid_thread *t, uint32_t pid,
			       char ret[BRAID_STOPPED_TEXT])
{
	char state = t->state;
	const char *what = state == 'T' || state == 't' ?
				   "it is stopped, by SIGSTOP or a debugger" :
			   state == 'R' ? "it gets no CPU" :
			   state == 'D' ? "the kernel holds it up: storage, swap, a driver" : NULL;

	if (state == BRAID_THREAD_FROZEN)
		snprintf(ret, BRAID_STOPPED_TEXT, "its cgroup is frozen, as docker pause and "
			 "schedulers do (pid %u)", pid);
	else if (state == 'S' && t->queued_ms >= QUEUED_MS &&
		 t->queued_ms / QUEUED_PART > t->ran_ms)
		snprintf(ret, BRAID_STOPPED_TEXT, "it is not stopped, but gets no CPU for long: "
			 "its service thread ran for %llu ms so far, and waited for a CPU for "
			 "%llu ms (pid %u is in state S)", (unsigned long long)t->ran_ms,
			 (unsigned long long)t->queued_ms, pid);
	else if (state == 'S')
		snprintf(ret, BRAID_STOPPED_TEXT, "it is not stopped: its service thread sleeps, "
			 "as if it had nothing to do (pid %u is in state S); what it sends may get "
			 "lost", pid);
	else if (what)
		snprintf(ret, BRAID_STOPPED_TEXT, "%s (pid %u is in state %c)", what, pid, state);
	else
		snprintf(ret, BRAID_STOPPED_TEXT, "its host acknowledges what we send, but the "
			 "process does not run: on its host ps -L -o stat,wchan,comm -p PID tells "
			 "T, stopped (SIGSTOP, a debugger), from R, no CPU, D, held up by the "
			 "kernel, and S, perhaps a frozen cgroup (docker pause)");
	return ret;
}

const char *braid_stopped_peer(const char *host, uint32_t pid, char ret[BRAID_STOPPED_TEXT])
{
	struct braid_thread t = not_seen;

	if (pid && pid != braid_self.pid && !strcmp(host, braid_self.host))
		t = braid_thread_of(pid, BRAID_SERVICE_THREAD);
	return braid_stopped_text(&t, pid, ret);
}

struct braid_thread braid_stopped_seen(const struct braid_link *link)
{
	struct sockaddr_storage to;
	char name[IF_NAMESIZE];

	if (!link->setup.peer_pid || link->setup.peer_pid == braid_self.pid ||
	    !braid_path_sockaddr(&link->setup.path[0], &to) ||
	    !braid_addr_is_own((struct sockaddr *)&to, name))
		return not_seen;
	return braid_thread_of(link->setup.peer_pid, BRAID_SERVICE_THREAD);
}

const char *braid_stopped_why(const struct braid_link *link, char ret[BRAID_STOPPED_TEXT])
{
	struct braid_thread t = braid_stopped_seen(link);

	return braid_stopped_text(&t, link->setup.peer_pid, ret);
}
