/* SPDX-License-Identifier: BSD-3-Clause */
/* events.h - the asynchronous events of a device: of its ports, queue pairs and queues. */
#ifndef BRAID_VERBS_EVENTS_H
#define BRAID_VERBS_EVENTS_H

#include "verbs/port.h"

/* Notes the descriptors, for forked children to close; makes reading events non-blocking. */
void braid_ibport_adopt(const struct ibv_context *ctx);

/* From now on the port learns its device's events.  At init only. */
void braid_ibport_watch(struct braid_ibport *p);
bool braid_ibport_any(void);		/* has any port been watched? */

/* Handles the device's events.  Call it now and then, with no lock held. */
void braid_ibport_events(struct braid_ibport *p);

/* The member usable of struct braid_transport: is the port up? */
bool braid_ibport_usable(const struct braid_dev *dev);

#endif
