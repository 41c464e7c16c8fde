/* SPDX-License-Identifier: BSD-3-Clause */
/* offer.h - what this end offers in a hello. */
#ifndef BRAID_SETUP_OFFER_H
#define BRAID_SETUP_OFFER_H

#include <stdbool.h>

struct braid_dev;
struct braid_hello;

/* Fill a hello with the transports of `met` and the most lanes.  plain: offer only the socket. */
void braid_offer_fill(struct braid_hello *h, const struct braid_dev *met, bool plain);

#endif
