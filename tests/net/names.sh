#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# names.sh - which interfaces become devices: NCCL's order, its filter, and VLANs and the like.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts

# devices [VARIABLE=VALUE...] - the devices' names on host a, on one line.
devices()
{
	in_a env "$@" "$braid" info --plugin "$plugin" | sed -n 's/^device [0-9]* *//p' | tr '\n' ' '
}

are()				# NAMES [VARIABLE=VALUE...]
{
	want=$1
	shift
	got=$(devices "$@")
	[ "$got" = "$want " ] || { echo "devices are '$got', not '$want'"; return 1; }
}

veth()				# NAME ADDRESS; its other end is of no use and in b
{
	ip link add "$1" netns "$a" type veth peer name "$1" netns "$b"
	ip -n "$b" link set "$1" up
	ip -n "$a" addr add "$2/24" dev "$1"
	ip -n "$a" link set "$1" up
	ready "$a" "$1"
}

ip -n "$a" link set w0 down
case_ "loopback is chosen where there is nothing else" are lo
veth virbr7 10.78.5.1
case_ "a bridge of virtual machines comes after loopback" are lo
veth docker7 10.78.4.1
case_ "docker's bridge comes before loopback" are docker7
veth eth7 10.78.3.1
veth eth8 10.78.6.1
case_ "all other interfaces come before docker's" are "eth7 eth8"
veth ib7 10.78.2.1
case_ "ib comes before the others" are ib7

case_ "a prefix chooses" are "eth7 eth8" NCCL_SOCKET_IFNAME=eth
case_ "a list of prefixes chooses" are "eth8 ib7" NCCL_SOCKET_IFNAME=ib,eth8
case_ "marks before each name are one before the first" are "eth7 eth8" NCCL_SOCKET_IFNAME="=eth7,=eth8"
case_ "quotes do not count" are "eth8 ib7" NCCL_SOCKET_IFNAME="'ib','eth8'"
if ip -n "$a" link property add dev eth8 altname fabric-port-of-rack-17 2>"$tmp/why"; then
	case_ "an alternative name is its interface" are eth8 NCCL_SOCKET_IFNAME=fabric-port-of-rack-17
	case_ "an alternative name may be a whole name, and one of several" are "eth8 ib7" \
		NCCL_SOCKET_IFNAME="=ib7,fabric-port-of-rack-17"
	case_ "an alternative name excludes its interface" are eth7 \
		NCCL_SOCKET_IFNAME="^fabric-port-of-rack-17,ib,docker,virbr,lo"
else
	no_case "an alternative name is its interface" "ip link property add: $(cat "$tmp/why")"
fi
case_ "= wants the whole name" are eth7 NCCL_SOCKET_IFNAME==eth7
case_ "^ leaves out" are "eth7 eth8" NCCL_SOCKET_IFNAME=^ib,docker,lo,virbr
case_ "BRAID_SOCKET_IFNAME comes before NCCL's" are docker7 NCCL_SOCKET_IFNAME=eth \
	BRAID_SOCKET_IFNAME=docker

none()				# VARIABLE=VALUE...
{
	in_a env "$@" "$braid" info --plugin "$plugin" >"$tmp/none" 2>&1
	grep -q '^no devices' "$tmp/none" && grep -q "'${1#*=}'" "$tmp/none"
}
case_ "a filter that nothing matches is an error with its text" none BRAID_SOCKET_IFNAME=nosuch
ip -n "$a" link set eth8 down
case_ "an interface that is down is no device" are eth7 NCCL_SOCKET_IFNAME=eth
ip -n "$a" addr flush dev eth7
ip -n "$a" addr add 10.78.3.1/24 dev eth7 label eth7:1
case_ "an alias is its interface" are eth7 NCCL_SOCKET_IFNAME=eth
ip -n "$a" link set eth7 name a-15-chars-name
ip -n "$a" link set a-15-chars-name up
case_ "the longest name there can be" are a-15-chars-name NCCL_SOCKET_IFNAME=a-15

# Data goes over an interface of KIND on top of a wire, if the kernel has that kind.
over()				# KIND
{
	env_both="BRAID_SOCKET_IFNAME==t$1"
	checked --sizes 8,64k,1m && checked --pattern allreduce --sizes 100,1m
}

for kind in vlan macvlan ipvlan bond bridge; do
	wire 1500
	last=w$((wires - 1))
	why=
	for host in 1 2; do
		[ $host = 1 ] && ns=$a || ns=$b
		addr=10.79.$wires.$host/24
		ip -n "$ns" addr flush dev $last
		case $kind in
		vlan)
			ip -n "$ns" link add link $last name tvlan type vlan id 77
			;;
		macvlan | ipvlan)
			ip -n "$ns" link add link $last name t$kind type $kind
			;;
		bond)
			ip -n "$ns" link add tbond type bond
			;;
		bridge)
			ip -n "$ns" link add tbridge type bridge forward_delay 0
			;;
		esac 2>"$tmp/why" || { why=$(cat "$tmp/why"); break; }
		case $kind in
		bond | bridge)
			ip -n "$ns" link set $last down
			ip -n "$ns" link set $last master t$kind
			ip -n "$ns" link set $last up
			;;
		esac
		ip -n "$ns" addr add "$addr" dev t$kind
		ip -n "$ns" link set t$kind up
	done
	[ -n "$why" ] || ready "$a" t$kind
	[ -n "$why" ] || ready "$b" t$kind
	if [ -n "$why" ]; then
		no_case "data over a $kind" "this kernel has none: $why"
	else
		ip -n "$a" link set w0 up
		case_ "data over a $kind" over $kind
	fi
done
done_
