#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# peer.sh - braid info --peer: the interfaces and addresses for a peer, in order, from routes alone.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts
wire 1500
wire 1500
ip -n "$a" addr add 10.5.5.1/32 dev w1

# says INTERFACES HOST LINE... - on host a, braid info --peer HOST prints each of these lines.
says()
{
	in_a env NCCL_SOCKET_IFNAME="$1" "$braid" info --plugin "$plugin" --peer "$2" >"$tmp/peer" ||
		return 1
	shift 2
	for line; do
		grep -qF "$line" "$tmp/peer" || { cat "$tmp/peer"; echo "no line: $line"; return 1; }
	done
}

case_ "the subnet that both have comes first" says =w1 10.77.1.2 \
	"  1  10.77.1.1 of w1 to 10.77.1.2: in one subnet"
case_ "a peer that another interface leads to is named" says =w1 10.77.2.2 \
	"  1  10.77.1.1 of w1 to 10.77.2.2: the route leads there by another interface"
case_ "a host without a route is named" says =w1 10.99.0.1 \
	"  1  10.77.1.1 of w1 to 10.99.0.1: no route"
ip -n "$a" route add 10.99.0.0/24 via 10.77.1.2
case_ "a route counts" says =w1 10.99.0.1 "  1  10.77.1.1 of w1 to 10.99.0.1: by a route"
ip -n "$a" addr add 10.77.1.9/24 dev w2
case_ "an interface in the subnet of another is bound to" says =w2 10.77.1.2 \
	"  1  10.77.1.9 of w2 to 10.77.1.2: in one subnet; bound to it"
done_
