/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doctor.c - `braid doctor`: what is wrong with this host, why it matters, and what mends it.
 *
 * run.c makes the report; here are the command line and the text.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/doctor/doctor.h"
#include "tools/opt.h"
#include "tools/text.h"

enum { INDENT = 6, PORT_MOST = 65535, PID_MOST = 4194304 };

static const enum colour colours[LEVELS] = {
	[LEVEL_SKIP] = COLOUR_DIM, [LEVEL_OK] = COLOUR_GOOD, [LEVEL_NOTE] = COLOUR_HINT,
	[LEVEL_WARN] = COLOUR_WARN, [LEVEL_FAIL] = COLOUR_BAD,
};

static enum level level_in(const json_t *o)
{
	return level_of(text_of(o, "level"));
}

static int count(const json_t *report, enum level level)
{
	return (int)json_integer_value(json_object_get(json_object_get(report, "counts"),
						       level_name(level)));
}

/* A line begins with the level in words: colour adds no information. */
static void print_level(enum level level)
{
	printf("%s%-4s%s  ", text_colour(colours[level]), level_name(level),
	       text_colour(COLOUR_NONE));
}

/* Print each finding with the line that mends it, and once for the check why it matters. */
static void print_check(const json_t *c, bool all)
{
	bool found = level_in(c) > LEVEL_OK;
	json_t *s;
	size_t i;

	if (!found && !all)
		return;
	print_level(level_in(c));
	printf("%s%s\n", text_of(c, "id"), found ? "" : ":");
	json_array_foreach(json_object_get(c, "says"), i, s) {
		if (level_in(s) <= LEVEL_OK && !all)
			continue;
		text_wrap(text_of(s, "text"), INDENT, 0);
		if (*text_of(s, "mend"))
			printf("%*s$ %s\n", INDENT, "", text_of(s, "mend"));
	}
	if (found) {
		printf("%*s%swhy: ", INDENT, "", text_colour(COLOUR_DIM));
		text_wrap(text_of(c, "why"), INDENT + 5, INDENT + 5);
		printf("%s\n", text_colour(COLOUR_NONE));
	}
}

static void print_verdict(const json_t *report)
{
	int bad = count(report, LEVEL_FAIL), poor = count(report, LEVEL_WARN);
	size_t n = json_array_size(json_object_get(report, "checks"));

	printf("%zu checks of %s: ", n, text_of(report, "host"));
	printf("%d fail, %d warn, %d note, %d ok, %d skip\n", bad, poor, count(report, LEVEL_NOTE),
	       count(report, LEVEL_OK), count(report, LEVEL_SKIP));
	if (bad)
		puts("Something is wrong here: begin with what fails.");
	else if (poor)
		puts("It works; what is marked warn costs speed or will hurt some day.");
	else
		puts("Nothing is wrong here.");
}

static void print(const json_t *report, bool all)
{
	json_t *c;
	size_t i;

	/* Print the worst level last, next to the verdict, at the bottom of a terminal. */
	for (int l = LEVEL_SKIP; l < LEVELS; l++) {
		json_array_foreach(json_object_get(report, "checks"), i, c) {
			if (level_in(c) == (enum level)l)
				print_check(c, all);
		}
	}
	if (all)
		putchar('\n');
	print_verdict(report);
}

static int examine(const struct options *w)
{
	json_t *report = doctor_report(w);
	int rc;

	if (w->json) {
		json_dumpf(report, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII);
		putchar('\n');
	} else {
		print(report, w->all);
	}
	rc = count(report, LEVEL_FAIL) || (w->strict && count(report, LEVEL_WARN));
	json_decref(report);
	return rc;
}

