#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# quick.sh - the cases with NCCL's own library that every make check runs: a few seconds.
# shellcheck source=tests/nccl/lib.sh
. "$(dirname "$0")/lib.sh"

"$job" life all-reduce types spoil

# For a release of NCCL with unknown layouts, nothing is guessed.
export BRAID_TEST_GPU_NCCL=99999
"$job" --label "a release that is not known: " life
"$job" types | grep -q "^ok .* # SKIP the layouts of NCCL 99999 are not known"
verdict $? "a release that is not known: kernels are skipped, with the reason"
