#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# bind.sh - which addresses Braid's sockets are on: those of the chosen interface, never all.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts
wire 1500
wire 1500

# perf listens on its own wire and Braid on w1; no socket listens on w2 or on all addresses.
listeners()
{
	for ns in "$a" "$b"; do
		all=$(ip netns exec "$ns" ss -Hltn | awk '{ print $4 }' | grep -v '^10\.77\.0\.')
		[ -n "$all" ] || { echo "nobody listens"; return 1; }
		if echo "$all" | grep -v '^10\.77\.1\.'; then
			return 1
		fi
	done
}

# Every stream but perf's own has both ends on w1.
streams()
{
	for ns in "$a" "$b"; do
		all=$(ip netns exec "$ns" ss -Htn state established | awk '{ print $3, $4 }' |
			grep -v '^10\.77\.0\.')
		[ -n "$all" ] || { echo "no streams"; return 1; }
		if echo "$all" | grep -vE '^10\.77\.1\.[12]:[0-9]+ 10\.77\.1\.[12]:[0-9]+$'; then
			return 1
		fi
	done
}

# Host b could reach host a over w2 as well.  Braid must dial from w1's address all the same.
ip -n "$b" route add 10.77.1.1/32 via 10.77.2.1 dev w2

env_both="BRAID_SOCKET_IFNAME==w1"
case_ "listens on the chosen interface's address alone" while_talking listeners
case_ "streams are between the chosen interfaces' addresses" while_talking streams
env_both="$env_both BRAID_LANES=4"
case_ "all lanes are between the chosen interfaces' addresses" while_talking streams
env_both="NCCL_SOCKET_IFNAME==w1"
case_ "NCCL_SOCKET_IFNAME chooses the streams' interface too" while_talking streams
env_both="NCCL_SOCKET_IFNAME==w2 BRAID_SOCKET_IFNAME==w1"
case_ "BRAID_SOCKET_IFNAME comes before NCCL_SOCKET_IFNAME" while_talking listeners

# A program that connects from the other wire finds no listener there.
knocked()
{
	port=$(in_b ss -Hltn | awk '{ print $4 }' | sed -n 's/^10\.77\.1\.2://p' | head -n 1)
	[ -n "$port" ] || return 1
	! in_a timeout 5 bash -c "exec 9<>/dev/tcp/10.77.2.2/$port" &&
		in_a timeout 5 bash -c "exec 9<>/dev/tcp/10.77.1.2/$port"
}
if command -v bash >/dev/null; then
	case_ "the other interface's address refuses the same port" while_talking knocked
else
	no_case "the other interface's address refuses the same port" "bash is not installed"
fi
done_
