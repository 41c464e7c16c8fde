/* SPDX-License-Identifier: BSD-3-Clause */
/* outage.h - how a link goes down and comes back, for outage.c and heal.c. */
#ifndef BRAID_TOOLS_VALIDATE_OUTAGE_H
#define BRAID_TOOLS_VALIDATE_OUTAGE_H

#include "tools/validate/validate.h"

/* A network of the check's own, whose only interface is lo; or the check is skipped. */
void own_network(struct validate *v);
bool command(const char *text);		/* run it in a shell, without its output; true: status 0 */
bool lo_down(struct validate *v);	/* in that network */
bool lo_up(struct validate *v);
bool port_down(struct validate *v);	/* by the user's commands */
bool port_up(struct validate *v);
void needs_port(struct validate *v);	/* else the check is skipped */

#endif
