/* SPDX-License-Identifier: BSD-3-Clause */
/* dump.c - `braid dump`: a process's pending messages, what they wait for, and the last events. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/opt.h"
#include "tools/watch/process.h"
#include "tools/watch/stat.h"
#include "tools/text.h"

enum {
	LONG_MS = 1000,			/* report a message that waits so long */
	EVENT_COLUMN = 18,
};

/* The oldest message of a link, or NULL. */
static const json_t *oldest(const json_t *link)
{
	const json_t *m, *ret = NULL;
	size_t i;

	json_array_foreach(json_object_get(link, "messages"), i, m) {
		if (!ret || report_number(m, "age_ms") > report_number(ret, "age_ms"))
			ret = m;
	}
	return ret;
}

static const struct {
	const char *state, *words;
} waits[] = {
	{ "peer has not posted the receive",
	  "the peer has not posted the receive: that rank is late, the network is fine" },
	{ "peer has not sent it",
	  "the peer has not sent it: that rank is late, the network is fine" },
	{ "announced, no data yet", "the peer has announced it and is not sending: look there" },
	{ "being sent", "it is being sent" },
	{ "sent, not acknowledged", "it was sent and is not acknowledged: look at the peer" },
	{ "being received", "it is being received" },
	{ "peer has not registered the window",
	  "the peer has not registered that window: that rank is late, the network is fine" },
	{ "peer has not sent the bytes", "the peer has not sent its bytes: look there" },
	{ "done, not asked for",
	  "it is done, and NCCL has not asked: the proxy thread of this process is late or stuck" },
};

static const char *words_of(const json_t *message)
{
	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		if (strcmp(report_text(message, "state"), waits[i].state) == 0)
			return waits[i].words;
	}
	return "in a state that this command does not know";
}

/* The reason why the oldest message waits, as text to be freed; NULL: there is no memory. */
static char *verdict_of(const json_t *link)
{
	const json_t *m = oldest(link), *lane;
	bool up = false, ill = m && report_is(m, "lane_ill");
	char *ret = NULL;
	size_t i;
	int n;

	json_array_foreach(json_object_get(link, "lanes"), i, lane)
		up |= report_is(lane, "up");
	if (report_is(link, "busy"))
		return strdup("a thread of this process, which keeps this link's lock: its "
			      "messages can't be seen");
	if (!m || report_number(m, "age_ms") < LONG_MS)
		return strdup("nothing for long");
	if (!up)
		return strdup("a lane: all are down, Braid reconnects");
	if (report_is(link, "silent"))
		n = asprintf(&ret, "the peer, which was not heard for %s: it is stopped, gets "
			     "no CPU, or the path is down",
			     report_age(report_number(link, "heard_ms")));
	else if (report_is(link, "late") && report_number(link, "peer_cpu_wait_percent") >= 50)
		n = asprintf(&ret, "the peer, whose process gets too little CPU: its thread waits "
			     "for one %lld %% of the time",
			     report_number(link, "peer_cpu_wait_percent"));
	else if (ill)
		return strdup("a lane that is down or suspect: the network");
	else
		n = asprintf(&ret, "%s %lld of comm %lld: %s", report_text(m, "kind"),
			     report_number(m, "number"), report_number(m, "comm"), words_of(m));
	return n < 0 ? NULL : ret;
}

static void print_verdict(const json_t *link)
{
	int used = printf("  waits for: ");
	char *verdict = verdict_of(link);

	fputs(text_colour(COLOUR_WARN), stdout);
	text_wrap(verdict ? verdict : "?", used, used);
	fputs(text_colour(COLOUR_NONE), stdout);
	free(verdict);
}

static void print_message(const json_t *m)
{
	char state[400];
	int used = printf("  %-7s %4lld %8lld %6lld %10lld %10lld %8s", report_text(m, "kind"),
			  report_number(m, "comm"), report_number(m, "number"),
			  report_number(m, "tag"), report_number(m, "bytes"),
			  report_number(m, "bytes_done"), report_age(report_number(m, "age_ms")));

	snprintf(state, sizeof(state), "%s%s%s", report_text(m, "state"),
		 report_is(m, "lane_ill") ? ", on a lane that is ill" : "",
		 report_is(m, "failed") ? ", its comm has failed" : "");
	text_wrap(state, used + 1, used);
}

