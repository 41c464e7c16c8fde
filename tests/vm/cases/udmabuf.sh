#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# udmabuf.sh - the case of tests/abi/test_gpu_messages that registers a DMA-BUF of the kernel's own
# (/dev/udmabuf, which Debian's Linux 6.1 lacks) with a NIC that exists in memory.
suite=bookworm-backports
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

case_ "/dev/udmabuf is there" test -c /dev/udmabuf
BRAID_TEST_FILTER='*DMA-BUF that the kernel made*' sh "$BRAID_TEST_SRCDIR/tests/tap" \
	"$BRAID_TEST_BUILDDIR/tests/abi/test_gpu_messages" 2>&1
done_
