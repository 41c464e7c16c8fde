#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-outage.sh - faults over soft-RoCE between two guests, which have a device on each of two wires:
# what moves is right, and moves by verbs again afterwards.
guests=2 minutes=9
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/vm/rdma-load.sh
. "$vm/rdma-load.sh"

vm_rxe w1 || exit
vm_rxe w2 || exit
if [ "$guest" = 2 ]; then
	serve --dev "rxe0:1+rxe1:1" --verbose
	exit
fi

all_reduce()
{
	load --dev rxe0:1 --pattern allreduce --procs 2 --sizes 2m --iters 8 --warmup 0
	ends
}

# outage SECONDS BREAK MEND - no way at all meanwhile, for nobody.
outage()
{
	load --dev rxe0:1 $bidir --seconds 15
	$2 || bad=1
	sleep "$1"
	$3 || bad=1
	grows "verbs again" by_verbs || bad=1
	logged 'is back' || bad=1
	note "$(connected) queue pairs connected"
	ends
}

netem_loss()			# PERCENT
{
	tc qdisc replace dev w1 root netem limit 10000 loss "$1%" && there \
		tc qdisc replace dev w1 root netem limit 10000 loss "$1%"
}

netem_gone()
{
	tc -s qdisc show dev w1 | sed -n 's/.*dropped \([0-9]*\).*/= \1 frames dropped/p' | head -n 1
	tc qdisc del dev w1 root && there tc qdisc del dev w1 root
}

lossy()
{
	load --dev rxe0:1 $bidir --seconds 6
	netem_loss 1 || bad=1
	grows "verbs with losses" packets rxe0 || bad=1
	sleep 3
	netem_gone || bad=1
	ends
}

# one_of_two - of two fused ports one goes down, and later comes up.
one_of_two()
{
	load --dev "rxe0:1+rxe1:1" $bidir --seconds 25
	ip link set w1 down || bad=1
	grows "the other port" packets rxe1 || bad=1
	ip link set w1 up || bad=1
	grows "the first port" packets rxe0 || bad=1
	ends
}

fault "an all-reduce between two hosts" all_reduce
fault "1 % of all frames are lost" lossy
fault "the interface goes down at this end" outage 2 "ip link set w1 down" "ip link set w1 up"
fault "nothing gets through any more" outage 3 "netem_loss 100" netem_gone
fault "one of two interfaces goes down" one_of_two
done_
