/* SPDX-License-Identifier: BSD-3-Clause */
/* subnet.h - which interfaces are in one subnet, of IPv4 or IPv6. */
#ifndef BRAID_TOOLS_DOCTOR_SUBNET_H
#define BRAID_TOOLS_DOCTOR_SUBNET_H

#include "tools/doctor/doctor.h"

struct subnets {
	char *routes, *v6;		/* as the kernel lists them; or NULL */
};

void subnets_read(struct doctor *d, struct subnets *ret);
void subnets_free(struct subnets *s);
/*
 * 4 or 6: both interfaces are in one subnet of that version of IP, or one's is part of the other's.
 * 0: they are not.
 */
int subnet_in_common(const struct subnets *s, const struct iface *a, const struct iface *b);

#endif
