#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# unbuilt.sh - a build without cmocka has no unit and ABI tests: what runs them (make vm,
# make check-device) skips them.  Where there are some, one that is missing is a failure.
set -u

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$tmp/tests/abi" "$tmp/tests/rdma"
n=0

says()				# WHAT WORDS PROGRAM
{
	n=$((n + 1))
	sh "${BRAID_TEST_SRCDIR:-.}/tests/tap" "$tmp/tests/$3" >"$tmp/said" 2>&1
	sed 's/^/# /' "$tmp/said"
	grep -q -- "$2" "$tmp/said" || printf 'not '
	echo "ok $n - $1"
}

says "an ABI test that was not built is skipped" "^ok 1 - test_life # SKIP it was built without" \
	abi/test_life
says "so is one of another directory" "^ok 1 - test_counts # SKIP it was built without" \
	rdma/test_counts
printf '#!/bin/sh\n' >"$tmp/tests/abi/test_life"
chmod +x "$tmp/tests/abi/test_life"
says "what was built is run" "^ok 1 - test_life$" abi/test_life
says "one that is missing beside it is a failure" "^not ok 1 - test_pool ended with status 127" \
	abi/test_pool
echo "1..$n"
