#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma.sh - soft-RoCE and soft-iWARP work in one guest without Braid: what ibv_devinfo prints, and
# messages and writes between two processes on one device.
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

command -v ib_send_lat >/dev/null || skip "perftest is not installed"
command -v ibv_devinfo >/dev/null || skip "ibverbs-utils is not installed"

# says PATTERN... - ibv_devinfo's output for the device has each pattern.
says()
{
	ibv_devinfo -v -d "$rdma" >"$tmp/devinfo" || return
	for pattern; do
		grep -qE "$pattern" "$tmp/devinfo" || {
			cat "$tmp/devinfo"
			echo "no $pattern"
			return 1
		}
	done
}

# counts_packets - the device's own counter shows that it carried the messages.
counts_packets()
{
	sent=/sys/class/infiniband/$rdma/ports/1/hw_counters/sent_pkts
	before=$(cat "$sent")
	perftest ib_send_lat -s 8 -n 100 || return
	after=$(cat "$sent")
	echo "sent_pkts $before -> $after"
	[ $((after - before)) -ge 200 ]
}

moves()
{
	case_ "$rdma: ib_send_lat, 8 B" perftest ib_send_lat -s 8 -n 500
	case_ "$rdma: ib_send_lat, 4 KiB" perftest ib_send_lat -s 4096 -n 500
	case_ "$rdma: ib_write_lat, 8 B" perftest ib_write_lat -s 8 -n 500
	case_ "$rdma: ib_write_bw, 64 KiB" perftest ib_write_bw -s 65536 -n 100 -t 8
	case_ "$rdma: ib_write_bw, 1 MiB" perftest ib_write_bw -s 1048576 -n 20 -t 8
}

case_ "a RoCE device comes up" vm_rxe v0
case_ "$rdma is RoCE v2" says 'transport:.*InfiniBand' 'PORT_ACTIVE' 'link_layer:.*Ethernet' \
	"GID.*::ffff:$rdma_ip, RoCE v2"
case_ "there are devices for user space" test -c /dev/infiniband/uverbs0 -a -c /dev/infiniband/rdma_cm
moves
case_ "$rdma: ib_send_lat through the connection manager" perftest ib_send_lat -R -s 8 -n 500
case_ "$rdma counts its packets" counts_packets

if [ -d /sys/module/siw ]; then
	case_ "an iWARP device comes up" vm_siw v1
	case_ "$rdma is iWARP" says 'transport:.*iWARP' 'PORT_ACTIVE'
	moves
else
	no_case "an iWARP device" "no siw: ${BRAID_TEST_NO_SIW-}"
fi
done_
