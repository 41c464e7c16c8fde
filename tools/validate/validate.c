/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * validate.c - `braid validate`: does a plugin keep its promises on this host, or between two?
 *
 * Here is the command line; run.c runs the checks, which are in a file for each group.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/opt.h"
#include "tools/perf/key.h"
#include "tools/perf/pattern.h"
#include "tools/perf/worker.h"
#include "tools/tcp.h"
#include "tools/validate/far.h"

static const char prog[] = "braid validate";

static const char about[] =
	"Does the plugin keep its promises here, or between this host and another?\n"
	"PROFILE: quick (under a minute; the default), full, or soak HOURS.\n"
	"Exit status: 0 nothing failed, 1 something did, 77 all was skipped, 2 it could\n"
	"not be done or not be finished.";

struct words {				/* options as given */
	const char *profile, *hours, *listen, *transport;
	bool list, once;
};

static int profile(struct options *w, const struct words *words)
{
	static const char *const names[] = { "quick", "full", "soak" };
	char *end;

	for (int i = 0; words->profile && i < 3; i++)
		if (strcmp(words->profile, names[i]) == 0)
			w->profile = (enum profile)i;
	if (words->profile && strcmp(words->profile, names[w->profile]) != 0)
		return opt_error(prog, "no profile '%s': quick, full or soak HOURS",
				 words->profile);
	if (w->profile != PROFILE_SOAK)
		return words->hours ? opt_error(prog, "unexpected argument '%s', see --help",
						words->hours) : 0;
	w->hours = words->hours ? strtod(words->hours, &end) : 0;
	if (!words->hours || end == words->hours || *end || !(w->hours > 0 && w->hours <= 10000))
		return opt_error(prog, "soak takes the hours, up to 10000, such as soak 12");
	return 0;
}

static int settle(struct options *w, const struct words *words)
{
	bool json_out = opt_is_stdout(w->json), junit_out = opt_is_stdout(w->junit);
	char err[PERF_TEXT], bad[64];
	union tcp_addr unused;
	int rc = profile(w, words);

	if (rc)
		return rc;
	if (json_out + junit_out + w->tap > 1)
		return opt_error(prog, "one of --json -, --junit - and --tap can be on stdout");
	if (w->only && !validate_only_is_valid(w->only, bad, sizeof(bad)))
		return opt_error(prog, "--only: no check or group '%s', see --list", bad);
	if (w->connect && tcp_addr_parse(w->connect, true, &unused, err, sizeof(err)) == -EINVAL)
		return opt_error(prog, "--connect: %s", err);
	if (words->listen &&
	    tcp_addr_parse(words->listen, false, &unused, err, sizeof(err)) == -EINVAL)
		return opt_error(prog, "--listen: %s", err);
	if (w->connect && words->listen)
		return opt_error(prog, "--listen or --connect, not both");
	if (!w->port_down != !w->port_up)
		return opt_error(prog, "--port-down and --port-up go together");
	if (strchr(w->plugin, '/') && access(w->plugin, R_OK) != 0)
		return opt_error(prog, "%s: %s", w->plugin, strerror(errno));
	if (w->key_file && !w->connect && !words->listen)
		return opt_error(prog, "--key-file is for --listen and --connect");
	if (w->connect)
		rc = perf_key_need(prog, w->key_file, w->connect, &w->key);
	else if (words->listen)
		rc = perf_key_read(prog, w->key_file, &w->key);
	return rc;
}

static int serve(struct options *w, const struct words *words)
{
	struct fabric_env env = {
		.fabrics = fabric_table, .plugin = w->plugin, .abi = w->abi, .dev = w->dev,
		.key = &w->key, .cpu = -1,
	};
	char err[PERF_TEXT] = "", text[PERF_KEY_TEXT];
	int port, rc, fd = perf_worker_listen(words->listen, &port, err);

	if (fd < 0)
		return opt_error(prog, "%s [not-served]", err);
	perf_listen_print(prog, fd, port, perf_key_made(&w->key, text));
	rc = perf_worker_serve(NULL, fd, &env, validate_worker, false, words->once, -1);
	close(fd);
	return rc ? 2 : 0;
}

