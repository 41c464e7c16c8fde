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

topology "docker0 beside a NIC" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24; bridge docker0 172.17.0.1/16" \
	"" \
	"devices eth0; over eth0"

topology "a bridge of docker compose beside a NIC" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24; bridge br-0a1b2c3d4e5f 172.18.0.1/16" \
	"" \
	"devices eth0; over eth0"

topology "a CNI bridge of 60 pods beside a NIC" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24; bridge cni0 10.244.0.1/24; pods 60 veth cni0" \
	"" \
	"devices eth0; over eth0"

topology "flannel's vxlan beside a NIC" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24; bridge cni0 10.244.0.1/24
	kind a flannel.1 type vxlan id 1 dev eth0 local 10.1.0.1 dstport 8472 nolearning
	kind b flannel.1 type vxlan id 1 dev eth0 local 10.1.0.2 dstport 8472 nolearning
	ip_a addr add 10.244.0.0/32 dev flannel.1; ip_b addr add 10.244.1.0/32 dev flannel.1
	ip_ab link set flannel.1 up" \
	"" \
	"devices eth0; over eth0"

topology "60 pods of Calico, with link-local addresses, beside a NIC" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24; pods 60 cali" \
	"" \
	"devices eth0; over eth0"

topology "a VPN's tunnel beside a NIC" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24; tunnel tailscale0 100.64.0.1/32 100.64.0.2/32" \
	"" \
	"devices eth0; over eth0"

topology "a bridge that has the host's address, with the NIC as its port" \
	"nics eth0 s0 - -; over_nic a br0 bridge eth0 10.1.0.1/24; over_nic b br0 bridge eth0 10.1.0.2/24
	bridge docker0 172.17.0.1/16" \
	"" \
	"devices br0; over br0 eth0"

topology "a NIC without a carrier beside one that has it" \
	"nics eth1 s1 10.2.0.1/24 10.2.0.2/24; nics eth0 s0 10.1.0.1/24 10.1.0.2/24
	ip_m link set a.eth0 down; ip_m link set b.eth0 down; sleep 0.1" \
	"" \
	"devices eth1; over eth1"

topology "a link-local NIC beside a routable one" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24; nics eth1 s1 - -" \
	"" \
	"devices eth0; over eth0"

topology "a management controller's 169.254 beside a NIC" \
	"nics enp0s20f0u1 s1 169.254.3.1/24 169.254.3.1/24; nics eth0 s0 10.1.0.1/24 10.1.0.2/24
	control=10.1.0.2" \
	"" \
	"devices eth0; over eth0"

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

for kind in vlan macvlan ipvlan bond; do
	topology "a $kind on a NIC that has no address" \
		"apart; nics eth0 s0 - -
		over_nic a data $kind eth0 10.1.0.1/24; over_nic b data $kind eth0 10.1.0.2/24" \
		"" \
		"devices data; over data eth0"
done

# A VRF's device counts as received what its NICs receive.
in_vrfs="own_wire; nics eth0 s0 - -; in_vrf a blue eth0 10.1.0.1/24; in_vrf b blue eth0 10.1.0.2/24"

topology "a NIC in a vrf" \
	"$in_vrfs" \
	"NCCL_SOCKET_IFNAME==eth0" \
	"devices eth0; leaves eth0; never_says not-by-device"

topology "a NIC in a vrf, while other routes have a gateway" \
	"$in_vrfs; ip_a route add default via 10.77.0.2; ip_b route add default via 10.77.0.1" \
	"NCCL_SOCKET_IFNAME==eth0" \
	"leaves eth0"

topology "a NIC in a vrf, the peer behind a router" \
	"own_wire; nics eth0 s0 - -; in_vrf a blue eth0 10.1.0.1/24; in_vrf b blue eth0 10.3.0.2/24
	router s0=10.1.0.254/24 s0=10.3.0.254/24
	ip_a route add default via 10.1.0.254 table 10; ip_b route add default via 10.3.0.254 table 10" \
	"NCCL_SOCKET_IFNAME==eth0" \
	"leaves eth0"

topology "a NIC in a vrf, with IPv6 alone" \
	"own_wire; nics eth0 s0 - -; in_vrf a blue eth0 fd01::1/64; in_vrf b blue eth0 fd01::2/64" \
	"NCCL_SOCKET_IFNAME==eth0" \
	"leaves eth0"

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

