/* SPDX-License-Identifier: BSD-3-Clause */
/* run.c - runs the checks that are asked for, one after the other, and makes the report. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
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

struct all {
	const struct options *w;
	json_t *limits, *checks;
	unsigned n, fails, passes;
	bool gone;
	double until;			/* end of a soak, in seconds of the monotonic clock */
};

static double now_s(void)
{
	return (double)child_now() / 1000;
}

static bool over(const struct all *a)
{
	return stopped || a->gone || (a->until > 0 && now_s() >= a->until);
}

static void run_all(struct all *a, uint64_t seed)
{
	const struct vcheck *c;

	for (unsigned i = 0; (c = validate_at(i)) && !over(a); i++) {
		const char *result;
		json_t *o;

		if (!validate_is_selected(a->w, c))
			continue;
		o = check_run(a->w, c, a->limits, mix(seed + i) >> 16);
		result = json_string_value(json_object_get(o, "result"));
		a->fails += *result == 'f';
		a->passes += *result == 'p';
		if (*result == 'f' && try_peer(a->w) != 0)
			a->gone = true;
		report_check(a->w, o, ++a->n);
		/* A soak may last for days: count what passed, keep what failed. */
		if (a->w->profile != PROFILE_SOAK || *result == 'f' || a->n <= 1000)
			json_array_append(a->checks, o);
		json_decref(o);
	}
}

static const char *profile_name(const struct options *w)
{
	static const char *const names[] = { "quick", "full", "soak" };

	return names[w->profile];
}

static json_t *report(const struct all *a, double seconds, uint64_t seed)
{
	json_t *o = json_pack("{s:s, s:i, s:s, s:s, s:s, s:b, s:b, s:I, s:f}", "schema",
			      "braid-validate", "version", VALIDATE_VERSION, "braid",
			      PACKAGE_VERSION, "profile", profile_name(a->w), "plugin",
			      a->w->plugin, "faults", a->w->faults, "complete",
			      !stopped && !a->gone, "seed", (json_int_t)seed, "seconds", seconds);

	json_object_set_new(o, "peer",
			    a->w->connect ? json_string(a->w->connect) : json_null());
	json_object_set_new(o, "host", host_inventory(a->w));
	json_object_set_new(o, "counts",
			    json_pack("{s:i, s:i, s:i}", "pass", (int)a->passes, "fail",
				      (int)a->fails, "skip", (int)(a->n - a->fails - a->passes)));
	json_object_set(o, "checks", a->checks);
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
	struct all a = { .w = w };
	struct sigaction sa = { .sa_handler = stop, .sa_flags = (int)SA_RESETHAND };
	uint64_t seed = seed_of(w);
	double began = now_s();
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
	if (w->profile == PROFILE_SOAK)
		a.until = began + w->hours * 3600;
	report_begin(w, count(w));
	do {
		if (w->profile == PROFILE_SOAK)
			printf("%sseed %llu\n", w->tap ? "# " : "", (unsigned long long)seed);
		run_all(&a, seed++);
	} while (w->profile == PROFILE_SOAK && !over(&a) && a.n);
	o = report(&a, now_s() - began, seed - 1);
	rc = report_end(w, o);
	json_decref(o);
	json_decref(a.checks);
	json_decref(a.limits);
	if (a.gone)
		opt_error(prog, "the peer %s has gone; what is above was seen before [peer-gone]",
			  w->connect);
	if (stopped)
		opt_error(prog, "stopped; what is above was seen before [stopped-early]");
	if (rc || a.gone || stopped)
		return 2;
	return a.fails ? 1 : a.passes ? 0 : RESULT_SKIP;
}
