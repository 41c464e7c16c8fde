# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-load.sh - Braid over the kernel's RDMA drivers while something breaks: functions that
# rdma-faults.sh, in one guest, and rdma-outage.sh, in two, share.
#
# In each case data first moves over verbs (or the transport in $over), by the device's own counters.
# Then comes the fault, and every byte must be right. How long a case took is printed as a comment after
# its verdict and never fails it: an emulated CPU on a busy host can stand still for seconds.
#
# BRAID_TEST_FAULTS: run only these faults, by the names of their functions. BRAID_TEST_LOGS=1: print
# Braid's whole log too.

export BRAID_TRANSPORTS="${over:=verbs},tcp"

# -- what moves -----------------------------------------------------------------------------------

# connected [DEVICE] - the number of queue pairs in RTS; for siw that of connections, since this kernel
# does not show the state of siw's queue pairs.
connected()
{
	case $rdma in
	siw*) rdma resource show cm_id | grep -c "link ${1-}.*state CONNECT" ;;
	*) rdma resource show qp | grep -c "link ${1-}.*type RC.*state RTS" ;;
	esac
}

# on WIRE... - the KiB that were sent on these wires.
on()
{
	sent=0
	for carrier in "$@"; do
		sent=$((sent + $(cat "/sys/class/net/$carrier/statistics/tx_bytes") / 1024))
	done
	echo $sent
}

# KiB sent on the wires if DEVICE has connections, else 0: siw's data looks like TCP's there.
if_connected()			# DEVICE WIRE...
{
	[ "$(connected "$1")" = 0 ] && echo 0 && return
	shift
	on "$@"
}

carriers="lo"			# on which data moves
[ "${guests:-1}" = 1 ] || carriers="w1 w2"

# by_verbs - KiB that verbs carried, or 0: a packet of an rxe device carries one KiB.
by_verbs()
{
	# shellcheck disable=SC2086 # one or two
	case $rdma in
	siw*) if_connected siw $carriers ;;
	*) cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts | awk '{ n += $1 } END { print n }' ;;
	esac
}

# by_tcp - KiB that TCP carried within a guest.
by_tcp()
{
	case $rdma in
	siw*) [ "$(connected)" = 0 ] && on lo || echo 0 ;;
	*) on lo ;;
	esac
}

# by_device DEVICE WIRE - KiB that verbs carried over this device.
by_device()
{
	case $rdma in
	siw*) if_connected "$@" ;;
	*) cat "/sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts" ;;
	esac
}

# -- waiting, as long as data moves ---------------------------------------------------------------

note()				# WHAT... - into the log, and as a comment after the verdict
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

# grows WHAT COMMAND... - wait until COMMAND's number, once it isn't 0, has grown by 300.
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
endless="$bidir --seconds 1 --rounds 1000"	# stops() ends it; no time would fit every host

# load OPTIONS... - run perf in the background, and wait until verbs (or $over) carries its data.
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

# stops - make an endless load end after its current round.
stops()
{
	# shellcheck disable=SC2046 # one: timeout, and of that braid perf
	kill -TERM $(children $(children $talker)) || bad=1
	ends
}

# killed - kill one rank while data moves: the other rank's comm must fail long before a timeout. The
# process that started both is stopped meanwhile, so the error can't come from it.
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

# ends - wait for the load, whose data must be right; false if anything was wrong.
ends()
{
	from=$(now)
	wait $talker || bad=1
	cat "$tmp/talk"
	note "over $(($(now) - from)) ms later"
	return $bad
}

# fault WHAT FUNCTION... - run a case, and print its notes.
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
