# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# lib.sh - two hosts in one: network namespaces joined by veth, and braid perf between them.
# Sourced by the tests beside it, which need root; where namespaces are not to be had they skip.
#
# Everything is named after this process, so that parallel runs don't meet, and is removed at its end.
# Host a is 10.77.N.1 and host b 10.77.N.2 on wire N, an interface called w0, w1... on both; wire
# 0 is perf's own, for its control connection, and Braid is kept off it.
#
# shellcheck disable=SC2034 # used by those who source this

set -u

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
export BRAID_PERF_KEY=that-of-all-tests
slow=${BRAID_TEST_SLOW:-1}
[ "$slow" -ge 1 ] 2>/dev/null || slow=1
a=braid-$$-a
b=braid-$$-b
tmp=$(mktemp -d)
wires=0
n=0
env_a=				# variables for Braid on host a, on host b, and on both
env_b=
env_both=
with_b=				# options of perf on host b
control=10.77.0.2		# perf's own connection goes to this address of host b

skip()				# WHY
{
	echo "skip: $1"
	exit 77
}

# no_hosts NETNS... - end their processes, and them.
no_hosts()
{
	for ns; do
		[ -e "/run/netns/$ns" ] || continue
		for pid in $(ip netns pids "$ns" 2>/dev/null); do
			kill -KILL "$pid" 2>/dev/null
		done
		ip netns del "$ns" 2>/dev/null
	done
}

clean_up()
{
	no_hosts "$a" "$b"
	rm -rf "$tmp"
}

trap clean_up EXIT
trap 'exit 1' HUP INT TERM

# -- hosts and wires ------------------------------------------------------------------------------

in_a()
{
	ip netns exec "$a" "$@"
}

in_b()
{
	ip netns exec "$b" "$@"
}

# bare_hosts - make both hosts, with loopback only.
bare_hosts()
{
	command -v "$braid" >/dev/null || { echo "no $braid: build it, or set BRAID_TEST_BRAID"; exit 99; }
	command -v ip >/dev/null || skip "ip is not installed"
	command -v ss >/dev/null || skip "ss is not installed"
	[ "$(id -u)" = 0 ] || skip "only root may make network namespaces"
	ip netns add "$a" 2>"$tmp/why" || skip "ip netns add: $(cat "$tmp/why")"
	ip netns add "$b" 2>"$tmp/why" || skip "ip netns add: $(cat "$tmp/why")"
	# in a chroot whose / is no mount point a namespace can be made, but not entered
	in_a true 2>"$tmp/why" || skip "ip netns exec: $(head -n 1 "$tmp/why")"
	for ns in "$a" "$b"; do
		ip -n "$ns" link set lo up
		# No duplicate address detection: an address is usable as soon as it is added.
		ip netns exec "$ns" sh -c 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad' 2>/dev/null
	done
}

# hosts - make both hosts, and perf's control wire.
hosts()
{
	bare_hosts
	wire 1500
}

# ready NETNS INTERFACE - wait until the kernel has noticed that it is up.
ready()
{
	i=0
	until ip -n "$1" link show "$2" | grep -qE 'LOWER_UP.* state (UP|UNKNOWN)'; do
		sleep 0.02
		i=$((i + 1))
		[ $i -lt 250 ] || return
	done
}

# wire MTU - add a wire between the hosts.
wire()
{
	ip link add "w$wires" netns "$a" mtu "$1" type veth peer name "w$wires" netns "$b" mtu "$1" \
		2>"$tmp/why" || skip "ip link add type veth: $(cat "$tmp/why")"
	ip -n "$a" addr add "10.77.$wires.1/24" dev "w$wires"
	ip -n "$b" addr add "10.77.$wires.2/24" dev "w$wires"
	ip -n "$a" link set "w$wires" up
	ip -n "$b" link set "w$wires" up
	ready "$a" "w$wires"
	ready "$b" "w$wires"
	wires=$((wires + 1))
}

