/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crowd.h - the peers of the process whose scale is measured, and what that process uses.
 *
 * A link is kept for each pair of processes, devices and traffic class.  A crowd is a process that
 * plays many peers: with BRAID_SHARE=0 it dials a link of its own for each connection.  So some
 * crowds make as many links at the hub as thousands of processes would.
 */
#ifndef BRAID_TESTS_SCALE_CROWD_H
#define BRAID_TESTS_SCALE_CROWD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/drive.h"

struct handle {
	_Alignas(16) uint8_t at[NCCL_NET_HANDLE_MAXSIZE];
};

struct crowd {				/* as the hub sees it */
	pid_t pid;
	int fd;
	unsigned n;			/* the connections that it makes */
};

extern unsigned crowd_at_once;		/* so many connections are made at a time (all) */
/* Starts one before the hub loads the plugin.  share: as BRAID_SHARE. */
void crowd_start(struct crowd *c, const char *plugin, unsigned n, bool share);
/* It connects to c->n handles, and closes what it had; crowd_wait() waits for it. */
void crowd_connect(struct crowd *c, const struct handle *h);
void crowd_close(struct crowd *c);
/* It sends `size` bytes by each of its connections. */
void crowd_send(struct crowd *c, uint32_t size);
/* It breaks n of its connections' sockets, others each time. */
void crowd_cut(struct crowd *c, uint32_t n);
/* As net_log(), but WARNs that somebody is late do not count: the machine may be busy. */
void crowd_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Calls over() now and then until it returns true. */
void crowd_waits(bool (*over)(void));
/* Waits until the crowd has done what it was asked. */
void crowd_wait(struct crowd *c);
void crowd_end(struct crowd *c);

/* n strangers hold connections to the port until the end: silent, with garbage, with half a hello. */
struct strangers {
	pid_t pid;
	int fd;
};
void strangers_start(struct strangers *s, uint16_t port, unsigned n);
/* How many connections they have made in all. */
unsigned strangers_end(struct strangers *s);

/* What this process uses. */
struct usage {
	uint64_t rss, heap;		/* bytes */
	unsigned fds, sockets, connected;
	uint64_t inodes;		/* the sum of those of connected sockets */
	uint64_t service_ns;		/* CPU time of the service thread */
	uint64_t switches;		/* and how often it has run */
	uint64_t at_ns;
	bool fake;			/* over NICs of tests/fake, of which it has: */
	long qp, cq, srq, mr, pinned;	/* pinned: bytes */
};
void usage_now(struct usage *ret);
/* Of this network namespace: connections dialled, dropped by a full backlog. */
struct opens {
	uint64_t active, dropped;
};
void opens_now(struct opens *ret);
uint16_t listening_port(void);		/* of this process; 0: none */
void all_descriptors(void);		/* as many as the system lets this process have */

#endif
