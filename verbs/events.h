/* SPDX-License-Identifier: BSD-3-Clause */
/* events.h - what a device reports by itself: its ports, queue pairs and queues. */
#ifndef BRAID_VERBS_EVENTS_H
#define BRAID_VERBS_EVENTS_H

#include "verbs/port.h"

/* Notes the descriptors, which a forked child must not keep; makes reading events not block. */
void braid_ibport_adopt(const struct ibv_context *ctx);

/* From now on the port learns its device's events.  At init only. */
void braid_ibport_watch(struct braid_ibport *p);
bool braid_ibport_any(void);		/* has there been such a port? */

/* Handles the device's events.  Call it now and then, with no lock held. */
void braid_ibport_events(struct braid_ibport *p);

/* The member usable of struct braid_transport: is the port up? */
bool braid_ibport_usable(const struct braid_dev *dev);

#endif
