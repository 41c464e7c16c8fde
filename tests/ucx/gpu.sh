#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# gpu.sh - memory of a GPU that exists in memory only (tests/fakecuda), by a UCX that says that it has
# support of it (tests/ucx/shim.c).
# shellcheck source=tests/ucx/shim.sh
. "$(dirname "$0")/shim.sh"

export BRAID_TEST_UCP_CUDA=1
program ucx/test_gpu
