/* SPDX-License-Identifier: BSD-3-Clause */
/* transport.c - the list of transports, and default members for struct braid_transport. */
#include "core/transport.h"

#include <errno.h>

static const struct braid_transport *const none;
const struct braid_transport *const *braid_transports = &none;

void braid_transports_use(const struct braid_transport *const *list)
{
	braid_transports = list;
}

const struct braid_transport *braid_transport_find(uint8_t id)
{
	for (unsigned i = 0; braid_transports[i]; i++) {
		if (braid_transports[i]->id == id)
			return braid_transports[i];
	}
	return NULL;
}

int braid_no_reg(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret)
{
	(void)dev, (void)mem, (void)ret;
	return -EOPNOTSUPP;
}

void braid_no_dereg(struct braid_dev *dev, struct braid_key *key)
{
	(void)dev, (void)key;
}

int braid_no_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine)
{
	(void)s, (void)theirs, (void)mine;
	return -EOPNOTSUPP;
}

int braid_no_setup_peer(struct braid_setup *s, const uint8_t *theirs)
{
	(void)s, (void)theirs;
	return -EOPNOTSUPP;
}

int braid_no_setup_ready(struct braid_setup *s)
{
	(void)s;
	return 0;
}

void braid_no_setup_drop(struct braid_setup *s)
{
	(void)s;
}

void braid_no_lane(struct braid_lane *lane)
{
	(void)lane;
}

void braid_no_describe(struct braid_lane *lane, struct braid_wire_state *ret)
{
	(void)lane, (void)ret;
}

bool braid_no_arm(struct braid_lane *lane)
{
	(void)lane;
	return true;
}

bool braid_always(const struct braid_dev *dev)
{
	(void)dev;
	return true;
}

int braid_no_event_fd(const struct braid_dev *dev)
{
	(void)dev;
	return -1;
}

bool braid_no_events(struct braid_dev *dev)
{
	(void)dev;
	return false;
}
