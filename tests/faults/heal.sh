#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# heal.sh - some rows that measure the rate after an outage, or with BRAID_TEST_ALL=1 all of them; and
# 20 flaps in a row over TCP and over RDMA; see faults.c.  A thousand: faults --heal --flaps 1000.
mode=--brief
[ -z "$BRAID_TEST_ALL" ] || mode=--heal
exec "${BRAID_TEST_BUILDDIR:-.}/tests/faults/faults" --tap "$mode"
