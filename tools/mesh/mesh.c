/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mesh.c - `braid mesh`: the command line, and where the hosts come from.
 *
 * With a HOSTFILE a remote shell starts a listener on each host.  Started by mpirun, srun or
 * torchrun, each rank is a listener of rank 0's (tools/compare/launch.c), which takes one rank of
 * each host.  Both ways every pair is a session of two (tools/perf/session.h), driven from here.
 */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/compare/compare.h"
#include "tools/mesh/mesh.h"
#include "tools/report/report.h"
#include "tools/stop.h"
#include "tools/perf/worker.h"

static const char prog[] = "braid mesh";

static struct {
	const char *hostfile, *rsh, *remote_braid, *size, *json, *meet;
	struct mesh_options o;
	struct mesh_report r;
	struct cmp_place place;
	char meet_at[300];
	struct report_to page;
} cmd = {
	.rsh = "ssh -o BatchMode=yes -o ConnectTimeout=10", .remote_braid = "braid", .size = "1m",
	.o = { .seconds = 0.3, .timeout_s = 10, .env = { .cpu = -1 } },
};

static const struct opt rows[] = {
	{OPT_ARG, "[HOSTFILE]", NULL,
	 "a host a line: HOST[:ADDRESS] [address=A] [side=NAME]; -: standard input; none with "
	 "mpirun, srun or torchrun", &cmd.hostfile, 0, 0},
	{OPT_REAL, "seconds", "S", "each direction of a pair is measured so long (0.3)",
	 &cmd.o.seconds, 0.01, 60},
	{OPT_TEXT, "size", "SIZE", "of a message, for bandwidth (1m)", &cmd.size, 0, 0},
	{OPT_INT, "parallel", "N", "pairs at once (half of the hosts)", &cmd.o.parallel, 1,
	 MESH_HOSTS_MAX / 2},
	{OPT_REAL, "timeout", "S", "a pair that does not connect or move for so long fails (10)",
	 &cmd.o.timeout_s, 1, 600},
	{OPT_TEXT, "rsh", "COMMAND", "starts a command on a host, whose name is added (ssh)",
	 &cmd.rsh, 0, 0},
	{OPT_TEXT, "remote-braid", "COMMAND", "braid on those hosts (braid)", &cmd.remote_braid, 0,
	 0},
	{OPT_FLAG, "tcp", NULL, "plain TCP in place of a plugin", &cmd.o.raw, 0, 0},
	{OPT_TEXT, "plugin", "PATH", "any NCCL net plugin's .so, on all hosts",
	 &cmd.o.env.plugin, 0, 0},
	{OPT_TEXT, "dev", "DEV", "device, by number or name, on all hosts", &cmd.o.env.dev, 0, 0},
	{OPT_TEXT, "meet", "HOST:PORT", "where ranks of mpirun, srun or torchrun meet rank 0",
	 &cmd.meet, 0, 0},
	{OPT_OUTPUT, "json", "FILE", "also write all figures and findings there", &cmd.json, 0, 0},
	REPORT_OPTIONS(cmd.page),
	OPT_SUCH_AS("braid mesh hosts.txt", "all pairs of these hosts, by ssh"),
	OPT_SUCH_AS("mpirun -N 1 braid mesh", "all pairs of a job's hosts"),
	OPT_SUCH_AS("braid mesh hosts.txt --rsh 'ip netns exec'",
		    "all pairs of network namespaces of this host"),
	{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
};

/* -- hosts by a remote shell -------------------------------------------------------------- */

/* A remote shell may read the words: only such as mean themselves to every shell. */
static bool is_word(const char *s)
{
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("_@%+=:,./-", *s))
			return false;
	return true;
}

static int words_add(const char *words[MESH_WORDS], int *n, const char *word, const char *of)
{
	if (*n == MESH_WORDS - 1)
		return opt_error(prog, "--%s has too many words", of);
	if (!is_word(word))
		return opt_error(prog, "--%s: a remote shell may misread '%s'", of, word);
	words[(*n)++] = word;
	words[*n] = NULL;
	return 0;
}

