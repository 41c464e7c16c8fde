/* SPDX-License-Identifier: BSD-3-Clause */
/* topo.h - the pictures of `braid topo`: each is one document on stdout. */
#ifndef BRAID_TOOLS_TOPO_H
#define BRAID_TOOLS_TOPO_H

#include "topo/machine.h"

void topo_xml(const struct braid_machine *m);	/* as NCCL_TOPO_FILE wants it */
void topo_svg(const struct braid_machine *m);

#endif
