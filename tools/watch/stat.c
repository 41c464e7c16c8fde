/* SPDX-License-Identifier: BSD-3-Clause */
/* stat.c - `braid stat`: the counters of a process that has Braid loaded, or a list of them. */
#include "tools/watch/stat.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/opt.h"
#include "tools/watch/process.h"
#include "tools/watch/slowest.h"
#include "tools/text.h"

enum { WIRE_COLUMN = 8, WRAPPED = 4 };

void stat_print_process(const json_t *o)
{
	text_lines(0, WRAPPED, "process %lld on %s, Braid %s", report_number(o, "pid"),
		   report_text(o, "host"), report_text(o, "version"));
}

static void print_times(int column, const char *what, const json_t *o, const char *key)
{
	struct braid_hist h;

	report_times(o, key, &h);
	if (h.count)
		text_lines(column, column + 2, "%s: p50 %s, p99 %s, at most %s, of %llu timed",
			   what, report_time(braid_hist_percentile(&h, 50)),
			   report_time(braid_hist_percentile(&h, 99)), report_time(h.max_ns),
			   (unsigned long long)h.count);
}

static void print_lane(const json_t *lane)
{
	long long suspect = report_number(lane, "suspect_ms");
	bool up = report_is(lane, "up"), well = up && !suspect;

	printf("  %4lld  %-9s  %s%-8s%s  %9s  %9s  %9s  %6lld  %4lld  %4lld\n",
	       report_number(lane, "lane"), report_text(lane, "transport"),
	       text_colour(well ? COLOUR_GOOD : COLOUR_BAD),
	       !up ? "down" : suspect ? "suspect" : report_is(lane, "home") ? "up, home" : "up",
	       text_colour(COLOUR_NONE),
	       report_bytes((double)report_number(lane, "sent_bytes")),
	       report_bytes((double)report_number(lane, "received_bytes")),
	       report_bytes((double)report_number(lane, "queued_bytes")),
	       report_number(lane, "resent_packets"), report_number(lane, "lost"),
	       report_number(lane, "back"));
	print_times(WIRE_COLUMN, "acknowledged after", lane, "acks");
	if (*report_text(lane, "wire"))
		text_wrap(report_text(lane, "wire"), WIRE_COLUMN, 0);
	if (*report_text(lane, "thread"))
		printf("        a thread of BRAID_THREADS %s\n", report_text(lane, "thread"));
	if (report_number(lane, "corrupt"))
		printf("        lost %lld times because data was changed on its way here\n",
		       report_number(lane, "corrupt"));
}

void stat_print_link(const json_t *link)
{
	const char *err = report_text(link, "error");
	json_t *lane;
	size_t i;

	putchar('\n');
	text_lines(0, WRAPPED, "link %lld over %s, peer %s", report_number(link, "link"),
		   report_text(link, "device"),
		   *report_text(link, "peer") ? report_text(link, "peer") : "not known yet");
	text_lines(2, WRAPPED, "%s%s%s, heard %s ago, %lld comms, %lld stalls reported%s",
		   report_text(link, "state"), *err ? ": " : "", err,
		   report_age(report_number(link, "heard_ms")),
		   report_number(link, "comms"), report_number(link, "stalls"),
		   report_is(link, "busy") ? ", busy" : "");
	text_lines(2, WRAPPED, "done: %lld sends of %s, %lld receives of %s",
		   report_number(link, "sent_messages"),
		   report_bytes((double)report_number(link, "sent_bytes")),
		   report_number(link, "received_messages"),
		   report_bytes((double)report_number(link, "received_bytes")));
	print_times(2, "sends up to 8 KiB took", link, "small_sends");
	print_times(2, "larger sends took", link, "large_sends");
	text_lines(2, WRAPPED, "outstanding: %lld sends, %lld receives, the oldest for %s",
		   report_number(link, "sends"), report_number(link, "receives"),
		   report_age(report_number(link, "oldest_ms")));
	puts("  lane  transport  state          sent   received     queued  resent  lost  back");
	json_array_foreach(json_object_get(link, "lanes"), i, lane)
		print_lane(lane);
}

