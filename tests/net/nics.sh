#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# nics.sh [WORDS...] - which NIC carries the data: with several NICs in one subnet, with addresses that
# lead nowhere, and where the handshake takes another interface than RDMA.
#
# topology NAME SET-UP ENVIRONMENT CONDITIONS: see tests/net/fabric.sh.
# shellcheck source=tests/net/fabric.sh
. "$(dirname "$0")/fabric.sh"

two="own_wire; nics eth0 s0 10.1.0.10/24 10.1.0.20/24; nics eth1 s0 10.1.0.11/24 10.1.0.21/24"

for nic in eth0 eth1; do
	topology "two NICs in one subnet, $nic chosen" "$two" "NCCL_SOCKET_IFNAME==$nic" "leaves $nic"
	topology "two NICs in one subnet that keep ARP apart, $nic chosen" "$two; apart" \
		"NCCL_SOCKET_IFNAME==$nic" "over $nic; never_says not-by-device"
done

topology "two NICs in one subnet of IPv6, the second chosen" \
	"own_wire; nics eth0 s0 fd01::10/64 fd01::20/64; nics eth1 s0 fd01::11/64 fd01::21/64" \
	"NCCL_SOCKET_IFNAME==eth1" \
	"over eth1"

topology "two NICs in one subnet, ARP's answer is the other's" \
	"$two; neighbour a eth1 10.1.0.21 b eth0; neighbour b eth1 10.1.0.11 a eth0
	neighbour a eth0 10.1.0.21 b eth0; neighbour b eth0 10.1.0.11 a eth0" \
	"NCCL_SOCKET_IFNAME==eth1" \
	"worked; says not-by-device arp_ignore"

topology "doctor compares with interfaces that are not chosen" \
	"$two" \
	"NCCL_SOCKET_IFNAME==eth1" \
	"doctor a; says 'eth1 and eth0 are in one subnet'"

topology "the peer's subnet is that of the second address" \
	"own_wire; nics eth0 s0 10.8.0.1/24,10.1.0.1/24 10.9.0.2/24,10.1.0.2/24" \
	"NCCL_SOCKET_IFNAME==eth0" \
	"over eth0"

topology "the address that is chosen" \
	"own_wire; nics eth0 s0 10.1.0.1/24,10.2.0.1/24 10.1.0.2/24,10.2.0.2/24
	firewall b 'ip daddr 10.1.0.2 tcp flags syn drop'" \
	"NCCL_SOCKET_IFNAME==eth0 BRAID_ADDRESS=10.2.0.0/16" \
	"address a eth0 10.2.0.1; over eth0"

topology "IPv4 is dropped, IPv6 is not" \
	"own_wire; nics eth0 s0 10.1.0.1/24,fd01::1/64 10.1.0.2/24,fd01::2/64
	firewall b 'iifname eth0 ip protocol tcp drop'" \
	"NCCL_SOCKET_IFNAME==eth0" \
	"over eth0"

topology "a list of subnets that is none" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24" \
	"BRAID_ADDRESS=eth0" \
	"over eth0; says bad-address"

rdma_wire="own_wire; nics m0 s0 10.1.0.1/24 10.1.0.2/24; nics eth0 s1 10.2.0.1/24 10.2.0.2/24"
deaf="firewall a 'iifname eth0 meta l4proto tcp drop'; firewall b 'iifname eth0 meta l4proto tcp drop'"

topology "RDMA whose interface takes no TCP, beside a management network" \
	"$rdma_wire; rdma eth0; $deaf" \
	"NCCL_SOCKET_IFNAME=m0" \
	"over; nic_carried 48"

topology "the same, and RDMA has no way: the management network carries" \
	"$rdma_wire; rdma eth0 net=1 net=2; $deaf" \
	"NCCL_SOCKET_IFNAME=m0" \
	"over m0"

done_
