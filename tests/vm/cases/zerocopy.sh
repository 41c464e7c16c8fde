#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# zerocopy.sh - BRAID_ZEROCOPY=1 between two guests, over a NIC that reads a payload where it lies.
#
# Wire 1 ends in an emulated e1000e: it gathers, and makes checksums, so the kernel copies nothing.
# Wire 2 ends in virtio-net, which over QEMU's streams has neither: there the kernel copies.
#
# QEMU 7.2 cuts e1000e's large segments into IP fragments, so the kernel makes small ones.  An emulator
# can't judge what a copy costs: docs/results/zerocopy.md.
guests=2 minutes=12 nic=e1000e
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

common="BRAID_LANES=1 BRAID_ZEROCOPY=1"
env_both="$common BRAID_SOCKET_IFNAME==w1 BRAID_CHECKSUM=on"

# The 64 KiB of lent.c leave in one flight.
big_flights()
{
	ip route replace 10.77.1.0/24 dev w1 src "10.77.1.$guest" initcwnd 100
}

ip link set w1 gso_max_segs 1
# The default of newer kernels; 6.1's, of 20 KiB, is too small where much waits for acknowledgements.
echo 131072 >/proc/sys/net/core/optmem_max
big_flights
if [ "$guest" = 2 ]; then
	# shellcheck disable=SC2086 # variables and their values
	env $common BRAID_SOCKET_IFNAME==w2 "$braid" perf --plugin "$plugin" \
		--listen 10.77.0.2:0 2>"$tmp/err.w2" &
	give port.w2 "$(listening "$tmp/err.w2" $!)"
	serve
	exit
fi

# -- sending -------------------------------------------------------------------------------------

# figure WORDS - printed at the end, for docs/results/zerocopy.md.
figure()
{
	echo "# $*" | tee -a "$tmp/figures"
}

# total NAME - this metric of Braid's, as it was last seen.
total()
{
	awk -v name="braid_$1_total" 'index($1, name "{") == 1 { n += $2 } END { print n + 0 }' \
		"$tmp/metrics"
}

# sends OPTIONS... - checked, and meanwhile $tmp/metrics and $tmp/dump become what the process says.
sends()
{
	: >"$tmp/metrics"
	: >"$tmp/dump"
	checked --pattern oneway --seconds 12 --verbose "$@" >"$tmp/talk" 2>&1 &
	talker=$!
	while kill -0 $talker 2>/dev/null; do
		"$braid" stat --metrics >"$tmp/new" 2>/dev/null && grep -q '^braid_zerocopy' "$tmp/new" &&
			mv "$tmp/new" "$tmp/metrics"
		pid=$(sed -n 's/^braid_zerocopy_bytes.*pid="\([0-9]*\)".*/\1/p' "$tmp/metrics")
		[ -z "$pid" ] || "$braid" dump "$pid" >>"$tmp/dump" 2>/dev/null
		sleep 0.2
	done
	wait $talker
	rc=$?
	cat "$tmp/talk" "$tmp/csv"
	figure "$what: $(total zerocopy_bytes) bytes by MSG_ZEROCOPY," \
		"$(total zerocopy_copied) calls copied"
	return $rc
}

# uncopied OPTIONS... - every byte is right, large payloads were lent, and the kernel copied none.
uncopied()
{
	sends "$@" || return
	[ "$(total zerocopy_bytes)" -ge 1048576 ] && [ "$(total zerocopy_copied)" = 0 ] &&
		grep -q 'sends without a copy' "$tmp/dump" && ! grep -e 'with copies' "$tmp/err"
}

# copied OPTIONS... - the kernel copied, Braid says so, and sends the rest as ever.
copied()
{
	sends "$@" || return
	[ "$(total zerocopy_copied)" -gt 0 ] &&
		grep 'device w2, .* sends with copies from now on: the kernel copied' "$tmp/err"
}

resent()
{
	nstat -asz TcpRetransSegs | awk '$1 == "TcpRetransSegs" { print $2 }'
}

