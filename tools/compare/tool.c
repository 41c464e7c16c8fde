/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tool.c - other programs as references: perftest, the OSU benchmarks by Open MPI, Gloo by PyTorch.
 *
 * A job is a shell command for one pattern, and one for the other end if it needs one; they find
 * SIZE, ITERS, PORT and HOST in the environment.  The last line printed that begins with the size
 * has the figures.  A tool can be used if its first job gives figures; else its last line is
 * reported as the reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/compare/compare.h"

enum { JOBS = 3, FIELDS = 10, RUN_MS = 20000, TRIES = 25, AGAIN_US = 200000, OUTPUT = 16384 };

struct job {
	enum perf_pattern pattern;
	const char *server, *client;	/* server NULL: there is none */
	void (*take)(const double *f, double *v);
	int fields;			/* number of fields after the size */
	uint64_t least;
};

struct cmp_tool {
	const char *name, *programs, *hint;
	struct job jobs[JOBS];
};

static void parse_send_lat(const double *f, double *v)
{
	v[CMP_ITERS] = f[0];
	v[CMP_MAX] = f[2];
	v[CMP_P50] = f[3];
	v[CMP_P99] = f[6];
	v[CMP_P999] = f[7];
}

static void parse_write_bw(const double *f, double *v)
{
	v[CMP_ITERS] = f[0];
	v[CMP_GBIT] = f[2];
	v[CMP_MSG] = f[3] * 1e6;
}

static void parse_latency(const double *f, double *v)
{
	v[CMP_P50] = f[0];
}

static void parse_mbytes(const double *f, double *v)
{
	v[CMP_GBIT] = f[0] * 8 / 1e3;
	v[CMP_MSG] = f[1];
}

static void parse_op(const double *f, double *v)
{
	v[CMP_OP_US] = f[0];
}

#define SEND_LAT "exec ib_send_lat -F -s $SIZE -n $ITERS -p $PORT"
#define WRITE_BW "exec ib_write_bw -F -t 8 --report_gbits -s $SIZE -n $ITERS -p $PORT"
#define MPI "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " \
	"exec mpirun --oversubscribe -n "

/* Ping-pong of two processes, or all-reduce of floats by four; microseconds. */
#define GLOO "exec python3 -c 'import os, sys, time\n" \
	"try:\n" \
	"    import torch, torch.distributed as dist\n" \
	"except ImportError as why:\n" \
	"    sys.exit(\"PyTorch is not installed: %s\" % why)\n" \
	"size, iters, ranks = (int(os.environ[x]) for x in (\"SIZE\", \"ITERS\", \"RANKS\"))\n" \
	"def step(rank, t):\n" \
	"    if ranks > 2:\n" \
	"        dist.all_reduce(t)\n" \
	"    elif rank == 0:\n" \
	"        dist.send(t, 1); dist.recv(t, 1)\n" \
	"    else:\n" \
	"        dist.recv(t, 0); dist.send(t, 0)\n" \
	"def main(rank):\n" \
	"    dist.init_process_group(\"gloo\", rank=rank, world_size=ranks,\n" \
	"        init_method=\"tcp://127.0.0.1:\" + os.environ[\"PORT\"])\n" \
	"    t = torch.zeros(size // 4 if ranks > 2 else size,\n" \
	"        dtype=torch.float32 if ranks > 2 else torch.uint8)\n" \
	"    for i in range(iters // 10 + 1): step(rank, t)\n" \
	"    start = time.perf_counter()\n" \
	"    for i in range(iters): step(rank, t)\n" \
	"    us = (time.perf_counter() - start) * 1e6 / iters\n" \
	"    if rank == 0: print(size, us if ranks > 2 else us / 2, flush=True)\n" \
	"rank = 0\n" \
	"for r in range(1, ranks):\n" \
	"    if rank == 0 and os.fork() == 0: rank = r\n" \
	"main(rank)'"

static const struct cmp_tool tools[] = {
	{ "perftest", "ib_send_lat ib_write_bw", "apt install perftest", {
		{ PERF_PINGPONG, SEND_LAT, SEND_LAT " $HOST", parse_send_lat, 8, 1 },
		{ PERF_ONEWAY, WRITE_BW, WRITE_BW " $HOST", parse_write_bw, 4, 1 } } },
	{ "Open MPI", "mpirun osu_latency osu_bw osu_allreduce",
	  "apt install openmpi-bin, and the OSU micro-benchmarks", {
		{ PERF_PINGPONG, NULL, MPI "2 osu_latency -m $SIZE:$SIZE -i $ITERS", parse_latency,
		  1, 1 },
		{ PERF_ONEWAY, NULL, MPI "2 osu_bw -m $SIZE:$SIZE -i $ITERS -W 8", parse_mbytes, 1,
		  1 },
		{ PERF_ALLREDUCE, NULL, MPI "4 osu_allreduce -m $SIZE:$SIZE -i $ITERS", parse_op, 1,
		  4 } } },
	{ "Gloo", "python3", "pip install torch", {
		{ PERF_PINGPONG, NULL, "export RANKS=2; " GLOO, parse_latency, 1, 1 },
		{ PERF_ALLREDUCE, NULL, "export RANKS=4; " GLOO, parse_op, 1, 4 } } },
};

