/* SPDX-License-Identifier: BSD-3-Clause */
/* offer.h - what this end offers in a hello. */
#ifndef BRAID_SETUP_OFFER_H
#define BRAID_SETUP_OFFER_H

#include <stdbool.h>
#include <stdint.h>

struct braid_dev;
struct braid_hello;
struct braid_transport;

/*
 * Fill in a hello's options, lanes_max, ciphers, and the transports that can use the device `met`.
 * plain: leave out those that need a set-up, if `met` can use sockets.
 */
void braid_offer_fill(struct braid_hello *h, const struct braid_dev *met, bool plain);

bool braid_offer_has_socket(const struct braid_dev *dev);	/* its TCP can be used */
bool braid_offer_has(const struct braid_hello *h, uint8_t transport);
/* The transport that the dialler prefers among those that the accepter offers too, or NULL. */
const struct braid_transport *braid_offer_agreed(const struct braid_hello *dialler,
						 const struct braid_hello *accepter);

#endif
