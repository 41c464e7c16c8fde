#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rails.sh [WORDS...] - hosts with several NICs, MTUs or RDMA, one a row: which NIC carries the data.
#
# topology NAME SET-UP ENVIRONMENT CONDITIONS: see tests/net/fabric.sh.
# shellcheck source=tests/net/fabric.sh
. "$(dirname "$0")/fabric.sh"

# -- two NICs -------------------------------------------------------------------------------------

for nic in eth0 eth1; do
	topology "two NICs in one subnet, $nic chosen" \
		"own_wire; nics eth0 s0 10.1.0.10/24 10.1.0.20/24; nics eth1 s0 10.1.0.11/24 10.1.0.21/24" \
		"NCCL_SOCKET_IFNAME==$nic" \
		"leaves_or_warns $nic"
done

for nic in eth0 eth1; do
	topology "two NICs in one subnet that keep ARP apart, $nic chosen" \
		"own_wire; apart
		nics eth0 s0 10.1.0.10/24 10.1.0.20/24; nics eth1 s0 10.1.0.11/24 10.1.0.21/24" \
		"NCCL_SOCKET_IFNAME==$nic" \
		"over $nic"
done

for nic in eth0 eth1; do
	topology "two NICs in one subnet, on switches that are not joined, $nic chosen" \
		"own_wire; nics eth0 s0 10.1.0.10/24 10.1.0.20/24; nics eth1 s1 10.1.0.11/24 10.1.0.21/24" \
		"NCCL_SOCKET_IFNAME==$nic" \
		"over $nic"
done

for nic in eth0 eth1; do
	topology "overlapping masks, $nic chosen" \
		"own_wire; apart; nics eth0 s0 10.1.1.10/16 10.1.1.20/16; nics eth1 s0 10.1.1.11/24 10.1.1.21/24" \
		"NCCL_SOCKET_IFNAME==$nic" \
		"leaves $nic"
done

for nic in eth0 eth1; do
	topology "rails in subnets of their own, $nic chosen" \
		"own_wire; nics eth0 s0 10.1.0.1/24 10.1.0.2/24; nics eth1 s1 10.2.0.1/24 10.2.0.2/24" \
		"NCCL_SOCKET_IFNAME==$nic" \
		"over $nic"
done

topology "two NICs in one subnet, fused" \
	"own_wire; apart; dev_a=eth0+eth1 dev_b=eth0+eth1 moved_mb=100
	nics eth0 s0 10.1.0.10/24 10.1.0.20/24; nics eth1 s0 10.1.0.11/24 10.1.0.21/24" \
	"NCCL_SOCKET_IFNAME=eth" \
	"leaves eth0 eth1"

topology "overlapping masks, fused" \
	"own_wire; apart; dev_a=eth0+eth1 dev_b=eth0+eth1 moved_mb=100
	nics eth0 s0 10.1.1.10/16 10.1.1.20/16; nics eth1 s0 10.1.1.11/24 10.1.1.21/24" \
	"NCCL_SOCKET_IFNAME=eth" \
	"leaves eth0 eth1"

topology "rails in subnets of their own, fused" \
	"own_wire; dev_a=eth0+eth1 dev_b=eth0+eth1 moved_mb=100
	nics eth0 s0 10.1.0.1/24 10.1.0.2/24; nics eth1 s1 10.2.0.1/24 10.2.0.2/24" \
	"NCCL_SOCKET_IFNAME=eth" \
	"over eth0 eth1"

topology "two NICs in one subnet, ARP answers with the other NIC" \
	"own_wire; nics eth0 s0 10.1.0.10/24 10.1.0.20/24; nics eth1 s0 10.1.0.11/24 10.1.0.21/24
	neighbour a eth1 10.1.0.21 b eth0; neighbour b eth1 10.1.0.11 a eth0
	neighbour a eth0 10.1.0.21 b eth0; neighbour b eth0 10.1.0.11 a eth0" \
	"NCCL_SOCKET_IFNAME==eth1" \
	"leaves_or_warns eth1"

topology "two NICs in one subnet, with strict rp_filter" \
	"own_wire; nics eth0 s0 10.1.0.10/24 10.1.0.20/24; nics eth1 s0 10.1.0.11/24 10.1.0.21/24; strict
	neighbour a eth0 10.1.0.21 b eth0; neighbour b eth0 10.1.0.11 a eth0
	neighbour a eth1 10.1.0.21 b eth1; neighbour b eth1 10.1.0.11 a eth1" \
	"NCCL_SOCKET_IFNAME==eth1" \
	"leaves_or_warns eth1"

