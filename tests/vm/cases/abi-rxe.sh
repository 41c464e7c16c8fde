#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# abi-rxe.sh - the ABI tests over soft-RoCE.
type=rxe
# shellcheck source=tests/vm/abi.sh
. "$(dirname "$0")/../abi.sh"
