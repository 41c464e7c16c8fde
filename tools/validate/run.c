/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * run.c - the checks, one after the other, each in a process of its own, and the report.
 *
 * The process writes what it is at and in the end what came of it as lines of JSON.  One that is
 * silent beyond its time is killed, and its last step told; so is one that a signal ends.
 */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/child.h"
#include "tools/opt.h"
#include "tools/perf/pattern.h"
#include "tools/tcp.h"
#include "tools/text.h"
#include "tools/validate/validate.h"

static const char prog[] = "braid validate";

enum { CHECK_S = 20, RESULT_SKIP = 77, SAMPLES_MAX = 400 };

static const struct vcheck *const tables[] = {
	validate_load, validate_props, validate_connect, validate_data, validate_flush, validate_mr,
	validate_path, validate_iwarp, validate_smc, validate_fault, validate_scale, validate_perf,
};
enum { TABLES = sizeof(tables) / sizeof(tables[0]) };

/* -- which -------------------------------------------------------------------------------- */

const struct vcheck *validate_at(unsigned i)
{
	for (unsigned t = 0; t < TABLES; t++)
		for (const struct vcheck *c = tables[t]; c->id; c++)
			if (i-- == 0)
				return c;
	return NULL;
}

const char *validate_profile(const struct vcheck *c)
{
	return c->flags & V_FAULT ? "faults" : c->flags & V_FULL ? "full" : "quick";
}

/* In a comma list by its own name, not its group's. */
static bool is_asked(const char *list, const char *id)
{
	for (const char *at = list; *at; at += strspn(at, ",")) {
		size_t n = strcspn(at, ",");

		if (strlen(id) == n && strncmp(at, id, n) == 0)
			return true;
		at += n;
	}
	return false;
}

static bool wanted(const struct wishes *w, const struct vcheck *c)
{
	if ((c->flags & V_FAULT && !w->faults) || (w->only && !says_named(w->only, c->id)))
		return false;
	if (w->only && is_asked(w->only, c->id))
		return true;
	if (w->profile == PROFILE_SOAK)
		return c->flags & V_SOAK;
	return w->profile == PROFILE_FULL || !(c->flags & V_FULL);
}

bool validate_known(const char *only, char *ret, size_t len)
{
	for (const char *at = only; *at; at += strspn(at, ",")) {
		size_t n = strcspn(at, ",");
		const struct vcheck *c;

		snprintf(ret, len, "%.*s", (int)n, at);
		for (unsigned i = 0; (c = validate_at(i)); i++)
			if (says_named(ret, c->id))
				break;
		if (!c)
			return false;
		at += n;
	}
	return true;
}

void validate_list(void)
{
	const struct vcheck *c;

	for (unsigned i = 0; (c = validate_at(i)); i++) {
		int used = printf("%-20s %-7.*s %-6s ", c->id, (int)strcspn(c->id, "-"), c->id,
				  validate_profile(c));

		text_wrap(c->title, used, used);
	}
}

/* -- what a check says -------------------------------------------------------------------- */

static struct validate *self;		/* of this process */

static void line_out(const struct validate *v, json_t *o)
{
	char *text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);

	if (text)
		dprintf(v->out, "%s\n", text);
	free(text);
	json_decref(o);
}

static _Noreturn void leave(struct validate *v)
{
	line_out(v, json_pack("{s:s, s:o, s:o}", "level", level_name(v->says.level), "says",
			      v->says.list, "figures", v->figures));
	_exit(0);
}

void saw(struct validate *v, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	says_add(&v->says, LEVEL_OK, fmt, ap);
	va_end(ap);
}

void note(struct validate *v, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	says_add(&v->says, LEVEL_NOTE, fmt, ap);
	va_end(ap);
}

void skip(struct validate *v, const char *fmt, ...)
{
	va_list ap;

	says_new(&v->says);
	va_start(ap, fmt);
	says_add(&v->says, LEVEL_SKIP, fmt, ap);
	va_end(ap);
	leave(v);
}

void step(struct validate *v, const char *fmt, ...)
{
	char text[SAYS_LINE];
	va_list ap;

	if (v->out < 0)
		return;
	va_start(ap, fmt);
	says_line(text, fmt, ap);
	va_end(ap);
	line_out(v, json_pack("{s:s}", "step", text));
}

