#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# bench.sh - NCCL's AllReduce over Braid beside its own Socket transport: make bench-nccl.  Only prints.
# shellcheck source=tests/nccl/lib.sh
. "$(dirname "$0")/lib.sh"

BRAID_TEST_VERBOSE=1 "$job" bench >"$tmp/out"
grep '^# | ' "$tmp/out" | sed 's/^# //' | grep . || { cat "$tmp/out"; exit 1; }
