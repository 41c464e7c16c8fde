#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# bench.sh - Braid beside perftest: make vm-bench.  In one guest, between two processes on one RDMA
# device, first soft-RoCE, then soft-iWARP.  It only prints.
#
# A round measures every row, and within a row the programs one after the other.  Printed are medians
# over BRAID_TEST_ROUNDS (5) and, for the ratio, the median of the rounds' own ratios with its range:
# absolute figures of an emulated machine mean nothing, and on a busy host ratios don't either.
#
# Latency is half a round trip, the median of a run. MB means MiB here, as in perftest.
minutes=40
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

# shellcheck source=tests/bench/figures.sh
. "$BRAID_TEST_SRCDIR/tests/bench/figures.sh"
command -v ib_send_lat >/dev/null || skip "perftest is not installed"

# by_perftest COLUMN SIZE PROGRAM OPTIONS... - a figure from perftest's row for that size. On a busy
# host perftest may fail to measure the clock's rate, and then its times are "inf".
by_perftest()
{
	column=$1 size=$2
	shift 2
	if perftest "$@" -s "$size" >"$tmp/said"; then
		awk -v size="$size" -v column="$column" '
			$1 == size && $column ~ /^[0-9.]+$/ { print $column; found = 1; exit }
			END { exit !found }' "$tmp/perftest.a"
	else
		cat "$tmp/said" >&2
		return 1
	fi
}

latency()			# ROW SIZE ITERATIONS
{
	figure "$1" ib_send_lat by_perftest 5 "$2" ib_send_lat -n "$3"
	figure "$1" braid by_braid p50_us 1 --pattern pingpong --sizes "$2" --iters "$3"
	figure "$1" ib_write_lat by_perftest 5 "$2" ib_write_lat -n "$3"
}

bandwidth()			# ROW SIZE ITERATIONS
{
	figure "$1" ib_write_bw by_perftest 4 "$2" ib_write_bw -n "$3" -t 8
	figure "$1" braid by_braid alg_gb_s 953.674 --pattern oneway --inflight 8 \
		--sizes "$2" --iters "$3"
}

one_round()
{
	latency 8 8 2000
	latency 4k 4096 2000
	bandwidth 64k 65536 500
	bandwidth 1m 1048576 50
}

measure()			# TYPE
{
	vm_rdma "$1" v0 || return
	export BRAID_TRANSPORTS=verbs
	over=verbs
	has_verbs >/dev/null 2>&1 || { over="TCP: it has no verbs"; unset BRAID_TRANSPORTS; }
	echo
	echo "$rdma, $rounds rounds; braid moves this over $over"
	all_rounds one_round
	echo "          braid"
	table 8 us ib_send_lat ib_write_lat
	table 4k us ib_send_lat ib_write_lat
	table 64k MB/s ib_write_bw
	table 1m MB/s ib_write_bw
	rdma link delete "$rdma"
	ip link del v0
}

uname -rv
measure rxe
if [ -d /sys/module/siw ]; then
	measure siw
else
	echo "no siw: ${BRAID_TEST_NO_SIW-}"
fi