int cmd_validate(int argc, char **argv)
{
	struct options w = { .plugin = NULL };
	struct words words = { .profile = NULL };
	const struct opt rows[] = {
		{OPT_ARG, "[PROFILE]", NULL, "quick, full or soak", &words.profile, 0, 0},
		{OPT_ARG, "[HOURS]", NULL, "of soak", &words.hours, 0, 0},
		{OPT_FLAG, "list", NULL, "the checks: id, group, profile, title", &words.list, 0,
		 0},
		{OPT_TEXT, "only", "LIST", "these checks or groups, such as data,mr-again",
		 &w.only, 0, 0},
		{OPT_FLAG, "faults", NULL, "break things as well", &w.faults, 0, 0},
		{OPT_TEXT, "connect", "HOST:PORT", "the other end is there", &w.connect, 0, 0},
		{OPT_TEXT, "listen", "[ADDR:]PORT",
		 "be the other end, by IPv4 and IPv6, and print its key",
		 &words.listen, 0, 0},
		{OPT_FLAG, "once", NULL, "with --listen: one connection", &words.once, 0, 0},
		{OPT_TEXT, "key-file", "FILE", PERF_KEY_HELP, &w.key_file, 0, 0},
		{OPT_TEXT, "transport", "LIST", "BRAID_TRANSPORTS, such as verbs or tcp",
		 &words.transport, 0, 0},
		{OPT_TEXT, "thresholds", "FILE", "what figures must be, of a NIC", &w.thresholds, 0,
		 0},
		{OPT_OUTPUT, "json", "FILE", "write a report; -: to stdout", &w.json, 0, 0},
		{OPT_OUTPUT, "junit", "FILE", "the same as JUnit XML", &w.junit, 0, 0},
		REPORT_OPTIONS(w.page),
		{OPT_FLAG, "tap", NULL, "TAP 13 instead of text", &w.tap, 0, 0},
		{OPT_REAL, "seed", "N", "of what is random; of a report", &w.seed, 1, 9e15},
		{OPT_TEXT, "port-down", "CMD", "takes the port down, for fault-port", &w.port_down,
		 0, 0},
		{OPT_TEXT, "port-up", "CMD", "and up again", &w.port_up, 0, 0},
		{OPT_TEXT, "dev", "DEV", "device, by number or name", &w.dev, 0, 0},
		{OPT_TEXT, "plugin", "PATH", "any NCCL net plugin's .so", &w.plugin, 0, 0},
		{OPT_INT, "abi", "V", "its ABI version (the newest)", &w.abi, 5, 12},
		OPT_SUCH_AS("braid validate", "this host, two processes"),
		OPT_SUCH_AS("braid validate full --faults --json before.json", "all, and keep it"),
		OPT_SUCH_AS("braid validate --listen 7400", "on one host, and on another:"),
		OPT_SUCH_AS("BRAID_PERF_KEY=KEY braid validate --connect node1:7400",
			    "between the two; the listener prints KEY"),
		OPT_SUCH_AS("braid validate --only data,connect-leak --transport tcp", "a part"),
		OPT_SUCH_AS("braid validate soak 12 --faults", "half a day"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	enum opt_end end;
	int rc;

	end = opt_parse(prog, about, rows, argc, argv);
	if (end != OPT_RUN)
		return end;
	if (words.list) {
		validate_list();
		return 0;
	}
	rc = plugin_find(prog, &w.plugin);
	if (!rc)
		rc = settle(&w, &words);
	if (rc)
		return rc;
	if (words.transport)
		setenv("BRAID_TRANSPORTS", words.transport, 1);
	return words.listen ? serve(&w, &words) : validate_run(&w);
}
