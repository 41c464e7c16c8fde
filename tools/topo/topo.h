/* SPDX-License-Identifier: BSD-3-Clause */
/* topo.h - the parts of `braid topo`: XML on stdout, SVG, and the hwloc reader. */
#ifndef BRAID_TOOLS_TOPO_H
#define BRAID_TOOLS_TOPO_H

#include <stdio.h>

#include "topo/machine.h"

void topo_xml(const struct braid_machine *m);	/* in the form of NCCL_TOPO_FILE */
void topo_svg(const struct braid_machine *m, FILE *to);

/*
 * Read the machine through hwloc: from an XML file, or (NULL) this one.  0 with *ret, or -errno;
 * -EINVAL where hwloc can't read the file.  Only where configure found hwloc.
 */
int topo_hwloc(const char *file, struct braid_machine **ret);

#endif
