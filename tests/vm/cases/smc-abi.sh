#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# smc-abi.sh - some of the ABI tests over SMC-R alone: no TCP is allowed, and no SMC-D is there.
#
# The ABI tests run on one host, from its address to itself, and over lo SMC's RDMA link does not come
# up. So packets of guest 1 to its own address go by w1 to guest 2, which sends them back.
guests=2
minutes=9
suite=bookworm-backports
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

export BRAID_TRANSPORTS=smc BRAID_SOCKET_IFNAME="=w1" BRAID_HANDSHAKE_TIMEOUT=24 BRAID_LANES=1

# sysctl NAME VALUE - set it for all interfaces and for w1
sysctl()
{
	for dir in all w1; do
		echo "$2" >"/proc/sys/net/ipv4/conf/$dir/$1" || return
	done
}

sends_back()
{
	sysctl rp_filter 0 && sysctl send_redirects 0 && echo 1 >/proc/sys/net/ipv4/ip_forward
}

around()
{
	sysctl rp_filter 0 && sysctl accept_local 1 && sysctl accept_redirects 0 &&
		ip route add 10.77.1.1 via 10.77.1.2 dev w1 table 100 &&
		ip rule add pref 10 iif lo to 10.77.1.1 lookup 100 &&
		ip rule add pref 20 lookup local && ip rule del pref 0
}

if [ "$guest" = 2 ]; then
	sends_back && give ready
	until other_ended; do
		sleep 0.1
	done
	exit
fi

packets()
{
	cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts
}

smc_r()
{
	braid_said=$(timeout $((20 * slow)) "$braid" perf --plugin "$plugin" --check --sizes 8,4k \
		--iters 5 --verbose 2>&1) || { echo "$braid_said"; return 1; }
	echo "$braid_said" | grep "lane 0 is SMC-R over rxe0:1"
}

case_ "an RDMA device" vm_rxe w1
case_ "modules of SMC" vm_later
case_ "a pnetid" "$braid" smc setup --pnetid BRAID --net w1 --ib rxe0
case_ "a UEID" "$braid" smc setup --ueid BRAID.TEST
case_ "the other guest sends back" take ready
case_ "around by the other guest" around
case_ "SMC-R" smc_r
# Without test_queue: under emulation a send waits for 10 s there, which causes a WARN.
before=$(packets)
export BRAID_TEST_SMC=rxe BRAID_TEST_FILTER="${BRAID_TEST_FILTER:-v12*}"
for program in ${BRAID_TEST_PROGRAMS:-test_connect test_group test_order}; do
	sh "$BRAID_TEST_SRCDIR/tests/tap" "$BRAID_TEST_BUILDDIR/tests/abi/${program#abi/}" 2>&1
done
case_ "the device was given $(($(packets) - before)) packets" test $(($(packets) - before)) -gt 1000
done_
