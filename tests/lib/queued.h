/* SPDX-License-Identifier: BSD-3-Clause */
/* queued.h - how long a thread was ready to run and waited for a CPU. */
#ifndef BRAID_TESTS_LIB_QUEUED_H
#define BRAID_TESTS_LIB_QUEUED_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* This thread's total; 0 if the kernel does not report it. */
static inline uint64_t queued_ns(void)
{
	static _Thread_local int fd = -1;
	unsigned long long run, queued;
	char text[96];
	ssize_t n;

	if (fd < 0)
		fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	return sscanf(text, "%llu %llu", &run, &queued) == 2 ? queued : 0;
}

#endif
