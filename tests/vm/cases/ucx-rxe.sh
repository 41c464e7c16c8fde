#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ucx-rxe.sh - UCX over soft-RoCE, within a guest: an all-reduce; TCP takes over while the interface is
# down, then UCX carries data again; a peer is killed; some of the ABI tests over UCX alone.
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

# By its own choice UCX would use shared memory, so UCX_TLS=rc below allows it the ports only.
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

# by_itself - UCX chooses among all its transports: its worker address still fits into the handshake.
by_itself()
{
	(unset UCX_TLS; checked $bidir --seconds 1 --verbose) || { cat "$tmp/err"; return 1; }
	! grep "WARN.*carries" "$tmp/err"
}

# Soft-RoCE does not report a packet's RoCE version, so UCX would look for the destination address in
# the wrong place, and drop the packet. The handshake timeout is long: an emulated device is slow.
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
