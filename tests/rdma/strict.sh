#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# strict.sh - RoCE v2 and BRAID_RDMA_STRICT: messages move, and no NIC writes into their buffers.
nics=roce0:rocev2,netdev=lo
: "${BRAID_TEST_PROGRAMS:=abi/test_life abi/test_sizes abi/test_order}"
export BRAID_RDMA_STRICT=1
# shellcheck source=tests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"

# The count of all requests with immediate data: a chunk that is written into its receive has some.
writes()
{
	before=$("$build/tests/fake/fakectl" "count imms") &&
		BRAID_RDMA_STRICT=$1 BRAID_TRANSPORTS=verbs \
			braid_perf --pattern oneway --sizes 1m --iters 20 || return
	writes=$(($("$build/tests/fake/fakectl" "count imms") - before))
	echo "BRAID_RDMA_STRICT=$1: $writes requests with immediate data"
}

writes 0 && [ "$writes" -ge 20 ]
verdict $? "a large message is written into its receive if strict is off"
writes 1 && [ "$writes" -lt 20 ]
verdict $? "none is if strict is on"

"$BRAID_TEST_BRAID" info --plugin "$BRAID_TEST_PLUGIN" >"$tmp/info" 2>&1
grep "roce0:1 has .*BRAID_RDMA_STRICT: no peer gets a key" "$tmp/info"
verdict $? "braid info says that strict is in force"
