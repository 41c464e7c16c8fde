/* SPDX-License-Identifier: BSD-3-Clause */
/* declined.h - a transport that both ends have could not be set up: at which end, and why. */
#ifndef BRAID_SETUP_DECLINED_H
#define BRAID_SETUP_DECLINED_H

#include <stdbool.h>
#include <stddef.h>

struct braid_conn;

/* The errno with which either end declined the set-up; 0: neither did. */
int braid_declined_err(const struct braid_conn *c);
/* Text: which end could not have the transport agreed on, and why; "": both could. */
void braid_declined_text(const struct braid_conn *c, char *ret, size_t len);
/* Is a retry no use?  Ports of different kinds stay so; a NIC that hangs delays every new lane. */
bool braid_declined_for_good(const struct braid_conn *c, int err);

#endif
