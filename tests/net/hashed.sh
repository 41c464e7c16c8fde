#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# hashed.sh [measure] - four paths to which flows are hashed, and one of them gets slow.
#
#	a --- r1 ===== p0 ... p3 ===== r2 --- b
#
# r1 and r2 are routers with a multipath route that hashes addresses and ports. Each path is as fast
# as the hosts' NICs. While data moves, the path that carries most is shaped to a tenth of its rate.
# Braid should find other paths for its lanes within 3 s; the test waits for ten times that.
# `measure` prints rates, as docs/results/slow-path.md has them.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

r1=braid-$$-r1
r2=braid-$$-r2
full=400			# Mbit/s of each path, and of the NICs
trap 'no_hosts "$r1" "$r2"; clean_up' EXIT

# shape NETNS INTERFACE MBIT - limit what the interface sends.
shape()
{
	ip netns exec "$1" tc qdisc replace dev "$2" root tbf rate "$3mbit" burst 64k limit 512k
}

# join NETNS INTERFACE ADDRESS NETNS INTERFACE ADDRESS - a veth pair from one to the other.
join()
{
	ip link add "$2" netns "$1" type veth peer name "$5" netns "$4" || return
	ip -n "$1" addr add "$3" dev "$2"
	ip -n "$4" addr add "$6" dev "$5"
	ip -n "$1" link set "$2" up
	ip -n "$4" link set "$5" up
	ready "$1" "$2"
	ready "$4" "$5"
}

# paths - build all that is between the hosts.
paths()
{
	for ns in "$r1" "$r2"; do
		ip netns add "$ns"
		ip -n "$ns" link set lo up
		ip netns exec "$ns" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward
			echo 1 >/proc/sys/net/ipv4/fib_multipath_hash_policy'
	done
	join "$a" nic 10.78.1.1/24 "$r1" host 10.78.1.254/24
	join "$b" nic 10.78.2.1/24 "$r2" host 10.78.2.254/24
	ip -n "$a" route add 10.78.2.0/24 via 10.78.1.254
	ip -n "$b" route add 10.78.1.0/24 via 10.78.2.254
	there='' back=''
	for p in 0 1 2 3; do
		join "$r1" p$p 10.78.1$p.1/24 "$r2" p$p 10.78.1$p.2/24
		there="$there nexthop via 10.78.1$p.2"
		back="$back nexthop via 10.78.1$p.1"
		shape "$r1" p$p $full
		shape "$r2" p$p $full
	done
	# shellcheck disable=SC2086 # words of a route
	ip -n "$r1" route add 10.78.2.0/24 $there
	# shellcheck disable=SC2086
	ip -n "$r2" route add 10.78.1.0/24 $back
	shape "$a" nic $full
	shape "$b" nic $full
}

# sent NETNS INTERFACE - the bytes that the interface has sent, ever.
sent()
{
	ip netns exec "$1" cat "/sys/class/net/$2/statistics/tx_bytes"
}

# busiest ROUTER - the path by which it sent most in half a second.
busiest()
{
	for p in 0 1 2 3; do
		eval "before$p=$(sent "$1" p$p)"
	done
	sleep 0.5
	most=-1
	for p in 0 1 2 3; do
		eval "more=\$(($(sent "$1" p$p) - before$p))"
		[ "$more" -le "$most" ] || most=$more busy=p$p
	done
	echo "$busy"
}

# rates NETNS - one line each 0.1 s: the time, and the bytes that reached the host's NIC.
rates()
{
	exec ip netns exec "$1" sh -c 'while sleep 0.1; do
		echo "$(date +%s.%N) $(cat /sys/class/net/nic/statistics/rx_bytes)"
	done'
}

# mbit RATES AT FROM TO - the average Mbit/s from FROM to TO seconds after the time AT.
mbit()
{
	awk -v from="$(echo "$2 + $3" | bc)" -v to="$(echo "$2 + $4" | bc)" '
		$1 < from { t = $1; n = $2 }
		$1 <= to { t2 = $1; n2 = $2 }
		END { printf "%.0f\n", (t2 > t ? (n2 - n) * 8 / (t2 - t) / 1e6 : 0) }' "$1"
}

