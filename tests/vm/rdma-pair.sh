# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-pair.sh - RDMA between two guests works without Braid: each has a device on one wire, and
# perftest moves data between them. Sourced by cases/rdma-pair.sh and cases/rdma-pair-siw.sh, which set
# $type, the kind of the device.
guests=2
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

command -v ib_send_lat >/dev/null || skip "perftest is not installed"

# Both guests run the same calls; guest 2 is the other end.
vm_rdma "${type:?}" w1 || exit
case_ "$rdma: ib_send_lat, 8 B" perftest ib_send_lat -s 8 -n 100
case_ "$rdma: ib_write_lat, 8 B" perftest ib_write_lat -s 8 -n 100
case_ "$rdma: ib_write_bw, 64 KiB" perftest ib_write_bw -s 65536 -n 20 -t 8
done_
