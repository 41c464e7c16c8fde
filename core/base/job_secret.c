/* SPDX-License-Identifier: BSD-3-Clause */
/* job_secret.c - see job_secret.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* secure_getenv */
#endif
#include "core/base/job_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAKE_ONE "(umask 077; head -c 32 /dev/urandom | base64 > FILE) makes one"

enum { PATH_SHOWN = 256 };		/* bytes of a path in an explanation */

/* The text or its length can't be a secret. */
static int check_length(const char *name, const struct braid_job_secret *s, char *why)
{
	if (s->len >= BRAID_JOB_SECRET_LEAST && s->len <= BRAID_JOB_SECRET_MOST)
		return 0;
	snprintf(why, BRAID_JOB_SECRET_WHY, "%s has %s%zu bytes without the newline at its end; a "
		 "secret has %d to %d, best 32 random ones: " MAKE_ONE, name,
		 s->len > BRAID_JOB_SECRET_MOST ? "at least " : "", s->len,
		 BRAID_JOB_SECRET_LEAST, BRAID_JOB_SECRET_MOST);
	return -EINVAL;
}

/* Only its owner may read or change it, and that is this process's user, or root. */
static int check_file(const char *path, unsigned user, int fd, char *why)
{
	struct stat st;

	if (fstat(fd, &st))
		snprintf(why, BRAID_JOB_SECRET_WHY, "can't look at %.*s: %s", PATH_SHOWN, path,
			 strerror(errno));
	else if (!S_ISREG(st.st_mode))
		snprintf(why, BRAID_JOB_SECRET_WHY, "%.*s is no regular file; BRAID_SECRET_FILE "
			 "must name one", PATH_SHOWN, path);
	else if (st.st_uid != user && st.st_uid != 0)
		snprintf(why, BRAID_JOB_SECRET_WHY, "%.*s belongs to user %u; it must belong to "
			 "user %u, who runs this process, or to root: chown %u FILE", PATH_SHOWN,
			 path, (unsigned)st.st_uid, user, user);
	else if (st.st_mode & 077)
		snprintf(why, BRAID_JOB_SECRET_WHY, "%.*s has mode %04o, so other users may read "
			 "or change it: chmod 600 FILE", PATH_SHOWN, path,
			 (unsigned)st.st_mode & 07777);
	else
		return 0;
	return -EINVAL;
}

static int read_text(const char *path, int fd, struct braid_job_secret *s, char *why)
{
	ssize_t n;

	s->len = 0;
	do {
		n = read(fd, s->text + s->len, sizeof(s->text) - s->len);
		if (n > 0)
			s->len += (size_t)n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0) {
		snprintf(why, BRAID_JOB_SECRET_WHY, "can't read %.*s: %s", PATH_SHOWN, path,
			 strerror(errno));
		return -EINVAL;
	}
	while (s->len && s->text[s->len - 1] == '\n')
		s->len--;
	return 0;
}

int braid_job_secret_file(const char *path, unsigned user, struct braid_job_secret *ret,
			  char why[BRAID_JOB_SECRET_WHY])
{
	char name[PATH_SHOWN + 1];
	/* A FIFO or a device must not hold the process up, or become its terminal. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), err;

	if (fd < 0) {
		snprintf(why, BRAID_JOB_SECRET_WHY, "can't open %.*s: %s; BRAID_SECRET_FILE must "
			 "name a file that is on every host: " MAKE_ONE, PATH_SHOWN, path,
			 strerror(errno));
		return -EINVAL;
	}
	snprintf(name, sizeof(name), "%s", path);
	err = check_file(path, user, fd, why);
	if (!err)
		err = read_text(path, fd, ret, why);
	if (!err)
		err = check_length(name, ret, why);
	close(fd);
	return err;
}

static int read_variable(const char *text, struct braid_job_secret *ret, char *why)
{
	ret->len = strnlen(text, BRAID_JOB_SECRET_MOST + 1);
	memcpy(ret->text, text, ret->len);
	return check_length("BRAID_SECRET", ret, why);
}

int braid_job_secret_read(struct braid_job_secret *ret, char why[BRAID_JOB_SECRET_WHY])
{
	const char *path = secure_getenv("BRAID_SECRET_FILE");
	const char *text = secure_getenv("BRAID_SECRET");
	int err;

	if (!path && !text)
		return 0;
	if (path && text) {
		snprintf(why, BRAID_JOB_SECRET_WHY, "BRAID_SECRET_FILE and BRAID_SECRET are both "
			 "set: unset BRAID_SECRET");
		return -EINVAL;
	}
	if ((path && !*path) || (text && !*text)) {
		/* Perhaps the command that was to set it has failed. */
		snprintf(why, BRAID_JOB_SECRET_WHY, "%s is set and empty: unset it, or give it a "
			 "value", path ? "BRAID_SECRET_FILE" : "BRAID_SECRET");
		return -EINVAL;
	}
	err = path ? braid_job_secret_file(path, geteuid(), ret, why) :
		     read_variable(text, ret, why);
	return err ? err : 1;
}
