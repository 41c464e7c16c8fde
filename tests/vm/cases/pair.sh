#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# pair.sh - two guests, two kernels: every byte that goes from one to the other is checked.
guests=2
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

env_both="BRAID_SOCKET_IFNAME==w1"

if [ "$guest" = 2 ]; then
	serve
	exit
fi

case_ "the other guest answers" busybox ping -c 1 -w 10 10.77.1.2
case_ "pingpong" checked --pattern pingpong --sizes 1,8,1447,1449,64k,1m
case_ "both ways" checked --pattern bidir --sizes 8,64k,1m --comms 2
env_a="BRAID_LANES=4"
case_ "4 lanes" checked --pattern bidir --sizes 8,1m
done_
