/* SPDX-License-Identifier: BSD-3-Clause */
/* order.c - orders to a servant and its answers, as structs of one size on a socket. */
#include "tools/perf/ctl.h"
#include "tools/validate/far.h"

const uint32_t order_magic =
	 0xb5000000u | (uint32_t)VALIDATE_VERSION << 16 | sizeof(struct order);

int order_move(int fd, struct order *o, bool out, int ms)
{
	o->magic = out ? order_magic : 0;
	return perf_ctl_move(fd, (char *)o, sizeof(*o), out, ms);
}
