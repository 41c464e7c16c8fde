#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma.sh - over simulated NICs (tests/fake): InfiniBand, RoCE v2 and iWARP; and with GPU memory that
# those NICs read and write, but the CPU can't touch (tests/fakecuda).
# shellcheck source=tests/nccl/lib.sh
. "$(dirname "$0")/lib.sh"

fake=$build/tests/fake/.libs
cuda=$build/tests/fakecuda/.libs
[ -e "$fake/libibverbs.so.1" ] || skip "built without RDMA"
if [ -w /dev/shm ] && [ "$(df -kP /dev/shm | awk 'NR == 2 { print $4 }')" -ge 1000000 ]; then
	rm -rf "$tmp"
	tmp=$(mktemp -d /dev/shm/braid-XXXXXX)
fi
export LD_LIBRARY_PATH="$cuda:$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# over NICS LABEL CASE... - runs the cases, and checks that the NICs carried messages.
over()
{
	nics=$1 label=$2
	shift 2
	rm -rf "$tmp/fabric" "$tmp/fabric.d"
	export BRAID_TEST_FAKE_FABRIC="$tmp/fabric" BRAID_TEST_FAKE_DEVICES="$nics"
	"$job" --label "$label: " "$@"
	sent=$("$build/tests/fake/fakectl" "count messages")
	[ "$sent" -gt 100 ]
	verdict $? "$label: it was carried by the NIC"
}

over "ib0:ib" InfiniBand types soak kill abort
over "roce0:rocev2,netdev=lo" "RoCE v2" types soak kill
over "iw0:iwarp,netdev=lo" iWARP types soak kill

# The NIC reads and writes the GPU's memory for all messages.
export BRAID_TEST_GPU_FAKECUDA=1 BRAID_TEST_NCCL_SAYS=/GDRDMA
export NCCL_DEBUG=INFO NCCL_NET_GDR_LEVEL=SYS NCCL_NET_GDR_READ=1
over "ib0:ib,dmabuf=1" "the GPU's memory by DMA-BUF" types soak
over "roce0:rocev2,netdev=lo,dmabuf=0,peermem=1" "the GPU's memory by nvidia-peermem" types soak
(
	export BRAID_TEST_NCCL_SAYS="memory is not offered by iw0"
	over "iw0:iwarp,netdev=lo,dmabuf=1" "iWARP, which takes no memory of a GPU: by the host's" types
)
# A NIC's write becomes visible only when the NIC reads: NCCL flushes in Simple; LL needs no flush.
export NCCL_PROTO=Simple
over "ib0:ib,dmabuf=1,late=1" "what is written into the GPU is late" types soak
over "roce0:rocev2,netdev=lo,dmabuf=0,peermem=1,late=1" "the same by nvidia-peermem" types soak