# flows - does data come in by wire 1 of host b, more than one megabyte in a tenth of a second?
flows()
{
	was=$(in_b cat /sys/class/net/w1/statistics/rx_bytes)
	sleep 0.1
	is=$(in_b cat /sys/class/net/w1/statistics/rx_bytes)
	[ "$is" -gt $((was + 1000000)) ]
}

now_ms()
{
	date +%s%3N
}

has_ipv6()
{
	[ -e /proc/net/if_inet6 ]
}

# -- braid perf between them ----------------------------------------------------------------------

# listening FILE PID - the port on which perf listens, from its output in FILE; false if perf ends.
listening()
{
	i=0
	while [ $i -lt $((100 * slow)) ] && kill -0 "$2" 2>/dev/null; do
		sed -n 's/^listening on port //p' "$1" 2>/dev/null | grep . && return
		sleep 0.1
		i=$((i + 1))
	done
	return 1
}

# talk OPTIONS... - braid perf from a to b, every byte checked; $tmp/csv has the figures, $tmp/err and
# $tmp/err.b the stderr of the two hosts.
talk()
{
	rm -f "$tmp/err.b"
	# shellcheck disable=SC2086 # variables and their values
	in_b env $env_both $env_b timeout -k 5 $((60 * slow)) "$braid" perf --plugin "$plugin" \
		--listen "$control:0" --once $with_b >"$tmp/out.b" 2>"$tmp/err.b" &
	listener=$!
	port=$(listening "$tmp/err.b" $listener) || {
		cat "$tmp/err.b"
		kill $listener 2>/dev/null
		return 1
	}
	# shellcheck disable=SC2086
	in_a env $env_both $env_a timeout -k 5 $((60 * slow)) "$braid" perf --plugin "$plugin" \
		--connect "$control:$port" --check --csv --seconds 0.05 "$@" \
		>"$tmp/csv" 2>"$tmp/err"
	rc=$?
	[ $rc = 0 ] || kill $listener 2>/dev/null
	wait $listener 2>/dev/null
	[ $rc = 0 ] || {
		cat "$tmp/err" "$tmp/err.b"
		return 1
	}
}

# checked OPTIONS... - talk, and fail if any value was wrong or none was checked.
checked()
{
	talk "$@" && awk -F, '
		NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		{ n++; if ($at["wrong"] != 0 || $at["values"] == 0) bad++ }
		END { exit bad || !n }' "$tmp/csv"
}

# while_talking COMMAND... - COMMAND succeeds at some moment while data moves, and the data is right.
while_talking()
{
	checked --pattern bidir --sizes 64k --seconds "${talk_s:-2}" >"$tmp/talk" 2>&1 &
	talker=$!
	while :; do
		# Wait until there are streams other than perf's own.
		if in_a ss -Htn state established | grep -qv '10\.77\.0\.'; then
			said=$("$@" 2>&1) && well=0 || well=1
		else
			said="no streams" well=1
		fi
		[ $well = 0 ] && break
		kill -0 $talker 2>/dev/null || break
		sleep 0.05
	done
	wait $talker || { cat "$tmp/talk"; well=1; }
	[ -z "$said" ] || echo "$said"
	return $well
}

# stop_talking - end $talker and, as it is a shell, what it has started on the hosts, too.
stop_talking()
{
	kill $talker 2>/dev/null
	for ns in "$a" "$b"; do
		for pid in $(ip netns pids "$ns" 2>/dev/null); do
			kill -KILL "$pid" 2>/dev/null
		done
	done
	wait $talker
}

# -- verdicts -------------------------------------------------------------------------------------

# case_ WHAT COMMAND... - one line of TAP; what the command says comes with a failure.
case_()
{
	what=$1
	shift
	n=$((n + 1))
	if "$@" >"$tmp/said" 2>&1; then
		echo "ok $n - $what"
	else
		cat "$tmp/said"
		echo "not ok $n - $what"
	fi
}

no_case()			# WHAT WHY
{
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

done_()
{
	echo "1..$n"
}
