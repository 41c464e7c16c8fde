/* SPDX-License-Identifier: BSD-3-Clause */
/* offer.h - what this end offers in a hello. */
#ifndef BRAID_SETUP_OFFER_H
#define BRAID_SETUP_OFFER_H

#include <stdbool.h>

struct braid_dev;
struct braid_hello;

/*
 * Fill in a hello's lanes_max, and the transports that can use the device `met`.  plain: leave
 * out those that need a set-up, if `met` can use sockets.
 */
void braid_offer_fill(struct braid_hello *h, const struct braid_dev *met, bool plain);

#endif
