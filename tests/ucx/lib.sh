# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# lib.sh - the ABI tests over UCX alone, by the UCX transports of $tls, on interface $netdev (lo).
# Sourced by the scripts beside it.  There is no TCP to fall back to, so what passes was carried by
# UCX.
set -u

# shellcheck source=tests/rdma/suite.sh
. "$(dirname "$0")/../rdma/suite.sh"
build=${BRAID_TEST_BUILDDIR:-.}
: "${netdev:=lo}"

skip()				# WHY
{
	echo "skip: $1"
	exit 77
}

[ -x "$build/tests/abi/test_life" ] || skip "cmocka is not installed"
case $tls in
tcp*) [ -e "/sys/class/net/$netdev" ] || skip "UCX finds interfaces in /sys, which is not mounted" ;;
esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# LeakSanitizer ends with a signal of its own where UCX is loaded: looked at in memory that UCX has.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
export BRAID_TRANSPORTS=ucx BRAID_SOCKET_IFNAME="=$netdev" UCX_TLS="${tls:?}"
BRAID_TEST_UCX=$(basename "$0" .sh)
export BRAID_TEST_UCX
"$BRAID_TEST_BRAID" info --plugin "$BRAID_TEST_PLUGIN" >"$tmp/info" 2>&1
grep -q "transports.*ucx" "$tmp/info" || skip "$(grep -m1 "ucx" "$tmp/info" || echo "no UCX here")"

braid_perf --sizes 8,1m --iters 20 --verbose >"$tmp/first"
good=$?
[ $good = 0 ] || ! grep -q "ucx: .*: Destination is unreachable" "$tmp/perf" ||
	skip "UCX can use nothing of UCX_TLS=$tls here: $(grep -m1 "unreachable" "$tmp/perf")"
[ $good = 0 ] || cat "$tmp/first"
verdict $good "messages of 8 B and 1 MiB"

for program in $BRAID_TEST_PROGRAMS; do
	[ "$program" = none ] || program "$program"
done
