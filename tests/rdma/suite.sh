# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# suite.sh - the ABI tests that an RDMA NIC can carry.  Sourced by lib.sh (NICs that exist in memory
# only) and device.sh (real ones, and the kernel's own in a virtual machine).
#
# BRAID_TEST_FILTER: cmocka's pattern ("v12*"); BRAID_TEST_PROGRAMS: those and no others;
# BRAID_TEST_ALL=1: all, also where the sourcer has $few.

[ "${BRAID_TEST_ALL-}" ] || : "${BRAID_TEST_PROGRAMS:=${few-}}"
export BRAID_TEST_FILTER="${BRAID_TEST_FILTER:-v12*}"
# How long a message may be is core's, which cuts it: seen over TCP.
export BRAID_TEST_WITHOUT="${BRAID_TEST_WITHOUT-*2^31*}"

# The sourcer's $programs are run as well, and its $newest for the newest version only.
case $BRAID_TEST_FILTER in	# what is below the shims is tested for one version
v12*) newest="abi/test_loss abi/test_rma ${newest-}" ;;
*) newest= ;;
esac

# Not those that make libc's calls fail (test_fault), that speak TCP to the plugin (test_badpeer*,
# test_descriptors, test_handshake, test_strangers), or that need two NICs (test_vdevice).
: "${BRAID_TEST_PROGRAMS:=
	abi/test_life
	abi/test_connect
	abi/test_sizes
	abi/test_order
	abi/test_group
	abi/test_queue
	abi/test_pool
	abi/test_threads
	abi/test_hints
	abi/test_mixed
	abi/test_fork
	abi/test_close
	abi/test_death
	${newest-}
	${programs-}}"

verdict()			# GOOD? WHAT
{
	[ "$1" = 0 ] || printf 'not '
	printf 'ok - %s\n1..1\n' "$2"
}

program()			# NAME, with its cases
{
	sh "$BRAID_TEST_SRCDIR/tests/tap" "$BRAID_TEST_BUILDDIR/tests/$1" 2>&1
}

braid_perf()			# OPTIONS...; what it says is $tmp/perf
{
	"$BRAID_TEST_BRAID" perf --plugin "$BRAID_TEST_PLUGIN" --check "$@" >"$tmp/perf" 2>&1 ||
		{ cat "$tmp/perf"; return 1; }
}
