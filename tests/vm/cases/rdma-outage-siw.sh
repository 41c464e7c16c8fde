#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-outage-siw.sh - faults over soft-iWARP, between two guests.
type=siw
# shellcheck source=tests/vm/rdma-outage.sh
. "$(dirname "$0")/../rdma-outage.sh"