# regained RATES AT MBIT - the seconds from the time AT to the first second of at least that rate.
regained()
{
	awk -v at="$2" -v least="$3" '$1 >= at + 0.3 { t[++n] = $1; b[n] = $2 }
		END {
			for (i = 1; i <= n; i++) {
				for (j = i; j <= n && t[j] < t[i] + 1; j++)
					;
				if (j <= n && (b[j] - b[i]) * 8 / (t[j] - t[i]) / 1e6 >= least) {
					printf "%.1f\n", t[i] - at
					exit
				}
			}
			exit 1
		}' "$1"
}

# moving OPTIONS... - data moves; $tmp/rates.a and .b have what reaches the hosts.
moving()
{
	rates "$a" >"$tmp/rates.a" &
	rates_a=$!
	rates "$b" >"$tmp/rates.b" &
	rates_b=$!
	checked --verbose "$@" >"$tmp/talk" 2>&1 &
	talker=$!
	sleep $((3 * slow))
}

# moved - wait for the end of moving; true: what arrived was right.
moved()
{
	wait $talker
	rc=$?
	kill $rates_a $rates_b
	wait $rates_a $rates_b 2>/dev/null
	[ $rc = 0 ] || cat "$tmp/talk"
	return $rc
}

# redialled - lanes were found slow, and got another port.
redialled()
{
	grep -aqhE 'lane [0-9]+ is slow: .* dialled again' "$tmp/err" "$tmp/err.b" &&
		grep -aqhE 'lane [0-9]+ has another port; it stood still' "$tmp/err" "$tmp/err.b"
}

# gets_slow ROUTER RATES - make the path slow by which that router sends most; then wait until nine
# tenths of the rate before reach the host, and lanes have other ports: ten times 3 s at most.
gets_slow()
{
	busy=$(busiest "$1")
	at=$(date +%s.%N)
	before=$(mbit "$2" "$at" -1.5 0)
	shape "$1" "$busy" $((full / 10))
	i=0
	until regained "$2" "$at" $((before * 9 / 10)) >/dev/null && redialled; do
		sleep 0.5
		i=$((i + 1))
		[ $i -lt $((60 * slow)) ] && continue
		echo "$busy of $1: $before Mbit/s before, $(mbit "$2" "$at" 3 8) from 3 to 8 s"
		return 1
	done
}

# whichever_sends - one direction's path gets slow, then the other's.
whichever_sends()
{
	moving --pattern bidir --inflight 2 --sizes 1m --seconds $((24 * slow))
	gets_slow "$r1" "$tmp/rates.b" && shape "$r1" "$busy" $full &&
		gets_slow "$r2" "$tmp/rates.a"
	well=$?
	moved && return $well
}

# measured LANES INFLIGHT SIZE - print a row: Mbit/s at b before, and in the seconds after.
measured()
{
	env_both="BRAID_SOCKET_IFNAME==nic BRAID_LANES=$1 BRAID_DEBUG=info"
	moving --pattern oneway --inflight "$2" --sizes "$3" --seconds 13
	busy=$(busiest "$r1")
	at=$(date +%s.%N)
	shape "$r1" "$busy" $((full / 10))
	moved
	shape "$r1" "$busy" $full
	before=$(mbit "$tmp/rates.b" "$at" -1.5 0)
	echo "| $1 | $2 | $3 | $before | $(mbit "$tmp/rates.b" "$at" 0 1)" \
		"| $(mbit "$tmp/rates.b" "$at" 1 2) | $(mbit "$tmp/rates.b" "$at" 2 3)" \
		"| $(mbit "$tmp/rates.b" "$at" 3 8)" \
		"| $(regained "$tmp/rates.b" "$at" $((before * 9 / 10)) || echo -)" \
		"| $(grep -ahc 'is slow: ' "$tmp/err") |"
}

hosts
in_a tc qdisc add dev lo root tbf rate 1gbit burst 64k limit 64k 2>"$tmp/why" ||
	skip "no token bucket: $(head -n 1 "$tmp/why")"
in_a tc qdisc del dev lo root
command -v bc >/dev/null || skip "bc is not installed"
paths
if [ "${1-}" = measure ]; then
	shift
	measured "$@"
	exit
fi
env_both="BRAID_SOCKET_IFNAME==nic BRAID_LANES=4 BRAID_DEBUG=info"
case_ "a path of four that gets slow is left, whichever end sends" whichever_sends
done_
