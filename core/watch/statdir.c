/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * statdir.c - see statdir.h.
 *
 * The socket is a file of mode 0600 in a directory of mode 0700.  Unlike an abstract name, a file
 * has permissions and is found from other network namespaces.  The socket listens under a hidden
 * name before it gets its own.  So a named socket that refuses connections belongs to a process
 * that has ended; the next process to start removes it.
 */
#include "core/watch/statdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/self.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

enum {
	NAMES = 4,			/* copies of the plugin in one process */
	PID_MAX = 1 << 22,		/* the kernel's limit */
};

/* Returns -1 after one INFO line: braid stat will not be able to reach this process. */
static int no_socket(const char *what, const char *path)
{
	braid_info("braid stat can't look at this process: %s %s: %s", what, path, strerror(errno));
	return -1;
}

static void directory(char *ret, size_t len)
{
	const char *run = secure_getenv("XDG_RUNTIME_DIR");

	if (braid_param.stat_dir[0])
		snprintf(ret, len, "%s", braid_param.stat_dir);
	else if (run && run[0] == '/')
		snprintf(ret, len, "%s/braid", run);
	else
		snprintf(ret, len, "/tmp/braid-%u", (unsigned)geteuid());
}

/* A descriptor of `dir` if it is this user's own, private, and no symbolic link; else -1. */
static int private_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat sb;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &sb) && sb.st_uid == geteuid() && !(sb.st_mode & 077))
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

static int address(struct sockaddr_un *sa, const char *dir, const char *name)
{
	int n = snprintf(sa->sun_path, sizeof(sa->sun_path), "%s/%s", dir, name);

	sa->sun_family = AF_UNIX;
	errno = ENAMETOOLONG;
	return n > 0 && (size_t)n < sizeof(sa->sun_path) ? 0 : -1;
}

static void name_of(char *ret, size_t len, unsigned pid, unsigned copy)
{
	snprintf(ret, len, copy ? "%u.%u" : "%u", pid, copy);
}

/* The PID in a socket's name, PID or PID.n as name_of() writes it; 0: the name is another. */
static unsigned pid_in(const char *name)
{
	char again[32], *end;
	unsigned long pid = strtoul(name, &end, 10), copy = 0;

	if (*end == '.')
		copy = strtoul(end + 1, NULL, 10);
	if (!pid || pid > PID_MAX || copy >= NAMES)
		return 0;
	name_of(again, sizeof(again), (unsigned)pid, (unsigned)copy);
	return strcmp(again, name) ? 0 : (unsigned)pid;
}

/* Is the file a socket of this user, with the mode that Braid gives?  Others are left alone. */
static bool is_socket(int dirfd, const char *name)
{
	struct stat sb;

	return !fstatat(dirfd, name, &sb, AT_SYMLINK_NOFOLLOW) && S_ISSOCK(sb.st_mode) &&
	       sb.st_uid == geteuid() && !(sb.st_mode & 07177);
}

/* Does no process listen there?  Then its process was killed, or exited without closing it. */
static bool refuses(const struct sockaddr_un *sa)
{
	int fd = braid_os->socket(AF_UNIX, 0);
	bool refused;

	if (fd < 0)
		return false;
	refused = braid_os->connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) &&
		  errno == ECONNREFUSED;
	braid_os->close(fd);
	return refused;
}

/*
 * Is `pid` another process, which still runs?  A zombie does not run, and stays for ever in a
 * container whose init reaps no children.
 */
static bool is_alive(unsigned pid)
{
	char path[32], text[256], *end;
	ssize_t n;
	int fd;

	if (pid == braid_self.pid || (kill((pid_t)pid, 0) && errno == ESRCH))
		return false;
	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	end = strrchr(text, ')');
	return !end || (strncmp(end, ") Z", 3) && strncmp(end, ") X", 3));
}

static bool is_stale(int dirfd, const char *dir, const char *name)
{
	unsigned pid = pid_in(name);
	struct sockaddr_un sa;

	if (!pid || !is_socket(dirfd, name) || address(&sa, dir, name) || !refuses(&sa))
		return false;
	return !is_alive(pid);
}

static void sweep(int dirfd, const char *dir)
{
	int fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (is_stale(dirfd, dir, e->d_name))
			unlinkat(dirfd, e->d_name, 0);
	}
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
}

/* Rename a file without replacing another, as far as the file system can promise that. */
static int move(int dirfd, const char *from, const char *to)
{
	struct stat sb;

	if (!syscall(SYS_renameat2, dirfd, from, dirfd, to, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (!fstatat(dirfd, to, &sb, AT_SYMLINK_NOFOLLOW)) {
		errno = EEXIST;
		return -1;
	}
	return renameat(dirfd, from, dirfd, to);
}

/* Renames the socket to the first free name of this process: 0 and *ret, or -1. */
static int claim_name(int dirfd, const char *dir, const char *hidden, struct sockaddr_un *ret)
{
	char name[32];

	for (unsigned i = 0; i < NAMES; i++) {
		name_of(name, sizeof(name), braid_self.pid, i);
		if (address(ret, dir, name))
			return -1;
		if (!move(dirfd, hidden, name))
			return 0;
		if (errno != EEXIST)
			return -1;
	}
	return -1;
}

static int bound(int dirfd, const char *dir, struct sockaddr_un *ret)
{
	struct sockaddr_un first;
	char hidden[32];
	int fd;

	snprintf(hidden, sizeof(hidden), ".%u", braid_self.pid);
	if (address(&first, dir, hidden))
		return no_socket("a name in", dir);
	fd = braid_os->socket(AF_UNIX, 0);
	if (fd < 0)
		return no_socket("a socket in", dir);
	if (is_socket(dirfd, hidden))
		unlinkat(dirfd, hidden, 0);
	if (fchmod(fd, 0600) ||
	    braid_os->bind(fd, (const struct sockaddr *)&first, sizeof(first))) {
		no_socket("a socket in", dir);
		braid_os->close(fd);
		return -1;
	}
	if (!braid_os->listen(fd, 8) && !claim_name(dirfd, dir, hidden, ret))
		return fd;
	no_socket("a socket in", dir);
	unlinkat(dirfd, hidden, 0);
	braid_os->close(fd);
	return -1;
}

int braid_statdir_open(struct sockaddr_un *ret)
{
	char dir[BRAID_PARAM_STR_MAX + 16];
	int fd, dirfd;

	directory(dir, sizeof(dir));
	if (mkdir(dir, 0700) && errno != EEXIST)
		return no_socket("directory", dir);
	dirfd = private_dir(dir);
	if (dirfd < 0 && errno == EPERM) {
		braid_info("braid stat can't look at this process: directory %s has to belong to "
			   "user %u, with mode 0700", dir, (unsigned)geteuid());
		return -1;
	}
	if (dirfd < 0)
		return no_socket("directory", dir);
	sweep(dirfd, dir);
	fd = bound(dirfd, dir, ret);
	close(dirfd);
	return fd;
}

void braid_statdir_close(int fd, const struct sockaddr_un *sa)
{
	if (fd < 0)
		return;
	if (is_socket(AT_FDCWD, sa->sun_path))
		unlink(sa->sun_path);
	braid_os->close(fd);
}
