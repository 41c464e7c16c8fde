# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# lib.sh - the ABI tests over a NIC that exists in memory only (tests/fake).  Sourced by the scripts
# beside it, which say what $nics there are (tests/fake/ctl.h), and which $programs they run
# besides those below.  TCP is there to fall back to, as it is unasked.
#
# Over TCP most of them would pass as well.  So each is followed by a case that says how many work
# requests the NIC was given meanwhile, and a case before all shows that over TCP there are none.
# BRAID_TEST_FILTER: cmocka's pattern ("v12*"); BRAID_TEST_PROGRAMS: those and no others.
set -u

build=${BRAID_TEST_BUILDDIR:-.}
fake=$build/tests/fake/.libs

skip()				# WHY
{
	echo "skip: $1"
	exit 77
}

[ -e "$fake/libibverbs.so.1" ] || skip "built without RDMA"
[ -x "$build/tests/abi/test_life" ] || skip "cmocka is not installed"

export BRAID_TEST_FILTER="${BRAID_TEST_FILTER:-v12*}"

case $BRAID_TEST_FILTER in	# what is below the shims is tested for one version
v12*) newest="rdma/test_counts abi/test_loss abi/test_shapes" ;;
esac
# Not what fails calls into libc (test_fault), nor what one NIC is not enough for (test_vdevice).
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

if [ -w /dev/shm ]; then
	tmp=$(mktemp -d /dev/shm/braid-XXXXXX)
else
	tmp=$(mktemp -d)
fi
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

export LD_LIBRARY_PATH="$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export BRAID_TEST_FAKE_FABRIC="$tmp/fabric" BRAID_TEST_FAKE_DEVICES="${nics:?}"
export BRAID_SOCKET_IFNAME=lo
BRAID_TEST_RDMA=$(basename "$0" .sh)
export BRAID_TEST_RDMA

# What all NICs together have been given so far.
sent()
{
	"$build/tests/fake/fakectl" "count sends"
}

verdict()			# GOOD? WHAT
{
	[ "$1" = 0 ] || printf 'not '
	printf 'ok - %s\n1..1\n' "$2"
}

# perf OVER OPTIONS... - between two processes; what was sent is $during.
perf()
{
	over=$1
	shift
	before=$(sent) &&
		BRAID_TRANSPORTS=$over "$BRAID_TEST_BRAID" perf --plugin "$BRAID_TEST_PLUGIN" \
			--sizes 8,1m --iters 20 --check "$@" >"$tmp/perf" 2>&1 ||
		{ cat "$tmp/perf"; return 1; }
	during=$(($(sent) - before))
	echo "$over: $during work requests"
}

perf tcp && [ "$during" = 0 ]
verdict $? "over TCP the NIC is given nothing"
perf verbs,tcp && [ "$during" -gt 0 ]
verdict $? "unasked it is"

BRAID_TEST_FAKE_DEVICES=$nics,memlock=4000000 BRAID_LANES=1 perf verbs --timeout 20 &&
	[ "$during" -gt 0 ]
verdict $? "memory that the NIC is refused is sent all the same"

for program in $BRAID_TEST_PROGRAMS; do
	before=$(sent)
	sh "$BRAID_TEST_SRCDIR/tests/tap" "$build/tests/$program" 2>&1
	during=$(($(sent) - before))
	echo "$program: $during work requests"
	[ $during -gt 0 ]
	verdict $? "$program was carried by the NIC"
done
