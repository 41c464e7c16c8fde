#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# roce1.sh - RoCE v1.
nics=roce0:rocev1,netdev=lo
# How it is found and addressed is its own, what it carries then is not: all of it by make check-rdma.
[ "${BRAID_TEST_FILTER-}" ] || BRAID_TEST_PROGRAMS="abi/test_life abi/test_connect abi/test_sizes
	abi/test_order abi/test_group abi/test_queue abi/test_shapes rdma/test_counts"
# shellcheck source=tests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"

# The line is the plugin's, so --verbose shows it.
warns()
{
	perf verbs --verbose && grep "WARN.*RoCE v1 is not routed" "$tmp/perf"
}
warns
verdict $? "that RoCE v1 is not routed is a WARN"
