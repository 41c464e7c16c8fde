/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * start.c - starts `braid perf --listen` on every host by a remote shell, many at a time.
 *
 * A listener gets the key in the first line of its standard input and ends when that does.  The
 * shells ignore Ctrl-C, which the terminal sends to all, so that this process ends them in order.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/child.h"
#include "tools/mesh/mesh.h"
#include "tools/text.h"

enum { AT_ONCE = 32, START_MS = 30000, END_MS = 3000 };

/* -- one host ----------------------------------------------------------------------------- */

static void shell_child(const struct mesh_shell *sh, const char *host, int in, int out)
{
	const char *argv[2 * MESH_WORDS + 2];
	int i, n = 0;

	for (i = 0; sh->rsh[i]; i++)
		argv[n++] = sh->rsh[i];
	argv[n++] = host;
	for (i = 0; sh->remote[i]; i++)
		argv[n++] = sh->remote[i];
	argv[n] = NULL;
	signal(SIGINT, SIG_IGN);
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	execvp(argv[0], (char *const *)argv);
	dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int shell_start(const struct mesh_shell *sh, struct mesh_agent *g, const char *host,
		       const char *key)
{
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) != 0)
		return -errno;
	if (pipe2(out, O_CLOEXEC) != 0) {
		close(in[0]);
		close(in[1]);
		return -errno;
	}
	g->pid = fork();
	if (g->pid == 0)
		shell_child(sh, host, in[0], out[1]);
	dprintf(in[1], "%s\n", key);	/* while we hold the read end: no SIGPIPE */
	close(in[0]);
	close(out[1]);
	g->in = in[1];
	g->out = out[0];
	fcntl(g->out, F_SETFL, O_NONBLOCK);
	return g->pid < 0 ? -EAGAIN : 0;
}

static void line_end(struct mesh_host *h, struct mesh_agent *g)
{
	g->line[g->len] = 0;
	g->len = 0;
	if (g->port)
		return;
	if (sscanf(g->line, "listening on port %d", &g->port) == 1) {
		snprintf(h->where, sizeof(h->where), strchr(h->address, ':') ? "[%s]:%d" : "%s:%d",
			 h->address, g->port);
		return;
	}
	text_clean(g->line, sizeof(g->line), "");
	if (g->line[0])
		snprintf(h->why, sizeof(h->why), "%.300s", g->line);
}

/* Take what the shell has printed; h->why is its last line until the listener is there. */
static void shell_read(struct mesh_host *h, struct mesh_agent *g)
{
	char text[1024];
	ssize_t i, n;

	while (g->out >= 0) {
		n = read(g->out, text, sizeof(text));
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		for (i = 0; i < n; i++) {
			if (text[i] == '\n' || text[i] == '\r' || g->len == sizeof(g->line) - 1)
				line_end(h, g);
			else
				g->line[g->len++] = text[i];
		}
		if (n > 0)
			continue;
		line_end(h, g);
		close(g->out);
		g->out = -1;
	}
}

/* -- all of them -------------------------------------------------------------------------- */

struct starting {
	struct mesh_report *r;
	struct mesh_shell *sh;
	int host[AT_ONCE];
	long long until[AT_ONCE];
	int n;
};

static void wait_some(struct starting *st)
{
	struct pollfd p[AT_ONCE];
	int i, at;

	for (i = 0; i < st->n; i++)
		p[i] = (struct pollfd){ .fd = st->sh->agents[st->host[i]].out, .events = POLLIN };
	poll(p, (nfds_t)st->n, 100);
	for (i = st->n - 1; i >= 0; i--) {
		struct mesh_host *h = &st->r->hosts[st->host[i]];
		struct mesh_agent *g = &st->sh->agents[st->host[i]];

		shell_read(h, g);
		if (g->port)
			h->why[0] = 0;
		else if (g->out < 0 && !h->why[0])
			snprintf(h->why, sizeof(h->why), "%s ended without a word",
				 st->sh->rsh[0]);
		else if (g->out >= 0 && child_now() > st->until[i])
			snprintf(h->why, sizeof(h->why), "no listener there after %d s",
				 START_MS / 1000);
		else if (g->out >= 0)
			continue;
		at = --st->n;
		st->host[i] = st->host[at];
		st->until[i] = st->until[at];
	}
}

/* Two for each host, and as many for the pairs: the usual limit is 1024. */
static void descriptors_for(int hosts)
{
	rlim_t need = (rlim_t)hosts * 4 + 64;
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_cur >= need)
		return;
	l.rlim_cur = l.rlim_max < need ? l.rlim_max : need;
	setrlimit(RLIMIT_NOFILE, &l);
}

int mesh_start(struct mesh_report *r, struct mesh_shell *sh, const char *key,
	       const volatile sig_atomic_t *stop)
{
	struct starting st = { .r = r, .sh = sh };
	bool tty = isatty(STDERR_FILENO);
	int next = 0, rc;

	sh->agents = calloc((size_t)r->n, sizeof(*sh->agents));
	if (!sh->agents)
		return -ENOMEM;
	descriptors_for(r->n);
	for (int i = 0; i < r->n; i++)
		sh->agents[i].in = sh->agents[i].out = -1;
	while ((next < r->n || st.n > 0) && !*stop) {
		for (; next < r->n && st.n < AT_ONCE; next++) {
			rc = shell_start(sh, &sh->agents[next], r->hosts[next].name, key);
			if (rc) {
				snprintf(r->hosts[next].why, sizeof(r->hosts[next].why), "%s: %s",
					 sh->rsh[0], strerror(-rc));
				continue;
			}
			st.host[st.n] = next;
			st.until[st.n++] = child_now() + START_MS;
		}
		wait_some(&st);
		if (tty)
			fprintf(stderr, "\r\033[K%d of %d hosts have answered", next - st.n, r->n);
	}
	if (tty)
		fputs("\r\033[K", stderr);
	return *stop ? -EINTR : 0;
}

bool mesh_gone(struct mesh_report *r, struct mesh_shell *sh, int i)
{
	struct mesh_host *h = &r->hosts[i];

	if (h->why[0])
		return true;
	if (!sh)
		return false;
	shell_read(h, &sh->agents[i]);
	if (sh->agents[i].out < 0 && !h->why[0])
		snprintf(h->why, sizeof(h->why), "its listener ended during the run");
	return h->why[0];
}

/* The listeners end with their input.  A shell that does not follow within 3 s is killed. */
void mesh_end(struct mesh_report *r, struct mesh_shell *sh)
{
	long long until = child_now() + END_MS;
	int i;

	for (i = 0; sh->agents && i < r->n; i++)
		if (sh->agents[i].in >= 0)
			close(sh->agents[i].in);
	for (i = 0; sh->agents && i < r->n; i++) {
		struct mesh_agent *g = &sh->agents[i];

		while (g->pid > 0 && waitpid(g->pid, NULL, WNOHANG) == 0) {
			if (child_now() > until)
				kill(g->pid, SIGKILL);
			usleep(5000);
		}
		if (g->out >= 0)
			close(g->out);
	}
	free(sh->agents);
	sh->agents = NULL;
}
