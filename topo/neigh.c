/* SPDX-License-Identifier: BSD-3-Clause */
/* neigh.c - see neigh.h. */
#include "topo/neigh.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "topo/nl.h"

enum { ANSWERS = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT,
       SILENT = NUD_FAILED | NUD_INCOMPLETE };

static const void *ip_of(const struct sockaddr *sa, size_t *ret_len)
{
	*ret_len = sa->sa_family == AF_INET ? 4 : 16;
	return sa->sa_family == AF_INET ?
		       (const void *)&((const struct sockaddr_in *)sa)->sin_addr :
		       (const void *)&((const struct sockaddr_in6 *)sa)->sin6_addr;
}

/* Does that entry belong to this address, on this interface? */
static bool is_entry(const struct ndmsg *nd, struct braid_nl body, const void *ip, size_t len,
		     unsigned ifindex)
{
	struct braid_nl value;
	unsigned type;

	if ((unsigned)nd->ndm_ifindex != ifindex)
		return false;
	while (braid_nl_attr(&body, &type, &value)) {
		if (type == NDA_DST)
			return value.len == len && !memcmp(value.at, ip, len);
	}
	return false;
}

/* Searches one datagram of the table for `ip`.  False: it was found, or the table has ended. */
static bool find_entry(struct braid_nl all, const void *ip, size_t len, unsigned ifindex,
		       enum braid_neigh *ret)
{
	struct nlmsghdr head;
	struct braid_nl body;
	struct ndmsg nd;

	while (braid_nl_msg(&all, &head, &body)) {
		if (head.nlmsg_type != RTM_NEWNEIGH)
			return false;		/* NLMSG_DONE, or an error */
		if (!braid_nl_get(&body, &nd, sizeof(nd)) ||
		    !is_entry(&nd, body, ip, len, ifindex))
			continue;
		*ret = nd.ndm_state & SILENT ? BRAID_NEIGH_SILENT :
		       nd.ndm_state & ANSWERS ? BRAID_NEIGH_ANSWERS : BRAID_NEIGH_UNKNOWN;
		return false;
	}
	return true;
}

enum braid_neigh braid_neigh_get(const struct sockaddr *to, unsigned ifindex)
{
	struct {
		struct nlmsghdr head;
		struct ndmsg nd;
	} ask = {
		.head = { .nlmsg_len = sizeof(ask), .nlmsg_type = RTM_GETNEIGH,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.nd = { .ndm_family = (unsigned char)to->sa_family },
	};
	enum braid_neigh ret = BRAID_NEIGH_UNKNOWN;
	char buf[16384];
	bool more = true;
	size_t len;
	const void *ip = ip_of(to, &len);
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0)
		return ret;
	if (send(fd, &ask, sizeof(ask), 0) != sizeof(ask))
		more = false;
	while (more) {			/* the kernel answers at once, or not at all */
		ssize_t n = recv(fd, buf, sizeof(buf), 0);

		more = n > 0 && find_entry((struct braid_nl){ buf, (size_t)n }, ip, len, ifindex,
					   &ret);
	}
	close(fd);
	return ret;
}
