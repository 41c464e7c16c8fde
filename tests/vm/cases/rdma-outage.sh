#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-outage.sh - faults over soft-RoCE, between two guests.
type=rxe
# shellcheck source=tests/vm/rdma-outage.sh
. "$(dirname "$0")/../rdma-outage.sh"
