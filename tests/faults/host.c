/* SPDX-License-Identifier: BSD-3-Clause */
/* host.c - F12, F13, F37 to F40 and F46: what a host does to its processes; see play.h. */
#include "tests/faults/play.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* -- F12, F13: what runs out -------------------------------------------------------------- */

/* All descriptors below `n` are in use, so the end can open no more.  Returns the old limit. */
static rlim_t limit_files(struct run *r, unsigned who, rlim_t n)
{
	struct rlimit lim;
	rlim_t was;

	if (prlimit(r->pid[who], RLIMIT_NOFILE, NULL, &lim))
		run_fails(r, "prlimit: %s", strerror(errno));
	was = lim.rlim_cur;
	lim.rlim_cur = n;
	if (prlimit(r->pid[who], RLIMIT_NOFILE, &lim, NULL))
		run_fails(r, "prlimit: %s", strerror(errno));
	return was;
}

void play_no_files(struct run *r)
{
	bool connecting = r->row->arg[0] == 0;
	rlim_t was[ENDS];

	if (connecting)
		run_starts(r);
	else
		run_begins(r);
	for (unsigned e = 0; e < ENDS; e++)
		was[e] = limit_files(r, e, (rlim_t)r->st->end[e].files);
	run_faults(r);
	if (connecting)
		r->st->go = true;
	else
		run_kills_streams(r, run_rnd(r, 2), UINT_MAX, UINT_MAX);
	run_wait(r, 500);
	for (unsigned e = 0; e < ENDS; e++)
		limit_files(r, e, was[e]);
	run_healed(r);
	if (connecting)
		run_opens(r);
	run_recovers(r);
}

/* Sockets of the test take every ephemeral port of each host. */
void play_no_ports(struct run *r)
{
	int fds[64], n = 0;

	run_begins(r);
	for (int host = HOST_A; host <= HOST_B; host++) {
		must(r, host_sysctl(&r->hosts, host, "ipv4/ip_local_port_range", "40000 40009"));
		must(r, host_enter(&r->hosts, host));
		for (int port = 40000; port < 40010; port++) {
			struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

			fds[n] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
			if (fds[n] >= 0 && (bind(fds[n], (struct sockaddr *)&at, sizeof(at)) ||
					    listen(fds[n], 1)))
				close(fds[n]);
			else if (fds[n] >= 0)
				n++;
		}
		host_leave(&r->hosts);
	}
	run_faults(r);
	run_kills_streams(r, run_rnd(r, 2), UINT_MAX, UINT_MAX);
	run_wait(r, 500);
	while (n)
		close(fds[--n]);
	for (int host = HOST_A; host <= HOST_B; host++)
		must(r, host_sysctl(&r->hosts, host, "ipv4/ip_local_port_range", "32768 60999"));
	run_healed(r);
	run_recovers(r);
}

/* -- F37, F39, F40: the host -------------------------------------------------------------- */

static void signal_threads(pid_t pid)
{
	char path[64];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		if (atoi(e->d_name) > 0)
			syscall(SYS_tgkill, pid, atoi(e->d_name), SIGUSR1);
	}
	if (d)
		closedir(d);
}

void play_eintr(struct run *r)
{
	unsigned ms = (unsigned)r->row->arg[r->o->soak ? 1 : 0];
	pid_t pid, ends[ENDS];

	run_starts(r);
	memcpy(ends, r->pid, sizeof(ends));
	run_faults(r);
	pid = run_helper(r);
	if (pid == 0) {
		for (;;) {
			signal_threads(ends[END_A]);
			signal_threads(ends[END_B]);
			usleep(1000);
		}
	}
	run_opens(r);
	run_talks(r);
	run_wait(r, ms);
	run_healed(r);
	run_goes_on(r);
	run_helper_ends(pid);
	run_ends_well(r);
}

enum { HOUR = 3600 };

static int64_t real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

static void set_clock(int64_t ahead_ns)
{
	int64_t ns = (int64_t)now_ns() + ahead_ns;
	struct timespec ts = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	if (clock_settime(CLOCK_REALTIME, &ts))
		_exit(1);
}

/*
 * Sets the clock an hour ahead, an hour behind, and so on.  This process outlives the run, however
 * that ends, to set the clock right again.
 */
static _Noreturn void clock_jumps(int alive, int64_t ahead_ns)
{
	struct pollfd p = { .fd = alive, .events = POLLIN };

	setpgid(0, 0);
	for (unsigned i = 0; poll(&p, 1, 50) == 0; i++)
		set_clock(ahead_ns + (i % 2 ? -HOUR : HOUR) * 1000000000LL);
	set_clock(ahead_ns);
	_exit(0);
}

