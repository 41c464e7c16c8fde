#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# compare-report.sh - braid compare of TCP with verbs over soft-RoCE, in one guest: make vm-compare.
# It only prints.  The device and the CPU are emulated: what it shows is what a report looks like.
minutes=40
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

export BRAID_SOCKET_IFNAME=v0
vm_rxe v0 || skip "no soft-RoCE"
uname -rv
"$BRAID_TEST_BRAID" compare --plugin "$plugin" --over tcp,verbs --lanes 1,4 --patterns pingpong,oneway \
	--sizes 8,4k,64k,1m --rounds 5 --seconds 0.3 --timeout 600
