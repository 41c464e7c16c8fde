# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-pair.sh - what the RDMA cases with two hosts stand on, without Braid: two guests, each with a
# device on one wire, and what moves between them.  Sourced by cases/rdma-pair.sh and
# cases/rdma-pair-siw.sh, which say what $type the device is of.
guests=2
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

command -v ib_send_lat >/dev/null || skip "perftest is not installed"

# Both guests do the same; in guest 2 that is the other end.
vm_rdma "${type:?}" w1 || exit
case_ "$rdma: ib_send_lat, 8 B" perftest ib_send_lat -s 8 -n 100
case_ "$rdma: ib_write_lat, 8 B" perftest ib_write_lat -s 8 -n 100
case_ "$rdma: ib_write_bw, 64 KiB" perftest ib_write_bw -s 65536 -n 20 -t 8
done_