/* -- running one -------------------------------------------------------------------------- */

static void number_set(const char *name, uint64_t x)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)x);
	setenv(name, text, 1);
}

/* Start a command in a process group, so that every process it starts can be ended with it. */
static pid_t start(const char *command, uint64_t size, unsigned port, int out)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	setpgid(0, 0);
	number_set("SIZE", size);
	number_set("ITERS", size <= 64 << 10 ? 1000 : size <= 1 << 20 ? 100 : 16);
	number_set("PORT", port);
	setenv("HOST", "127.0.0.1", 1);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(127);
}

static void end(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(-pid, SIGKILL);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Read all output until its end, or until time is up. */
static void read_output(int fd, char *text, size_t n)
{
	uint64_t end_ns = perf_now_ns() + (uint64_t)RUN_MS * 1000000;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t at = 0;
	ssize_t got = 1;

	while (got > 0 && at + 1 < n && perf_now_ns() < end_ns) {
		if (poll(&p, 1, 100) != 1)
			continue;
		got = read(fd, text + at, n - 1 - at);
		at += got > 0 ? (size_t)got : 0;
	}
	text[at] = 0;
}

/* The figures of the last line that begins with the size; returns how many. */
static int figures(char *text, uint64_t size, double *f, char *last, size_t n)
{
	char *line, *save = NULL, *at, *stop;
	int found = 0, k;

	for (line = strtok_r(text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save)) {
		if (line[strspn(line, " \t-")])
			snprintf(last, n, "%.300s", line + strspn(line, " \t"));
		if (strtoull(line, &at, 10) != size || at == line)
			continue;
		for (k = 0; k < FIELDS; k++, at = stop) {
			f[k] = strtod(at, &stop);
			if (stop == at)
				break;
		}
		found = k;
	}
	return found;
}

static int client(const struct job *j, uint64_t size, unsigned port, double *f, char *last)
{
	char text[OUTPUT];
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -1;
	pid = start(j->client, size, port, fds[1]);
	close(fds[1]);
	read_output(fds[0], text, sizeof(text));
	close(fds[0]);
	end(pid);
	return figures(text, size, f, last, PERF_TEXT);
}

/* A server needs a moment until it listens, and serves one client. */
static int job_run(const struct job *j, uint64_t size, double *v, char *err)
{
	static unsigned runs;
	unsigned port = 20000 + ((unsigned)getpid() * 64 + runs++) % 10000;
	double f[FIELDS] = { 0 };
	char last[PERF_TEXT] = "it said nothing";
	int i, n = 0, quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
	pid_t server = j->server ? start(j->server, size, port, quiet) : 0;

	for (i = 0; i < (j->server ? TRIES : 1) && n < j->fields; i++) {
		if (j->server)
			usleep(AGAIN_US);
		n = client(j, size, port, f, last);
		if (server > 0 && n < j->fields && waitpid(server, NULL, WNOHANG) == server) {
			server = 0;
			break;
		}
	}
	end(server);
	close(quiet);
	if (n < j->fields) {
		snprintf(err, PERF_TEXT, "%.300s", last);
		return -EIO;
	}
	f[1] = j->take == parse_mbytes ? f[0] * 1e6 / (double)size : f[1];
	j->take(f, v);
	return 0;
}

/* -- available tools ---------------------------------------------------------------------- */

static const struct job *job_of(const struct cmp_tool *t, enum perf_pattern pattern)
{
	int i;

	for (i = 0; i < JOBS && t->jobs[i].client; i++)
		if (t->jobs[i].pattern == pattern)
			return &t->jobs[i];
	return NULL;
}

static bool in_path(const char *programs)
{
	char command[200];

	snprintf(command, sizeof(command),
		 "for p in %s; do command -v $p || exit 1; done >/dev/null 2>&1", programs);
	return system(command) == 0;
}

void cmp_tools_find(struct cmp_report *rep, bool here)
{
	double v[CMP_VALUES];
	struct cmp_way *w;
	unsigned i;

	for (i = 0; i < sizeof(tools) / sizeof(tools[0]) && rep->nways < CMP_WAYS_MAX; i++) {
		w = &rep->ways[rep->nways++];
		*w = (struct cmp_way){ .tool = &tools[i], .reference = true };
		snprintf(w->name, sizeof(w->name), "%s", tools[i].name);
		snprintf(w->about.name, sizeof(w->about.name), "%s", tools[i].name);
		snprintf(w->about.dev, sizeof(w->about.dev), "this host");
		if (!here)
			snprintf(w->why, sizeof(w->why), "measured on one host only");
		else if (!in_path(tools[i].programs))
			snprintf(w->why, sizeof(w->why), "not installed: %s", tools[i].hint);
		else
			w->there = job_run(&tools[i].jobs[0], 8, v, w->why) == 0;
	}
}

bool cmp_tool_fits(const struct cmp_tool *tool, enum perf_pattern pattern, uint64_t size)
{
	const struct job *j = job_of(tool, pattern);

	return j && size >= j->least;
}

int cmp_tool_measure(const struct cmp_way *way, enum perf_pattern pattern, uint64_t size, double *v,
		     char *err)
{
	return job_run(job_of(way->tool, pattern), size, v, err);
}
