#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# bench.sh - Braid over UCX beside ucx_perftest's tests of tagged messages and of active messages, over
# the same transports of UCX: make ucx-bench.  On one host.  It only prints.  BRAID_TEST_ROUNDS: see
# tests/bench/figures.sh.
#
# Latency is half a round trip, the median of a run; ucx_perftest's is without peer error handling
# unless it is told, and Braid's is always with.
set -u

plugin=${BRAID_TEST_PLUGIN:?} braid=${BRAID_TEST_BRAID:?} slow=${BRAID_TEST_SLOW:-1}
# shellcheck source=tests/bench/figures.sh
. "$BRAID_TEST_SRCDIR/tests/bench/figures.sh"
command -v ucx_perftest >/dev/null || { echo "skip: ucx_perftest is not installed (Debian: ucx-utils)"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
port=13500

# by_ucx COLUMN OPTIONS... - from its line "Final:".
by_ucx()
{
	column=$1
	shift
	port=$((port + 1))
	timeout 60 ucx_perftest -e -p $port >/dev/null 2>&1 &
	sleep 0.5
	timeout 60 ucx_perftest -e -p $port "$@" 127.0.0.1 >"$tmp/said" 2>&1
	wait
	awk -v column="$column" '$1 == "Final:" { print $column; found = 1 } END { exit !found }' \
		"$tmp/said" || { tail -n 3 "$tmp/said" >&2; return 1; }
}

latency()			# ROW SIZE ITERATIONS
{
	figure "$1" tag_lat by_ucx 3 -t tag_lat -s "$2" -n "$3"
	figure "$1" ucp_am_lat by_ucx 3 -t ucp_am_lat -s "$2" -n "$3"
	figure "$1" braid by_braid p50_us 1 --pattern pingpong --sizes "$2" --iters "$3"
}

# Both in MiB/s; ucx_perftest's last column but two.
bandwidth()			# ROW SIZE ITERATIONS
{
	figure "$1" tag_bw by_ucx 7 -t tag_bw -s "$2" -n "$3"
	figure "$1" ucp_am_bw by_ucx 7 -t ucp_am_bw -s "$2" -n "$3"
	figure "$1" braid by_braid alg_gb_s 953.674 --pattern oneway --inflight 8 \
		--sizes "$2" --iters "$3"
}

one_round()
{
	latency 8 8 20000
	bandwidth 64k 65536 5000
	bandwidth 1m 1048576 1000
}

export BRAID_TRANSPORTS=ucx BRAID_SOCKET_IFNAME=lo UCX_NET_DEVICES=lo UCX_MM_ERROR_HANDLING=y
for tls in shm,self tcp,self; do
	export UCX_TLS=$tls
	echo
	echo "UCX_TLS=$tls, $rounds rounds"
	all_rounds one_round
	for other in tag ucp_am; do
		table 8 us ${other}_lat
		table 64k MiB/s ${other}_bw
		table 1m MiB/s ${other}_bw
	done
done
