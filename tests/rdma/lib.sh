# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# lib.sh - the ABI tests over a NIC that exists in memory only (tests/fake).  Sourced by the scripts
# beside it, which say what $nics there are (tests/fake/ctl.h), which $programs they run besides
# those of suite.sh, and by own=address that what they carry is what another carries.  TCP is there
# to fall back to, as it is unasked.
#
# Over TCP most of them would pass as well.  So each is followed by a case that says how many work
# requests the NIC was given meanwhile, and a case before all shows that over TCP there are none.
set -u

newest="rdma/test_counts abi/test_shapes"
# How some are found and addressed is their own, what they carry then is not: all of it by check-rdma.
[ "${own-}" != address ] || few="abi/test_life abi/test_connect rdma/test_counts"
# shellcheck source=tests/rdma/suite.sh
. "$(dirname "$0")/suite.sh"
build=${BRAID_TEST_BUILDDIR:-.}
fake=$build/tests/fake/.libs

skip()				# WHY
{
	echo "skip: $1"
	exit 77
}

[ -e "$fake/libibverbs.so.1" ] || skip "built without RDMA"
[ -x "$build/tests/abi/test_life" ] || skip "cmocka is not installed"

# In containers it is small, and a file that has no room is a SIGBUS.
if [ -w /dev/shm ] && [ "$(df -kP /dev/shm | awk 'NR == 2 { print $4 }')" -ge 1000000 ]; then
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

# What all NICs together have been given so far; not the write by which a port is probed.
sent()
{
	"$build/tests/fake/fakectl" "count messages"
}

# perf OVER OPTIONS... - between two processes; what was sent is $during.
perf()
{
	over=$1
	shift
	before=$(sent) &&
		BRAID_TRANSPORTS=$over braid_perf --sizes 8,1m --iters 20 "$@" || return
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
	program "$program"
	during=$(($(sent) - before))
	echo "$program: $during work requests"
	[ $during -gt 0 ]
	verdict $? "$program was carried by the NIC"
done
