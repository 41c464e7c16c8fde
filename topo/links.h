/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * links.h - where an interface leads: to hardware, out of this network namespace, or nowhere.
 *
 * /sys says what a device stands on; rtnetlink says of what kind it is, and whether its other end
 * is in another namespace.  A test's tree in place of / has /sys only.
 */
#ifndef BRAID_TOPO_LINKS_H
#define BRAID_TOPO_LINKS_H

#include <stdbool.h>
#include <stddef.h>

#include "topo/netdev.h"

struct braid_links;			/* rtnetlink's answer for all interfaces */

/* NULL: rtnetlink can't be asked. */
struct braid_links *braid_links_load(void);
void braid_links_free(struct braid_links *l);

enum braid_lead {
	BRAID_LEADS_TO_HARDWARE,	/* it is hardware, or stands on hardware */
	BRAID_LEADS_OUT,		/* veth, macvlan...: its other end is elsewhere */
	BRAID_LEADS_NOWHERE,		/* a bridge of containers, a tunnel, a dummy... */
	BRAID_LEADS_UNKNOWN,		/* neither /sys nor rtnetlink says anything */
};

struct braid_lead_info {
	enum braid_lead lead;
	const char *port_of;		/* "bridge" or "team", of which it is a port; or NULL */
	bool tunnel;			/* it wraps packets that leave by another interface */
};

/* The VRF that this interface is, or belongs to, perhaps through a bridge; 0: none. */
unsigned braid_link_vrf(const struct braid_links *links, unsigned ifindex);

/* links may be NULL; `sysfs`: /sys belongs to this network namespace. */
void braid_link_leads(const struct braid_links *links, const char *sysroot, const char *name,
		      unsigned ifindex, bool sysfs, struct braid_lead_info *ret);

#endif
