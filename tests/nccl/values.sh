#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# values.sh - results of collectives in Simple, in LL, and in the protocol that NCCL chooses.
# shellcheck source=tests/nccl/lib.sh
. "$(dirname "$0")/lib.sh"

NCCL_PROTO=Simple "$job" --label "Simple: " types sizes
NCCL_PROTO=LL "$job" --label "LL: " types sizes
unlimited()
{
	NCCL_MAX_NCHANNELS=64 "$job" --label "as many channels as NCCL takes: " "$@"
}
unlimited types sizes soak
"$job" --ranks 3 --label "3 ranks: " types soak
"$job" --ranks 8 --label "8 ranks: " all-reduce
BRAID_TEST_GPU_CC=90 "$job" --label "with float8: " types
