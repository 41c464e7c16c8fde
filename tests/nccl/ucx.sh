#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ucx.sh - over UCX alone, by its TCP and by its shared memory.
# shellcheck source=tests/nccl/lib.sh
. "$(dirname "$0")/lib.sh"

[ -z "${BRAID_TEST_SANITIZER-}" ] || export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
export BRAID_TRANSPORTS=ucx BRAID_SOCKET_IFNAME="=lo" UCX_TLS=tcp,self
"$BRAID_TEST_BRAID" info --plugin "$BRAID_TEST_PLUGIN" >"$tmp/info" 2>&1
grep -q "transports.*ucx" "$tmp/info" || skip "$(grep -m1 ucx "$tmp/info" || echo "no UCX here")"
[ -e /sys/class/net/lo ] || skip "UCX finds interfaces in /sys, which is not mounted"

BRAID_TEST_NCCL_WARNS=1 BRAID_TEST_NCCL_SAYS="[ucx-listens]" "$job" --label "UCX over TCP: " types soak
"$job" --label "UCX over TCP: " kill
UCX_TLS=posix,sysv,self "$job" --label "UCX over shared memory: " types soak
