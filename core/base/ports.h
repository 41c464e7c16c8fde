/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ports.h - the TCP ports that this process may bind (BRAID_PORT_RANGE), so that a firewall can be
 * opened for exactly these.
 *
 * Without a range the kernel chooses a port.  With one, ports are tried in turn from a random one
 * on, so that the processes of a host seldom try the same.
 */
#ifndef BRAID_BASE_PORTS_H
#define BRAID_BASE_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Use a range from now on: "40000-40999"; empty: none.  0, or -EINVAL, and there is none. */
int braid_ports_choose(const char *range);
/* The range as "40000-40999"; NULL: there is none. */
const char *braid_ports_range(char *text, size_t len);

struct braid_ports {			/* ports to try */
	uint16_t now;
	unsigned left;
};

/* Without a range port 0, by which the kernel chooses, is tried `tries` times. */
void braid_ports_begin(struct braid_ports *p, unsigned tries);
bool braid_ports_next(struct braid_ports *p, uint16_t *ret);	/* false: all have been tried */

/* Bind to an IP address, at the next port that is free there: 0 or -errno. */
int braid_ports_bind(int fd, const struct sockaddr *at, socklen_t len);

#endif