static void add(struct validate *v, enum level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void add(struct validate *v, enum level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	says_add(&v->says, level, fmt, ap);
	va_end(ap);
}

static void failed(const char *file, int line, const char *text)
{
	const char *warn = net_last_warn();

	(void)file, (void)line;
	add(self, LEVEL_FAIL, "%s%s%.200s", text,
	    *warn && !strstr(text, warn) ? "; the plugin's last warning: " : "",
	    *warn && !strstr(text, warn) ? warn : "");
	leave(self);
}

/* A figure is nothing to pass by itself: without a threshold it is told, and that is all. */
void figure(struct validate *v, const struct figure *f)
{
	json_t *samples = json_array();
	unsigned every = f->n / SAMPLES_MAX + 1;
	enum limit limit;
	char why[256];

	for (unsigned i = 0; i < f->n; i += every)
		json_array_append_new(samples, json_real(f->samples[i]));
	json_array_append_new(v->figures,
			      json_pack("{s:s, s:f, s:s, s:s, s:o}", "name", f->name, "value",
					f->value, "unit", f->unit, "better",
					f->more_is_better ? "more" : "less", "samples", samples));
	limit = limits_hold(v->limits, v->nic, f, why, sizeof(why));
	add(v, limit == LIMIT_NONE ? LEVEL_SKIP : LEVEL_OK, "%s: %.6g %s", f->name, f->value,
	    f->unit);
	if (limit == LIMIT_BROKEN)
		add(v, LEVEL_FAIL, "%s", why);
}

/* -- one check ---------------------------------------------------------------------------- */

struct work {
	const struct wishes *w;
	const struct vcheck *c;
	const json_t *limits;
	uint64_t seed;
};

static void work(void *arg, int fd)
{
	const struct work *k = arg;
	struct validate v = {
		.w = k->w, .check = k->c, .limits = k->limits, .out = fd, .abi = k->w->abi,
		.seed = k->seed, .figures = json_array(), .far = -1,
	};

	signal(SIGPIPE, SIG_IGN);
	says_new(&v.says);
	self = &v;
	drive_set(failed, 1);
	k->c->run(&v);
	if (v.says.level == LEVEL_SKIP && strncmp(k->c->id, "perf-", 5) == 0)
		add(&v, LEVEL_SKIP, "no threshold for this NIC: --thresholds FILE has some");
	else if (v.says.level == LEVEL_SKIP && json_array_size(v.says.list) == 0)
		saw(&v, "as it should be");
	else if (v.says.level == LEVEL_SKIP)
		saw(&v, "it came to its end, with nothing wrong");
	leave(&v);
}

/* The last step, and what it came to if it got that far. */
static json_t *read_lines(const struct child *c, char *last, size_t len)
{
	json_t *o, *got = NULL;
	const char *at = c->text, *end;

	for (; at && (end = strchr(at, '\n')); at = end + 1) {
		o = json_loadb(at, (size_t)(end - at), 0, NULL);
		if (json_object_get(o, "step"))
			snprintf(last, len, "%s",
				 json_string_value(json_object_get(o, "step")));
		if (json_object_get(o, "level")) {
			json_decref(got);
			got = json_incref(o);
		}
		json_decref(o);
	}
	return got;
}

static json_t *lost(const struct child *c, bool over, int seconds, const char *last)
{
	char fate[128] = "", text[SAYS_LINE];

	if (over)
		child_fate(c, fate, sizeof(fate));
	if (over)
		snprintf(text, sizeof(text), "its process was %s", fate);
	else
		snprintf(text, sizeof(text), "it hangs: no end after %d s", seconds);
	if (*last)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), ", at: %.400s", last);
	return json_pack("{s:s, s:[{s:s, s:s}], s:[]}", "level", "fail", "says", "level", "fail",
			 "text", text, "figures");
}

static const char *result_of(const json_t *o)
{
	switch (level_of(json_string_value(json_object_get(o, "level")))) {
	case LEVEL_FAIL:
		return "fail";
	case LEVEL_SKIP:
		return "skip";
	default:
		return "pass";
	}
}

/* The sentences of one level, or all of them. */
static json_t *sentences(const json_t *o, bool worst)
{
	json_t *list = json_array(), *x;
	const char *level = json_string_value(json_object_get(o, "level"));
	size_t i;

	json_array_foreach(json_object_get(o, "says"), i, x)
		if (!worst ||
		    strcmp(json_string_value(json_object_get(x, "level")), level) == 0)
			json_array_append(list, json_object_get(x, "text"));
	return list;
}