/* Split HOST, HOST:PORT, [V6]:PORT or V6; 0 or -1. */
static int peer_split(char *text, struct options *w)
{
	char *colon = strrchr(text, ':'), *close = strchr(text, ']'), *end;
	long port;

	w->peer = *text == '[' ? text + 1 : text;
	if (*text == '[' && !close)
		return -1;
	if (close) {
		*close = '\0';
		colon = close[1] == ':' ? close + 1 : close[1] ? NULL : close;
		if (colon == close)
			return 0;
		if (!colon)
			return -1;
	} else if (!colon || strchr(text, ':') != colon) {
		return *text ? 0 : -1;		/* no port; an IPv6 address has two colons */
	}
	*colon = '\0';
	port = strtol(colon + 1, &end, 10);
	if (end == colon + 1 || *end || port < 1 || port > PORT_MOST)
		return -1;
	w->port = (int)port;
	return *w->peer ? 0 : -1;
}

/* 0, or 2 after a line that says which file of /proc is not there. */
static int check_proc(const struct options *w)
{
	char path[PATH_LEN];

	snprintf(path, sizeof(path), "%s/proc/%d", w->root, w->pid);
	if (!w->pid)
		*strrchr(path, '/') = '\0';
	if (access(path, X_OK) < 0)
		return opt_error("braid doctor", "%s: %s", path, strerror(errno));
	snprintf(path, sizeof(path), "%s/proc/%d/environ", w->root, w->pid);
	if (w->pid && access(path, R_OK) < 0)
		return opt_error("braid doctor", "%s: %s", path, strerror(errno));
	return 0;
}

static int examine_with_peer(struct options *w)
{
	char *peer = strdup(w->peer);
	int rc;

	if (!peer || peer_split(peer, w) < 0)
		rc = opt_error("braid doctor", "--peer takes HOST or HOST:PORT");
	else
		rc = examine(w);
	free(peer);
	return rc;
}

static struct options given = { .root = "" };

static const struct opt rows[] = {
	{OPT_FLAG, "all", NULL, "what is fine as well, and what was left out", &given.all, 0,
	 0},
	{OPT_TEXT, "peer", "HOST[:PORT]", "look at the way to another host too", &given.peer, 0,
	 0},
	{OPT_TEXT, "nodes", "FILE", "compare hosts: a saved report or a host per line",
	 &given.nodes, 0, 0},
	{OPT_TEXT, "only", "LIST", "these checks or groups, such as net,rdma-gid", &given.only,
	 0, 0},
	{OPT_INT, "pid", "PID", "the limits and variables of this process", &given.pid, 1,
	 PID_MOST},
	{OPT_FLAG, "strict", NULL, "exit status 1 for a warning too", &given.strict, 0, 0},
	{OPT_FLAG, "json", NULL, "as JSON", &given.json, 0, 0},
	{OPT_FLAG, "list", NULL, "the checks there are", &given.list, 0, 0},
	{OPT_TEXT, "root", "DIR", "read DIR/sys and DIR/proc, recorded elsewhere", &given.root,
	 0, 0},
	OPT_SUCH_AS("braid doctor --peer node2", "this host, and the way to node2"),
	OPT_SUCH_AS("braid doctor --pid 4711",
		    "this host, with the limits and variables of a job"),
	OPT_SUCH_AS("braid doctor --json >$(hostname).json", "on each host, and then"),
	OPT_SUCH_AS("ls *.json >list; braid doctor --nodes list", "what they differ in"),
	{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
};

int cmd_doctor(int argc, char **argv)
{
	char bad[TEXT_LEN];
	struct options *w = &given;
	enum opt_end end;
	int rc;

	end = opt_parse("braid doctor",
			"What is wrong with this host, why, and the line that mends it.  Exit "
			"status: 0\nnothing fails, 1 something does, 2 a bad command line.",
			rows, argc, argv);
	if (end != OPT_RUN)
		return end;
	if (w->list) {
		doctor_list();
		return 0;
	}
	if (w->nodes && (w->peer || w->only || w->pid || *w->root))
		return opt_error("braid doctor", "--nodes goes with --json and --strict alone");
	if (w->only && !doctor_only_is_valid(w->only, bad, sizeof(bad)))
		return opt_error("braid doctor", "--only: no check or group '%s', see --list", bad);
	rc = check_proc(w);
	if (rc)
		return rc;
	if (w->nodes)
		return doctor_nodes(w);
	return w->peer ? examine_with_peer(w) : examine(w);
}
