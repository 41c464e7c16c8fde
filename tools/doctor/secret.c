/* SPDX-License-Identifier: BSD-3-Clause */
/* secret.c - is there a secret of the job, and may it be used? */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/job_secret.h"
#include "tools/doctor/doctor_int.h"

#define SAFE "the keys of Braid's links are safe, even where NCCL's bootstrap can be read"

/* The user who runs the job. */
static unsigned user(struct doctor *d)
{
	char path[NAME_LEN], text[NAME_LEN];

	snprintf(path, sizeof(path), "%s/status", sys_proc(d));
	return sys_field(d, path, "Uid", text, sizeof(text)) ?
		       (unsigned)strtoul(text, NULL, 10) : (unsigned)geteuid();
}

static void file(struct doctor *d, const char *path)
{
	struct braid_job_secret s;
	char why[BRAID_JOB_SECRET_WHY], full[2 * PATH_LEN];
	int err;

	snprintf(full, sizeof(full), "%s%s", d->w->root, path);
	err = braid_job_secret_file(full, user(d), &s, why);
	explicit_bzero(&s, sizeof(s));
	if (!err) {
		doctor_ok(d, "BRAID_SECRET_FILE=%s can be used: " SAFE, path);
		return;
	}
	doctor_find(d, LEVEL_FAIL, "%s", why);
	doctor_mend(d, "chown %u %s; chmod 600 %s   # if its text is right", user(d), path, path);
}

static void text(struct doctor *d, const char *value)
{
	size_t len = strlen(value);

	if (len < BRAID_JOB_SECRET_LEAST || len > BRAID_JOB_SECRET_MOST) {
		doctor_find(d, LEVEL_FAIL, "BRAID_SECRET has %zu bytes; it must have %d to %d", len,
			    BRAID_JOB_SECRET_LEAST, BRAID_JOB_SECRET_MOST);
		doctor_mend(d, "export BRAID_SECRET_FILE=FILE; unset BRAID_SECRET");
		return;
	}
	doctor_ok(d, "BRAID_SECRET is set: " SAFE);
}

static void secret(struct doctor *d)
{
	const struct env *path = env_find(d, "BRAID_SECRET_FILE"), *value;

	value = env_find(d, "BRAID_SECRET");
	doctor_fact(d, "secret", "%s", path || value ? "set" : "none");
	if (path && value) {
		doctor_find(d, LEVEL_FAIL, "BRAID_SECRET_FILE and BRAID_SECRET are both set: Braid "
			    "will not start");
		doctor_mend_set(d, "BRAID_SECRET", NULL);
	} else if ((path && !*path->value) || (value && !*value->value)) {
		doctor_find(d, LEVEL_FAIL, "%s is set and empty: Braid will not start",
			    path ? path->name : value->name);
		doctor_mend_set(d, path ? path->name : value->name, NULL);
	} else if (path) {
		file(d, path->value);
	} else if (value) {
		text(d, value->value);
	} else {
		doctor_find(d, LEVEL_NOTE, "the job has no secret, so Braid trusts whoever can "
			    "read NCCL's bootstrap, which carries its handles in clear");
		doctor_mend(d, "(umask 077; head -c 32 /dev/urandom | base64 > ~/job.secret); "
			    "export BRAID_SECRET_FILE=~/job.secret   # on all hosts the same");
	}
}

const struct check doctor_secret[] = {
	{ "braid-secret", "The secret of the job",
	  "Without it, who reads NCCL's bootstrap can connect in the place of a process", secret },
	{ NULL, NULL, NULL, NULL },
};
