#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ib.sh - InfiniBand: LIDs, and no interface of its own.
nics=ib0:ib
# How it is found and addressed is its own, what it carries then is not: all of it by make check-rdma.
[ "${BRAID_TEST_FILTER-}" ] || BRAID_TEST_PROGRAMS="abi/test_life abi/test_connect abi/test_sizes
	abi/test_order abi/test_group abi/test_queue abi/test_shapes rdma/test_counts"
# shellcheck source=tests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
