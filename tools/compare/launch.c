/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * launch.c - where the processes of a comparison run: here, at a listener that is running or that
 * ssh starts, or started by mpirun, srun or torchrun.
 *
 * A launcher is used through its environment alone: our rank, the number of ranks, and where rank
 * 0 can be met.  The others dial rank 0 there, report where they listen, and serve its sessions
 * until that connection ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/compare/compare.h"
#include "tools/perf/ctl.h"
#include "tools/perf/worker.h"
#include "tools/tcp.h"
#include "tools/text.h"

enum { PORT_FIRST = 20000, PORTS = 12000, HELLO_MS = 5000, DIAL_MS = 1000, AGAIN_US = 50000 };

/* -- launchers ---------------------------------------------------------------------------- */

static bool env_number(const char *name, int *ret)
{
	const char *s = getenv(name);
	char *end;
	long x;

	if (!s || !*s)
		return false;
	x = strtol(s, &end, 10);
	*ret = (int)x;
	return *end == 0 && x >= 0 && x <= 1000000;
}

/* A port that is the same for all processes of a job, and rarely that of another job (FNV-1a). */
static unsigned port_of(const char *job)
{
	uint32_t h = 2166136261u;

	for (; *job; job++)
		h = (h ^ (unsigned char)*job) * 16777619u;
	return PORT_FIRST + h % PORTS;
}

/* Ranks on one host meet at a port made from the job's name, or else from their parent's PID. */
static void meet_here(const char *job, char *meet, size_t n)
{
	char parent[32];

	snprintf(parent, sizeof(parent), "%d", (int)getppid());
	snprintf(meet, n, "127.0.0.1:%u", port_of(job ? job : parent));
}

static bool by_openmpi(struct cmp_place *p, char *meet, size_t n)
{
	int local;

	if (!env_number("OMPI_COMM_WORLD_RANK", &p->rank) ||
	    !env_number("OMPI_COMM_WORLD_SIZE", &p->nprocs))
		return false;
	p->one_host = env_number("OMPI_COMM_WORLD_LOCAL_SIZE", &local) && local == p->nprocs;
	if (p->one_host)
		meet_here(getenv("PMIX_NAMESPACE"), meet, n);
	return true;
}

static bool by_torchrun(struct cmp_place *p, char *meet, size_t n)
{
	const char *addr = getenv("MASTER_ADDR");
	int port, local;

	if (!addr || !env_number("RANK", &p->rank) || !env_number("WORLD_SIZE", &p->nprocs) ||
	    !env_number("MASTER_PORT", &port))
		return false;
	p->one_host = (env_number("LOCAL_WORLD_SIZE", &local) && local == p->nprocs) ||
		      strncmp(addr, "127.", 4) == 0 || strcmp(addr, "localhost") == 0;
	snprintf(meet, n, strchr(addr, ':') ? "[%.200s]:%d" : "%.200s:%d", addr, port + 1);
	return true;
}

/* The first host of a list: node03 of "node[03-05,7],other". */
static void first_host(const char *list, char *room, size_t n)
{
	size_t name = strcspn(list, "[,"), number = 0;

	if (list[name] == '[')
		number = strcspn(list + name + 1, "-,]");
	snprintf(room, n, "%.*s%.*s", (int)name, list, (int)number, list + name + 1);
}

/* Task 0 is on the first node of the step, whatever the distribution. */
static bool by_slurm(struct cmp_place *p, char *meet, size_t n)
{
	const char *nodes = getenv("SLURM_STEP_NODELIST"), *job = getenv("SLURM_JOB_ID");
	const char *step = getenv("SLURM_STEP_ID");
	char host[200], name[64];

	if (!nodes || !env_number("SLURM_PROCID", &p->rank) ||
	    !env_number("SLURM_STEP_NUM_TASKS", &p->nprocs))
		return false;
	p->one_host = !strpbrk(nodes, "[,");
	first_host(nodes, host, sizeof(host));
	snprintf(name, sizeof(name), "%.30s.%.30s", job ? job : "", step ? step : "");
	snprintf(meet, n, "%s:%u", host, port_of(name));
	return true;
}

static bool by_pmi(struct cmp_place *p, char *meet, size_t n)
{
	int local;

	if (!env_number("PMI_RANK", &p->rank) || !env_number("PMI_SIZE", &p->nprocs))
		return false;
	p->one_host = env_number("MPI_LOCALNRANKS", &local) && local == p->nprocs;
	if (p->one_host)
		meet_here(NULL, meet, n);
	return true;
}