static void print_process(const json_t *o)
{
	json_t *link;
	size_t i;

	stat_print_process(o);
	json_array_foreach(json_object_get(o, "links"), i, link)
		stat_print_link(link);
}

int stat_command_width(void)
{
	return 13 + text_columns() - 80;
}

const char *stat_command(pid_t pid)
{
	static char name[32];
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	name[0] = 0;
	f = fopen(path, "re");
	if (f && fgets(name, sizeof(name), f))
		name[strcspn(name, "\n")] = 0;
	if (f)
		fclose(f);
	text_clean(name, sizeof(name), "");
	return name;
}

void stat_print_silent(const struct process *p, const char *why)
{
	printf("%7d %-*.*s %s%s%s\n", (int)p->pid, stat_command_width(), stat_command_width(),
	       stat_command(p->pid),
	       text_colour(COLOUR_BAD), why, text_colour(COLOUR_NONE));
}

/* One line for each process, also for one that is silent; those that have just ended have none. */
static int list(const char *dir)
{
	static struct process p[PROCESSES_MAX];
	static json_t *reports[PROCESSES_MAX];
	static char err[PROCESSES_MAX][PROCESS_ERR];
	size_t n = process_list(dir, p, PROCESSES_MAX);

	process_reports(p, n, "stat", reports, err);
	printf("    PID %-*s links lanes up outstanding  oldest      sent  received\n",
	       stat_command_width(), "command");
	for (size_t i = 0; i < n; i++) {
		json_t *o = reports[i];
		struct report_sums s;
		char lanes[32];

		if (!o) {
			if (*err[i])
				stat_print_silent(&p[i], err[i]);
			continue;
		}
		s = report_sums(o);
		snprintf(lanes, sizeof(lanes), "%lld/%lld", s.lanes_up, s.lanes);
		printf("%7d %-*.*s %5lld %8s %11lld %7s %9s %9s\n", (int)p[i].pid,
		       stat_command_width(), stat_command_width(), stat_command(p[i].pid),
		       s.links, lanes, s.sends + s.receives,
		       report_age(s.oldest_ms), report_bytes((double)s.sent_bytes),
		       report_bytes((double)s.received_bytes));
		json_decref(o);
	}
	return 0;
}

/* For the shells' completion, which can't wait for a process that is silent. */
static int list_pids(const char *dir)
{
	static struct process p[PROCESSES_MAX];
	size_t n = process_list(dir, p, PROCESSES_MAX);

	for (size_t i = 0; i < n; i++) {
		if (*stat_command(p[i].pid))		/* it still runs */
			printf("%d\n", (int)p[i].pid);
	}
	return 0;
}

int stat_show(const char *prog, const char *dir, const char *pid, const char *word,
	      void (*print)(const json_t *report))
{
	char err[PROCESS_ERR], *text = NULL;
	json_t *o = NULL;
	struct process p;
	size_t len = 0;

	if (process_find(dir, pid, &p, err))
		return opt_error(prog, "%s", err);
	if (print)
		o = process_report(&p, word, err);
	else
		text = process_query(&p, word, &len, err);
	if (text)
		text_clean(text, len + 1, "\n");
	if (!o && !text)
		return opt_error(prog, "%s", err);
	if (print)
		print(o);
	else
		fputs(text, stdout);
	json_decref(o);
	free(text);
	return 0;
}

/* The processes that `pids` names; 0: none, and an error has been reported. */
static size_t given(const char *prog, const char *dir, const char *pids, struct process *ret)
{
	char *copy = strdup(pids), *save = NULL, err[PROCESS_ERR];
	size_t n = 0;

	for (char *s = copy ? strtok_r(copy, ",", &save) : NULL; s && n < PROCESSES_MAX;
	     s = strtok_r(NULL, ",", &save)) {
		if (process_find(dir, s, &ret[n++], err)) {
			opt_error(prog, "%s", err);
			n = 0;
			break;
		}
	}
	free(copy);
	return n;
}

