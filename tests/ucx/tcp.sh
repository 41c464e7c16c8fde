#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tcp.sh - UCX over its TCP.
tls=tcp,self
# Those for which it matters what UCX goes over; make check-ucx runs all.
few="abi/test_life abi/test_connect abi/test_sizes abi/test_order
	abi/test_queue abi/test_death"
# shellcheck source=tests/ucx/lib.sh
. "$(dirname "$0")/lib.sh"

# UCX listens on ports of its own here: one line says so, however many lanes there are.
warns=$(grep -c "\[ucx-listens\]" "$tmp/perf")
[ "$warns" -ge 1 ] && [ "$warns" -le 2 ]
verdict $? "UCX's TCP ports are reported once in each process ($warns lines)"

# Without UCX_TLS there are none: Braid's own TCP serves.
UCX_TLS= ; unset UCX_TLS
BRAID_TRANSPORTS=ucx,tcp braid_perf --sizes 8,1m --iters 20 --verbose >"$tmp/default"
good=$?
grep -q "\[ucx-listens\]" "$tmp/perf" && good=1
verdict $good "left to itself Braid gives UCX no TCP"
export UCX_TLS=$tls

# UCX gives out keys of its own, so strict leaves it out, and says so.
BRAID_RDMA_STRICT=1 BRAID_TRANSPORTS=ucx,tcp braid_perf --sizes 8,1m --iters 20 --verbose >"$tmp/strict"
good=$?
grep -q "\[rdma-strict\]" "$tmp/perf" || good=1
verdict $good "UCX is not used if RDMA is to be strict"

program ucx/test_tcp
