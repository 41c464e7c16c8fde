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

ip -n "$b" addr del 10.77.1.2/24 dev w1
ip -n "$b" addr add 10.77.1.3/24 dev w1
case_ "all is well again" checked --sizes 8
done_
