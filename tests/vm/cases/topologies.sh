#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# topologies.sh - the rows of tests/net/topologies.sh whose kind of interface a host's kernel may lack.
minutes=8
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

vm_later
exec sh "$BRAID_TEST_SRCDIR/tests/net/topologies.sh" vlan bond dummy vrf
