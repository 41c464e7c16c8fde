#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# net.sh - ranks on two hosts (network namespaces, tests/net/lib.sh): streams that are reset, a NIC
# that is down for a while, two NICs.  Wire 0 is NCCL's own, the others are Braid's.
# shellcheck source=tests/nccl/lib.sh
. "$(dirname "$0")/lib.sh"
rm -rf "$tmp"
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/../net/lib.sh"

hosts
wire 1500
wire 1500
export NCCL_SOCKET_IFNAME="=w0" BRAID_SOCKET_IFNAME="=w1"

# during LABEL SECONDS COMMAND... - run a soak, and COMMAND once the soak has begun.
during()
{
	label=$1 soak=$2
	shift 2
	rm -f "$tmp/begun"
	BRAID_TEST_NCCL_BEGUN=$tmp/begun BRAID_TEST_NCCL_SOAK_S=$soak "$job" --netns "$a,$b" --label "$label: " \
		soak >"$tmp/out" &
	pid=$!
	while kill -0 $pid 2>/dev/null && ! [ -e "$tmp/begun" ]; do
		sleep 0.1
	done
	"$@" >"$tmp/did" 2>&1
	did=$?
	wait $pid
	cat "$tmp/out" "$tmp/did"
	verdict $did "$label: that happened"
}

# Resets all streams of Braid's five times, by ss -K.
reset_streams()
{
	rounds=0 killed=0
	for _ in 1 2 3 4 5; do
		sleep 1
		for _ in 1 2 3 4 5 6 7 8 9 10; do
			n=$(in_a ss -KHtn state established dst 10.77.1.0/24 | wc -l)
			killed=$((killed + n))
			[ "$n" = 0 ] || break
			sleep 0.1
		done
		[ "$n" = 0 ] || rounds=$((rounds + 1))
	done
	echo "# $killed streams were ended"
	[ $rounds -ge 4 ]
}

down_for_3s()
{
	sleep 1
	ip -n "$a" link set w1 down && sleep 3 && ip -n "$a" link set w1 up
}

"$job" --netns "$a,$b" --label "two hosts: " types kill
export BRAID_TEST_NCCL_WARNS=20
during "all streams are reset five times" 10 reset_streams
during "the NIC is down for 3 s" 9 down_for_3s
unset BRAID_TEST_NCCL_WARNS

# NCCL asks to fuse both NICs. Without PCI paths Braid refuses, and NCCL uses them as two devices.
export BRAID_SOCKET_IFNAME="=w1,w2"
"$job" --netns "$a,$b" --label "two NICs without a PCI path: " types sizes

# The same NICs as two ports of one PCI card, in a /sys of the test's own: NCCL fuses them, and both
# carry data.
machine()
{
	printf '%s\n' "cpu GenuineIntel 6 143" "node 0 0-1" "host pci0000:20" "  bridge 0000:20:01.0" \
		"    nic 0000:21:00.0 net=w1 speed=100000" "    nic 0000:21:00.1 net=w2 speed=100000" \
		"soft w0" "soft lo"
}

sent()				# INTERFACE
{
	ip -n "$a" -s link show "$1" | awk '/TX:/ { getline; print $1 }'
}

machine >"$tmp/machine"
bash "$(dirname "$0")/../topo/mktree" "$tmp/machine" "$tmp/tree"
# shellcheck disable=SC2016 # of the inner shell
if unshare -m sh -c 'mount --make-rprivate / && mount --bind "$1" /sys' - "$tmp/tree/sys" 2>"$tmp/why"; then
	w1=$(sent w1) w2=$(sent w2)
	NCCL_DEBUG=INFO BRAID_TEST_NCCL_SAYS="w1+w2" unshare -m sh -c '
		mount --make-rprivate / && mount --bind "$1" /sys && shift && exec "$@"' - "$tmp/tree/sys" \
		"$job" --netns "$a,$b" --label "two ports of one card: " types sizes kill
	w1=$(($(sent w1) - w1)) w2=$(($(sent w2) - w2))
	echo "# w1 sent $w1 bytes, w2 $w2"
	[ $w1 -gt 10000000 ] && [ $w2 -gt 10000000 ]
	verdict $? "two ports of one card: both carry"
else
	echo "ok - two ports of one card # SKIP no /sys of our own: $(head -n 1 "$tmp/why")"
	echo "1..1"
fi
