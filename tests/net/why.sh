#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# why.sh - each way in which a connect can fail between two hosts names its own cause, and no other.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts
wire 1500
both="BRAID_SOCKET_IFNAME==w1"

# says REGEX... - a's connect to b fails. Each REGEX is found in what both print to stderr; one with a
# leading ! is not.
says()
{
	if talk --pattern oneway --sizes 8 >/dev/null; then
		echo "it went through"
		return 1
	fi
	cat "$tmp/err" "$tmp/err.b" >"$tmp/both"
	for word; do
		case $word in
		!*) ! grep -q "${word#!}" "$tmp/both" ;;
		*) grep -q "$word" "$tmp/both" ;;
		esac || { echo "not so: $word"; cat "$tmp/both"; return 1; }
	done
}

# Gives that verdict to the SYNs that arrive on w1.
firewall()			# NETNS VERDICT...
{
	ns=$1
	shift
	ip netns exec "$ns" nft add table inet t 2>"$tmp/why" &&
	ip netns exec "$ns" nft add chain inet t in '{ type filter hook input priority 0; }' &&
	ip netns exec "$ns" nft add rule inet t in iifname w1 tcp flags '& (syn|ack) == syn' "$@"
}

no_firewall()
{
	ip netns exec "$1" nft delete table inet t
}

env_both="$both BRAID_CONNECT_TIMEOUT=2"
case_ "all is well at first" checked --sizes 8

if command -v nft >/dev/null && firewall "$b" drop; then
	case_ "a firewall that drops" says 'no connection within 2 s.*firewall drops it.*\[no-route\]'
	no_firewall "$b"
	firewall "$b" reject with icmpx type admin-prohibited
	case_ "a firewall that rejects by ICMP, as firewalld does" \
		says 'a firewall rejects.*\[firewall-rejects\]' '!check the route' '!wrong-token'
	no_firewall "$b"
	firewall "$b" reject with tcp reset
	case_ "a firewall that resets is no peer that ended" \
		says 'refuses: the peer has ended, or a firewall or NAT.*\[connection-refused\]'
	no_firewall "$b"
else
	no_case "a firewall" "nft is not to be had: $(head -n 1 "$tmp/why" 2>/dev/null)"
fi

ip -n "$a" route add blackhole 10.77.1.2/32
case_ "a route that is a blackhole" says 'Invalid argument; check the route.*\[no-route\]'
ip -n "$a" route del blackhole 10.77.1.2/32
ip -n "$a" route add prohibit 10.77.1.2/32
case_ "a route that prohibits is no wrong token" \
	says 'this host forbids.*\[forbidden-here\]' '!wrong-token'
ip -n "$a" route del prohibit 10.77.1.2/32

# Each host has the same address for itself, as with NCCL_SOCKET_IFNAME=br- or lo.
env_both="BRAID_SOCKET_IFNAME==lo BRAID_CONNECT_TIMEOUT=2"
case_ "loopback leads to this host, and the variable is named" \
	says '127\.0\.0\.1.*loopback address (BRAID_SOCKET_IFNAME==lo.*\[own-address\]' \
	'!nobody listens'
for ns in "$a" "$b"; do
	ip -n "$ns" link add br-0a1b type veth peer name port
	ip -n "$ns" link set port up
	ip -n "$ns" addr add 172.18.0.1/16 dev br-0a1b
	ip -n "$ns" link set br-0a1b up
done
env_both="NCCL_SOCKET_IFNAME=br- BRAID_CONNECT_TIMEOUT=2"
case_ "an address that both hosts have" \
	says "172\.18\.0\.1.*this host's own address, of br-0a1b (NCCL_SOCKET_IFNAME=br-.*\[own-address\]" \
	'!nobody listens'

# braid perf must wait as long as the plugin does.
env_both="$both BRAID_CONNECT_TIMEOUT=22"
ip -n "$b" route add blackhole 10.77.1.1/32
case_ "braid perf does not give up before BRAID_CONNECT_TIMEOUT" \
	says 'no connection within 22 s.*\[no-route\]'
ip -n "$b" route del blackhole 10.77.1.1/32

env_both="$both BRAID_CONNECT_TIMEOUT=7"
ip -n "$a" neigh flush dev w1
ip -n "$b" link set w1 arp off
case_ "a host that is not on that network" \
	says 'no host has the address 10\.77\.1\.2.*\[no-route\]' '!firewall'
ip -n "$b" link set w1 arp on

if has_ipv6 && firewall "$b" reject with icmpx type admin-prohibited; then
	ip -n "$a" addr add fd77::1/64 dev w1 nodad
	ip -n "$b" addr add fd77::2/64 dev w1 nodad
	env_both="$both BRAID_CONNECT_TIMEOUT=2 NCCL_SOCKET_FAMILY=AF_INET6"
	case_ "a firewall that rejects IPv6 is no wrong token" \
		says 'a firewall rejects.*\[firewall-rejects\]' '!wrong-token'
	no_firewall "$b"
else
	no_case "a firewall that rejects IPv6" "no IPv6, or no nft"
fi

# A switch without jumbo frames, between two interfaces that have them, drops packets silently.
black_hole()
{
	checked --pattern oneway --sizes 256k --seconds 3 --verbose || return 1
	grep -q 'packets with [0-9]* bytes were all lost.*is the MTU.*\[mtu-black-hole\]' "$tmp/err" ||
		{ cat "$tmp/err"; return 1; }
}

wire 9000
if ip -n "$a" link set w2 gso_max_segs 1 2>/dev/null && ip -n "$b" link set w2 gso_max_segs 1 &&
	in_b nft add table inet t 2>/dev/null &&
	in_b nft add chain inet t in '{ type filter hook input priority 0; }' &&
	in_b nft add rule inet t in iifname w2 meta length gt 1500 drop; then
	env_both="BRAID_SOCKET_IFNAME==w2 BRAID_LANES=1"
	case_ "a path that loses large packets is reported as such, and small ones go" black_hole
	no_firewall "$b"
else
	no_case "a path that loses large packets" "no nft, or no gso_max_segs"
fi
done_
