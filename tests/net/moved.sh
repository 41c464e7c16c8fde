#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# moved.sh - an interface gets another address, another MAC address, or is removed and made anew, under
# traffic that is checked: lanes come back over the new address, and no byte is lost or doubled.
#
# Host a dials.  Perf's own connection is on wire 0, which keeps its addresses.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts
wire 1500
env_both="BRAID_SOCKET_IFNAME=w1,w2 BRAID_PEER_TIMEOUT=20 BRAID_DEBUG=info"
within=$((10 * slow))			# seconds until the new address carries data

# host LETTER - its namespace.
host()
{
	eval "echo \$$1"
}

# addresses N-OF-A N-OF-B - give both ends of wire 1 these addresses, and no other.
addresses()
{
	for it in "a $1" "b $2"; do
		ns=$(host "${it% *}")
		ip -n "$ns" -4 addr flush dev w1
		ip -n "$ns" addr add "10.77.1.${it#* }/24" dev w1
	done
}

# readdress HOST N - in place of the address that it has.
readdress()
{
	ip -n "$(host "$1")" -4 addr flush dev w1
	ip -n "$(host "$1")" addr add "10.77.1.$2/24" dev w1
}

# remade HOST N - wire 1 is removed, and made anew with that address of HOST: another ifindex and MAC.
remade()
{
	ip -n "$a" link del w1
	ip link add w1 netns "$a" type veth peer name w1 netns "$b"
	addresses 1 2
	readdress "$1" "$2"
	ip -n "$a" link set w1 up
	ip -n "$b" link set w1 up
}

# streams FROM TO - are there established ones, between these addresses?  "1": 10.77.1.1.
streams()
{
	case $1 in
	*:*) in_a ss -Htn state established src "[$1]" dst "[$2]" ;;
	*) in_a ss -Htn state established src "10.77.1.$1" dst "10.77.1.$2" ;;
	esac | grep -q .
}

# talks - wait until the streams are there.
talks()
{
	began=$(now_ms)
	until streams 1 2; do
		if ! kill -0 "$talker" 2>/dev/null || [ $(($(now_ms) - began)) -gt $((60000 * slow)) ]; then
			echo "no streams"
			stop_talking
			cat "$tmp/talk"
			return 1
		fi
		sleep 0.05
	done
}

# moves FROM TO COMMAND... - under traffic COMMAND changes addresses; soon it goes on between 10.77.1.FROM
# and 10.77.1.TO.  `pattern`: of the traffic.
moves()
{
	from=$1 to=$2
	shift 2
	# shellcheck disable=SC2086 # options
	checked ${pattern:---pattern oneway --sizes 64k --inflight 4 --seconds $((4 * slow))} \
		--timeout 60 >"$tmp/talk" 2>&1 &
	talker=$!
	talks || return 1
	sleep 0.5
	"$@" || { stop_talking; return 1; }
	began=$(now_ms)
	until streams "$from" "$to" && flows; do
		# On a busy host the rest may have been sent before we saw it.
		! kill -0 "$talker" 2>/dev/null && wait $talker && {
			echo "it is over after $(($(now_ms) - began)) ms" >&2
			return 0
		}
		if [ $(($(now_ms) - began)) -gt $((within * 1000)) ] || ! kill -0 "$talker" 2>/dev/null; then
			echo "no stream from 10.77.1.$from to 10.77.1.$to"
			stop_talking
			cat "$tmp/talk" "$tmp/err" "$tmp/err.b"
			return 1
		fi
		sleep 0.02
	done
	echo "back after $(($(now_ms) - began)) ms" | tee -a "$tmp/times" >&2
	wait $talker || { cat "$tmp/talk" "$tmp/csv"; return 1; }
}

case_of()				# WHAT FROM TO COMMAND...
{
	what=$1
	shift
	addresses 1 2
	case_ "$what" moves "$@"
	grep '^back after' "$tmp/said" | sed "s/^/# $what: /"
}

# -- under traffic ----------------------------------------------------------------------------------

two()
{
	readdress a 11
	readdress b 12
}

one_after_the_other()
{
	readdress a 11
	sleep 1
	readdress b 12
}

case_of "the end that dials gets another address" 11 2 readdress a 11
case_of "the end that was dialled gets another address" 1 12 readdress b 12
case_of "one end after the other gets another address" 11 12 one_after_the_other

back_and_forth()
{
	for i in 11 21 31; do
		readdress b $i
		sleep 0.5
	done
	readdress b 2
}
case_of "an address changes four times, and is the first again" 1 2 back_and_forth

# -- a MAC address, and an interface that is made anew ---------------------------------------------------

