#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# loss.sh - a wire that loses, reorders, doubles, delays and changes frames, both ways, between two
# network namespaces; every byte is checked. The kernel's counters show that the faults happened.
minutes=6
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

# bad_wire COUNTER OPTIONS -- WHAT... - with netem's WHAT on the wire, braid perf with OPTIONS has no
# wrong byte, and the kernel's COUNTER has grown.
bad_wire()
{
	counter=$1
	shift
	options=
	while [ "$1" != -- ]; do
		options="$options $1"
		shift
	done
	shift
	netem 1 "$@" || return
	before=$(counted "$counter")
	# shellcheck disable=SC2086 # a list
	checked --pattern bidir $options
	rc=$?
	cat "$tmp/csv"
	after=$(counted "$counter")
	echo "$counter $before -> $after"
	netem 1
	[ $rc = 0 ] && [ "$after" -gt "$before" ]
}

# TCP doubles its timeouts, so after a few losses in a row no frame is sent for half a minute. So the
# wire is good again after 10 s.
bursts()
{
	(sleep 10; netem 1) &
	healer=$!
	bad_wire "$@"
	rc=$?
	wait $healer
	return $rc
}

hosts
wire 1500
env_both="BRAID_SOCKET_IFNAME==w1"
case_ "loss 0.1 %" bad_wire TcpRetransSegs --sizes 8,4m --iters 2 -- loss 0.1%
case_ "loss 1 %" bad_wire TcpRetransSegs --sizes 8,64k,1m --iters 3 -- loss 1%
case_ "loss 5 %" bad_wire TcpRetransSegs --sizes 8,64k,1m --iters 3 -- loss 5%
# bursts of 3 frames on average
case_ "loss 30 % in bursts" bursts TcpRetransSegs --sizes 8,4k,64k --iters 2 -- \
	loss gemodel 14.3% 33.3%
case_ "reorder 25 % 50 %" bad_wire TcpExtTCPOFOQueue --sizes 8,64k,1m --iters 3 -- \
	delay 5ms reorder 25% 50%
case_ "duplicate 10 %" bad_wire TcpExtTCPDSACKOldSent --sizes 8,64k,1m --iters 3 -- duplicate 10%
case_ "jitter 50 ms" bad_wire TcpExtTCPOFOQueue --sizes 8,64k --iters 2 -- delay 50ms 50ms
case_ "corruption 1 %" bad_wire TcpInCsumErrors --sizes 8,64k,1m --iters 3 -- corrupt 1%
env_both="$env_both BRAID_LANES=4"
case_ "4 lanes: loss 5 %" bad_wire TcpRetransSegs --sizes 8,1m --iters 3 -- loss 5%
case_ "4 lanes: reorder 25 % 50 %" bad_wire TcpExtTCPOFOQueue --sizes 8,1m --iters 3 -- \
	delay 5ms reorder 25% 50%
case_ "4 lanes: corruption 1 %" bad_wire TcpInCsumErrors --sizes 8,1m --iters 3 -- corrupt 1%
done_