topology "two NICs in one subnet, each host chooses another" \
	"own_wire; apart; nics eth0 s0 10.1.0.10/24 10.1.0.20/24; nics eth1 s0 10.1.0.11/24 10.1.0.21/24" \
	"a:NCCL_SOCKET_IFNAME==eth0 b:NCCL_SOCKET_IFNAME==eth1" \
	"by a sent eth0; by b sent eth1"

topology "two NICs in one subnet, the second device, no filter" \
	"apart; dev_a=eth1 dev_b=eth1
	nics eth0 s0 10.1.0.10/24 10.1.0.20/24; nics eth1 s0 10.1.0.11/24 10.1.0.21/24" \
	"" \
	"leaves eth1"

for nic in eth0 eth1; do
	topology "two NICs in one subnet of IPv6, $nic chosen" \
		"own_wire; nics eth0 s0 fd01::10/64 fd01::20/64; nics eth1 s0 fd01::11/64 fd01::21/64" \
		"NCCL_SOCKET_IFNAME==$nic" \
		"over $nic"
done

topology "two NICs in one subnet of IPv6, fused" \
	"own_wire; dev_a=eth0+eth1 dev_b=eth0+eth1 moved_mb=100
	nics eth0 s0 fd01::10/64 fd01::20/64; nics eth1 s0 fd01::11/64 fd01::21/64" \
	"NCCL_SOCKET_IFNAME=eth" \
	"leaves eth0 eth1"

topology "two NICs with link-local addresses alone, the second chosen" \
	"own_wire; nics eth0 s0 - -; nics eth1 s0 - -" \
	"NCCL_SOCKET_IFNAME==eth1" \
	"over eth1"

topology "two NICs fused, the peer has one of them" \
	"own_wire; dev_a=eth0+eth1; nics eth0 s0 10.1.0.1/24 10.1.0.2/24; nic a eth1 s1 10.2.0.1/24
	ip_b route add 10.2.0.0/24 via 10.1.0.1" \
	"a:NCCL_SOCKET_IFNAME=eth b:NCCL_SOCKET_IFNAME==eth0" \
	"over eth0"

topology "the peer is reached through the other rail's NIC alone" \
	"own_wire; nics eth0 s0 10.1.0.1/24 10.1.0.2/24; nic a eth1 s1 10.2.0.1/24
	ip_b route add 10.2.0.0/24 via 10.1.0.1" \
	"a:NCCL_SOCKET_IFNAME==eth1 b:NCCL_SOCKET_IFNAME==eth0" \
	"over eth0"

topology "the peer is behind a tunnel" \
	"own_wire; nic a eth0 s0 10.1.0.1/24; nic b eth0 s1 10.2.0.2/24; nics eth9 s2 10.9.0.1/24 10.9.0.2/24
	kind a vx0 type vxlan id 7 remote 10.9.0.2 dstport 4789 dev eth9
	kind b vx0 type vxlan id 7 remote 10.9.0.1 dstport 4789 dev eth9
	ip_ab link set vx0 mtu 1450 up
	ip_a route add 10.2.0.0/24 dev vx0 src 10.1.0.1; ip_b route add 10.1.0.0/24 dev vx0 src 10.2.0.2" \
	"NCCL_SOCKET_IFNAME==eth0" \
	"over eth9 vx0"

topology "rails in routed subnets, each with a rule by source" \
	"own_wire; nic a eth0 s0 10.1.0.1/24; nic a eth1 s1 10.2.0.1/24
	nic b eth0 s2 10.3.0.2/24; nic b eth1 s3 10.4.0.2/24
	router s0=10.1.0.254/24 s1=10.2.0.254/24 s2=10.3.0.254/24 s3=10.4.0.254/24
	ip_a route add default via 10.1.0.254; ip_b route add default via 10.3.0.254
	ip_a rule add from 10.2.0.1 table 100; ip_a route add default via 10.2.0.254 table 100
	ip_b rule add from 10.4.0.2 table 100; ip_b route add default via 10.4.0.254 table 100" \
	"NCCL_SOCKET_IFNAME==eth1" \
	"over eth1"

topology "two NICs in one subnet, each with a rule by source" \
	"own_wire; apart; nics eth0 s0 10.1.0.10/24 10.1.0.20/24; nics eth1 s0 10.1.0.11/24 10.1.0.21/24
	ip_a rule add from 10.1.0.11 table 100; ip_a route add 10.1.0.0/24 dev eth1 table 100
	ip_b rule add from 10.1.0.21 table 100; ip_b route add 10.1.0.0/24 dev eth1 table 100" \
	"NCCL_SOCKET_IFNAME==eth1" \
	"over eth1"

