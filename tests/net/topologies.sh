#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# topologies.sh [WORDS...] - networks of all kinds, one a row: which interfaces are devices, which
# address is used, and which interface's counters move.
#
# topology NAME SET-UP ENVIRONMENT CONDITIONS: see tests/net/fabric.sh.
# shellcheck source=tests/net/fabric.sh
. "$(dirname "$0")/fabric.sh"

# -- interfaces that reach no other host -----------------------------------------------------------

topology "one NIC" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24" \
	"" \
	"devices eth0; over eth0"

topology "a NIC without a carrier beside one that has it" \
	"nics eth1 s1 10.2.0.1/24 10.2.0.2/24; nics eth0 s0 10.1.0.1/24 10.1.0.2/24
	ip_m link set a.eth0 down; ip_m link set b.eth0 down; sleep 0.1" \
	"" \
	"devices eth1; over eth1"

topology "a service network's dummy beside a NIC" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24
	kind a kube-ipvs0 type dummy; kind b kube-ipvs0 type dummy
	ip_ab addr add 10.96.0.1/32 dev kube-ipvs0; ip_ab link set kube-ipvs0 up" \
	"" \
	"devices eth0; over eth0"

# -- hosts with virtual interfaces only ------------------------------------------------------------

for kind in macvlan ipvlan; do
	topology "a pod with nothing but a $kind" \
		"pod_of a eth0 $kind 10.1.0.1/24; pod_of b eth0 $kind 10.1.0.2/24" \
		"" \
		"devices eth0; over eth0"
done

topology "nothing but a tunnel's interface has an address" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24; own_wire
	kind a vx0 type vxlan id 7 remote 10.1.0.2 dstport 4789 dev eth0
	kind b vx0 type vxlan id 7 remote 10.1.0.1 dstport 4789 dev eth0
	ip_a addr add 10.7.0.1/24 dev vx0; ip_b addr add 10.7.0.2/24 dev vx0; ip_ab link set vx0 mtu 1450 up" \
	"NCCL_SOCKET_IFNAME==vx0" \
	"devices vx0; over eth0 vx0"

# -- which address of an interface -----------------------------------------------------------------

topology "a second NIC that has the same address on both hosts" \
	"nics eth0 s0 10.0.1.3/24 10.0.1.4/24; nic a eth1 s1 172.18.0.3/16; nic b eth1 s2 172.18.0.3/16
	control=10.0.1.4" \
	"" \
	"over eth0"

topology "a virtual address comes second" \
	"nics eth0 s0 10.1.0.1/24,10.1.0.100/32 10.1.0.2/24,10.1.0.101/32" \
	"" \
	"address a eth0 10.1.0.1; address b eth0 10.1.0.2; over eth0"

topology "a point-to-point address" \
	"nics eth0 s0 10.1.0.1+10.1.0.2/32 10.1.0.2+10.1.0.1/32" \
	"" \
	"over eth0"

# -- IP versions ----------------------------------------------------------------------------------

topology "IPv6 alone" \
	"nics eth0 s0 fd01::1/64 fd01::2/64" \
	"" \
	"devices eth0; over eth0"

topology "both versions, the peer has IPv4 alone" \
	"nics eth0 s0 10.1.0.1/24,fd01::1/64 10.1.0.2/24" \
	"" \
	"over eth0"

topology "link-local addresses alone" \
	"own_wire; nics eth0 s0 - -" \
	"NCCL_SOCKET_IFNAME=eth0" \
	"devices eth0; over eth0"

done_
