/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ports.h - the local ports of our sockets: those of BRAID_PORT_RANGE, so that a firewall can be
 * opened for exactly these; or, without that parameter, those that the kernel chooses.
 *
 * A port of the range may be taken where only connections have it, as after a job that has just
 * ended: so listeners do not run out of ports, and many connections to different peers share one.
 */
#ifndef BRAID_BASE_PORTS_H
#define BRAID_BASE_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct braid_ports {			/* a walk over the ports */
	uint32_t first, n;		/* the range; 0 and 1: the kernel chooses */
	uint32_t at, step, left;
};

bool braid_ports_given(void);		/* is BRAID_PORT_RANGE set? */

/*
 * Begin a walk.  It visits each port of the range once, from a random one on and by a random step,
 * so that processes that start together do not try the same ports.
 */
void braid_ports_begin(struct braid_ports *p);
/* The next port; 0: the kernel is to choose.  False: all were visited. */
bool braid_ports_next(struct braid_ports *p, uint16_t *ret);

/*
 * Where flows are hashed to paths, lanes of a link are to take different ones.  The last four bits
 * of a lane's port: with 2, 4, 8 or 16 lanes, hashes that keep the last bits of a port, shifted or
 * not, have as many lanes on each path.
 */
unsigned braid_ports_bits(unsigned lane);
/*
 * The port that a lane would rather have.  `base`, random, is the link's for the first dial of each
 * lane, and a new one where a lane is to get another path.
 */
uint16_t braid_ports_wish(uint16_t base, unsigned lane);

/*
 * Have a socket over IPv6, and those accepted at it, use flow labels of their own also where the
 * kernel gives these only to sockets that ask (net.ipv6.auto_flowlabels=2; 0: to none).
 */
void braid_ports_label(int fd);

/* Set the port of an IPv4 or IPv6 address. */
void braid_ports_set(struct sockaddr *sa, uint16_t port);
/* Without a range: have the kernel choose that port, or fail.  False: it can't before Linux 6.3. */
bool braid_ports_ask(int fd, uint16_t port);
/*
 * Bind to that address and port; 0 or -errno.  -EADDRINUSE: try the next port of the range, as this
 * one is taken, or only root may have it.
 */
int braid_ports_bind(int fd, struct sockaddr *sa, socklen_t len, uint16_t port);

/* No port is left: the range, what has its ports, and the remedy, as part of a line. */
void braid_ports_why(char *ret, size_t len);

#endif
