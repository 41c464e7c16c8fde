/* SPDX-License-Identifier: BSD-3-Clause */
/* run.c - runs the checks that are asked for, one after the other, and makes the report. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/child.h"
#include "tools/opt.h"
#include "tools/perf/pattern.h"
#include "tools/tcp.h"
#include "tools/text.h"
#include "tools/validate/validate.h"

static const char prog[] = "braid validate";

enum { RESULT_SKIP = 77 };

static volatile sig_atomic_t stopped;

static void stop(int sig)
{
	(void)sig;
	stopped = 1;
}

/* Connect to the peer: 0, -errno of perf_prove(), or -EHOSTUNREACH. */
static int try_peer(const struct options *w)
{
	union tcp_addr a;
	char err[400];
	int fd, rc;

	if (!w->connect)
		return 0;
	fd = tcp_addr_parse(w->connect, true, &a, err, sizeof(err)) ? -1 : tcp_dial(&a, 5000);
	if (fd < 0)
		return -EHOSTUNREACH;
	rc = perf_prove(fd, &w->key, 5000);
	close(fd);
	return rc;
}

/* 0, or 2 after a line that says why there is no peer. */
static int check_peer(const struct options *w)
{
	int rc = try_peer(w);

	if (rc == -EHOSTUNREACH)
		return opt_error(prog, "nobody answers at %s: start `braid validate --listen PORT` "
				 "there [no-meeting]", w->connect);
	return rc ? opt_error(prog, "the listener at %s: %s [no-meeting]", w->connect,
			      perf_prove_why(rc)) : 0;
}

enum { EVENTS_MOST = 20000, KEPT_MOST = 1000, SAVE_S = 60, LINE_S = 60 };

struct all {
	const struct options *w;
	json_t *limits, *checks, *host;
	json_t *events;			/* of a soak: when which fault and which failure was */
	unsigned n, fails, passes, measured, unfinished;
	const char *dead;		/* the check without which no other can be run; or NULL */
	bool gone;
	double began, until;		/* by the monotonic clock; until: the end of a soak */
	double saved, said;		/* when its report was last written, and its line printed */
	uint64_t seed;			/* of the current round */
	unsigned round;
};

static double now_s(void)
{
	return (double)child_now() / 1000;
}

static bool over(const struct all *a)
{
	return stopped || a->gone || (a->until > 0 && now_s() >= a->until);
}

/* A plugin that can't be loaded or has no device fails once, and not in every check. */
static bool is_needed(const char *id)
{
	static const char *const ids[] = { "load-open", "load-symbols", "load-init",
		"props-devices" };

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		if (strcmp(ids[i], id) == 0)
			return true;
	return false;
}

static json_t *run_one(struct all *a, const struct vcheck *c, uint64_t seed)
{
	char why[100];
	json_t *o;

	if (a->dead) {
		snprintf(why, sizeof(why), "%s failed, and this needs it", a->dead);
		return check_passed_over(c, "skip", why);
	}
	o = check_run(a->w, c, a->limits, seed);
	if (strcmp(text_of(o, "result"), "fail") != 0)
		return o;
	if (try_peer(a->w) != 0) {	/* it says nothing of the plugin */
		a->gone = true;
		json_decref(o);
		return check_passed_over(c, "unfinished", "the peer has gone");
	}
	if (is_needed(c->id))
		a->dead = c->id;
	return o;
}

static void count_one(struct all *a, const json_t *o)
{
	const char *result = text_of(o, "result");

	a->n++;
	a->fails += *result == 'f';
	a->passes += *result == 'p';
	a->measured += *result == 'm';
	a->unfinished += *result == 'u';
}

/* For the timeline of a soak: what broke things, and what failed. */
static void add_event(struct all *a, const struct vcheck *c, const json_t *o, double at)
{
	bool fail = strcmp(text_of(o, "result"), "fail") == 0;

	if (!fail && (!(c->flags & V_FAULT) || json_array_size(a->events) >= EVENTS_MOST))
		return;
	json_array_append_new(a->events, json_pack("{s:f, s:O, s:s, s:O, s:O}", "at", at - a->began,
						   "seconds", json_object_get(o, "seconds"), "id",
						   c->id, "result", json_object_get(o, "result"),
						   "seed", json_object_get(o, "seed")));
}

static json_t *report(const struct all *a);

/* A soak may last for days: what it has found must not be lost with its process. */
static void soak_step(struct all *a, bool failed)
{
	double now = now_s(), left = a->until - now;
	bool tty = isatty(STDOUT_FILENO) && !a->w->tap;

	if (!report_is_quiet(a->w) &&
	    (tty || failed || now - a->said >= LINE_S || a->said <= 0)) {
		printf("%s%sround %u, seed %llu: %u pass, %u fail, %u skip; %.0f:%02.0f h left%s",
		       tty ? "\r\033[K" : "", a->w->tap ? "# " : "", a->round,
		       (unsigned long long)a->seed, a->passes, a->fails,
		       a->n - a->fails - a->passes - a->measured, floor(fmax(left, 0) / 3600),
		       floor(fmod(fmax(left, 0), 3600) / 60), tty ? "" : "\n");
		fflush(stdout);
		a->said = now;
	}
	if (a->w->json && !opt_is_stdout(a->w->json) && (failed || now - a->saved >= SAVE_S)) {
		json_t *o = report(a);

		report_save(a->w, o);
		json_decref(o);
		a->saved = now_s();
	}
}

