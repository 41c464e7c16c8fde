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
program=${BRAID_TEST_BUILDDIR:-.}/tests/net/lent

# falls_back SIZES - every byte is right, and each end names the device of its lanes and the reason,
# once for each connection. On a busy host a lane may get another.
falls_back()
{
	env_both="$common BRAID_ZEROCOPY=1"
	checked --pattern bidir --sizes "$1" --verbose || return 1
	for log in "$tmp/err" "$tmp/err.b"; do
		grep -q 'device w1, .* sends with copies from now on: the kernel copied' "$log" ||
			{ echo "no word of it:"; cat "$log"; return 1; }
		[ "$(grep -c 'lane 0 sends with copies' "$log")" -le \
			$((1 + $(grep -cE 'lane 0 (has another port|is back)' "$log"))) ] ||
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

# way shut|open - for what comes to host b by wire 1.
way()
{
	in_b nft delete table inet way 2>/dev/null
	[ "$1" = open ] || in_b nft -f - 2>"$tmp/why" <<END
table inet way {
	chain in {
		type filter hook input priority 0;
		iifname w1 drop
	}
}
END
}

one()				# HOST ROLE
{
	# shellcheck disable=SC2086 # variables and their values
	"in_$1" env $common BRAID_LANES=1 BRAID_PEER_TIMEOUT=240 BRAID_ZEROCOPY=1 BRAID_TEST_PLUGIN="$plugin" \
		timeout $((120 * slow)) "$program" "$2" "$tmp/lent" >"$tmp/said.$2" 2>&1
}

until_()			# FILE
{
	i=0
	until [ -e "$tmp/lent/$1" ]; do
		sleep 0.01
		i=$((i + 1))
		[ $i -lt $((3000 * slow)) ] || { echo "no $1"; cat "$tmp"/said.*; return 1; }
	done
}

# taken_back - see the head of lent.c.  The receiver stands still until the sender's kernel has had two
# seconds to send what it still has: bytes of its own would end a socket that was closed.
taken_back()
{
	rm -rf "$tmp/lent"
	mkdir "$tmp/lent"
	one b recv &
	receiver=$!
	one a send &
	sender=$!
	until_ up && kill -STOP "$(cat "$tmp/lent/pid")" && way shut && : >"$tmp/lent/shut" &&
		until_ gone
	well=$?
	way open
	[ $well != 0 ] || sleep 2
	kill -CONT "$(cat "$tmp/lent/pid")"
	wait $sender || well=1
	wait $receiver || well=1
	[ $well = 0 ] || cat "$tmp/why" "$tmp"/said.*
	echo "the receiver got $(cat "$tmp/lent/got")" >&2
	return $well
}

case_ "veth copies: every byte is right, and one line per connection says so" \
	falls_back 64k:4m
case_ "without BRAID_ZEROCOPY nothing is lent" off
case_ "streams that are cut while memory is lent lose no byte" cut_while_lent
what="memory that is taken back while the kernel has it does not arrive changed"
if [ ! -x "$program" ]; then
	echo "no $program: build it, or set BRAID_TEST_BUILDDIR"
	exit 99
elif command -v nft >/dev/null && way shut && way open; then
	case_ "$what" taken_back
else
	no_case "$what" "nft: $(head -n 1 "$tmp/why" 2>/dev/null || echo it is not installed)"
fi
done_
