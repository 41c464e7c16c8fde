#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# udmabuf.sh - a DMA-BUF of the kernel's own (/dev/udmabuf, which Debian's 6.1 has not), registered
# with a NIC that exists in memory: tests/abi/test_gpu_messages's case of it.
suite=bookworm-backports
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

case_ "/dev/udmabuf is there" test -c /dev/udmabuf
BRAID_TEST_FILTER='*DMA-BUF that the kernel made*' sh "$BRAID_TEST_SRCDIR/tests/tap" \
	"$BRAID_TEST_BUILDDIR/tests/abi/test_gpu_messages" 2>&1
done_
