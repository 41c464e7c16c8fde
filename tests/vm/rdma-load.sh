# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-load.sh - Braid over the kernel's RDMA drivers while something breaks: what rdma-faults.sh, in
# one guest, and rdma-outage.sh, in two, have in common.
#
# In each case data moves over verbs first (or what else $over says), by the device's own counters;
# then comes the fault, and every byte must be right.  What a case took is a comment after its verdict, and no more: an
# emulated CPU on a busy host can stand still for seconds.
#
# BRAID_TEST_FAULTS: only those, by the names of their functions.  BRAID_TEST_LOGS=1: also all that
# Braid logged.

export BRAID_TRANSPORTS="${over:=verbs},tcp"

# -- what moves -----------------------------------------------------------------------------------

# connected [DEVICE] - of siw it is connections: its queue pairs do not say their state, on this kernel.
connected()
{
	case $rdma in
	siw*) rdma resource show cm_id | grep -c "link ${1-}.*state CONNECT" ;;
	*) rdma resource show qp | grep -c "link ${1-}.*type RC.*state RTS" ;;
	esac
}

# on WIRE... - KiB that were sent there.
on()
{
	sent=0
	for carrier in "$@"; do
		sent=$((sent + $(cat "/sys/class/net/$carrier/statistics/tx_bytes") / 1024))
	done
	echo $sent
}

# What siw moves goes over the same wires as TCP does, so it is who is connected that counts.
if_connected()			# DEVICE WIRE...
{
	[ "$(connected "$1")" = 0 ] && echo 0 && return
	shift
	on "$@"
}

carriers="lo"			# on which data moves
[ "${guests:-1}" = 1 ] || carriers="w1 w2"

# by_verbs - KiB, or 0 if none do: packets of all rxe devices carry one each.
by_verbs()
{
	# shellcheck disable=SC2086 # one or two
	case $rdma in
	siw*) if_connected siw $carriers ;;
	*) cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts | awk '{ n += $1 } END { print n }' ;;
	esac
}

# by_tcp - within a guest.
by_tcp()
{
	case $rdma in
	siw*) [ "$(connected)" = 0 ] && on lo || echo 0 ;;
	*) on lo ;;
	esac
}

# by_device DEVICE WIRE - the same for one of them.
by_device()
{
	case $rdma in
	siw*) if_connected "$@" ;;
	*) cat "/sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts" ;;
	esac
}

# -- waiting, as long as data moves ---------------------------------------------------------------

note()				# WHAT... - in the log, and a comment after the verdict
{
	echo "= $*"
}

now()
{
	date +%s%3N
}

talks()
{
	kill -0 $talker 2>/dev/null
}

# grows WHAT COMMAND... - what the command prints, once it isn't 0, gets to be 300 more.
grows()
{
	label=$1 want=0
	shift
	from=$(now)
	until [ $want != 0 ] && [ "$("$@")" -ge $want ]; do
		if [ $want = 0 ]; then
			value=$("$@")
			[ "$value" = 0 ] || want=$((value + 300))
		fi
		talks || { echo "it was over before $label carried 300 KiB"; return 1; }
		sleep 0.1
	done
	note "$label carries data after $(($(now) - from)) ms"
}

# logged PATTERN
logged()
{
	from=$(now)
	until grep -q "$1" "$tmp/err"; do
		talks || { echo "it was over, and the log has no '$1'"; return 1; }
		sleep 0.1
	done
	note "logged after $(($(now) - from)) ms: $(grep "$1" "$tmp/err" | tail -n 1 | cut -c 1-150)"
}

bidir="--pattern bidir --sizes 64k"
endless="$bidir --seconds 1 --rounds 1000"	# no number of seconds would do: a busy host is slow

# load OPTIONS... - in the background.
load()
{
	checked --verbose "$@" >"$tmp/talk" 2>&1 &
	talker=$!
	bad=0
	grows "$over" by_verbs || bad=1
}

children()			# PID
{
	cat "/proc/$1/task/$1/children"
}

# stops - an endless load is told to end with the round that it is in.
stops()
{
	# shellcheck disable=SC2046 # one: timeout, and of that braid perf
	kill -TERM $(children $(children $talker)) || bad=1
	ends
}

# killed - a peer is, and the survivor hears of it, long before a timeout: while data moves, in one
# round that would take days, and from its comm, since who started both stands still.
killed()
{
	"$braid" perf --plugin "$plugin" --check --csv --verbose $bidir --iters 1000000000 --warmup 0 \
		>"$tmp/csv" 2>"$tmp/err" &
	talker=$! bad=0
	grows "$over" by_verbs || bad=1
	victim=$(children $talker | cut -d ' ' -f 2)
	kill -STOP $talker || bad=1
	kill -KILL "$victim" || bad=1
	logged '^rank 0: .*ncclRemoteError' || bad=1
	kill -CONT $talker
	wait $talker && { echo "perf noticed nothing"; bad=1; }
	return $bad
}

# ends - and what was moved was right; false if anything was bad.
ends()
{
	from=$(now)
	wait $talker || bad=1
	cat "$tmp/talk"
	note "over $(($(now) - from)) ms later"
	return $bad
}

# fault WHAT FUNCTION... - a case, and what it noted.
fault()
{
	case " ${BRAID_TEST_FAULTS-$2} " in
	*" $2 "*) ;;
	*) return ;;
	esac
	case_ "$rdma: $1" with_log "$@"
	if [ -n "${BRAID_TEST_LOGS-}" ]; then
		cat "$tmp/said"
	else
		sed -n 's/^= /# /p' "$tmp/said"
	fi
}

with_log()
{
	shift
	"$@"
	fault_rc=$?
	cat "$tmp/err"
	return $fault_rc
}
