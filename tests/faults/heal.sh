#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# heal.sh - some rows that measure the rate after an outage, and 20 flaps in a row over TCP and over
# RDMA; see faults.c.  All of them, or a thousand flaps: faults --heal [--flaps 1000].
exec "${BRAID_TEST_BUILDDIR:-.}/tests/faults/faults" --tap --heal --brief
