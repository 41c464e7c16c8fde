/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * top.c - `braid top`: what processes that have Braid loaded carry, second by second.
 *
 * Below the table one line names the slowest peer, lane and NIC of the interval (slowest.h).
 *
 * On a terminal the table is redrawn in place; elsewhere tables follow each other.
 */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/opt.h"
#include "tools/perf/stat.h"
#include "tools/text.h"
#include "tools/watch/process.h"
#include "tools/watch/slowest.h"
#include "tools/watch/stat.h"

struct sample {
	struct process p;
	char silent[PROCESS_ERR];	/* why it does not answer; "": it does */
	struct report_sums s;
	double at;			/* seconds */
};

struct samples {
	size_t n;
	struct slowest *times;		/* or NULL */
	struct sample of[PROCESSES_MAX];
};

static atomic_bool over;

static void interrupted(int sig)
{
	(void)sig;
	atomic_store(&over, true);
}

static void read_samples(const char *dir, struct samples *ret)
{
	static struct process p[PROCESSES_MAX];
	static json_t *reports[PROCESSES_MAX];
	static char err[PROCESSES_MAX][PROCESS_ERR];
	size_t n = process_list(dir, p, PROCESSES_MAX);

	process_reports(p, n, "stat", reports, err);
	ret->n = 0;
	slowest_free(ret->times);
	ret->times = slowest_new();
	for (size_t i = 0; i < n; i++) {
		struct sample *s = &ret->of[ret->n];

		if (!reports[i] && !*err[i])
			continue;	/* the process has ended */
		*s = (struct sample){ .p = p[i], .at = (double)perf_now_ns() / 1e9 };
		if (reports[i] && ret->times)
			slowest_add(ret->times, &p[i], reports[i]);
		if (reports[i])
			s->s = report_sums(reports[i]);
		else
			memcpy(s->silent, err[i], sizeof(s->silent));
		json_decref(reports[i]);
		ret->n++;
	}
}

static const struct sample *same(const struct samples *all, const struct sample *s)
{
	for (size_t i = 0; i < all->n; i++) {
		if (strcmp(all->of[i].p.path, s->p.path) == 0)
			return &all->of[i];
	}
	return NULL;
}

/* With a unit of 1,000: "12.3G". */
static const char *rate(long long more, double seconds, double per)
{
	static const char *const units[] = { "", "k", "M", "G", "T", "P", "E" };
	static char text[4][32];
	static unsigned turn;
	char *t = text[turn++ % 4];
	double v = more > 0 && seconds > 0 ? (double)more / seconds * per : 0;
	unsigned u = 0;

	for (; v >= 999.5 && u < 6; u++)
		v /= 1000;
	snprintf(t, sizeof(text[0]), "%.*f%s", v >= 99.95 || v < 0.005 ? 0 : v >= 9.995 ? 1 : 2,
		 v, units[u]);
	return t;
}

static void print_one(const struct sample *s, const struct sample *was)
{
	double seconds = s->at - was->at;
	bool ill = s->s.lanes_up < s->s.lanes || s->s.links_up < s->s.links;
	char lanes[32];

	snprintf(lanes, sizeof(lanes), "%lld/%lld", s->s.lanes_up, s->s.lanes);
	printf("%7d %-*.*s %s%6s%s %6lld %7s %7s %7s %8s %6lld %4lld\n", (int)s->p.pid,
	       stat_command_width(), stat_command_width(), stat_command(s->p.pid),
	       text_colour(ill ? COLOUR_BAD : COLOUR_GOOD), lanes,
	       text_colour(COLOUR_NONE), s->s.sends + s->s.receives,
	       rate(s->s.sent_bytes - was->s.sent_bytes, seconds, 8),
	       rate(s->s.received_bytes - was->s.received_bytes, seconds, 8),
	       rate(s->s.sent_messages - was->s.sent_messages + s->s.received_messages -
			    was->s.received_messages, seconds, 1),
	       report_age(s->s.oldest_ms), s->s.resent, s->s.lost);
}

