# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# abi.sh - the tests of make check-device, over a device of the kernel's in one guest. Sourced by
# cases/abi-rxe.sh and cases/abi-siw.sh, which set $type, the kind of the device.
# BRAID_TEST_PROGRAMS: run only these ABI tests.
minutes=${minutes:-19}
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

vm_rdma "${type:?}" v0 || exit
# BRAID_TEST_TIMEOUT in the environment is for the whole case, so set one for each program.
DEV=$rdma BRAID_TEST_TIMEOUT=120 sh "$BRAID_TEST_SRCDIR/tests/rdma/device.sh"
