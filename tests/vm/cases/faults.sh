#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# faults.sh - the rows of the fault table that damage packets, by netem instead of our own wire, and
# the one that sets the clock.
minutes=6
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

exec "$BRAID_TEST_BUILDDIR/tests/faults/faults" --tap --wire netem --own-machine \
	--rows F16,F17,F18,F38
