#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-pair-siw.sh - soft-iWARP between two guests, without Braid.
type=siw
# shellcheck source=tests/vm/rdma-pair.sh
. "$(dirname "$0")/../rdma-pair.sh"
