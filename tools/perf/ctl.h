/* SPDX-License-Identifier: BSD-3-Clause */
/* ctl.h - messages between a coordinator and its workers. */
#ifndef BRAID_TOOLS_PERF_CTL_H
#define BRAID_TOOLS_PERF_CTL_H

#include "tools/perf/session.h"

enum perf_ctl_type {
	PERF_CTL_HELLO = 1, PERF_CTL_LOAD, PERF_CTL_LISTEN, PERF_CTL_CONNECT, PERF_CTL_ACCEPT,
	PERF_CTL_ARENA, PERF_CTL_RUN, PERF_CTL_READY, PERF_CTL_GO, PERF_CTL_CLOSE, PERF_CTL_QUIT,
	PERF_CTL_MEET,			/* from a launcher's rank to rank 0 (compare/launch.c) */
};

struct perf_ctl {
	uint32_t magic, type;
	int32_t status;			/* answers: 0 or -errno, and then text */
	uint32_t fabric;
	int32_t rank, nprocs, peer, idx;
	uint64_t bytes, ns;
	uint32_t fds, threads;
	union {
		char text[PERF_TEXT];
		uint8_t handle[FABRIC_HANDLE];
		struct fabric_about about;
		struct perf_way way;
		struct perf_run run;
		struct perf_result result;
	};
};

/* Send or receive all of n bytes; returns as perf_ctl_recv(). */
int perf_ctl_move(int fd, char *p, size_t n, bool out, int timeout_ms);
int perf_ctl_send(int fd, struct perf_ctl *m);
/* 0; -EPIPE if the other end is gone, -ETIMEDOUT, -EPROTO, or another -errno. */
int perf_ctl_recv(int fd, struct perf_ctl *ret, int timeout_ms);
/* The other end is gone or sends no more.  Unread messages, such as its QUIT, do not hide that. */
bool perf_ctl_ended(int fd);

#endif
