/* SPDX-License-Identifier: BSD-3-Clause */
/* offer.c - see offer.h. */
#include "core/setup/offer.h"

#include <string.h>

#include "core/base/param.h"
#include "core/dev.h"
#include "core/proto/hello.h"
#include "core/setup/encrypt.h"
#include "core/transport.h"

bool braid_offer_has_socket(const struct braid_dev *dev)
{
	return braid_transport_find(BRAID_TRANSPORT_TCP) && dev->port[BRAID_TRANSPORT_TCP];
}

void braid_offer_fill(struct braid_hello *h, const struct braid_dev *met, bool plain)
{
	unsigned n = 0;

	braid_encrypt_offer(h);
	if (!strcmp(braid_param.checksum, "on"))
		h->options |= BRAID_OPTION_CHECKSUM;
	h->options |= BRAID_OPTION_ONE_COMM | BRAID_OPTION_PATHS | BRAID_OPTION_REVERSE;
	h->lanes_max = (uint8_t)(braid_param.lanes ? braid_param.lanes : braid_param.lanes_max);
	for (unsigned i = 0; braid_transports[i] && n < BRAID_TRANSPORTS_MAX; i++) {
		const struct braid_transport *tr = braid_transports[i];

		if (met->port[tr->id] && !(plain && tr->blob && braid_offer_has_socket(met)))
			h->transports[n++] = tr->id;
	}
}

bool braid_offer_has(const struct braid_hello *h, uint8_t transport)
{
	return memchr(h->transports, transport, sizeof(h->transports));
}

const struct braid_transport *braid_offer_agreed(const struct braid_hello *dialler,
						 const struct braid_hello *accepter)
{
	for (unsigned i = 0; i < BRAID_TRANSPORTS_MAX && dialler->transports[i]; i++) {
		const struct braid_transport *tr = braid_transport_find(dialler->transports[i]);

		if (tr && braid_offer_has(accepter, tr->id))
			return tr;
	}
	return NULL;
}
