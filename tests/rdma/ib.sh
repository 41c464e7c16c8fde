#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ib.sh - InfiniBand: LIDs, and no interface of its own.
nics=ib0:ib
own=address
# shellcheck source=tests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