static void print_slowest(const struct samples *is, const struct samples *was)
{
	struct slowest *s = NULL;

	if (is->times && was->times)
		s = slowest_since(is->times, was->times);
	if (s)
		slowest_print_short(s);
	slowest_free(s);
}

static void print(const struct samples *is, const struct samples *was)
{
	printf("    PID %-*s  lanes  waits out b/s  in b/s  msg/s   oldest resent lost\n",
	       stat_command_width(), "command");
	for (size_t i = 0; i < is->n; i++) {
		const struct sample *s = &is->of[i], *before = same(was, s);

		/* One that is new, or was silent, is shown the next time. */
		if (*s->silent)
			stat_print_silent(&s->p, s->silent);
		else if (before && !*before->silent)
			print_one(s, before);
	}
	if (is->n)
		print_slowest(is, was);
	else
		puts("no process of this user has a connection of Braid's open");
}

/*
 * Keys are read as they come, and not shown; the terminal is as before once braid top ends.  A
 * process in the background (timeout 9 braid top) would be stopped for touching the terminal.
 */
static bool keys;
static struct termios before;

static void keys_begin(void)
{
	struct termios raw;

	if (tcgetpgrp(STDIN_FILENO) != getpgrp() || tcgetattr(STDIN_FILENO, &before) != 0)
		return;
	raw = before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	keys = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

static void keys_end(void)
{
	if (keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

/* A signal ends it, and so does q. */
static void wait_for(double seconds)
{
	double end = (double)perf_now_ns() / 1e9 + seconds, left = seconds;
	struct pollfd p = { .fd = keys ? STDIN_FILENO : -1, .events = POLLIN };
	char key;

	for (; left > 0 && !atomic_load(&over); left = end - (double)perf_now_ns() / 1e9) {
		if (poll(&p, 1, (int)(left * 1000) + 1) <= 0)
			continue;
		if (read(STDIN_FILENO, &key, 1) != 1)
			p.fd = -1;	/* the terminal has gone */
		else if (key == 'q' || key == 'Q')
			atomic_store(&over, true);
	}
}

static int watch(const char *dir, double seconds, int times, bool in_place)
{
	static struct samples samples[2];
	unsigned turn = 0;

	read_samples(dir, &samples[turn]);
	for (int i = 0; i < times || !times; i++) {
		wait_for(seconds);
		if (atomic_load(&over))
			break;
		turn = !turn;
		read_samples(dir, &samples[turn]);
		if (in_place)
			fputs("\033[H\033[J", stdout);	/* to the upper left, and clear */
		else if (i)
			putchar('\n');
		print(&samples[turn], &samples[!turn]);
		fflush(stdout);
	}
	return 0;
}

int cmd_top(int argc, char **argv)
{
	const struct sigaction stop = { .sa_handler = interrupted };
	const char *dir = NULL, *term = getenv("TERM");
	double seconds = 1;
	int times = 0, rc;
	bool once = false, terminal;
	const struct opt rows[] = {
		{OPT_FLAG, "once", NULL, "one table, of one interval; so it is without a terminal",
		 &once, 0, 0},
		{OPT_REAL, "seconds", "S", "between two tables, 0.1 to 3600 (1)", &seconds, 0.1,
		 3600},
		{OPT_INT, "times", "N", "so many tables, one below the other", &times, 1, 1000000},
		{OPT_TEXT, "dir", "DIR", "where their sockets are, if BRAID_STAT_DIR was set",
		 &dir, 0, 0},
		OPT_SUCH_AS("braid top", "until q or Ctrl-C, on a terminal"),
		OPT_SUCH_AS("braid top --times 60 >job.log", "a minute of it, in a file"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	enum opt_end end;

	end = opt_parse("braid top", "What processes carry that have Braid loaded; b/s are bits.",
			rows, argc, argv);
	if (end != OPT_RUN)
		return end;
	if (once && times)
		return opt_error("braid top", "--once or --times, not both");
	terminal = isatty(STDOUT_FILENO) && !(term && strcmp(term, "dumb") == 0);
	if (once || (!terminal && !times))
		times = 1;
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	if (!times)
		keys_begin();
	rc = watch(dir, seconds, times, !times);
	keys_end();
	return rc;
}