bool cmp_launched(struct cmp_place *p, char *meet, size_t n)
{
	static const struct {
		const char *name;
		bool (*by)(struct cmp_place *p, char *meet, size_t n);
	} rows[] = {
		{ "mpirun", by_openmpi },
		{ "torchrun", by_torchrun },
		{ "srun", by_slurm },
		{ "mpiexec", by_pmi },
	};
	unsigned i;

	*meet = 0;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!rows[i].by(p, meet, n))
			continue;
		snprintf(p->launcher, sizeof(p->launcher), "%s", rows[i].name);
		if (p->nprocs > 1 && p->rank < p->nprocs)
			return true;
	}
	p->nprocs = p->rank = 0;
	p->launcher[0] = 0;
	return false;
}

/* -- meeting ------------------------------------------------------------------------------ */

/* A rank that connects sends its rank, where its workers can be reached, and its host. */
static bool meet_rank(struct cmp_place *p, int fd)
{
	union tcp_addr a = { .sa.sa_family = AF_UNSPEC };
	socklen_t len = sizeof(a);
	struct perf_ctl m;
	char text[64];

	if (perf_ctl_recv(fd, &m, HELLO_MS) != 0 || m.type != PERF_CTL_MEET || m.rank < 1 ||
	    m.rank >= p->nprocs || m.nprocs != p->nprocs || p->addr[m.rank][0] ||
	    m.idx < 1 || m.idx > 65535 || getpeername(fd, &a.sa, &len) != 0)
		return false;
	tcp_addr_text(&a, text, sizeof(text));
	snprintf(p->addr[m.rank], sizeof(p->addr[m.rank]), strchr(text, ':') ? "[%s]:%d" : "%s:%d",
		 text, (int)m.idx);
	p->fds[m.rank] = fd;
	m.text[PERF_HOST - 1] = 0;
	memcpy(p->names[m.rank], m.text, PERF_HOST);
	p->elsewhere[m.rank] = strcmp(m.text, p->host) != 0;
	return true;
}

/* Listen on every address: other ranks may know this host by another name than `meet` has. */
static int meet_listen(const char *meet, char *err)
{
	const char *port = strrchr(meet, ':');
	int unused;

	return perf_worker_listen(port ? port + 1 : meet, &unused, err);
}

int cmp_gather(struct cmp_place *p, const char *meet, struct perf_key *key, double timeout_s,
	       char *err)
{
	uint64_t end_ns = perf_now_ns() + (uint64_t)(timeout_s * 1e9);
	int fd, here = 1, listen_fd = meet_listen(meet, err);
	struct perf_gate *gate;

	if (listen_fd < 0)
		return listen_fd;
	if (cmp_key_first(p, meet, key, err) != 0 || !(gate = perf_gate_new(listen_fd, key))) {
		close(listen_fd);
		return -EIO;
	}
	gethostname(p->host, sizeof(p->host) - 1);
	memcpy(p->names[0], p->host, PERF_HOST);
	while (here < p->nprocs && perf_now_ns() < end_ns) {
		fd = perf_gate_next(gate, false, 100);
		if (fd < 0)
			continue;
		if (meet_rank(p, fd))
			here++;
		else
			close(fd);
	}
	perf_gate_free(gate);
	close(listen_fd);
	cmp_key_end(p, meet);
	if (here == p->nprocs)
		return 0;
	snprintf(err, PERF_TEXT, "only %d of %d ranks have come to %s in %.0f s", here, p->nprocs,
		 meet, timeout_s);
	return -ETIMEDOUT;
}

/* Connect once: the socket, after both ends have proved the key, or -errno. */
static int meet_once(const struct cmp_place *p, const char *meet, const union tcp_addr *a,
		     struct perf_key *key)
{
	int rc, fd = tcp_dial(a, DIAL_MS);

	if (fd < 0)
		return fd;
	rc = cmp_key_again(p, meet, key) ? perf_prove(fd, key, HELLO_MS) : -EACCES;
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

static int meet_dial(struct cmp_place *p, const char *meet, struct perf_key *key, double timeout_s,
		     char *err)
{
	uint64_t end_ns = perf_now_ns() + (uint64_t)(timeout_s * 1e9);
	union tcp_addr a;
	int fd, rc = tcp_addr_parse(meet, true, &a, err, PERF_TEXT);

	if (!rc)
		rc = cmp_key_first(p, meet, key, err);
	if (rc)
		return rc;
	for (;;) {
		fd = meet_once(p, meet, &a, key);
		if (fd >= 0)
			return fd;
		if (perf_now_ns() > end_ns)
			break;
		usleep(AGAIN_US);
	}
	snprintf(err, PERF_TEXT, "rank 0 can't be met at %s: %s", meet, perf_prove_why(fd));
	return fd;
}

int cmp_serve(struct cmp_place *p, const char *meet, const struct fabric_env *env,
	      struct perf_key *key, double timeout_s, char *err)
{
	struct perf_ctl m = { .type = PERF_CTL_MEET, .rank = p->rank, .nprocs = p->nprocs };
	int port, fd, listen_fd = perf_worker_listen("0", &port, err);