void play_clock(struct run *r)
{
	unsigned ms = (unsigned)r->row->arg[r->o->soak ? 1 : 0];
	int64_t ahead_ns = real_ns() - (int64_t)now_ns();
	bool off = false;
	int fds[2];

	if (!r->o->own_machine)
		run_skips(r, "the machine's clock is not ours to set (--own-machine)");
	run_begins(r);
	must(r, pipe2(fds, O_CLOEXEC) == 0);
	run_faults(r);
	if (fork() == 0) {
		close(fds[1]);
		clock_jumps(fds[0], ahead_ns);
	}
	for (unsigned waited = 0; waited < ms; waited += 10) {
		off |= llabs(real_ns() - (int64_t)now_ns() - ahead_ns) > HOUR / 2 * 1000000000LL;
		run_wait(r, 10);
	}
	if (!off)
		run_fails(r, "the clock can't be set");
	run_healed(r);
	run_recovers(r);		/* the ends close and exit while the clock still jumps */
}

/* Nothing reads the log, and streams that are lost and replaced cause many lines. */
void play_log(struct run *r)
{
#ifdef __SANITIZE_ADDRESS__
	if ((r->row->log & STDIO_MASK) == STDIO_CLOSED && !(r->row->log & NO_LOGGER)) {
		run_skips(r, "libc loses the buffer of a stream that is closed, which is a leak here");
		return;
	}
#endif
	run_begins(r);
	run_faults(r);
	for (unsigned i = 0; i < 3; i++) {
		run_kills_streams(r, run_rnd(r, 2), 1, UINT_MAX);
		run_wait(r, 30);
	}
	run_healed(r);
	run_recovers(r);
}

/* Puts `pid` in a cgroup, of version 1 or 2, with 5 % of a CPU.  False: no such cgroup can be made. */
static bool put_in_group(pid_t pid, const char *dir, bool v2)
{
	char path[256], text[32];
	bool well = true;
	int fd;

	if (mkdir(dir, 0755) && errno != EEXIST)
		return false;
	snprintf(path, sizeof(path), "%s/%s", dir, v2 ? "cpu.max" : "cpu.cfs_quota_us");
	fd = open(path, O_WRONLY | O_CLOEXEC);
	well = fd >= 0 && write(fd, v2 ? "5000 100000" : "5000", v2 ? 11 : 4) > 0;
	if (fd >= 0)
		close(fd);
	snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	snprintf(text, sizeof(text), "%d\n", (int)pid);
	well = well && fd >= 0 && write(fd, text, strlen(text)) > 0;
	if (fd >= 0)
		close(fd);
	return well;
}

static void group_ends(const struct run *r, const char *dir, const char *root)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/cgroup.procs", root);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	for (int e = 0; e < ENDS && fd >= 0; e++)
		dprintf(fd, "%d\n", (int)r->pid[e]);
	if (fd >= 0)
		close(fd);
	(void)rmdir(dir);
}

void play_no_cpu(struct run *r)
{
	static const char *const roots[] = { "/sys/fs/cgroup/cpu", "/sys/fs/cgroup" };
	unsigned ms = (unsigned)r->row->arg[r->o->soak ? 1 : 0];
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pid_t burners[64];
	char dir[64];
	int v = 0;

	run_begins(r);
	run_faults(r);
	for (; v < 2; v++) {
		snprintf(dir, sizeof(dir), "%s/braid-faults-%d", roots[v], (int)getpid());
		if (put_in_group(r->pid[END_A], dir, v == 1) && put_in_group(r->pid[END_B], dir, v == 1))
			break;
		(void)rmdir(dir);
	}
	if (v == 2) {
		struct sched_param none = { 0 };

		for (int e = 0; e < ENDS; e++)
			must(r, sched_setscheduler(r->pid[e], SCHED_IDLE, &none) == 0);
	}
	run_note(r, v == 2 ? "SCHED_IDLE" : "cgroup v%d", v + 1);
	for (long i = 0; i < cpus && i < 64; i++) {
		burners[i] = run_helper(r);
		if (burners[i] == 0)
			for (;;)
				;
	}
	run_wait(r, ms);
	for (long i = 0; i < cpus && i < 64; i++)
		run_helper_ends(burners[i]);
	if (v < 2)
		group_ends(r, dir, roots[v]);
	run_healed(r);
	run_recovers(r);
}

void play_fork(struct run *r)
{
	run_begins(r);
	run_faults(r);
	for (int i = 0; i < 8; i++) {
		end_forks(r, run_rnd(r, 2), 1, 50 + run_rnd(r, 300));
		run_wait(r, run_rnd(r, 60));
	}
	run_healed(r);
	run_recovers(r);
}