/* `room` keeps the words. */
static int words_split(const char *words[MESH_WORDS], int *n, const char *text, const char *of,
		       char *room, size_t len)
{
	char *save = NULL, *word;
	int rc = 0;

	if (snprintf(room, len, "%s", text) >= (int)len)
		return opt_error(prog, "--%s is too long", of);
	for (word = strtok_r(room, " ", &save); word && !rc; word = strtok_r(NULL, " ", &save))
		rc = words_add(words, n, word, of);
	return rc || *n ? rc : opt_error(prog, "--%s needs a command", of);
}

/* The command that a host runs: a listener that ends with its standard input. */
static int shell_make(struct mesh_shell *sh)
{
	static const char *const listen[] = { "perf", "--listen", "0", "--key-file", "-",
					      "--until-eof" };
	static char rsh[1000], braid[1000], env[64];
	const struct fabric_env *e = &cmd.o.env;
	int n = 0, m = 0, rc;
	unsigned i;

	snprintf(env, sizeof(env), "BRAID_CONNECT_TIMEOUT=%.0f", cmd.o.timeout_s);
	rc = words_split(sh->rsh, &n, cmd.rsh, "rsh", rsh, sizeof(rsh));
	if (!rc)
		rc = words_add(sh->remote, &m, "env", "rsh") ||
		     words_add(sh->remote, &m, env, "rsh") ? 2 : 0;
	if (!rc)
		rc = words_split(sh->remote, &m, cmd.remote_braid, "remote-braid", braid,
				 sizeof(braid));
	for (i = 0; i < sizeof(listen) / sizeof(listen[0]) && !rc; i++)
		rc = words_add(sh->remote, &m, listen[i], "remote-braid");
	if (!rc && e->plugin)
		rc = words_add(sh->remote, &m, "--plugin", "plugin") ||
		     words_add(sh->remote, &m, e->plugin, "plugin") ? 2 : 0;
	if (!rc && e->dev)
		rc = words_add(sh->remote, &m, "--dev", "dev") ||
		     words_add(sh->remote, &m, e->dev, "dev") ? 2 : 0;
	return rc;
}

static int hosts_by_file(struct mesh_shell *sh)
{
	char key[PERF_KEY_TEXT];
	int rc = mesh_hosts_read(&cmd.r, prog, cmd.hostfile);

	if (!rc)
		rc = shell_make(sh);
	if (rc)
		return rc;
	cmd.o.shell = sh;
	perf_key_new(&cmd.o.key, key);
	stop_on_signals();
	mesh_start(&cmd.r, sh, key, &stop_asked);
	return 0;
}

/* -- hosts by a launcher ------------------------------------------------------------------ */

/* One rank of each host, or all of them if there is one host only. */
static int hosts_of_ranks(void)
{
	const struct cmp_place *p = &cmd.place;
	int taken[PERF_PROCS_MAX], n = 0, i, j;
	bool each;

	for (i = 0; i < p->nprocs; i++) {
		for (j = 0; j < n && strcmp(p->names[taken[j]], p->names[i]) != 0; j++)
			;
		if (j == n)
			taken[n++] = i;
	}
	each = n < 2;
	for (i = 0; each && i < p->nprocs; i++)
		taken[n = i] = i;
	n += each;
	if (mesh_report_init(&cmd.r, n) != 0)
		return opt_error(prog, "no memory");
	for (i = 0; i < n; i++) {
		struct mesh_host *h = &cmd.r.hosts[i];

		snprintf(h->name, sizeof(h->name), each ? "%s/%d" : "%s", p->names[taken[i]],
			 taken[i]);
		snprintf(h->where, sizeof(h->where), "%s", p->addr[taken[i]]);
		snprintf(h->address, sizeof(h->address), "%.*s",
			 (int)(strrchr(h->where, ':') ? strrchr(h->where, ':') - h->where : 0),
			 h->where);
	}
	return 0;
}

