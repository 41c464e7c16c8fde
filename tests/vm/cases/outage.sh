#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# outage.sh - the wire between two guests is cut for some seconds while data moves. The data is right,
# no comm fails, and data moves again soon after.
guests=2 minutes=6
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

env_both="BRAID_SOCKET_IFNAME==w1,w2"
if [ "$guest" = 2 ]; then
	serve --dev "w1+w2"
	exit
fi

# moved WIRE - bytes that the wire has carried, both ways.
moved()
{
	echo $(($(cat "/sys/class/net/$1/statistics/tx_bytes") +
		$(cat "/sys/class/net/$1/statistics/rx_bytes")))
}

# flows WIRE - wait until the wire has carried another 256 KiB, or perf ends. The time is only printed:
# an emulated CPU on a busy host can stand still for seconds.
flows()
{
	from=$(date +%s%3N)
	want=$(($(moved "$1") + 262144))
	while kill -0 $talker 2>/dev/null && [ "$(moved "$1")" -lt $want ]; do
		sleep 0.02
	done
	echo "$1 moves after $(($(date +%s%3N) - from)) ms"
}

talks()
{
	kill -0 $talker 2>/dev/null || { echo "it was over too early"; return 1; }
}

# outage DEVICES SECONDS BREAK MEND [OTHER] - data moves; then BREAK for so long, during which data
# moves over wire OTHER; then MEND, and data moves over all wires again.
outage()
{
	devices=$1 seconds=$2 break=$3 mend=$4 other=${5-}
	checked --pattern bidir --sizes 64k --seconds "$talk_s" --dev "$devices" >"$tmp/talk" 2>&1 &
	talker=$!
	bad=0
	flows w1
	$break || bad=1
	[ -z "$other" ] || flows "$other"
	sleep "$seconds"
	talks || bad=1
	$mend || bad=1
	flows w1
	[ -z "$other" ] || flows "$other"
	wait $talker || bad=1
	cat "$tmp/talk"
	return $bad
}

cut="tc qdisc replace dev w1 root netem loss 100%"
uncut="tc qdisc del dev w1 root"

talk_s=20
case_ "a wire goes down at this end" outage w1 2 "ip link set w1 down" "ip link set w1 up"
case_ "a wire goes down at the other end" \
	outage w1 2 "there ip link set w1 down" "there ip link set w1 up"
case_ "nothing gets through any more" outage w1 3 "$cut" "$uncut"
talk_s=35
case_ "one of two wires goes down" outage w1+w2 3 "ip link set w1 down" "ip link set w1 up" w2
case_ "nothing gets through on one of two" outage w1+w2 3 "$cut" "$uncut" w2
done_
