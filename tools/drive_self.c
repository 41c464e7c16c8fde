/* SPDX-License-Identifier: BSD-3-Clause */
/* drive_self.c - what this process has: descriptors, threads, connections. */
#include "tools/drive.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static unsigned count_entries(const char *path)
{
	unsigned n = 0;
	DIR *dir = opendir(path);

	TRUE(dir);
	for (struct dirent *e = readdir(dir); e; e = readdir(dir))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

unsigned count_fds(void)
{
	return count_entries("/proc/self/fd");
}

unsigned count_threads(void)
{
	return count_entries("/proc/self/task");
}

static bool is_stream(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(int), peer_len = sizeof(peer);
	int type = 0, domain = 0;

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_STREAM &&
	       !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) &&
	       (domain == AF_INET || domain == AF_INET6) &&
	       !getpeername(fd, (struct sockaddr *)&peer, &peer_len);
}

unsigned count_streams(bool (*each)(int fd))
{
	unsigned n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += is_stream(fd) && each(fd);
	return n;
}
