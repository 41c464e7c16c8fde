/* SPDX-License-Identifier: BSD-3-Clause */
/* nl.h - walk through netlink messages, with lengths checked, and without the kernel's macros. */
#ifndef BRAID_TOPO_NL_H
#define BRAID_TOPO_NL_H

#include <linux/netlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct braid_nl {			/* bytes that are left */
	const char *at;
	size_t len;
};

/* The next message: its header and what follows; false: no complete message is left. */
static inline bool braid_nl_msg(struct braid_nl *n, struct nlmsghdr *ret_head, struct braid_nl *ret)
{
	size_t step;

	if (n->len < sizeof(*ret_head))
		return false;
	memcpy(ret_head, n->at, sizeof(*ret_head));
	if (ret_head->nlmsg_len < sizeof(*ret_head) || ret_head->nlmsg_len > n->len)
		return false;
	*ret = (struct braid_nl){ n->at + sizeof(*ret_head),
				  ret_head->nlmsg_len - sizeof(*ret_head) };
	step = NLMSG_ALIGN(ret_head->nlmsg_len);
	step = step < n->len ? step : n->len;
	n->at += step;
	n->len -= step;
	return true;
}

/* Take a part of fixed size; false: fewer bytes are left. */
static inline bool braid_nl_get(struct braid_nl *n, void *ret, size_t len)
{
	if (n->len < len)
		return false;
	memcpy(ret, n->at, len);
	n->at += len;
	n->len -= len;
	return true;
}

/* The next attribute: its type and payload; false: no complete attribute is left. */
static inline bool braid_nl_attr(struct braid_nl *n, unsigned *ret_type, struct braid_nl *ret)
{
	struct nlattr a;
	size_t step;

	if (n->len < sizeof(a))
		return false;
	memcpy(&a, n->at, sizeof(a));
	if (a.nla_len < sizeof(a) || a.nla_len > n->len)
		return false;
	*ret_type = a.nla_type & (unsigned)NLA_TYPE_MASK;
	*ret = (struct braid_nl){ n->at + sizeof(a), a.nla_len - sizeof(a) };
	step = ((size_t)a.nla_len + NLA_ALIGNTO - 1) / NLA_ALIGNTO * NLA_ALIGNTO;
	step = step < n->len ? step : n->len;
	n->at += step;
	n->len -= step;
	return true;
}

#endif
