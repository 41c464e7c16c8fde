#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# device.sh - UCX over the RDMA ports of interface $netdev, by reliable connections: no shared memory
# and no TCP.  Needs such a port, so not in make check: tests/vm/cases/ucx-rxe.sh runs it.
tls=rc
: "${netdev:?is the interface, as in netdev=eth1}"
# shellcheck source=tests/ucx/lib.sh
. "$(dirname "$0")/lib.sh"
