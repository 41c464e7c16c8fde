#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-pair.sh - what the RDMA cases with two hosts stand on, without Braid: two guests, each with a
# soft-RoCE device on one wire and a soft-iWARP device on another, and what moves between them.
guests=2
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

command -v ib_send_lat >/dev/null || skip "perftest is not installed"

# Both guests do the same; in guest 2 that is the other end.
moves()
{
	case_ "$rdma: ib_send_lat, 8 B" perftest ib_send_lat -s 8 -n 100
	case_ "$rdma: ib_write_lat, 8 B" perftest ib_write_lat -s 8 -n 100
	case_ "$rdma: ib_write_bw, 64 KiB" perftest ib_write_bw -s 65536 -n 20 -t 8
}

case_ "a RoCE device comes up" vm_rxe w1
moves
if [ -d /sys/module/siw ]; then
	case_ "an iWARP device comes up" vm_siw w2
	moves
else
	no_case "an iWARP device" "no siw: ${BRAID_TEST_NO_SIW-}"
fi
done_
