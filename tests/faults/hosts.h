/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hosts.h - two hosts and what is between them, made of network namespaces that have no name and
 * go with the process that made them.
 *
 *	routed:  A w0 ---- a0 M b0 ---- w0 B	veth, M forwards (and w1, a1, b1: a second path)
 *	wired:   A w0 ---- wire ---- w0 B	two TAP devices, a process between (wire.h)
 *
 * Calls return whether they succeeded; hosts_why() returns the output of a command that failed.
 */
#ifndef BRAID_TESTS_FAULTS_HOSTS_H
#define BRAID_TESTS_FAULTS_HOSTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/inet_diag.h>

#include "tests/faults/wire.h"

enum { HOST_A, HOST_B, HOST_M, HOST_NOWHERE, HOSTS };

/* How trouble between the hosts is made. */
enum wire_kind { WIRE_NONE, WIRE_TAP, WIRE_NETEM };

struct hosts {
	int home;			/* the runner's own namespace */
	int ns[HOSTS];
	int diag[HOSTS];		/* a NETLINK_SOCK_DIAG socket in each */
	enum wire_kind kind;
	int paths;
	struct wire *wire;		/* WIRE_TAP: its faults, shared with the process */
	pid_t wire_pid;
};

/* False: such hosts can't be made here; hosts_why() has the reason. */
bool hosts_make(struct hosts *h, enum wire_kind kind, int paths, uint64_t seed);
const char *hosts_why(void);
bool hosts_spare(const struct hosts *h, int host);	/* adds an interface w1 that leads nowhere */

/* Which wire `word` (auto, tap or netem) means here; WIRE_NONE: none can be had. */
enum wire_kind wire_choose(const char *word);

bool host_enter(const struct hosts *h, int host);	/* this thread, until host_leave() */
void host_leave(const struct hosts *h);
void host_own_sysfs(void);		/* in an end: mounts the namespace's /sys, if possible */
const char *host_address(const struct hosts *h, int host, int path);

/* Runs commands of `ip -batch`, one a line. */
bool host_ip(const struct hosts *h, int host, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Runs commands of `tc -batch`, one a line. */
bool host_tc(const struct hosts *h, int host, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Lets no more through, either way of each path; until hosts_cap() or this is called again. */
bool hosts_shape(const struct hosts *h, unsigned mbit);
/* Lets each TCP connection of the first path have so much: new ones once hosts_cap_new() has run. */
bool hosts_cap(const struct hosts *h, unsigned mbit);
bool hosts_cap_new(const struct hosts *h, unsigned mbit);
bool host_sysctl(const struct hosts *h, int host, const char *name, const char *value);
bool host_link(const struct hosts *h, int host, const char *dev, bool up);
uint64_t host_received(const struct hosts *h, int host, const char *dev);	/* bytes */
/* Faults of the wire between A and B, whichever kind it is. */
bool hosts_trouble(struct hosts *h, const struct wire_trouble *t);

/* Adds the route to the other end's network, which the kernel drops when the interface goes down. */
bool host_route(const struct hosts *h, int host, int path);
/* Waits until B has answered a datagram from A; false after `ms`. */
bool hosts_reach(const struct hosts *h, int path, unsigned ms);

/* -- TCP sockets of a host ---------------------------------------------------------------- */

enum { SOCKETS_MAX = 4096 };

/* Fills ret with the sockets in one of `states` (1 << TCP_ESTABLISHED and so on); returns their number. */
unsigned host_sockets(const struct hosts *h, int host, unsigned states,
		      struct inet_diag_sockid *ret, unsigned room);
bool host_kill(const struct hosts *h, int host, const struct inet_diag_sockid *id);	/* ss -K */

#endif
