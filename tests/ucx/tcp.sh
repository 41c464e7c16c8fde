#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tcp.sh - UCX over its TCP.
tls=tcp,self
# Those for which it matters what UCX goes over; make check-ucx runs all.
few="abi/test_life abi/test_connect abi/test_sizes abi/test_order
	abi/test_queue abi/test_death"
# shellcheck source=tests/ucx/lib.sh
. "$(dirname "$0")/lib.sh"

program ucx/test_tcp