topology "answers come by the other NIC" \
	"own_wire; nics eth0 s0 10.1.0.1/24 10.1.0.2/24; nics eth1 s1 10.2.0.1/24 10.2.0.2/24
	ip_b route add 10.1.0.1 via 10.2.0.1" \
	"NCCL_SOCKET_IFNAME==eth0" \
	"by a sent eth0"

topology "answers come by the other NIC, through a router" \
	"own_wire; nics eth0 s0 10.1.0.1/24 10.3.0.2/24; nics eth1 s1 10.2.0.1/24 10.4.0.2/24
	router s0=10.1.0.254/24 s1=10.2.0.254/24; ip_m addr add 10.3.0.254/24 dev s0
	ip_m addr add 10.4.0.254/24 dev s1; ip_a route add default via 10.1.0.254
	ip_b route add default via 10.4.0.254" \
	"NCCL_SOCKET_IFNAME==eth0" \
	"by a sent eth0; by b sent eth1"

# -- MTU ------------------------------------------------------------------------------------------

topology "a management network beside a fabric of another MTU" \
	"own_wire; nics eth0 s0 10.1.0.1/24 10.1.0.2/24 1500; nics fab0 s1 10.2.0.1/24 10.2.0.2/24 9000" \
	"NCCL_SOCKET_IFNAME=fab" \
	"over fab0; doctor a; never_says 'mtu 9000'"

topology "a management network beside a fabric of another MTU, no filter" \
	"dev_a=fab0 dev_b=fab0
	nics fab0 s1 10.2.0.1/24 10.2.0.2/24 9000; nics eth0 s0 10.1.0.1/24 10.1.0.2/24 1500" \
	"" \
	"devices 'eth0 fab0'; over fab0; doctor a; never_says 'mtu 9000'"

topology "a tunnel of another MTU beside a NIC" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24; tunnel tailscale0 100.64.0.1/32 100.64.0.2/32 1280" \
	"" \
	"over eth0; doctor a; never_says 'mtu 1500'"

topology "a router to a smaller MTU that sends ICMP" \
	"own_wire; nic a eth0 s0 10.1.0.1/24 9000; nic b eth0 s1 10.3.0.2/24 9000; whole_packets eth0
	router s0=10.1.0.254/24 s1=10.3.0.254/24; ip_m link set s1 mtu 1500
	ip_a route add default via 10.1.0.254; ip_b route add default via 10.3.0.254" \
	"NCCL_SOCKET_IFNAME==eth0" \
	"over eth0; never_says '^WARN.*MTU'"

topology "a path drops large packets silently" \
	"own_wire; nics eth0 s0 10.1.0.1/24 10.1.0.2/24 9000 1500; whole_packets eth0" \
	"NCCL_SOCKET_IFNAME==eth0" \
	"over eth0; says MTU"

# -- RDMA -----------------------------------------------------------------------------------------

topology "RDMA beside a management network" \
	"own_wire; nics m0 s0 10.1.0.1/24 10.1.0.2/24; nics eth0 s1 10.2.0.1/24 10.2.0.2/24; rdma eth0" \
	"NCCL_SOCKET_IFNAME=m0" \
	"over; nic_carried 48"

topology "RDMA whose interface takes no TCP, beside a management network" \
	"own_wire; nics m0 s0 10.1.0.1/24 10.1.0.2/24; nics eth0 s1 10.2.0.1/24 10.2.0.2/24; rdma eth0
	firewall a 'iifname eth0 meta l4proto tcp drop'; firewall b 'iifname eth0 meta l4proto tcp drop'" \
	"NCCL_SOCKET_IFNAME=m0" \
	"over; nic_carried 48"

topology "RDMA that has no path and whose interface takes no TCP: management carries" \
	"own_wire; nics m0 s0 10.1.0.1/24 10.1.0.2/24; nics eth0 s1 10.2.0.1/24 10.2.0.2/24
	rdma eth0 net=1 net=2
	firewall a 'iifname eth0 meta l4proto tcp drop'; firewall b 'iifname eth0 meta l4proto tcp drop'" \
	"NCCL_SOCKET_IFNAME=m0" \
	"over m0"

topology "RDMA whose interface refuses TCP, beside a management network" \
	"own_wire; nics m0 s0 10.1.0.1/24 10.1.0.2/24; nics eth0 s1 10.2.0.1/24 10.2.0.2/24; rdma eth0
	firewall a 'iifname eth0 meta l4proto tcp reject with tcp reset'
	firewall b 'iifname eth0 meta l4proto tcp reject with tcp reset'" \
	"NCCL_SOCKET_IFNAME=m0" \
	"over; nic_carried 48"

done_
