/* SPDX-License-Identifier: BSD-3-Clause */
/* fabrics.c - all fabrics that a worker of braid can load. */
#include "tools/perf/fabric.h"

const struct fabric_ops *const fabric_table[FABRIC_KINDS] = {
	[FABRIC_PLUGIN] = &fabric_plugin,
	[FABRIC_RAW] = &fabric_raw,
	[FABRIC_PUT] = &fabric_put,
	[FABRIC_PUT_SIGNAL] = &fabric_put_signal,
	[FABRIC_GET] = &fabric_get,
};