topology "an address on loopback, with routes to it, as BGP to the host has it" \
	"own_wire; nics eth0 s0 10.9.0.1/24 10.9.0.2/24
	ip_a addr add 10.5.5.1/32 dev lo; ip_b addr add 10.5.5.2/32 dev lo
	ip_a route add 10.5.5.2 via 10.9.0.2; ip_b route add 10.5.5.1 via 10.9.0.1" \
	"NCCL_SOCKET_IFNAME=lo" \
	"address a lo 10.5.5.1; address b lo 10.5.5.2; over eth0"

topology "an address on loopback, and NICs with link-local addresses only" \
	"own_wire; nics eth0 s0 fe80::a/64 fe80::b/64
	ip_a addr add 10.5.5.1/32 dev lo; ip_b addr add 10.5.5.2/32 dev lo
	ip_a route add 10.5.5.2 via inet6 fe80::b dev eth0 src 10.5.5.1
	ip_b route add 10.5.5.1 via inet6 fe80::a dev eth0 src 10.5.5.2" \
	"NCCL_SOCKET_IFNAME=lo" \
	"address a lo 10.5.5.1; over eth0"

topology "a virtual address of another network comes first" \
	"nics eth0 s0 10.6.0.100/32,10.1.0.1/24 10.6.0.101/32,10.1.0.2/24; control=10.1.0.2" \
	"" \
	"address a eth0 10.1.0.1; address b eth0 10.1.0.2; over eth0"

topology "a virtual address of the same network comes first" \
	"nics eth0 s0 10.1.0.100/32,10.1.0.1/24 10.1.0.101/32,10.1.0.2/24; control=10.1.0.2" \
	"" \
	"address a eth0 10.1.0.1; address b eth0 10.1.0.2; over eth0"

topology "a virtual address comes second" \
	"nics eth0 s0 10.1.0.1/24,10.1.0.100/32 10.1.0.2/24,10.1.0.101/32" \
	"" \
	"address a eth0 10.1.0.1; address b eth0 10.1.0.2; over eth0"

topology "several addresses, the peer in the subnet of the second" \
	"nics eth0 s0 10.1.0.1/24,10.2.0.1/24 10.2.0.2/24" \
	"" \
	"over eth0"

topology "several addresses on both hosts, the second in common" \
	"nics eth0 s0 10.1.0.1/24,10.2.0.1/24 10.3.0.2/24,10.2.0.2/24; control=10.2.0.2" \
	"" \
	"over eth0"

topology "a cloud's /32 with a gateway on the link, beside docker0" \
	"nics eth0 s0 10.128.0.2/32 10.128.0.3/32; router s0=10.128.0.1/24; bridge br-d0c4e7 172.18.0.1/16
	ip_ab route add 10.128.0.1 dev eth0; ip_ab route add default via 10.128.0.1" \
	"" \
	"devices eth0; over eth0"

topology "a point-to-point address" \
	"nics eth0 s0 10.1.0.1+10.1.0.2/32 10.1.0.2+10.1.0.1/32" \
	"" \
	"over eth0"

# -- IP versions ----------------------------------------------------------------------------------

topology "IPv6 alone" \
	"nics eth0 s0 fd01::1/64 fd01::2/64" \
	"" \
	"devices eth0; over eth0"

topology "both versions, the peer has IPv6 alone" \
	"nics eth0 s0 10.1.0.1/24,fd01::1/64 fd01::2/64" \
	"" \
	"over eth0"

topology "both versions, the peer has IPv4 alone" \
	"nics eth0 s0 10.1.0.1/24,fd01::1/64 10.1.0.2/24" \
	"" \
	"over eth0"

topology "both versions, but only IPv6 has a way" \
	"nics eth0 s0 10.1.0.1/24,fd01::1/64 192.168.7.2/24,fd01::2/64; control=[fd01::2]" \
	"" \
	"over eth0"

topology "IPv6 addresses that are still tentative at the start" \
	"own_wire; nics eth0 s0 - -; tentative a eth0 fd01::1/64; tentative b eth0 fd01::2/64" \
	"NCCL_SOCKET_IFNAME=eth0" \
	"over eth0; address a eth0 fd01::1; address b eth0 fd01::2"

topology "link-local addresses alone" \
	"own_wire; nics eth0 s0 - -" \
	"NCCL_SOCKET_IFNAME=eth0" \
	"devices eth0; over eth0"

done_
