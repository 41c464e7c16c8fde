# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# abi.sh - what make check-device does, over a device of the kernel's in one guest.  Sourced by
# cases/abi-rxe.sh and cases/abi-siw.sh, which say what $type the device is of.
# BRAID_TEST_PROGRAMS: of the ABI tests only those.
minutes=${minutes:-19}
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

vm_rdma "${type:?}" v0 || exit
# The limit in the environment is that of all of it.
DEV=$rdma BRAID_TEST_TIMEOUT=120 sh "$BRAID_TEST_SRCDIR/tests/rdma/device.sh"
