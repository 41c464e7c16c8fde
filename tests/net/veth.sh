#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# veth.sh - two hosts and a wire between them: every pattern, small and jumbo frames.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts
wire 1500
wire 9000
for w in 1 2; do
	mtu=$(in_a cat /sys/class/net/w$w/mtu)
	env_both="BRAID_SOCKET_IFNAME==w$w"
	case_ "MTU $mtu: pingpong" checked --pattern pingpong --sizes 1,8,1447,1448,1449,8947,64k,65537,1m
	case_ "MTU $mtu: oneway" checked --pattern oneway --sizes 8,4k,1m,4m --inflight 8
	case_ "MTU $mtu: bidir over several comms" checked --pattern bidir --sizes 8,256k --comms 4
	case_ "MTU $mtu: ring allreduce over 2 processes" checked --pattern allreduce --sizes 4,64k,4m
	case_ "MTU $mtu: ring allreduce over 4 processes" \
		checked --pattern allreduce --procs 4 --sizes 100,3m
	case_ "MTU $mtu: alltoall over 4 processes" checked --pattern alltoall --procs 4 --sizes 8,64k
	env_both="$env_both BRAID_LANES=4"
	case_ "MTU $mtu: 4 lanes" checked --pattern bidir --sizes 8,1m,4m
done
done_
