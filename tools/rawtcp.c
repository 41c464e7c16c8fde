/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rawtcp.c - the reference alone: braid perf's patterns over plain TCP, without any plugin.
 *
 * tools/perf/raw.c says at its head what one message is.  Options as for braid perf.
 */
#include "tools/perf/perf.h"

static const struct fabric_ops *const fabrics[FABRIC_KINDS] = { [FABRIC_RAW] = &fabric_raw };

int main(int argc, char **argv)
{
	return perf_main("rawtcp", fabrics, argc, argv);
}
