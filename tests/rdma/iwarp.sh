#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# iwarp.sh - iWARP, through rdma_cm and without immediate data.
nics=iw0:iwarp,netdev=lo
# shellcheck source=tests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
