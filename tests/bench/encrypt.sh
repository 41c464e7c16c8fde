#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# encrypt.sh - what encryption and checksums cost over TCP, beside the same build without: make
# encrypt-bench.  On one host, whose CPU both ends share.  It only prints.  BRAID_TEST_ROUNDS: see
# tests/bench/figures.sh.
#
# "plain" is BRAID_ENCRYPT=off; "braid" is what the line above a block says.  Latency is half a round
# trip, the median of a run.
set -u

plugin=${BRAID_TEST_PLUGIN:?} braid=${BRAID_TEST_BRAID:?} slow=${BRAID_TEST_SLOW:-1}
# shellcheck source=tests/bench/figures.sh
. "$BRAID_TEST_SRCDIR/tests/bench/figures.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

both()				# ROW COLUMN SCALE OPTIONS...
{
	name=$1
	shift
	figure "$name" plain by_braid "$@"
	# shellcheck disable=SC2086 # a list of settings
	figure "$name" braid by_setting "$@"
}

one_round()
{
	both 8 p50_us 1 --pattern pingpong --sizes 8 --iters 20000
	both 64k alg_gb_s 1 --pattern oneway --inflight 8 --sizes 65536 --iters 5000
	both 1m alg_gb_s 1 --pattern oneway --inflight 8 --sizes 1048576 --iters 1000
}

by_setting()
{
	# shellcheck disable=SC2086 # a list of settings
	(export $setting && by_braid "$@")
}

export BRAID_TRANSPORTS=tcp BRAID_SOCKET_IFNAME=lo
command -v openssl >/dev/null && for cipher in aes-256-gcm aes-128-gcm chacha20-poly1305; do
	printf '%s of openssl alone, 16 KiB, GB/s: ' $cipher
	openssl speed -evp $cipher -bytes 16384 -seconds 2 2>/dev/null | awk 'END { printf "%.2f\n", $NF / 1e6 }'
done
for setting in BRAID_ENCRYPT=require "BRAID_ENCRYPT=require BRAID_CIPHER=aes128" \
	"BRAID_ENCRYPT=require BRAID_CIPHER=chacha20" BRAID_CHECKSUM=on; do
	echo
	echo "$setting, $rounds rounds"
	all_rounds one_round
	table 8 us plain
	table 64k GB/s plain
	table 1m GB/s plain
done
