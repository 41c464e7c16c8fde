#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# abi-siw.sh - the ABI tests over soft-iWARP.
type=siw
# shellcheck source=tests/vm/abi.sh
. "$(dirname "$0")/../abi.sh"
