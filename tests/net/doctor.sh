#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# doctor.sh - braid doctor names what is broken, on real interfaces between two namespaces.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts
wire 9000

# doctor ID OPTIONS... - what the check ID says of host a, in one line.
doctor()
{
	in_a env NCCL_SOCKET_IFNAME==w1 "$braid" doctor --all --only "$@" | tr -s ' \n' ' '
}

# says "WORDS" ID OPTIONS...
says()
{
	words=$1
	shift
	said=$(doctor "$@")
	case $said in
	*"$words"*) ;;
	*) echo "not '$words' but: $said"; return 1 ;;
	esac
}

in_a sh -c 'echo "0 2147483647" >/proc/sys/net/ipv4/ping_group_range' 2>"$tmp/why" ||
	skip "ping_group_range: $(cat "$tmp/why")"

good()
{
	says "ok peer-name" peer --peer 10.77.1.2 &&
		says "10.77.1.2 is reached by w1" peer-route --peer 10.77.1.2 &&
		says "10.77.1.2 answers at port 50007: no firewall" peer-port --peer 10.77.1.2 &&
		says "packets of 9000 bytes arrive at 10.77.1.2" peer-mtu --peer 10.77.1.2
}
case_ "a wire without a fault has none" good

other_way()
{
	says "10.77.0.2 is reached by w0, which NCCL and Braid would not use" peer-route --peer 10.77.0.2
}
case_ "a route by another interface is named" other_way

mtu()
{
	ip -n "$b" link set w1 mtu 1500
	says "MTU mismatch: w1 has MTU 9000, but only 1500 bytes arrive at 10.77.1.2" peer-mtu \
		--peer 10.77.1.2
	rc=$?
	ip -n "$b" link set w1 mtu 9000
	return $rc
}
case_ "a smaller MTU at the other end is found by what arrives" mtu

firewall()
{
	ip -n "$b" route add blackhole 10.77.1.1
	says "a firewall is between: 10.77.1.2 port 50007" peer-port --peer 10.77.1.2 &&
		says "the peer does not answer pings" peer-mtu --peer 10.77.1.2
	rc=$?
	ip -n "$b" route del blackhole 10.77.1.1
	return $rc
}
case_ "a host that answers nothing is behind a firewall" firewall

# Addresses of this host itself, which --peer must not take for another host.
self()
{
	says "10.77.1.1, which is this host itself" peer-self --peer 10.77.1.1 &&
		says "127.0.1.1, which is this host itself" peer-self --peer 127.0.1.1 &&
		says "skip peer-mtu: 127.0.1.1 is this host itself" peer-mtu --peer 127.0.1.1 &&
		says "skip peer-route: 10.77.1.1 is this host itself" peer-route --peer 10.77.1.1
}
case_ "an address of this host, or of loopback, is no other host" self

empty()
{
	says "no host of this network has the address 10.77.1.77, or it is off" peer-port --peer 10.77.1.77
}
case_ "an address that no host has is told from a firewall" empty

# Root may ping also where a sysctl keeps users from it, as in a new namespace.
no_range()
{
	in_a sh -c 'echo "1 0" >/proc/sys/net/ipv4/ping_group_range'
	ip -n "$b" link set w1 mtu 1200
	says "only 1200 bytes arrive at 10.77.1.2" peer-mtu --peer 10.77.1.2
	rc=$?
	ip -n "$b" link set w1 mtu 9000
	in_a sh -c 'echo "0 2147483647" >/proc/sys/net/ipv4/ping_group_range'
	return $rc
}
case_ "the path's MTU is found by root without the sysctl for pings" no_range

nobody()
{
	says "there is no route to 10.99.0.1" peer-route --peer 10.99.0.1
}
case_ "a host without a route is reported as such" nobody

# would OPTIONS... - which interfaces would be used, in one line.
would()
{
	in_a env "$@" "$braid" doctor --all --only net-interface | tr -s ' \n' ' '
}

# doctor names the interfaces that the plugin chooses in the same environment.
like_the_plugin()
{
	in_a ip link add br-0a1b type bridge forward_delay 0
	in_a ip link add p0 type veth peer name p1
	in_a ip link set p0 master br-0a1b
	in_a ip addr add 172.18.0.1/16 dev br-0a1b
	for i in p0 p1 br-0a1b; do in_a ip link set $i up; done
	ready "$a" br-0a1b
	said=$(would A=1)
	listed=$(in_a "$braid" info --plugin "$plugin" 2>&1 | sed -n 's/^device [0-9]* *//p' |
		tr '\n' ' ')
	in_a ip link del br-0a1b
	in_a ip link del p0
	echo "doctor: $said; the plugin: $listed"
	[ "$listed" = "w0 w1 " ] || return 1
	case $said in
	*"ok net-interface: w0, w1 would be used"*) ;;
	*) return 1 ;;
	esac
}
case_ "a bridge that leads to no other host is left, as by the plugin" like_the_plugin

no_address()
{
	said=$(would NCCL_SOCKET_IFNAME==w1 BRAID_ADDRESS=10.99.0.0/16)
	echo "$said"
	case $said in
	*"BRAID_ADDRESS=10.99.0.0/16 leaves no interface that has an address"*"unset BRAID_ADDRESS"*) ;;
	*) return 1 ;;
	esac
	said=$(would NCCL_SOCKET_IFNAME==w1 BRAID_ADDRESS=10.77.1.0/24)
	echo "$said"
	case $said in
	*"w1 would be used"*) ;;
	*) return 1 ;;
	esac
}
case_ "BRAID_ADDRESS that leaves no address is named" no_address

flaps()
{
	for i in 1 2 3 4 5; do
		ip -n "$b" link set w1 down
		sleep 0.05
		ip -n "$b" link set w1 up
		ready "$a" w1
	done
	says "w1 flaps: its link was lost" net-flaps
}
case_ "a link that comes and goes is named" flaps

done_
