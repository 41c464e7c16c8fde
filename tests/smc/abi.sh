#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# abi.sh - the ABI tests over SMC alone, of the fake: there is no TCP to fall back to, so what passes
# was carried by smc/.

# Its streams are those of TCP: what is not about how they come and go by make check-smc.
few="abi/test_life abi/test_connect abi/test_sizes
	abi/test_order abi/test_queue abi/test_threads abi/test_fork abi/test_close abi/test_death"
# shellcheck source=tests/smc/lib.sh
. "$(dirname "$0")/lib.sh"
[ -x "$build/tests/abi/test_life" ] || { echo "skip: cmocka is not installed"; exit 77; }
unset BRAID_DEBUG

export BRAID_TRANSPORTS=smc BRAID_TEST_SMC=fake FAKE_SMC=smcr
BRAID_TEST_WRAP="env LD_PRELOAD=$fake ${BRAID_TEST_WRAP-}"
export BRAID_TEST_WRAP

for program in $BRAID_TEST_PROGRAMS; do
	program "$program"
done
