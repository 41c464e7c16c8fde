/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * run.c - runs the checks one after the other, and makes the report.
 *
 * A worker process runs them and writes each result as a line of JSON.  A check that hangs or kills
 * the worker gets that as its result, and another worker goes on with the next check.  After the
 * third lost worker the remaining checks are left out.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/child.h"
#include "tools/doctor/doctor_int.h"

enum { CHECK_MS = 6000, WORKERS = 3 };

static const struct check *const tables[] = {
	doctor_limits, doctor_kernel, doctor_tcp, doctor_net, doctor_nic, doctor_subnet,
	doctor_rdma, doctor_hca, doctor_counters, doctor_pcie, doctor_gpu, doctor_nccl,
	doctor_secret, doctor_plugin, doctor_other, doctor_peer,
};
enum { TABLES = sizeof(tables) / sizeof(tables[0]) };

static void check_run(struct doctor *d, const struct check *c)
{
	findings_clear(&d->findings);
	json_decref(d->facts);
	d->facts = json_object();
	c->run(d);
}

static json_t *check_result(struct doctor *d, const struct check *c)
{
	json_t *o = json_pack("{s:s, s:s, s:s, s:o, s:o}", "id", c->id, "title", c->title, "level",
			      level_name(d->findings.level), "says", d->findings.list,
			      "facts", d->facts);

	d->findings.list = d->facts = NULL;
	if (d->findings.level > LEVEL_OK)
		json_object_set_new(o, "why", json_string(c->why));
	return o;
}

/* -- which checks ------------------------------------------------------------------------- */

/* The i-th check that is asked for; NULL: no more. */
static const struct check *check_at(const struct options *w, unsigned i)
{
	for (unsigned t = 0; t < TABLES; t++)
		for (const struct check *c = tables[t]; c->id; c++)
			if ((!w->only || findings_named(w->only, c->id)) && i-- == 0)
				return c;
	return NULL;
}

bool doctor_only_is_valid(const char *only, char *ret, size_t len)
{
	for (const char *at = only; *at; at += strspn(at, ",")) {
		size_t n = strcspn(at, ",");
		struct options w = { .only = ret };

		snprintf(ret, len, "%.*s", (int)n, at);
		if (!check_at(&w, 0))
			return false;
		at += n;
	}
	return true;
}

void doctor_list(void)
{
	const struct check *c;
	struct options all = { .only = NULL };

	for (unsigned i = 0; (c = check_at(&all, i)); i++)
		printf("%-22s %s\n", c->id, c->title);
}

/* -- the worker --------------------------------------------------------------------------- */

struct work {
	const struct options *w;
	unsigned first;
};

static void work(void *arg, int fd)
{
	const struct work *work = arg;
	struct doctor *d = doctor_new(work->w);
	const struct check *c;
	FILE *f = fdopen(fd, "w");

	for (unsigned i = work->first; d && f && (c = check_at(work->w, i)); i++) {
		json_t *o;

		check_run(d, c);
		o = check_result(d, c);
		json_dumpf(o, f, JSON_COMPACT | JSON_ENSURE_ASCII);
		fputc('\n', f);
		fflush(f);
		json_decref(o);
	}
	if (d)
		doctor_free(d);
	if (f)
		fclose(f);
}

/* Take the checks whose results have come as whole lines; returns how many. */
static unsigned read_checks(struct child *c, size_t *at, json_t *checks)
{
	unsigned n = 0;
	char *end;

	while (c->text && (end = memchr(c->text + *at, '\n', c->len - *at))) {
		json_t *o = json_loadb(c->text + *at, (size_t)(end - c->text) - *at, 0, NULL);

		*at = (size_t)(end - c->text) + 1;
		if (o) {
			json_array_append_new(checks, o);
			n++;
		}
	}
	return n;
}

static json_t *lost(const struct check *c, enum level level, const char *text)
{
	return json_pack("{s:s, s:s, s:s, s:[{s:s, s:s}], s:{}, s:s}", "id", c->id, "title",
			 c->title, "level", level_name(level), "says", "level", level_name(level),
			 "text", text, "facts", "why",
			 "What it looks at did not answer: a driver or a file system may hang");
}

/* Run from check `first` on, until all are through or one is lost; returns the next one. */
static unsigned run_some(const struct options *w, unsigned first, json_t *checks)
{
	struct work arg = { w, first };
	long long until = child_now() + CHECK_MS;
	unsigned next = first;
	struct child c;
	char text[TEXT_LEN] = "no process can be started";
	size_t at = 0;
	bool over = false;

	if (child_start(&c, work, &arg) == 0) {
		while (!over && child_now() < until) {
			unsigned n;

			over = !child_read(&c, (int)(until - child_now())) && c.fd < 0;
			n = read_checks(&c, &at, checks);
			if (n)
				until = child_now() + CHECK_MS;
			next += n;
		}
		child_end(&c);
		snprintf(text, sizeof(text), "the check gave no answer within %d s",
			 CHECK_MS / 1000);
		if (over) {
			snprintf(text, sizeof(text), "the check was ");
			child_fate(&c, text + strlen(text), sizeof(text) - strlen(text));
		}
		child_free(&c);
	}
	if (check_at(w, next))
		json_array_append_new(checks, lost(check_at(w, next++), LEVEL_FAIL, text));
	return next;
}

/* All checks' facts, in one object. */
static json_t *gather(json_t *checks)
{
	json_t *all = json_object(), *c;
	size_t i;

	json_array_foreach(checks, i, c) {
		json_object_update(all, json_object_get(c, "facts"));
		json_object_del(c, "facts");
	}
	return all;
}

static json_t *host_name(const struct options *w)
{
	struct doctor *d = doctor_new(w);
	char name[TEXT_LEN] = "?";

	if (d) {
		sys_line(d, name, sizeof(name), "/proc/sys/kernel/hostname");
		doctor_free(d);
	}
	return json_string(name);
}

json_t *doctor_report(const struct options *w)
{
	json_t *checks = json_array(), *host = host_name(w), *facts;
	unsigned next = 0;

	for (unsigned i = 0; i < WORKERS && check_at(w, next); i++)
		next = run_some(w, next, checks);
	for (; check_at(w, next); next++)
		json_array_append_new(checks, lost(check_at(w, next), LEVEL_SKIP,
						   "left out: too many checks gave no answer"));
	facts = gather(checks);
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "schema", "braid-doctor-1", "braid",
			 PACKAGE_VERSION, "host", host ? host : json_string("?"), "counts",
			 findings_count(checks), "facts", facts, "checks", checks);
}
