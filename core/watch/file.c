/* SPDX-License-Identifier: BSD-3-Clause */
/* file.c - see file.h. */
#include "core/watch/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/self.h"
#include "core/watch/report.h"

/* True if nothing is at that path, or a regular file that `uid` owns; else false and errno. */
static bool may_replace(const char *path, uid_t uid)
{
	struct stat sb;

	if (lstat(path, &sb))
		return errno == ENOENT;
	errno = EEXIST;
	return S_ISREG(sb.st_mode) && sb.st_uid == uid;
}

/* Create the temporary file.  Returns a descriptor above stdio, or -1 and errno. */
static int created(const char *tmp, mode_t mode)
{
	int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	int up;

	/* A process with the same PID may have been killed and left its file behind. */
	if (fd < 0 && errno == EEXIST && may_replace(tmp, geteuid()) && !unlink(tmp))
		fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd >= 0 && fd <= STDERR_FILENO) {
		up = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		close(fd);
		fd = up;
	}
	if (fd >= 0)
		braid_os->note(fd, true);
	return fd;
}

int braid_file_write(const char *path, const struct braid_text *t, mode_t mode)
{
	char tmp[2 * BRAID_PARAM_STR_MAX + 32];
	int fd, err, n = snprintf(tmp, sizeof(tmp), "%s.%u.tmp", path, braid_self.pid);
	struct stat sb;
	size_t done = 0;
	ssize_t w = 1;
	bool stored;

	errno = ENAMETOOLONG;
	if (n < 0 || (size_t)n >= sizeof(tmp))
		return -1;
	fd = created(tmp, mode);
	if (fd < 0)
		return -1;
	while (done < t->len && (w = write(fd, t->p + done, t->len - done)) > 0)
		done += (size_t)w;
	stored = done == t->len && !fstat(fd, &sb);	/* NFS may map the owner to another user */
	if (!braid_os->close(fd) && stored && may_replace(path, sb.st_uid) && !rename(tmp, path))
		return 0;
	err = errno;
	unlink(tmp);
	errno = err;
	return -1;
}
