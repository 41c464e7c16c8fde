/* SPDX-License-Identifier: BSD-3-Clause */
/* route.c - see route.h. */
#include "topo/route.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "topo/nl.h"

enum { ROOM = 1024 };

struct question {
	struct nlmsghdr h;
	struct rtmsg m;
	char attr[128];
};

static void put_attribute(struct question *q, unsigned type, const void *data, size_t len)
{
	struct nlattr a = { .nla_len = (uint16_t)(sizeof(a) + len), .nla_type = (uint16_t)type };
	char *at = (char *)q + q->h.nlmsg_len;

	memcpy(at, &a, sizeof(a));
	memcpy(at + sizeof(a), data, len);
	q->h.nlmsg_len += (uint32_t)NLMSG_ALIGN(a.nla_len);
}

static void put_ip(struct question *q, unsigned type, const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		put_attribute(q, type, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	else
		put_attribute(q, type, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
}

/*
 * With RTA_OIF alone, the kernel takes any address to be on that interface's link.  RTM_F_FIB_MATCH
 * makes it look for a route.
 */
static void make_question(struct question *q, const struct sockaddr *from,
			  const struct sockaddr *to, unsigned ifindex)
{
	unsigned char bits = to->sa_family == AF_INET ? 32 : 128;

	*q = (struct question){
		.h = { .nlmsg_len = NLMSG_LENGTH(sizeof(q->m)), .nlmsg_type = RTM_GETROUTE,
		       .nlmsg_flags = NLM_F_REQUEST },
		.m = { .rtm_family = (unsigned char)to->sa_family, .rtm_dst_len = bits,
		       .rtm_src_len = bits, .rtm_flags = ifindex ? RTM_F_FIB_MATCH : 0 },
	};
	put_ip(q, RTA_DST, to);
	put_ip(q, RTA_SRC, from);
	if (ifindex)
		put_attribute(q, RTA_OIF, &ifindex, sizeof(ifindex));
}

static int read_route(struct braid_nl body, bool matched, struct braid_route *ret)
{
	struct braid_route r = { .ifindex = 0 };
	struct braid_nl value;
	struct rtmsg m;
	unsigned type;

	if (!braid_nl_get(&body, &m, sizeof(m)))
		return -ENOSYS;
	if (m.rtm_type != RTN_UNICAST && m.rtm_type != RTN_LOCAL)
		return -ENETUNREACH;
	r.local = m.rtm_type == RTN_LOCAL;
	r.gateway = matched && !m.rtm_dst_len;
	while (braid_nl_attr(&body, &type, &value)) {
		if (type == RTA_OIF)
			braid_nl_get(&value, &r.ifindex, sizeof(r.ifindex));
		r.gateway |= type == RTA_GATEWAY || type == RTA_VIA || type == RTA_MULTIPATH;
	}
	*ret = r;
	return 0;
}

static int answer(struct braid_nl got, bool matched, struct braid_route *ret)
{
	struct braid_nl body;
	struct nlmsghdr h;
	int err;

	if (!braid_nl_msg(&got, &h, &body))
		return -ENOSYS;
	if (h.nlmsg_type == NLMSG_ERROR && braid_nl_get(&body, &err, sizeof(err)))
		return err < 0 && err != -EOPNOTSUPP ? err : -ENOSYS;
	return h.nlmsg_type == RTM_NEWROUTE ? read_route(body, matched, ret) : -ENOSYS;
}

int braid_route_get(const struct sockaddr *from, const struct sockaddr *to, unsigned ifindex,
		    struct braid_route *ret)
{
	struct question q;
	char buf[ROOM];
	ssize_t n = -1;
	int fd;

	if (from->sa_family != to->sa_family)
		return -EAFNOSUPPORT;
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return -ENOSYS;
	make_question(&q, from, to, ifindex);
	if (send(fd, &q, q.h.nlmsg_len, MSG_DONTWAIT) == (ssize_t)q.h.nlmsg_len)
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	close(fd);
	return n <= 0 ? -ENOSYS :
			answer((struct braid_nl){ buf, (size_t)n }, ifindex != 0, ret);
}