/* One-sided operations: what peers have registered, and signals that wait for bytes here. */
static void print_channels(const json_t *link)
{
	if (json_object_get(link, "channels"))
		printf("  one-sided: %lld channels, %lld windows of the peer's, %lld signals wait "
		       "for bytes\n", report_number(link, "channels"),
		       report_number(link, "peer_windows"),
		       report_number(link, "signals_waiting"));
}

static void print_messages(const json_t *link)
{
	long long more = report_number(link, "messages_left_out");
	json_t *m;
	size_t i;

	if (!json_array_size(json_object_get(link, "messages")))
		return;
	puts("  message comm   number    tag      bytes       done      age state");
	json_array_foreach(json_object_get(link, "messages"), i, m)
		print_message(m);
	if (more)
		printf("  and %lld more\n", more);
}

/* The word for a transport, by the number that events have; NULL: it is newer than this command. */
static const char *transport_word(long long id)
{
#define BRAID_TRANSPORTS_ALL
#define BRAID_TRANSPORT(folder, table, word, name, number) if (id == (number)) return word;
#include "core/base/transports.def"
#undef BRAID_TRANSPORT
#undef BRAID_TRANSPORTS_ALL
	return NULL;
}

/* One of an event's own numbers. */
static void put_number(FILE *f, const char *key, long long n)
{
	const char *word = strcmp(key, "transport") == 0 ? transport_word(n) : NULL;

	if (strcmp(key, "errno") == 0 && n < 0)
		fprintf(f, ", %s", strerror((int)-n));
	else if (word)
		fprintf(f, ", %s", word);
	else
		fprintf(f, ", %.40s %lld", key, n);
}

/* Print "5.2 s ago  link 1 lane 0  lane lost, errno -104, times 1"; the words are the report's. */
static void print_event(json_t *e)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	const char *key;
	json_t *x;

	if (!f)
		return;
	fprintf(f, "%12s ago  link %lld", report_age(report_number(e, "ago_ms")),
		report_number(e, "link"));
	if (json_object_get(e, "lane"))
		fprintf(f, " lane %lld", report_number(e, "lane"));
	fprintf(f, "  %s", report_text(e, "event"));
	json_object_foreach(e, key, x) {
		if (strcmp(key, "ago_ms") != 0 && strcmp(key, "link") != 0 &&
		    strcmp(key, "lane") != 0 && json_is_integer(x))
			put_number(f, key, json_integer_value(x));
	}
	if (fclose(f) == 0)
		text_lines(0, EVENT_COLUMN, "%s", text);
	free(text);
}

static void print_all(const json_t *o)
{
	json_t *x;
	size_t i;

	stat_print_process(o);
	json_array_foreach(json_object_get(o, "links"), i, x) {
		stat_print_link(x);
		print_verdict(x);
		print_channels(x);
		print_messages(x);
	}
	puts("\nevents, the newest last");
	json_array_foreach(json_object_get(o, "events"), i, x)
		print_event(x);
}

int cmd_dump(int argc, char **argv)
{
	const char *pid = NULL, *dir = NULL;
	bool json = false;
	const struct opt rows[] = {
		{OPT_ARG, "PID", NULL, "the process", &pid, 0, 0},
		{OPT_FLAG, "json", NULL, "the report as it came", &json, 0, 0},
		{OPT_TEXT, "dir", "DIR", "where its socket is, if BRAID_STAT_DIR was set for it",
		 &dir, 0, 0},
		OPT_SUCH_AS("braid dump 4711", "why a job hangs: what waits, and for what"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	enum opt_end end;

	end = opt_parse("braid dump", "Every outstanding message of a process, what it waits "
			  "for, and the last events.", rows, argc, argv);
	if (end != OPT_RUN)
		return end;
	if (!pid)
		return opt_error("braid dump", "it needs a PID; braid stat lists them");
	return stat_show("braid dump", dir, pid, "dump", json ? NULL : print_all);
}
