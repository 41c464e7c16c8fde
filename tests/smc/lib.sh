# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# lib.sh - SMC where the kernel has none: over tests/fakesmc, a fake, whose sockets are TCP's.
# Sourced by the scripts beside it.
#
#	faked MODE COMMAND...	with FAKE_SMC=MODE
#	pair A B OPTIONS...	braid perf between two processes, of which the one that is dialled
#				has MODE A and the dialler MODE B; what they said: $tmp/err.a, .b
set -u

# shellcheck source=tests/rdma/suite.sh
. "$(dirname "$0")/../rdma/suite.sh"
build=${BRAID_TEST_BUILDDIR:-.}
slow=${BRAID_TEST_SLOW:-1}
fake=$build/tests/fakesmc/.libs/smc.so
export BRAID_PERF_KEY=that-of-all-tests

[ -e "$fake" ] || { echo "skip: tests/fakesmc is not built"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

export BRAID_SOCKET_IFNAME=lo BRAID_DEBUG=info
case ${BRAID_TEST_SANITIZER-} in
*address*) ASAN_OPTIONS=${ASAN_OPTIONS+$ASAN_OPTIONS:}verify_asan_link_order=0; export ASAN_OPTIONS ;;
esac

faked()
{
	faked_mode=$1
	shift
	env LD_PRELOAD="$fake" FAKE_SMC="$faked_mode" "$@"
}

pair()
{
	pair_a=$1 pair_b=$2
	shift 2
	rm -f "$tmp"/err.[ab] "$tmp"/out.[ab]	# those of before may still be written to
	faked "$pair_a" "$BRAID_TEST_BRAID" perf --plugin "$BRAID_TEST_PLUGIN" \
		--listen 127.0.0.1:0 --once --verbose >"$tmp/out.a" 2>"$tmp/err.a" &
	pair_pid=$!
	until pair_port=$(sed -n 's/^listening on port //p' "$tmp/err.a" 2>/dev/null | grep .); do
		kill -0 $pair_pid 2>/dev/null || { cat "$tmp/err.a"; return 1; }
		sleep 0.05
	done
	faked "$pair_b" timeout -k 2 $((60 * slow)) "$BRAID_TEST_BRAID" perf --plugin "$BRAID_TEST_PLUGIN" \
		--connect "127.0.0.1:$pair_port" --check --csv --verbose "$@" >"$tmp/out.b" 2>"$tmp/err.b"
	pair_rc=$?
	[ $pair_rc = 0 ] || kill $pair_pid 2>/dev/null	# it would wait for another one
	wait $pair_pid
	return $pair_rc
}
