#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# iwarp.sh - iWARP, through rdma_cm and without immediate data.
nics=iw0:iwarp,netdev=lo
few="abi/test_life abi/test_connect abi/test_sizes abi/test_order abi/test_group abi/test_queue
	abi/test_close abi/test_shapes abi/test_rma rdma/test_counts"
# shellcheck source=tests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