lossy()
{
	before=$(resent)
	tc qdisc replace dev w1 root netem limit 10000 loss 2%
	uncopied "$@"
	rc=$?
	tc qdisc del dev w1 root
	figure "$what: $(($(resent) - before)) segments were sent again"
	[ $rc = 0 ] && [ "$(resent)" -gt "$before" ]
}

# -- memory that is taken back ---------------------------------------------------------------------

program=$BRAID_TEST_BUILDDIR/tests/net/lent
dir=$BRAID_TEST_SHARE/lent

# lent ROLE - the command that runs it, of which $dir.ROLE gets the output.
lent()
{
	echo "env $common BRAID_SOCKET_IFNAME==w1 BRAID_PEER_TIMEOUT=${dead_s:-240}" \
		"timeout $((150 * slow)) $program $1 $dir >$dir.$1 2>&1"
}

until_()			# FILE
{
	i=0
	until [ -e "$dir/$1" ]; do
		sleep 0.1
		i=$((i + 1))
		[ $i -lt $((900 * slow)) ] || { echo "no $1"; return 1; }
	done
}

# The receiver stands still, so that no bytes of its own end a socket that was closed. Nothing gets
# through; later the sender's kernel has time to send what it still has.
hole()
{
	pid=$(cat "$dir/pid")
	there kill -STOP "$pid" && sleep 1 && tc qdisc replace dev w1 root netem loss 100% &&
		: >"$dir/shut" && until_ gone && tc qdisc del dev w1 root && sleep $((2 * slow)) &&
		there kill -CONT "$pid"
}

# What leaves stays in a queue of this host's for some seconds, and then goes on. Once the memory was
# given back, the queue has none of it any more.
queue()
{
	tc qdisc replace dev w1 root netem limit 10000 delay 4s && : >"$dir/shut" && until_ gone ||
		return
	held=$(tc -s -j qdisc show dev w1 | sed -n 's/.*"backlog":\([0-9]*\).*/\1/p')
	echo "$held bytes are in the queue"
	sleep 5
	tc qdisc del dev w1 root
	[ "$held" -lt 16384 ]
}

# The sender's NIC goes down, and comes up again.
down()
{
	ip link set w1 down && : >"$dir/shut" && until_ gone && ip link set w1 up && big_flights &&
		sleep $((2 * slow))
}

# taken_back ROLE WAY - see the head of lent.c. The connection was aborted, since it had lent.
taken_back()
{
	rm -rf "$dir"
	mkdir "$dir"
	there "{ $(lent recv) || : >$dir/bad >$dir/got; : >$dir/end; } &"
	sh -c "$(lent "$1")" &
	sender=$!
	until_ up && $2
	well=$?
	wait $sender || well=1
	until_ end && [ ! -e "$dir/bad" ] || well=1
	cat "$dir.$1" "$dir.recv"
	figure "$what: $(grep 'let go' "$dir.$1"); the receiver got $(cat "$dir/got")"
	[ $well = 0 ] && grep -q 'lane 0 is lost' "$dir.$1" && ! grep 'with copies' "$dir.$1"
}

case_ "the payloads of large messages are sent without a copy, and arrive right" \
	uncopied --sizes 256k
case_ "a NIC that can't gather: the kernel copies, Braid says so, and all arrives right" \
	eval "server=port.w2 env_a=BRAID_SOCKET_IFNAME==w2; copied --sizes 256k"
env_a='' server=port
case_ "what is lost is sent again without a copy, and arrives right" \
	lossy --sizes 256k
env_a=BRAID_CHECKSUM=off
case_ "the same without checksums" lossy --sizes 256k
case_ "memory taken back while it is in a queue stays until the queue has let go" \
	taken_back send queue
case_ "memory taken back while the NIC is down does not arrive changed" taken_back send down
case_ "memory taken back while nothing gets through does not arrive changed" taken_back send hole
dead_s=20
case_ "nor does that of a process that closes and finalizes then" taken_back close hole
cat "$tmp/figures"
done_
