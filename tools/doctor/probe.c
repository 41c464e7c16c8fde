/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * probe.c - facts that no file holds, each found once, in a process of its own.
 *
 * That process has a few seconds: the libraries of others may crash there, or hang.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/child.h"
#include "tools/doctor/doctor_int.h"

struct job {
	struct doctor *d;
	const struct probe *probe;
};

static void work(void *arg, int fd)
{
	struct job *job = arg;
	json_t *o = job->probe->run(job->d);

	json_dumpfd(o, fd, JSON_COMPACT | JSON_ENSURE_ASCII);
	/* Libraries must not clean up: some crash there. */
	_exit(0);
}

static json_t *run_probe(struct doctor *d, const struct probe *p, char *why, size_t len)
{
	struct job job = { d, p };
	struct child c;
	json_t *o = NULL;
	bool over;

	if (child_start(&c, work, &job) < 0) {
		snprintf(why, len, "no process can be started");
		return NULL;
	}
	over = child_finish(&c, p->ms);
	child_end(&c);
	if (over && c.len)
		o = json_loadb(c.text, c.len, 0, NULL);
	if (!over) {
		snprintf(why, len, "no answer within %d ms", p->ms);
	} else if (!o) {
		snprintf(why, len, "the process that asked was ");
		child_fate(&c, why + strlen(why), len - strlen(why));
	}
	child_free(&c);
	return o;
}

/* ROOT/probe/NAME.json stands for the answer. */
static json_t *probe_recorded(const struct doctor *d, const struct probe *p, char *why, size_t len)
{
	char path[PATH_LEN];
	json_error_t err;
	json_t *o;

	snprintf(path, sizeof(path), "%s/probe/%s.json", d->w->root, p->name);
	o = json_load_file(path, 0, &err);
	if (!o)
		snprintf(why, len, "no file tells, and it was not recorded");
	return o;
}

const json_t *doctor_probe(struct doctor *d, const struct probe *p, const char **ret_why)
{
	unsigned i;

	for (i = 0; i < d->n_probes; i++)
		if (d->probes[i].probe == p)
			goto found;
	if (i == PROBES_MAX) {
		*ret_why = "too many probes";
		return NULL;
	}
	d->probes[i].probe = p;
	d->probes[i].json = *d->w->root ?
		probe_recorded(d, p, d->probes[i].why, sizeof(d->probes[i].why)) :
		run_probe(d, p, d->probes[i].why, sizeof(d->probes[i].why));
	d->n_probes++;
found:
	*ret_why = d->probes[i].why;
	return d->probes[i].json;
}
