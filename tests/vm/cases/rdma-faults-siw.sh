#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-faults-siw.sh - faults over soft-iWARP, between processes of one guest.
type=siw
# shellcheck source=tests/vm/rdma-faults.sh
. "$(dirname "$0")/../rdma-faults.sh"
