/* SPDX-License-Identifier: BSD-3-Clause */
/* sys.c - see sys.h. */
#include "topo/sys.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t braid_sys_read(const char *path, char *ret, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n = -1;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		n = read(fd, ret, len - 1);
	close(fd);
	if (n >= 0)
		ret[n] = '\0';
	return n;
}

bool braid_sys_line(const char *path, char *ret, size_t len)
{
	if (braid_sys_read(path, ret, len) < 0)
		return false;
	ret[strcspn(ret, "\n")] = '\0';
	return true;
}

bool braid_sys_number(const char *path, long least, long most, long *ret)
{
	char text[32], *end;
	long v;

	if (!braid_sys_line(path, text, sizeof(text)))
		return false;
	if (!isdigit((unsigned char)*text) && *text != '-')
		return false;
	errno = 0;
	v = strtol(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
	if (errno || *end || v < least || v > most)
		return false;
	*ret = v;
	return true;
}
