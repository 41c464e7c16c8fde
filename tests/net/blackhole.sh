#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# blackhole.sh - no answer comes from the other host, because of a firewall or a wrong route.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts
wire 1500
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_CONNECT_TIMEOUT=2"

# connect() from a to b fails in time, with WORD in the message.
fails()				# WORD MOST-MS
{
	from=$(now_ms)
	if talk --pattern oneway --sizes 8 --timeout 30 >/dev/null; then
		echo "it went through"
		return 1
	fi
	took=$(($(now_ms) - from))
	cat "$tmp/err" "$tmp/err.b" >"$tmp/both"
	echo "took $took ms"
	[ $took -lt $(($2 * slow)) ] && grep -q "$1" "$tmp/both" || { cat "$tmp/both"; return 1; }
}

case_ "all is well at first" checked --sizes 8

ip -n "$a" route add blackhole 10.77.1.2/32
case_ "no route at our end is an error in time" fails 'peer 10\.77\.1\.2:.*BRAID_CONNECT_TIMEOUT' 10000
ip -n "$a" route del blackhole 10.77.1.2/32

ip -n "$b" route add blackhole 10.77.1.1/32
case_ "SYNs without an answer are an error in time" \
	fails 'peer 10\.77\.1\.2:.*BRAID_CONNECT_TIMEOUT' 10000
ip -n "$b" route del blackhole 10.77.1.1/32

# Perf's control wire has no firewall.
silent_here()			# PATTERN - the link ends, and its line names the path
{
	env_both="BRAID_SOCKET_IFNAME==w1 BRAID_PEER_TIMEOUT=5"
	talk --pattern "$1" --sizes 64k --seconds 60 --warmup 0 >/dev/null 2>&1 &
	talker=$!
	until flows; do
		kill -0 $talker 2>/dev/null || { cat "$tmp/err"; return 1; }
	done
	in_a nft -f - <<-END
	table inet hole {
		chain out {
			type filter hook output priority 0;
			oifname w1 drop
		}
	}
	END
	wait $talker && { echo "it went on"; return 1; }
	in_a nft delete table inet hole
	grep -q 'acknowledged: the path to that host.*\[peer-lost\]\|connections to .* fail.*\[peer-lost\]' "$tmp/err" ||
		{ cat "$tmp/err" "$tmp/err.b"; return 1; }
}
for pattern in oneway pingpong; do
	if command -v nft >/dev/null; then
		case_ "our own firewall drops what we send ($pattern): the path is down, not the process" \
			silent_here $pattern
	else
		no_case "our own firewall drops what we send ($pattern)" "nft is not installed"
	fi
done
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_CONNECT_TIMEOUT=2"

ip -n "$b" addr del 10.77.1.2/24 dev w1
ip -n "$b" addr add 10.77.1.3/24 dev w1
case_ "all is well again" checked --sizes 8
done_
