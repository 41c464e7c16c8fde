#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-faults.sh - faults over soft-RoCE, between processes of one guest.
type=rxe
# shellcheck source=tests/vm/rdma-faults.sh
. "$(dirname "$0")/../rdma-faults.sh"
