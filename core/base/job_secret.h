/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_secret.h - the secret of a job: where its text comes from, and whether it may be used.
 *
 * BRAID_SECRET_FILE names a file that holds it, or BRAID_SECRET is the text itself.  A secret that
 * is asked for is never left out: whatever is wrong with it is an error.
 */
#ifndef BRAID_BASE_JOB_SECRET_H
#define BRAID_BASE_JOB_SECRET_H

#include <stddef.h>

enum {
	BRAID_JOB_SECRET_LEAST = 16, BRAID_JOB_SECRET_MOST = 4096,	/* bytes of the text */
	BRAID_JOB_SECRET_WHY = 700,	/* of an explanation */
};

struct braid_job_secret {		/* the caller wipes it */
	size_t len;
	char text[BRAID_JOB_SECRET_MOST + 2];
};

/*
 * Read the file `path` for that user: 0, or -EINVAL and `why` names the file, the cause and the
 * remedy.  Newlines at the end of the file do not count.
 */
int braid_job_secret_file(const char *path, unsigned user, struct braid_job_secret *ret,
			  char why[BRAID_JOB_SECRET_WHY]);
/* Read the secret that the environment asks for: 1; 0: none; -EINVAL, as above. */
int braid_job_secret_read(struct braid_job_secret *ret, char why[BRAID_JOB_SECRET_WHY]);

#endif
