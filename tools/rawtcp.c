/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rawtcp.c - the traffic patterns of braid perf over plain TCP sockets, without any plugin.
 *
 * This gives the reference values.  The head of tools/perf/raw.c describes how one message is sent.
 * The options are those of braid perf.
 */
#include "tools/perf/perf.h"

static const struct fabric_ops *const fabrics[FABRIC_KINDS] = { [FABRIC_RAW] = &fabric_raw };

int main(int argc, char **argv)
{
	return perf_main("rawtcp", fabrics, argc, argv);
}
