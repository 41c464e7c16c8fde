# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# shim.sh - UCX by tests/ucx/shim.c, over shared memory, and none of lib.sh's ABI tests.  Sourced by the
# scripts beside it.  $plain: LD_LIBRARY_PATH without it.
tls=shm,self
programs=
BRAID_TEST_PROGRAMS=none
# shellcheck source=tests/ucx/lib.sh
. "$(dirname "$0")/lib.sh"

BRAID_TEST_UCP=$(ldconfig -p | awk '$1 == "libucp.so.0" { print $NF; exit }')
export BRAID_TEST_UCP
[ -n "$BRAID_TEST_UCP" ] || skip "ldconfig does not know where libucp.so.0 is"
[ -e "$build/tests/ucx/.libs/libucp.so.0" ] || skip "built without UCX"
plain=${LD_LIBRARY_PATH-}
LD_LIBRARY_PATH=$build/tests/ucx/.libs${plain:+:$plain}
export LD_LIBRARY_PATH
