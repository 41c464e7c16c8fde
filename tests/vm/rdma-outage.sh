# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-outage.sh - faults between two guests, which have an RDMA device on each of two wires. The data
# is right, and goes by verbs again afterwards. Sourced by cases/rdma-outage.sh and
# cases/rdma-outage-siw.sh, which set $type, the kind of the devices.
guests=2 minutes=${minutes:-9}
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/vm/rdma-load.sh
. "$vm/rdma-load.sh"

# A timeout of 134 ms and seven retries, so that three seconds without packets lose a lane.
export BRAID_IB_TIMEOUT=15
both="${type:?}0:1+${type}1:1"
vm_rdma "$type" w1 || exit
vm_rdma "$type" w2 || exit
if [ "$guest" = 2 ]; then
	serve --dev $both --verbose
	exit
fi

all_reduce()
{
	load --dev $both --pattern allreduce --procs 2 --sizes 2m --iters 8 --warmup 0
	ends
}

# both_wires COMMAND... - run COMMAND for w1 and w2, each in place of WIRE.
both_wires()
{
	for wire in w1 w2; do
		eval "$(echo "$*" | sed "s/WIRE/$wire/")" || return
	done
}

losing()			# PERCENT
{
	both_wires tc qdisc replace dev WIRE root netem limit 10000 loss "$1%" &&
		both_wires there tc qdisc replace dev WIRE root netem limit 10000 loss "$1%"
}

good_again()
{
	tc -s qdisc show dev w1 | sed -n 's/.*(dropped \([0-9]*\),.*/= \1 frames dropped/p'
	both_wires tc qdisc del dev WIRE root && both_wires there tc qdisc del dev WIRE root
}

lossy()
{
	load --dev $both $endless
	losing 1 || bad=1
	grows "verbs with losses" by_verbs || bad=1
	sleep 3
	good_again || bad=1
	stops
}

# outage SECONDS BREAK MEND - BREAK cuts all wires, for TCP as well, and MEND restores them.
outage()
{
	load --dev $both $endless
	$2 || bad=1
	sleep "$1"
	$3 || bad=1
	grows "verbs again" by_verbs || bad=1
	logged 'is back' || bad=1
	note "$(connected) queue pairs connected"
	stops
}

# one_of_two - one of two fused ports goes down, and comes up later.
one_of_two()
{
	load --dev $both $endless
	ip link set w1 down || bad=1
	grows "the other port" by_device "${type}1" w2 || bad=1
	ip link set w1 up || bad=1
	grows "the first port" by_device "${type}0" w1 || bad=1
	stops
}

# one_to_two - the peer has two ports, of which this end can reach one only.
one_to_two()
{
	load --dev "${type}0:1" --pattern bidir --sizes 64k --iters 60
	ends
}

fault "an all-reduce between two hosts" all_reduce
fault "one port here, two there" one_to_two
fault "1 % of all frames are lost" lossy
fault "the interfaces go down at this end" outage 2 "both_wires ip link set WIRE down" \
	"both_wires ip link set WIRE up"
fault "nothing gets through any more" outage 3 "losing 100" good_again
fault "one of two interfaces goes down" one_of_two
done_
