/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp.h - plain TCP for tools: addresses and sockets. */
#ifndef BRAID_TOOLS_TCP_H
#define BRAID_TOOLS_TCP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

union tcp_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage room;
};

socklen_t tcp_addr_len(const union tcp_addr *a);

/*
 * Parse "PORT", "HOST:PORT" or "[V6]:PORT"; without a host: any address, of IPv4 and IPv6.  Asks
 * the resolver, so it may wait.  0, or with a sentence in err -EINVAL (the text) or -EHOSTUNREACH
 * (no such host).
 */
int tcp_addr_parse(const char *text, bool host_needed, union tcp_addr *ret, char *err, size_t n);

/* The first usable address of an interface, IPv4 before IPv6; -ENODEV if there is none. */
int tcp_addr_of_if(const char *ifname, union tcp_addr *ret);

void tcp_addr_text(const union tcp_addr *a, char *room, size_t n);	/* without the port */
void tcp_addr_local(int fd, char *room, size_t n);	/* the near end of a connected socket */

/*
 * A listening socket.  Port 0 in `a` means any free port, which is then stored in *a.  A socket on
 * :: accepts IPv4 as well; where the kernel has no IPv6, it accepts IPv4 alone.
 */
int tcp_listen(union tcp_addr *a);
/* Connect within timeout_ms: a socket with TCP_NODELAY, or -errno. */
int tcp_dial(const union tcp_addr *a, int timeout_ms);
int tcp_tune(int fd);			/* TCP_NODELAY, non-blocking */

#endif