mac()
{
	ip -n "$b" link set w1 down
	ip -n "$b" link set w1 address 02:00:00:00:77:01
	ip -n "$b" link set w1 up
}
within=$((12 * slow))			# the neighbour's entry of the old MAC has to become stale
case_of "an interface gets another MAC address" 1 2 mac
within=$((10 * slow))
case_of "an interface is removed and made anew with the same address" 1 2 remade b 2
case_of "an interface is removed and made anew, dialling end, another address" 11 2 remade a 11
case_of "an interface is removed and made anew, dialled end, another address" 1 12 remade b 12

# -- over UCX, whose workers have addresses of their own -----------------------------------------------

# UCX carries the lanes afterwards, too: a lesser transport would be a WARN.
by_ucx()				# FROM TO COMMAND...
{
	moves "$@" && ! grep -E 'lesser-transport|peer-lacks' "$tmp/err" "$tmp/err.b"
}

were="$env_both"
env_both="$env_both BRAID_TRANSPORTS=ucx,tcp UCX_TLS=tcp UCX_NET_DEVICES=w1"
# shellcheck disable=SC2086 # variables and their values
if in_a env $env_both "$braid" info --plugin "$plugin" 2>&1 | grep -q 'transports.*ucx'; then
	within=$((30 * slow))
	addresses 1 2
	case_ "over UCX the end that dials gets another address" by_ucx 11 2 readdress a 11
	addresses 1 2
	case_ "over UCX the end that was dialled gets another address" by_ucx 1 12 readdress b 12
	within=$((10 * slow))
else
	no_case "over UCX" "no UCX here"
fi
env_both=$were

# -- during an outage ---------------------------------------------------------------------------------

# With the interface down, for so many seconds before the command and after it.
while_down()				# NAMESPACE INTERFACE SECONDS COMMAND...
{
	down_in=$1 down_dev=$2 down_s=$3
	shift 3
	ip -n "$down_in" link set "$down_dev" down
	sleep "$down_s"
	"$@"
	sleep "$down_s"
	ip -n "$down_in" link set "$down_dev" up
}

outage()				# COMMAND...
{
	while_down "$a" w1 2 "$@"
}
case_of "during an outage the end that dials gets another address" 11 2 outage readdress a 11
case_of "during an outage the end that was dialled gets another address" 1 12 outage readdress b 12

no_address()				# HOST N
{
	ip -n "$(host "$1")" -4 addr flush dev w1
	sleep 3
	ip -n "$(host "$1")" addr add "10.77.1.$2/24" dev w1
}
case_of "the end that dials has no address for 3 s, then another" 11 2 no_address a 11
case_of "the end that was dialled has no address for 3 s, then another" 1 12 no_address b 12

# -- while idle -----------------------------------------------------------------------------------------

# Without its own wire perf does not begin the next size, so Braid's comms are idle.
idle()					# COMMAND...
{
	while_down "$b" w0 1 "$@"
}
pattern="--pattern oneway --sizes 64k,32k,16k,8k,4k,2k --seconds 0.6"
case_of "while idle the end that dials gets another address" 11 2 idle readdress a 11
case_of "while idle the end that was dialled gets another address" 1 12 idle readdress b 12
pattern=

# -- where another path is left ----------------------------------------------------------------------

wire 1500
pattern="--dev w1+w2 --pattern oneway --sizes 1m --inflight 4 --seconds $((7 * slow))"
with_b="--dev w1+w2"
env_a="BRAID_FUSE=any BRAID_LANES=4"
env_b=$env_a
case_of "of two fused interfaces the dialling end's gets another address" 11 2 readdress a 11
case_of "of two fused interfaces the dialled end's gets another address" 1 12 readdress b 12
case_of "of two fused interfaces those of both ends get other addresses at once" 11 12 two
pattern="" with_b="" env_a="" env_b=""

if has_ipv6; then
	ip -n "$a" addr add fd77::1/64 dev w1
	ip -n "$b" addr add fd77::2/64 dev w1
	case_of "both ends get other addresses of IPv4 at once, and keep those of IPv6" fd77::1 fd77::2 two
else
	no_case "both ends get other addresses of IPv4 at once" "no IPv6 here"
fi

# -- what does not work -----------------------------------------------------------------------------------

both_lost()
{
	addresses 1 2
	env_both="$env_both BRAID_PEER_TIMEOUT=6"
	checked --pattern oneway --sizes 64k --seconds 4 --timeout 30 >"$tmp/talk" 2>&1 &
	talker=$!
	talks || return 1
	two
	ip -n "$a" -6 addr flush dev w1
	if wait $talker; then
		echo "it went on"
		return 1
	fi
	cat "$tmp/err" "$tmp/err.b" >>"$tmp/talk"
	grep -q 'neither end knows where the other is.*peer-lost' "$tmp/talk" || { cat "$tmp/talk"; return 1; }
}
case_ "addresses of both ends change at once: an error in time, which says why" both_lost
done_
