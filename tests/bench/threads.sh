#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# threads.sh - what threads of BRAID_THREADS bring over TCP: make bench-threads.  It only prints.
# BRAID_TEST_ROUNDS: see tests/bench/figures.sh.
#
# One comm, driven by one thread, whose lanes are moved by N threads, beside N raw threads, each with
# a socket of its own (tools/rawtcp.c); N is 1, 2, 4 and 8.  Messages of 4 MiB go one way between two
# processes of this host, so it takes two CPUs for each N, and two for the callers: where there are
# fewer, a row says so.  "callers" is the plugin without threads, on as many lanes.  The goal is 0.9 of
# raw.  BRAID_TEST_DEV: the interface whose address is used; by default lo.
set -u

plugin=${BRAID_TEST_PLUGIN:?} braid=${BRAID_TEST_BRAID:?} slow=${BRAID_TEST_SLOW:-1}
rawtcp=${BRAID_TEST_BUILDDIR:?}/tools/rawtcp
# shellcheck source=tests/bench/figures.sh
. "$BRAID_TEST_SRCDIR/tests/bench/figures.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
cpus=$(nproc)

with()				# THREADS LANES
{
	(export BRAID_THREADS="$1" BRAID_LANES="$2" BRAID_LANES_MAX=16 &&
		rate "$braid" perf --plugin "$plugin")
}

raw()				# THREADS
{
	rate "$rawtcp" --comms "$1" --threads "$1"
}

# The callers give way while nothing moves, as NCCL's do: with --spin they would take the CPUs.
rate()				# PROGRAM OPTIONS...
{
	timeout $((30 * slow)) "$@" --csv --pattern oneway --sizes 4m --inflight 8 >"$tmp/csv" 2>"$tmp/err" || {
		cat "$tmp/err" >&2
		return 1
	}
	awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } { printf "%.3f\n", $at["gbit_s"] }' \
		"$tmp/csv"
}

one_round()
{
	for n in $counts; do
		figure "$n" raw raw "$n"
		figure "$n" braid with "$n" "$n"
		figure "$n" callers with 0 "$n"
	done
}

[ -x "$rawtcp" ] || { echo "threads.sh: no $rawtcp: make first" >&2; exit 1; }
export BRAID_TRANSPORTS=tcp BRAID_SOCKET_IFNAME="${BRAID_TEST_DEV:-lo}"
counts=
for n in 1 2 4 8; do
	if [ $((2 * n + 2)) -le "$cpus" ] || [ "$n" = 1 ]; then
		counts="$counts $n"
	else
		echo "$n threads: not measured, it takes $((2 * n + 2)) CPUs and this machine has $cpus"
	fi
done
[ "$cpus" -ge 4 ] || echo "1 thread: of no use on $cpus CPUs, as four threads take turns on them"
echo "threads, Gbit/s with them, raw threads, ratio (goal: 0.90), Gbit/s without them; $rounds rounds"
all_rounds one_round
for n in $counts; do
	table "$n" Gb/s raw callers
done