/* The slowest of all processes, or of those in `pids`, with commas between. */
static int slowest(const char *prog, const char *dir, const char *pids)
{
	static struct process p[PROCESSES_MAX];
	static json_t *reports[PROCESSES_MAX];
	static char err[PROCESSES_MAX][PROCESS_ERR];
	size_t n = pids ? given(prog, dir, pids, p) : process_list(dir, p, PROCESSES_MAX), got = 0;
	struct slowest *s = slowest_new();

	if ((pids && !n) || !s) {
		slowest_free(s);
		return 2;
	}
	process_reports(p, n, "stat", reports, err);
	for (size_t i = 0; i < n; i++) {
		if (reports[i])
			slowest_add(s, &p[i], reports[i]);
		else if (*err[i])
			stat_print_silent(&p[i], err[i]);
		got += reports[i] != NULL;
		json_decref(reports[i]);
	}
	if (got)
		slowest_print(s);
	else
		puts("no process of this user has a connection of Braid's open");
	slowest_free(s);
	return 0;
}

int cmd_stat(int argc, char **argv)
{
	const char *pid = NULL, *dir = NULL, *file = NULL;
	bool json = false, pids = false, metrics = false, openmetrics = false, slow = false;
	const struct opt rows[] = {
		{OPT_ARG, "[PID]", NULL, "the process; without it, which there are", &pid, 0, 0},
		{OPT_FLAG, "json", NULL, "the report as it came", &json, 0, 0},
		{OPT_FLAG, "pids", NULL, "the PIDs alone, without a question to any", &pids, 0, 0},
		{OPT_FLAG, "slowest", NULL, "the slowest peer, lane and NIC, of all or of PID,PID",
		 &slow, 0, 0},
		{OPT_FLAG, "metrics", NULL, "of it, or of all of this host, for Prometheus",
		 &metrics, 0, 0},
		{OPT_FLAG, "openmetrics", NULL, "the same in that format", &openmetrics, 0, 0},
		{OPT_OUTPUT, "textfile", "FILE", "write them there, whole or not at all", &file, 0,
		 0},
		{OPT_TEXT, "dir", "DIR", "where its socket is, if BRAID_STAT_DIR was set for it",
		 &dir, 0, 0},
		OPT_SUCH_AS("braid stat", "the processes of this user that have Braid loaded"),
		OPT_SUCH_AS("braid stat 4711", "the links and lanes of one"),
		OPT_SUCH_AS("braid stat --slowest", "which peer, lane and NIC slows the job"),
		OPT_SUCH_AS("braid stat --metrics --textfile /var/lib/node/braid.prom",
			    "all of this host, for a node exporter"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	enum opt_end end;

	end = opt_parse("braid stat", "Counters per link and lane of a process that runs.", rows,
			  argc, argv);
	if (end != OPT_RUN)
		return end;
	metrics = metrics || openmetrics;
	if (pids && (pid || json || metrics || slow))
		return opt_error("braid stat", "--pids alone");
	if (slow && (json || metrics || file))
		return opt_error("braid stat", "--slowest alone, or with PIDs");
	if (slow)
		return slowest("braid stat", dir, pid);
	if (json && metrics)
		return opt_error("braid stat", "--json or --metrics, not both");
	if (file && !metrics)
		return opt_error("braid stat", "--textfile is for --metrics");
	if (pids)
		return list_pids(dir);
	if (!pid && json)
		return opt_error("braid stat", "--json is of one PID");
	if (metrics)
		return metrics_show("braid stat", dir, pid, openmetrics, file);
	return !pid ? list(dir) :
	       stat_show("braid stat", dir, pid, "stat", json ? NULL : print_process);
}
