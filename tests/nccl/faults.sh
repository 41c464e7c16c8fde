#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# faults.sh - ranks that die, stop, are late, and communicators that are aborted.
# shellcheck source=tests/nccl/lib.sh
. "$(dirname "$0")/lib.sh"

"$job" kill abort abort-one stop late
NCCL_MIN_NCHANNELS=16 NCCL_MAX_NCHANNELS=16 "$job" --label "16 channels: " kill abort
"$job" --ranks 3 --label "3 ranks: " kill abort
