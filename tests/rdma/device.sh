#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# device.sh - the ABI tests and braid perf over one RDMA device: make check-device DEV=mlx5_0.
#
# Within this host, from the device to itself, with BRAID_TRANSPORTS=verbs: what moved, moved over the
# device or not at all.  A case before all shows that this is so.
#
# DEV: the device, or one of its ports (mlx5_0:2).  PEER=HOST:PORT and BRAID_PERF_KEY=KEY: braid perf also to
# another host, where this was started before, and has printed KEY:
#	BRAID_TRANSPORTS=verbs BRAID_IB_HCA==mlx5_0 braid perf --listen PORT
# BRAID_TEST_FILTER, BRAID_TEST_PROGRAMS: as in suite.sh.
set -u

: "${BRAID_TEST_WITHOUT=}"	# all, on a NIC
# shellcheck source=tests/rdma/suite.sh
. "${BRAID_TEST_SRCDIR:-.}/tests/rdma/suite.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# shellcheck disable=SC3045 # dash and bash have it
ulimit -l unlimited 2>/dev/null || echo "memory that can be pinned: $(ulimit -l) KiB"
export BRAID_TEST_RDMA=device BRAID_TRANSPORTS=verbs BRAID_IB_HCA="=${DEV:?is the device that is tested, as in DEV=mlx5_0}"

# Braid names a device by its port, and says of each that it does not use why not.
has_verbs()
{
	"$BRAID_TEST_BRAID" info --plugin "$BRAID_TEST_PLUGIN" --json >"$tmp/info" || return
	cat "$tmp/info"
	grep -q "\"name\": \"${DEV%%:*}:" "$tmp/info"
}

not_without_it()
{
	! (BRAID_IB_HCA="=none" braid_perf --sizes 8 --iters 1 --timeout 5)
}

perfs()				# TO_WHOM OPTIONS...
{
	whom=$1
	shift
	for pattern in pingpong oneway bidir rate; do
		braid_perf --pattern $pattern --sizes 8,1001,4k,64k,1m,16m --iters 20 --csv "$@"
		rc=$?
		sed 's/^/# /' "$tmp/perf"
		verdict $rc "$pattern $whom"
	done
}

has_verbs >"$tmp/said"
rc=$?
sed 's/^/# /' "$tmp/said"
verdict $rc "braid info has device $DEV"
[ $rc = 0 ] || exit 0		# the rest would only say it again
not_without_it >"$tmp/said"
verdict $? "nothing moves without it"
perfs "within this host"
for program in $BRAID_TEST_PROGRAMS; do
	program "$program"
done
if [ -n "${PEER-}" ]; then
	perfs "to $PEER" --connect "$PEER"
else
	echo "ok - to another host # SKIP PEER=HOST:PORT and BRAID_PERF_KEY were not given"
	echo "1..1"
fi
