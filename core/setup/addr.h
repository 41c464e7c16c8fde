/* SPDX-License-Identifier: BSD-3-Clause */
/* addr.h - IP addresses in three forms: on the wire, as sockaddr, and as text. */
#ifndef BRAID_SETUP_ADDR_H
#define BRAID_SETUP_ADDR_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "core/proto/hello.h"

struct ifaddrs;

struct braid_addr braid_addr_of(const struct sockaddr *sa);	/* port as in sa */
/* scope: the interface, for a link-local address.  Returns the length. */
socklen_t braid_addr_to_sockaddr(const struct braid_addr *a, unsigned scope,
				 struct sockaddr_storage *ret);
/* "address:port", for logs. */
void braid_addr_text(const struct sockaddr_storage *sa, char *text, size_t len);
/* The entry of getifaddrs() that has that IP address; NULL: none has. */
const struct ifaddrs *braid_addr_in(const struct ifaddrs *list, const struct sockaddr *sa);
/* Does one of our interfaces have that address?  Its name goes to `name`. */
bool braid_addr_is_own(const struct sockaddr *sa, char name[IF_NAMESIZE]);

#endif
