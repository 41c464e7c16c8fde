/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * key.c - the key by which rank 0 and the other ranks of a job know each other.
 *
 * The key is BRAID_PERF_KEY if that is set; else a secret that the launcher gives to all ranks;
 * else, on one host, the content of a file which rank 0 makes and only this user can read.  Between
 * hosts without such a secret the key is made from the job's name, which others may guess: a note
 * reports that.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/compare/compare.h"

enum { SECRET_LEAST = 16, DIR_PATH = 256 };

/* Open MPI's: 128 random bits for each job, in the environment of its ranks alone. */
static const char openmpi_secret[] = "OMPI_MCA_orte_precondition_transports";

static void dir_path(char ret[DIR_PATH])
{
	const char *run = getenv("XDG_RUNTIME_DIR");

	if (run && run[0] == '/')
		snprintf(ret, DIR_PATH, "%.200s/braid", run);
	else
		snprintf(ret, DIR_PATH, "/tmp/braid-%u", (unsigned)geteuid());
}

/* A descriptor of this user's private directory for sockets, made if need be; or -1. */
static int private_dir(void)
{
	char path[DIR_PATH];
	struct stat sb;
	int fd;

	dir_path(path);
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return -1;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &sb) == 0 && sb.st_uid == geteuid() && !(sb.st_mode & 077))
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

static void file_name(const char *meet, char ret[32])
{
	const char *port = strrchr(meet, ':');

	snprintf(ret, 32, ".meet.%.16s", port ? port + 1 : meet);
}

static int file_make(const char *meet, struct perf_key *ret)
{
	char name[32], tmp[64], text[PERF_KEY_TEXT];
	int dir = private_dir(), fd = -1;
	bool made = false;

	if (dir < 0)
		return -1;
	file_name(meet, name);
	snprintf(tmp, sizeof(tmp), "%s.%d", name, (int)getpid());
	perf_key_new(ret, text);
	fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0) {
		made = write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1;
		made = close(fd) == 0 && made && renameat(dir, tmp, dir, name) == 0;
		if (!made)
			unlinkat(dir, tmp, 0);
	}
	close(dir);
	return made ? 0 : -1;
}

/* False: rank 0 has not made the file yet, or it can't be read. */
static bool file_read(const char *meet, struct perf_key *ret)
{
	char name[32], text[PERF_KEY_TEXT] = "";
	int dir = private_dir(), fd;
	struct stat sb;
	ssize_t n = 0;

	if (dir < 0)
		return false;
	file_name(meet, name);
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	close(dir);
	if (fd < 0)
		return false;
	if (fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode) && sb.st_uid == geteuid())
		n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n != sizeof(text) - 1)
		return false;
	perf_key_of(ret, text);
	return true;
}

static int no_file(char *err)
{
	const char *why = errno == EPERM ? "that directory must be this user's, of mode 0700" :
					   strerror(errno);
	char path[DIR_PATH];

	dir_path(path);
	snprintf(err, PERF_TEXT, "the ranks' key can't be kept for them in %s: %s; set "
		 "BRAID_PERF_KEY in all of them", path, why);
	return -EIO;
}

int cmp_key_first(struct cmp_place *p, const char *meet, struct perf_key *ret, char *err)
{
	const char *secret = getenv(openmpi_secret);
	char text[PERF_TEXT];

	if (ret->set)
		return 0;
	if (secret && strlen(secret) >= SECRET_LEAST) {
		perf_key_of(ret, secret);
		return 0;
	}
	if (p->one_host) {
		p->by_file = true;
		return p->rank == 0 && file_make(meet, ret) != 0 ? no_file(err) : 0;
	}
	snprintf(text, sizeof(text), "%s of %d at %.300s", p->launcher, p->nprocs, meet);
	perf_key_of(ret, text);
	if (p->rank == 0)
		fprintf(stderr, "braid compare: note: %s gives its ranks no secret, so that anyone "
			"who reaches their ports and guesses the job's number may join: set "
			"BRAID_PERF_KEY in all of them\n", p->launcher);
	return 0;
}

bool cmp_key_again(const struct cmp_place *p, const char *meet, struct perf_key *ret)
{
	return p->by_file ? file_read(meet, ret) : true;
}

void cmp_key_end(const struct cmp_place *p, const char *meet)
{
	char name[32];
	int dir;

	if (!p->by_file || p->rank != 0)
		return;
	dir = private_dir();
	file_name(meet, name);
	if (dir >= 0) {
		unlinkat(dir, name, 0);
		close(dir);
	}
}
