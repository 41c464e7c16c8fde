#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# roce1.sh - RoCE v1.
nics=roce0:rocev1,netdev=lo
own=address
# shellcheck source=tests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"

# The line is the plugin's, so --verbose shows it.
warns()
{
	perf verbs --verbose && grep "WARN.*RoCE v1 is not routed.*\[roce-v1-route\]" "$tmp/perf"
}
warns
verdict $? "that RoCE v1 is not routed is a WARN"
