#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ipv6.sh - connections between global addresses, and between link-local ones, which need a scope id.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts
has_ipv6 || skip "the kernel has no IPv6"
wire 1500
wire 9000

# Both ends of every connection but perf's own have an address with this prefix.
only()				# PREFIX
{
	streams=$(in_a ss -Htn state established; in_b ss -Htn state established)
	streams=$(echo "$streams" | grep -v '10\.77\.0\.')
	[ -n "$streams" ] || return 1
	! echo "$streams" | grep -vE "\[$1[^ ]* +\[$1"
}

for w in 1 2; do
	mtu=$(in_a cat /sys/class/net/w$w/mtu)
	ip -n "$a" addr del 10.77.$w.1/24 dev w$w
	ip -n "$b" addr del 10.77.$w.2/24 dev w$w

	env_both="BRAID_SOCKET_FAMILY=AF_INET6 BRAID_SOCKET_IFNAME==w$w"
	case_ "MTU $mtu: link-local addresses are used where there are no others" while_talking only fe80:
	case_ "MTU $mtu: link-local: pingpong" checked --sizes 1,8,64k,1m
	case_ "MTU $mtu: link-local: ring allreduce over 4 processes" \
		checked --pattern allreduce --procs 4 --sizes 100,3m

	ip -n "$a" addr add fd77:$w::1/64 dev w$w nodad
	ip -n "$b" addr add fd77:$w::2/64 dev w$w nodad
	case_ "MTU $mtu: unique local addresses come before link-local ones" while_talking only "fd77:$w:"
	case_ "MTU $mtu: unique local: ring allreduce" checked --pattern allreduce --sizes 4,64k,4m

	ip -n "$a" addr add 2001:db8:$w::1/64 dev w$w nodad
	ip -n "$b" addr add 2001:db8:$w::2/64 dev w$w nodad
	case_ "MTU $mtu: global addresses come before both" while_talking only "2001:db8:$w:"
	case_ "MTU $mtu: global: pingpong" checked --sizes 1,8,64k,1m
	case_ "MTU $mtu: global: ring allreduce over 4 processes" \
		checked --pattern allreduce --procs 4 --sizes 100,3m
	env_both="BRAID_SOCKET_IFNAME==w$w"
	case_ "MTU $mtu: without IPv4 IPv6 is taken unasked" while_talking only "2001:db8:$w:"
done

# The two hosts are set to different address families.
ip -n "$a" addr add 10.77.1.1/24 dev w1
ip -n "$b" addr add 10.77.1.2/24 dev w1
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_SOCKET_FAMILY=AF_INET"
env_a="BRAID_SOCKET_FAMILY=AF_INET6"
refused()
{
	! talk --sizes 8 >/dev/null && grep -q 'NCCL_SOCKET_FAMILY on both hosts' "$tmp/err" "$tmp/err.b"
}
case_ "no family in common is an error that says so" refused
done_