static int hosts_by_launcher(void)
{
	struct cmp_place *p = &cmd.place;
	char err[PERF_TEXT] = "", limit[16];
	int rc = plugin_find(prog, &cmd.o.env.plugin);

	if (rc)
		return rc;
	snprintf(limit, sizeof(limit), "%.0f", cmd.o.timeout_s);
	setenv("BRAID_CONNECT_TIMEOUT", limit, 0);
	if (p->rank > 0) {
		rc = cmp_serve(p, cmd.meet_at, &cmd.o.env, &cmd.o.key, 60, err);
		return rc ? opt_error(prog, "rank %d: %s [no-meeting]", p->rank,
				      err[0] ? err : strerror(-rc)) : 0;
	}
	stop_on_signals();
	rc = cmp_gather(p, cmd.meet_at, &cmd.o.key, 60, err);
	if (rc)
		return opt_error(prog, "%s [no-meeting]", err[0] ? err : strerror(-rc));
	return hosts_of_ranks();
}

/* -- the report --------------------------------------------------------------------------- */

static int write_out(const struct mesh_report *r)
{
	json_t *doc = mesh_json(r);
	int rc = report_write(prog, &cmd.page, cmd.json, doc);

	json_decref(doc);
	return rc;
}

static int report(void)
{
	struct mesh_report *r = &cmd.r;
	int rc = 0;

	mesh_score(r);
	mesh_words(r);
	if (cmd.place.nprocs)		/* mpirun gives rank 0 a terminal of its own */
		setenv("NO_COLOR", "1", 1);
	if (!opt_is_stdout(cmd.json) && !report_is_stdout(&cmd.page))
		mesh_print(r);
	if (report_is_wanted(&cmd.page, cmd.json))
		rc = write_out(r);
	if (r->stopped) {
		opt_fail(prog, "[stopped-early]", "stopped; what is above was measured before");
		return rc ? rc : 128 + SIGINT;
	}
	return rc ? rc : r->nfound > 0;
}

/* -- the command line --------------------------------------------------------------------- */

static int settle(void)
{
	struct cmp_place *p = &cmd.place;
	uint64_t sizes[2];
	bool launched = cmp_launched(p, cmd.meet_at, sizeof(cmd.meet_at));

	cmd.o.env.fabrics = fabric_table;
	cmd.o.env.key = &cmd.o.key;
	cmd.o.stop = &stop_asked;
	if (perf_sizes_parse(cmd.size, sizes, 2) != 1 || sizes[0] == 0)
		return opt_error(prog, "--size takes one size up to 1g, such as 64k, not '%s'",
				 cmd.size);
	cmd.o.size = sizes[0];
	if (cmd.hostfile)
		return cmd.meet ? opt_error(prog, "--meet is for mpirun, srun and torchrun") : 0;
	if (!launched)
		return opt_error(prog, "a HOSTFILE is needed, or mpirun, srun or torchrun");
	if (p->nprocs > PERF_PROCS_MAX)
		return opt_error(prog, "%d ranks are more than %d: start one for each host, or "
				 "give a HOSTFILE", p->nprocs, PERF_PROCS_MAX);
	if (cmd.meet)
		snprintf(cmd.meet_at, sizeof(cmd.meet_at), "%s", cmd.meet);
	if (!cmd.meet_at[0])
		return opt_error(prog, "%s does not say where rank 0 is: --meet HOST:PORT",
				 p->launcher);
	return perf_key_read(prog, NULL, &cmd.o.key);
}

int cmd_mesh(int argc, char **argv)
{
	enum opt_end end = opt_parse(prog, "Measure all pairs of hosts, and say what is odd.", rows,
				     argc, argv);
	struct mesh_shell sh = { .agents = NULL };
	int rc;

	if (end != OPT_RUN)
		return end;
	rc = settle();
	if (rc)
		return rc;
	rc = cmd.hostfile ? hosts_by_file(&sh) : hosts_by_launcher();
	if (!rc && (cmd.hostfile || cmd.place.rank == 0)) {
		cmd.r.seconds = cmd.o.seconds;
		cmd.r.size = cmd.o.size;
		mesh_run(&cmd.r, &cmd.o);
		mesh_end(&cmd.r, &sh);
		rc = report();
	}
	cmp_place_end(&cmd.place);
	mesh_report_fini(&cmd.r);
	return rc;
}
