#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# zerocopy.sh - BRAID_ZEROCOPY=1 between two hosts that are joined by veth, where the kernel copies
# what it was to send without a copy, and says so.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts
wire 1500
common="BRAID_SOCKET_IFNAME=w1 BRAID_PEER_TIMEOUT=20 BRAID_LANES=2"
with_b=--verbose

# falls_back SIZES - every byte is right, and each end names the device of its lanes and the reason.
falls_back()
{
	env_both="$common BRAID_ZEROCOPY=1"
	checked --pattern bidir --sizes "$1" --verbose || return 1
	for log in "$tmp/err" "$tmp/err.b"; do
		grep -q 'device w1, .* sends with copies from now on: the kernel copied' "$log" ||
			{ echo "no word of it:"; cat "$log"; return 1; }
		[ "$(grep -c 'lane 0 sends with copies' "$log")" = 1 ] ||
			{ echo "more than one word of it:"; cat "$log"; return 1; }
		! grep WARN "$log" || return 1
	done
}

# off - without the parameter nobody is asked.
off()
{
	env_both=$common
	checked --pattern bidir --sizes 1m --verbose || return 1
	! grep -e 'with copies' -e SO_ZEROCOPY "$tmp/err" "$tmp/err.b"
}

# cut_while_lent - each new stream lends until the kernel's first word, so keep cutting them.
cut_while_lent()
{
	env_both="$common BRAID_ZEROCOPY=1"
	checked --pattern bidir --sizes 1m --seconds 3 --verbose >"$tmp/talk" 2>&1 &
	talker=$!
	cuts=0
	while kill -0 $talker 2>/dev/null; do
		if in_a ss -Htn state established dst 10.77.1.2 | grep -q .; then
			in_a ss -KHtn state established dst 10.77.1.2 >/dev/null 2>&1 && cuts=$((cuts + 1))
		fi
		sleep 0.2
	done
	wait $talker || { cat "$tmp/talk"; return 1; }
	back=$(grep -c 'sends with copies from now on' "$tmp/err")
	lost=$(grep -c 'is lost' "$tmp/err")
	echo "$cuts cuts, $lost lanes lost, $back lent before" >&2
	[ "$lost" -lt 2 ] || [ "$back" -lt 2 ] || return 0
	cat "$tmp/err"
	return 1
}

case_ "veth copies: every byte is right, and one line per lane says that it lends no more" \
	falls_back 64k:4m
case_ "without BRAID_ZEROCOPY nothing is lent" off
case_ "streams that are cut while memory is lent lose no byte" cut_while_lent
done_
