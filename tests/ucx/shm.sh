#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# shm.sh - UCX over memory that processes share.
tls=shm,self
# make check-ucx runs all.
few="abi/test_life abi/test_connect abi/test_sizes abi/test_order abi/test_group
	abi/test_queue abi/test_threads abi/test_close"
# shellcheck source=tests/ucx/lib.sh
. "$(dirname "$0")/lib.sh"
