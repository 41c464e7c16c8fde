#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-pair.sh - soft-RoCE between two guests, without Braid.
type=rxe
# shellcheck source=tests/vm/rdma-pair.sh
. "$(dirname "$0")/../rdma-pair.sh"
