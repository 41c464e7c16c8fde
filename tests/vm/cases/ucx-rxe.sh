#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ucx-rxe.sh - UCX over soft-RoCE, within a guest: an all-reduce; TCP takes over while the interface is
# down, and UCX has it again; a peer is killed; and with nothing but UCX some of the ABI tests.
minutes=9
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"
over=ucx
# shellcheck source=tests/vm/rdma-load.sh
. "$vm/rdma-load.sh"

ldconfig -p | grep -q 'libucp\.so\.0 ' || skip "libucx0 is not installed"

talk()
{
	timeout $((60 * slow)) "$braid" perf --plugin "$plugin" --check --csv "$@" \
		>"$tmp/csv" 2>"$tmp/err" || { cat "$tmp/err"; return 1; }
}

all_reduce()
{
	load --pattern allreduce --procs 3 --sizes 2m --iters 4 --warmup 0
	ends
}

# What is shared with UCX left to itself is memory, so here the ports are all that it may use.
down_up()
{
	load $endless
	ip link set v0 down
	logged 'is lost' || bad=1
	grows tcp by_tcp || bad=1
	ip link set v0 up
	grows "ucx again" by_verbs || bad=1
	logged 'is back' || bad=1
	stops
}

# by_itself - UCX chooses, of all that it has: the address of its worker fits into the handshake.
by_itself()
{
	(unset UCX_TLS; checked $bidir --seconds 1 --verbose) || { cat "$tmp/err"; return 1; }
	! grep "WARN.*carries" "$tmp/err"
}

# Soft-RoCE does not say of which version of RoCE a packet is, so UCX would look for the address to
# which it came in the wrong place, and drop it.  An emulated RDMA device takes its time.
export UCX_UD_ETH_DGID_CHECK=n BRAID_HANDSHAKE_TIMEOUT=24 UCX_TLS=rc
vm_rdma rxe v0 || exit
export BRAID_SOCKET_IFNAME="=v0"
fault "an all-reduce of three processes" all_reduce
fault "the interface goes down and comes up" down_up
fault "a peer is killed" killed
fault "UCX chooses" by_itself
done_

: "${BRAID_TEST_PROGRAMS=abi/test_connect abi/test_sizes abi/test_order abi/test_queue}"
export BRAID_TEST_PROGRAMS netdev=v0
sh "$BRAID_TEST_SRCDIR/tests/ucx/device.sh"