static void run_all(struct all *a)
{
	bool soak = a->w->profile == PROFILE_SOAK;
	const struct vcheck *c;

	a->round++;
	for (unsigned i = 0; (c = validate_at(i)) && !over(a); i++) {
		double at = now_s();
		bool failed;
		json_t *o;

		if (!validate_is_selected(a->w, c))
			continue;
		o = run_one(a, c, mix(a->seed + i) >> 16);
		count_one(a, o);
		failed = strcmp(text_of(o, "result"), "fail") == 0;
		if (soak && failed && isatty(STDOUT_FILENO))
			putchar('\n');
		report_check(a->w, o, a->n);
		/* Count what passed, keep what failed. */
		if (!soak || failed || a->n <= KEPT_MOST)
			json_array_append(a->checks, o);
		if (soak) {
			add_event(a, c, o, at);
			soak_step(a, failed);
		}
		json_decref(o);
	}
}

static const char *profile_name(const struct options *w)
{
	static const char *const names[] = { "quick", "full", "soak" };

	return names[w->profile];
}

static json_t *report(const struct all *a)
{
	json_t *o = json_pack("{s:s, s:i, s:s, s:s, s:s, s:b, s:b, s:I, s:f}", "schema",
			      "braid-validate", "version", VALIDATE_VERSION, "braid",
			      PACKAGE_VERSION, "profile", profile_name(a->w), "plugin",
			      a->w->plugin, "faults", a->w->faults, "complete",
			      !stopped && !a->gone && (a->until <= 0 || now_s() >= a->until),
			      "seed", (json_int_t)a->seed, "seconds", now_s() - a->began);
	unsigned skips = a->n - a->fails - a->passes - a->measured - a->unfinished;

	json_object_set_new(o, "peer",
			    a->w->connect ? json_string(a->w->connect) : json_null());
	json_object_set(o, "host", a->host);
	json_object_set_new(o, "counts",
			    json_pack("{s:i, s:i, s:i, s:i, s:i}", "pass", (int)a->passes, "fail",
				      (int)a->fails, "skip", (int)skips, "measured",
				      (int)a->measured, "unfinished", (int)a->unfinished));
	json_object_set(o, "checks", a->checks);
	if (a->events)
		json_object_set(o, "events", a->events);
	report_stamp(o);
	if (a->w->page.anonymize)
		report_anonymize(o);
	return o;
}

static unsigned count(const struct options *w)
{
	const struct vcheck *c;
	unsigned n = 0;

	for (unsigned i = 0; (c = validate_at(i)); i++)
		n += validate_is_selected(w, c);
	return n;
}

static uint64_t seed_of(const struct options *w)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return w->seed > 0 ? (uint64_t)w->seed :
			     1 + (uint64_t)ts.tv_nsec % 1000000 +
				     (uint64_t)ts.tv_sec % 1000 * 1000000;
}

int validate_run(const struct options *w)
{
	struct all a = { .w = w, .seed = seed_of(w), .began = now_s() };
	struct sigaction sa = { .sa_handler = stop, .sa_flags = (int)SA_RESETHAND };
	char err[400];
	json_t *o;
	int rc;

	rc = check_peer(w);
	if (rc)
		return rc;
	if (!count(w))
		return opt_error(prog, "nothing to do: what breaks things takes --faults");
	if (w->thresholds) {
		a.limits = limits_load(w->thresholds, err, sizeof(err));
		if (!a.limits)
			return opt_error(prog, "%s", err);
	}
	a.checks = json_array();
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	if (w->profile == PROFILE_SOAK) {
		a.until = a.began + w->hours * 3600;
		a.events = json_array();
	}
	a.host = host_inventory(w);
	report_begin(w, count(w));
	for (;; a.seed++) {
		run_all(&a);
		if (w->profile != PROFILE_SOAK || over(&a) || !a.n)
			break;
	}
	if (a.until > 0 && isatty(STDOUT_FILENO) && !w->tap)
		putchar('\n');
	o = report(&a);
	rc = report_end(w, o);
	json_decref(o);
	json_decref(a.checks);
	json_decref(a.limits);
	json_decref(a.events);
	json_decref(a.host);
	if (a.gone)
		opt_error(prog, "the peer %s has gone; what is above was seen before [peer-gone]",
			  w->connect);
	if (stopped)
		opt_error(prog, "stopped; what is above was seen before [stopped-early]");
	if (rc || a.gone || stopped)
		return 2;
	return a.fails ? 1 : a.passes || a.measured ? 0 : RESULT_SKIP;
}
