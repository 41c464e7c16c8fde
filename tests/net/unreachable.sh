#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# unreachable.sh [WORDS...] - networks in which the peer can't be reached, one a row: what the error
# message says.
#
# topology NAME SET-UP ENVIRONMENT CONDITIONS: see tests/net/fabric.sh.
# shellcheck source=tests/net/fabric.sh
. "$(dirname "$0")/fabric.sh"

# -- addresses of our own --------------------------------------------------------------------------

topology "both hosts have the same bridge and address, and it is chosen" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24; bridge br-0a1b2c3d4e5f 172.18.0.1/16" \
	"NCCL_SOCKET_IFNAME=br- BRAID_CONNECT_TIMEOUT=2" \
	"fails; says 172[.]18[.]0[.]1 'our own|this host' br-0a1b2c3d4e5f NCCL_SOCKET_IFNAME; never_says 'process has ended'"

topology "two containers have the same address, each on a bridge of its host" \
	"own_wire; nic a eth0 s0 172.17.0.2/16; nic b eth0 s1 172.17.0.2/16" \
	"NCCL_SOCKET_IFNAME=eth0 BRAID_CONNECT_TIMEOUT=2" \
	"fails; says 172[.]17[.]0[.]2 'our own|this host' eth0; never_says 'process has ended'"

topology "two containers, each on a bridge of its host" \
	"own_wire; nic a eth0 s0 172.17.0.2/16; nic b eth0 s1 172.17.0.3/16" \
	"NCCL_SOCKET_IFNAME=eth0 BRAID_CONNECT_TIMEOUT=2" \
	"fails; says 'peer 172[.]17[.]0[.][23]' 'no-route'; never_says 'process has ended' 'our own'"

topology "loopback is chosen" \
	"nics eth0 s0 10.1.0.1/24 10.1.0.2/24" \
	"NCCL_SOCKET_IFNAME=lo BRAID_CONNECT_TIMEOUT=2" \
	"fails; says 127[.]0[.]0[.]1 loopback NCCL_SOCKET_IFNAME; never_says 'process has ended'"

# -- firewalls ------------------------------------------------------------------------------------

# blocked NAME SET-UP CONDITIONS - what host a sends to host b is blocked
blocked()
{
	topology "$1" "own_wire; nics eth0 s0 10.1.0.1/24 10.1.0.2/24; pattern=oneway; $2" \
		"NCCL_SOCKET_IFNAME==eth0 BRAID_CONNECT_TIMEOUT=2" "fails; $3"
}

blocked "a firewall drops" \
	"firewall b 'iifname eth0 meta l4proto tcp drop'" \
	"says 'peer 10[.]1[.]0[.]2' firewall 'no-(route|answer)'; never_says peer-ended"

blocked "one port is open, not ours" \
	"firewall b 'iifname eth0 tcp dport != 22 tcp flags syn drop'" \
	"says 'peer 10[.]1[.]0[.]2' firewall 'no-(route|answer)'; never_says peer-ended"

blocked "a firewall answers with resets" \
	"firewall b 'iifname eth0 meta l4proto tcp reject with tcp reset'" \
	"says 'peer 10[.]1[.]0[.]2' firewall"

blocked "a firewall answers that the port is unreachable" \
	"firewall b 'iifname eth0 meta l4proto tcp reject'" \
	"says 'peer 10[.]1[.]0[.]2' firewall"

for why in admin-prohibited host-prohibited host-unreachable; do
	blocked "a firewall answers $why" \
		"firewall b 'iifname eth0 meta l4proto tcp reject with icmp type $why'" \
		"says 'peer 10[.]1[.]0[.]2' firewall; never_says peer-ended"
done

blocked "a firewall of our own drops what goes out" \
	"firewall_out a 'oifname eth0 meta l4proto tcp drop'" \
	"says 'peer 10[.]1[.]0[.]2' firewall"

blocked "a route that prohibits" \
	"ip_a route add prohibit 10.1.0.2" \
	"says 'peer 10[.]1[.]0[.]2' route; never_says token"

blocked "a route that is a black hole" \
	"ip_a route add blackhole 10.1.0.2" \
	"says 'peer 10[.]1[.]0[.]2' route"

topology "a router finds no such host" \
	"own_wire; nic a eth0 s0 10.1.0.1/24; nic b eth0 s1 10.3.0.2/24; pattern=oneway
	router s0=10.1.0.254/24 s1=10.3.0.254/24; sysctl_ m net/ipv4/neigh/s1/mcast_solicit 1
	ip_a route add default via 10.1.0.254; ip_b route add default via 10.3.0.254
	ip_b link set eth0 arp off" \
	"NCCL_SOCKET_IFNAME==eth0 BRAID_CONNECT_TIMEOUT=3" \
	"fails; says 'peer 10[.]3[.]0[.]2' route; never_says 'is there' peer-ended"

# -- one way only ---------------------------------------------------------------------------------

behind_nat="own_wire; nic a eth0 s0 10.1.0.1/24; nic b eth0 s1 192.168.1.2/24
	router s0=10.1.0.254/24 s1=192.168.1.254/24; nat s0 s1
	ip_a route add default via 10.1.0.254; ip_b route add default via 192.168.1.254"

topology "the peer is behind NAT, and only we dial" "$behind_nat; pattern=oneway" \
	"NCCL_SOCKET_IFNAME==eth0 BRAID_CONNECT_TIMEOUT=2" \
	"fails; says 'peer 192[.]168[.]1[.]2' firewall; never_says peer-ended"

topology "we are behind NAT: our connection carries both ways" \
	"own_wire; nic a eth0 s1 192.168.1.1/24; nic b eth0 s0 10.1.0.2/24
	router s0=10.1.0.254/24 s1=192.168.1.254/24; nat s0 s1
	ip_b route add default via 10.1.0.254; ip_a route add default via 192.168.1.254" \
	"NCCL_SOCKET_IFNAME==eth0 BRAID_CONNECT_TIMEOUT=5" \
	"over eth0"

done_
