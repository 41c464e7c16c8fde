/* SPDX-License-Identifier: BSD-3-Clause */
/* declined.c - see declined.h. */
#include "core/setup/declined.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/setup/conn.h"
#include "core/transport.h"

int braid_declined_err(const struct braid_conn *c)
{
	return c->mine_setup.err ? c->mine_setup.err : c->their_setup.err;
}

/* Text for the error of a set-up. */
static const char *setup_text(int err)
{
	switch (err) {
	case EPROTOTYPE:
		return "the two ports are of different kinds: InfiniBand, RoCE or iWARP";
	case EADDRNOTAVAIL:
		return "no GID of a type that the other has too: is NCCL_IB_GID_INDEX right "
		       "there, or BRAID_IB_GID?";
	case ENOPROTOOPT:
		return "what came up is plain TCP: that end's log says why";
	case ENETDOWN:
		return "its port is down, or has just failed";
	case EHOSTUNREACH:
		return "its first packet had no answer: the path does not carry it";
	case EBUSY:
		return "its NIC does not answer commands";
	default:
		return strerror(err);
	}
}

void braid_declined_text(const struct braid_conn *c, char *ret, size_t len)
{
	const char *call = c->mine_setup.err ? c->setup.failed : NULL;

	*ret = '\0';
	if (c->refused)
		snprintf(ret, len, "%s can't have %s (%s%s%s)",
			 c->mine_setup.err ? "this end" : "the peer", c->refused->name,
			 call ? call : "", call ? ": " : "",
			 c->setup.why[0] ? c->setup.why : setup_text(braid_declined_err(c)));
}

bool braid_declined_for_good(const struct braid_conn *c, int err)
{
	return err == EPROTOTYPE || err == EALREADY ||
	       (err == ETIMEDOUT && c->refused && c->refused->rest_s);
}