static json_t *result_json(const struct vcheck *c, json_t *o, double seconds, uint64_t seed)
{
	const char *result = result_of(o);
	char group[16];
	json_t *ret;

	snprintf(group, sizeof(group), "%.*s", (int)strcspn(c->id, "-"), c->id);
	ret = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:I, s:o, s:O}", "id", c->id, "group",
			group, "title", c->title, "profile", validate_profile(c), "ends",
			c->flags & V_HERE ? "here" : "both", "result", result,
			"seconds", seconds, "seed", (json_int_t)seed, "saw",
			sentences(o, *result == 'f'), "figures", json_object_get(o, "figures"));
	if (*result == 'f')
		json_object_set_new(ret, "mend", json_string(c->mend));
	json_decref(o);
	return ret;
}

static json_t *run_check(const struct wishes *w, const struct vcheck *c, const json_t *limits,
			 uint64_t seed)
{
	int seconds = c->seconds ? c->seconds : CHECK_S;
	struct work arg = { w, c, limits, seed };
	long long began = child_now();
	char last[SAYS_LINE] = "";
	struct child child;
	json_t *got;
	bool over;
	int rc;

	rc = child_start(&child, work, &arg);
	if (rc < 0) {
		got = json_pack("{s:s, s:[{s:s, s:s}], s:[]}", "level", "fail", "says", "level",
				"fail", "text", strerror(-rc), "figures");
		return result_json(c, got, 0, seed);
	}
	over = child_finish(&child, seconds * 1000);
	child_end(&child);
	got = read_lines(&child, last, sizeof(last));
	if (!got)
		got = lost(&child, over, seconds, last);
	child_free(&child);
	return result_json(c, got, (double)(child_now() - began) / 1000, seed);
}

/* -- all of them -------------------------------------------------------------------------- */

static volatile sig_atomic_t stopped;

static void stop(int sig)
{
	(void)sig;
	stopped = 1;
}

/* 0, -errno of perf_prove(), or -EHOSTUNREACH. */
static int peer_asked(const struct wishes *w)
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

/* 0, or 2 after a line that says why there is nobody to work with. */
static int peer_needed(const struct wishes *w)
{
	int rc = peer_asked(w);

	if (rc == -EHOSTUNREACH)
		return opt_error(prog, "nobody answers at %s: start `braid validate --listen PORT` "
				 "there [no-meeting]", w->connect);
	return rc ? opt_error(prog, "the listener at %s: %s [no-meeting]", w->connect,
			      perf_prove_why(rc)) : 0;
}

struct all {
	const struct wishes *w;
	json_t *limits, *checks;
	unsigned n, fails, passes;
	bool gone;
	double until;			/* of soak: seconds of the monotonic clock */
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

		if (!wanted(a->w, c))
			continue;
		o = run_check(a->w, c, a->limits, mix(seed + i) >> 16);
		result = json_string_value(json_object_get(o, "result"));
		a->fails += *result == 'f';
		a->passes += *result == 'p';
		if (*result == 'f' && peer_asked(a->w) != 0)
			a->gone = true;
		report_check(a->w, o, ++a->n);
		/* Of a soak that lasts for days what passed is counted, and what failed is kept. */
		if (a->w->profile != PROFILE_SOAK || *result == 'f' || a->n <= 1000)
			json_array_append(a->checks, o);
		json_decref(o);
	}
}

static const char *profile_name(const struct wishes *w)
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
	return o;
}

static unsigned count(const struct wishes *w)
{
	const struct vcheck *c;
	unsigned n = 0;

	for (unsigned i = 0; (c = validate_at(i)); i++)
		n += wanted(w, c);
	return n;
}

static uint64_t seed_of(const struct wishes *w)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return w->seed > 0 ? (uint64_t)w->seed :
			     1 + (uint64_t)ts.tv_nsec % 1000000 +
				     (uint64_t)ts.tv_sec % 1000 * 1000000;
}

int validate_run(const struct wishes *w)
{
	struct all a = { .w = w };
	struct sigaction sa = { .sa_handler = stop, .sa_flags = (int)SA_RESETHAND };
	uint64_t seed = seed_of(w);
	double began = now_s();
	char err[400];
	json_t *o;
	int rc;

	rc = peer_needed(w);
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
