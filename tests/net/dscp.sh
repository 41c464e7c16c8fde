#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# dscp.sh - BRAID_DSCP is set on the sockets and in the packets on the wire.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts
wire 1500
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_DSCP=26 BRAID_LANES=2"

# Every stream of Braid's has this DSCP (0x68 is 26 << 2).
on_sockets()
{
	for ns in "$a" "$b"; do
		marks=$(ip netns exec "$ns" ss -HtnO --tos state established | grep -v '10\.77\.0\.' |
			grep -oE 't(os|class):0x[0-9a-f]+' | sort | uniq -c)
		case $marks in
		*:0x68*:*) echo "several: $marks"; return 1 ;;
		*:0x68) ;;
		*) echo "not 0x68: $marks"; return 1 ;;
		esac
	done
}

# The packets that carry data: 200 of them with the mark, none without.
on_wire()			# FILTER OF MARKED ONES
{
	in_b timeout 5 tcpdump -nn -q -i w1 -c 200 -w "$tmp/marked" "tcp and greater 500 and $1" \
		2>"$tmp/dump" || { cat "$tmp/dump"; return 1; }
	in_b timeout 1 tcpdump -nn -q -i w1 -c 1 "tcp and greater 500 and not ($1)" \
		>"$tmp/unmarked" 2>/dev/null
	! grep . "$tmp/unmarked"
}

if ss -HtnO --tos state established >/dev/null 2>&1; then
	case_ "IPv4: on the sockets" while_talking on_sockets
else
	no_case "IPv4: on the sockets" "this ss has no --tos"
fi
talk_s=5
if command -v tcpdump >/dev/null; then
	case_ "IPv4: on the wire" while_talking on_wire 'ip[1] & 0xfc == 0x68'
else
	no_case "IPv4: on the wire" "tcpdump is not installed"
fi
if ! has_ipv6; then
	no_case "IPv6: on the wire" "the kernel has no IPv6"
elif command -v tcpdump >/dev/null; then
	ip -n "$a" addr add 2001:db8::1/64 dev w1 nodad
	ip -n "$b" addr add 2001:db8::2/64 dev w1 nodad
	env_both="$env_both BRAID_SOCKET_FAMILY=AF_INET6"
	case_ "IPv6: on the wire" while_talking on_wire 'ip6[0:2] & 0x0fc0 == 0x0680'
else
	no_case "IPv6: on the wire" "tcpdump is not installed"
fi
done_