	if (listen_fd < 0)
		return listen_fd;
	fd = meet_dial(p, meet, key, timeout_s, err);
	if (fd < 0)
		return fd;
	m.idx = port;
	gethostname(m.text, 64);
	if (perf_ctl_send(fd, &m) != 0) {
		snprintf(err, PERF_TEXT, "rank 0 at %s is gone", meet);
		return -EPIPE;
	}
	perf_worker_serve(NULL, listen_fd, env, perf_worker_main, false, false, fd);
	close(listen_fd);
	close(fd);
	return 0;
}

/* -- ssh ---------------------------------------------------------------------------------- */

/* ssh must outlive Ctrl-C, which the terminal sends to all, so that measurements can finish. */
static void ssh_child(const char *host, const char *command, int in, int err)
{
	signal(SIGINT, SIG_IGN);
	dup2(in, STDIN_FILENO);
	dup2(err, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	execlp("ssh", "ssh", host, command, (char *)NULL);
	dprintf(STDERR_FILENO, "ssh: %s\n", strerror(errno));
	_exit(127);
}

/* The port that the listener prints, or 0 and in `last` its last line. */
static int read_port(FILE *from, char *last, size_t n)
{
	char text[PERF_TEXT];
	int port;

	while (fgets(text, sizeof(text), from)) {
		if (sscanf(text, "listening on port %d", &port) == 1)
			return port;
		text[strcspn(text, "\r\n")] = 0;
		text_clean(text, sizeof(text), "");
		if (*text)
			snprintf(last, n, "%.300s", text);
	}
	return 0;
}

/* ssh takes user@host; to connect there the host is enough. */
int cmp_ssh(struct cmp_place *p, const char *host, const char *command, const char *key, char *err)
{
	const char *name = strrchr(host, '@') ? strrchr(host, '@') + 1 : host;
	char last[PERF_TEXT] = "it ended without a word";
	int in[2], out[2], port;
	FILE *from;

	if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
		return -errno;
	p->ssh_pid = fork();
	if (p->ssh_pid == 0)
		ssh_child(host, command, in[0], out[1]);
	dprintf(in[1], "%s\n", key);	/* while we hold the read end: no SIGPIPE */
	close(in[0]);
	close(out[1]);
	p->ssh_in = in[1];
	p->ssh_out = from = p->ssh_pid > 0 ? fdopen(out[0], "r") : NULL;
	port = from ? read_port(from, last, sizeof(last)) : 0;
	if (port == 0) {
		snprintf(err, PERF_TEXT, "ssh %.100s: %.300s", host, last);
		return -EHOSTUNREACH;
	}
	snprintf(p->remote_text, sizeof(p->remote_text), strchr(name, ':') ? "[%.200s]:%d" :
		 "%.200s:%d", name, port);
	p->remote = p->remote_text;
	return 0;
}

/* -- where the ranks are ------------------------------------------------------------------ */

/* The second of two ranks: on another host than the first, if there is one. */
static int partner(const struct cmp_place *p)
{
	int i;

	for (i = 1; i < p->nprocs; i++)
		if (p->elsewhere[i])
			return i;
	return 1;
}

void cmp_where(const struct cmp_place *p, int n, const char **where)
{
	int i;

	for (i = 0; i < n; i++)
		where[i] = i >= n / 2 ? p->remote : NULL;
	for (i = 1; i < n && p->nprocs; i++)
		where[i] = p->addr[n == 2 ? partner(p) : i];
}

/* Closing these sockets ends the ranks that serve us. */
void cmp_place_end(struct cmp_place *p)
{
	int i;

	for (i = 1; i < p->nprocs; i++)
		if (p->fds[i] > 0)
			close(p->fds[i]);
	if (p->ssh_pid <= 0)
		return;
	close(p->ssh_in);
	if (p->ssh_out)
		fclose(p->ssh_out);
	waitpid(p->ssh_pid, NULL, 0);
	p->ssh_pid = 0;
}
