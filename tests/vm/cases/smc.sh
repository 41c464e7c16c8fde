#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# smc.sh - SMC between two guests, over soft-RoCE: while something is missing it falls back to TCP, with
# the right reason each time; once both have all that it needs it is SMC-R, and carries messages.
guests=2
minutes=9
suite=bookworm-backports
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

# A long handshake timeout: an emulated RDMA device is slow.
export BRAID_TRANSPORTS=smc,tcp BRAID_SOCKET_IFNAME="=w1" BRAID_HANDSHAKE_TIMEOUT=24 BRAID_LANES=1
if [ "$guest" = 2 ]; then
	serve --verbose
	exit
fi

# Load SMC's modules in this guest, or in the other one.
load_here()
{
	[ -s /run/braid-modules/later ] && vm_later
}

load_there()
{
	there 'while read -r m; do busybox insmod /run/braid-modules/$m || exit; done </run/braid-modules/later'
}

both()
{
	"$@" && there "$@"
}

# says WORDS - small messages arrive, and this end logs WORDS
says()
{
	talk --sizes 8 --iters 3 --verbose || return
	grep "WARN\|lane 0 is" "$tmp/err" | tee -a "$tmp/seen"
	grep -q "$1" "$tmp/err"
}

smc_r()
{
	says "lane 0 is SMC-R over rxe0:1" && ! grep -q "WARN.*carries" "$tmp/err"
}

# all_smc OPTIONS... - every byte is right, and SMC-R alone carried the lane
all_smc()
{
	checked "$@" --verbose || return
	grep "WARN\|lane 0 is" "$tmp/err"
	! grep -q "WARN.*carries\|is back" "$tmp/err" && grep -q "lane 0 is SMC-R" "$tmp/err"
}

# The RDMA device of the other guest goes away in the midst: TCP takes over, nothing is lost.
fails_over()
{
	(
		sleep 6
		there rdma link delete rxe0
	) &
	checked --sizes 64k --seconds 20 --inflight 4 --verbose
	rc=$?
	wait $!
	asked=$((asked + 1))
	grep "WARN\|lane 0 is" "$tmp/err" | tee -a "$tmp/seen"
	[ $rc = 0 ] && grep -q "lane 0 is SMC-R" "$tmp/err" && grep -q "lane 0 is lost" "$tmp/err" &&
		grep -q "lane 0 is back" "$tmp/err"
}

devices()
{
	vm_rxe w1 && there 'rdma link add rxe0 type rxe netdev w1
		until grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state; do sleep 0.1; done'
}

# told WORDS - braid smc prints what is missing, and the command that adds it
told()
{
	"$braid" smc | tee "$tmp/smc"
	grep -q "missing .*$1" "$tmp/smc"
}

# ueids HERE THERE
ueids()
{
	"$braid" smc setup --ueid "$1" && there "$braid" smc setup --ueid "$2"
}

pnetid="$braid smc setup --pnetid BRAID --net w1 --ib rxe0"

case_ "modules of SMC" load_here
case_ "a peer without SMC" says "the peer does not offer smc"
case_ "modules of SMC at the peer" load_there
case_ "no RDMA device" says "fell back to TCP, reason 0x03030000: no device for SMC"
case_ "RDMA devices" devices
case_ "no UEID is reported" told "braid smc setup --ueid"
# shellcheck disable=SC2086
case_ "a pnetid" both $pnetid
case_ "no UEID" says "fell back to TCP, reason 0x03030000"
case_ "UEIDs that differ" ueids BRAID.ONE BRAID.TWO
case_ "no UEID in common" says "the peer's reason 0x03030000: no device for SMC.*no UEID in common"
case_ "the same UEID" ueids BRAID.TEST BRAID.TEST
case_ "SMC-R" smc_r
case_ "messages of all sizes" all_smc --sizes 1,127,128,4k,100001,1m --iters 4 --comms 2
case_ "both ways" all_smc --pattern bidir --sizes 64k,1m --iters 4
# Two ranks, one in each guest: within a guest data goes over lo, where there is no SMC-R.
case_ "an all-reduce" all_smc --pattern allreduce --procs 2 --sizes 256k --iters 2
case_ "one way, several at once" all_smc --pattern oneway --sizes 64k --iters 8 --inflight 8
case_ "its device is lost under load" fails_over
sed 's/^/# /' "$tmp/seen"
done_
