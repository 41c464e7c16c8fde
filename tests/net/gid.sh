#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# gid.sh - the GID or LID of a NIC changes under traffic that is checked: lanes go on over the new one,
# by RDMA, and no byte is lost or doubled. NICs are those of tests/fake, on interfaces that are real.
#
# Host a dials. Perf's own connection is on wire 0, which keeps its addresses.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

fake=${BRAID_TEST_BUILDDIR:-.}/tests/fake
[ -e "$fake/.libs/libibverbs.so.1" ] || skip "built without RDMA"
hosts
wire 1500
within=$((10 * slow))			# seconds until RDMA carries data again
with_b=--verbose

ctl()					# WORDS... - a command of tests/fake/ctl.h
{
	BRAID_TEST_FAKE_FABRIC=$nics "$fake/fakectl" "$*"
}

# moves - do packets of NICs move?
moves()
{
	was=$(ctl count packets)
	sleep 0.1
	[ "$(ctl count packets)" -gt $((was + 50)) ]
}

# goes_on - until then, or not in time.
goes_on()
{
	began=$(now_ms)
	until moves; do
		if ! kill -0 "$talker" 2>/dev/null || [ $(($(now_ms) - began)) -gt $((within * 1000)) ]; then
			echo "no packets within $within s"
			return 1
		fi
	done
	echo "packets after $(($(now_ms) - began)) ms" >&2
}

# play KIND COMMAND - while perf talks over NICs of that kind.
play()
{
	nics=$tmp/nics-$n
	for it in "a 1" "b 2"; do
		eval "ns=\$${it% *}"
		ip -n "$ns" -4 addr flush dev w1
		ip -n "$ns" addr add "10.77.1.${it#* }/24" dev w1
	done
	env_both="BRAID_SOCKET_IFNAME=w1 BRAID_PEER_TIMEOUT=30 LD_LIBRARY_PATH=$fake/.libs
		BRAID_TEST_FAKE_FABRIC=$nics"
	env_a="BRAID_TEST_FAKE_HOST=a BRAID_TEST_FAKE_DEVICES=mlx5_0:$1,netdev=w1"
	env_b="BRAID_TEST_FAKE_HOST=b BRAID_TEST_FAKE_DEVICES=mlx5_0:$1,netdev=w1"
	checked --verbose --pattern bidir --sizes 64k --inflight 4 --seconds $((8 * slow)) \
		--timeout 60 >"$tmp/talk" 2>&1 &
	talker=$!
	until [ -e "$nics" ] && moves 2>/dev/null; do
		kill -0 "$talker" 2>/dev/null || { cat "$tmp/talk"; return 1; }
		sleep 0.05
	done
	sleep 0.3
	if ! "$2" || ! goes_on; then
		stop_talking
		cat "$tmp/talk" "$tmp/err" "$tmp/err.b"
		return 1
	fi
	wait $talker || { cat "$tmp/talk" "$tmp/csv"; return 1; }
}

said()					# a or b, PATTERN - in its log
{
	[ "$1" = a ] && log=$tmp/err || log=$tmp/err.b
	grep -qE "$2" "$log" || { echo "$1 does not say: $2"; cat "$log"; return 1; }
}

# in_use HOST - the index of the entry that its lanes use.
in_use()
{
	[ "$1" = a ] && log=$tmp/err || log=$tmp/err.b
	sed -n 's/.*: GID \([0-9]*\), RoCE v2, 10[.]77.*/\1/p' "$log" | tail -n 1 | grep .
}

readdress()				# HOST N
{
	eval "ns=\$$1"
	roce=$(in_use "$1") && ctl gid "$1/mlx5_0/1" "$roce" none &&
		ip -n "$ns" -4 addr flush dev w1 && ip -n "$ns" addr add "10.77.1.$2/24" dev w1 &&
		ctl gid "$1/mlx5_0/1" "$roce" "10.77.1.$2" v2
}

of_b()
{
	readdress b 12
}

of_a()
{
	readdress a 11
}

at_another_index()
{
	ctl gid b/mlx5_0/1 "$(in_use b)" none && sleep 0.5 && ctl gid b/mlx5_0/1 7 10.77.1.2 v2
}

away_for_3_s()
{
	roce=$(in_use b)
	ctl gid b/mlx5_0/1 "$roce" none && sleep 3 && ctl gid b/mlx5_0/1 "$roce" 10.77.1.2 v2
}

lid()
{
	ctl lid b/mlx5_0/1 77 && sleep 1 && ctl lid a/mlx5_0/1 78
}

over()					# KIND COMMAND HOST PATTERN
{
	play "$1" "$2" && said "$3" "$4"
}

case_ "the end that was dialled gets another address and GID" over rocev2 of_b b 'GID.*10[.]77[.]1[.]12'
case_ "the end that dials gets another address and GID" over rocev2 of_a a 'GID.*10[.]77[.]1[.]11'
case_ "a GID is at another index of its table" over rocev2 at_another_index b 'GID 7'
case_ "a port has no GID for 3 s" over rocev2 away_for_3_s a verbs
case_ "ports get other LIDs, one after the other" over ib lid a verbs
done_
