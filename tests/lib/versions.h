/* SPDX-License-Identifier: BSD-3-Clause */
/* versions.h - ranges of wire versions that a peer may name, and what becomes of them here. */
#ifndef BRAID_TESTS_LIB_VERSIONS_H
#define BRAID_TESTS_LIB_VERSIONS_H

#include <errno.h>
#include <stdint.h>

static const struct version_row {
	uint16_t least, most;
	int err;
} versions[] = {
	{ 1, 1, 0 }, { 0, 1, 0 }, { 1, 2, 0 }, { 2, 2, 0 }, { 2, 9, 0 }, { 0, 0xffff, 0 },
	{ 0, 0, -EPROTONOSUPPORT }, { 3, 3, -EPROTONOSUPPORT }, { 3, 9, -EPROTONOSUPPORT },
	{ 0xffff, 0xffff, -EPROTONOSUPPORT },
	{ 2, 1, -EPROTONOSUPPORT }, { 1, 0, -EPROTONOSUPPORT }, { 0xffff, 0, -EPROTONOSUPPORT },
};

#endif
