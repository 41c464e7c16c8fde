#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# roce2.sh - RoCE v2; and peers that have TCP alone.
nics=roce0:rocev2,netdev=lo
programs="abi/test_badpeer abi/test_badpeer_chance abi/test_badpeer_lanes
	abi/test_descriptors abi/test_handshake abi/test_strangers abi/test_rma_life abi/test_rma_fault"
# shellcheck source=tests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"

# A NIC that takes no immediate data, whatever its kind promises, is found out at init.
without_immediate()
{
	BRAID_TEST_FAKE_DEVICES=$nics,imm=0 perf verbs --verbose && [ "$during" -gt 0 ] &&
		grep "roce0:1 shows no immediate data: each write is followed by a message" "$tmp/perf"
}
without_immediate
verdict $? "a NIC without immediate data is found out, and carries all the same"
