#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# found.sh - without an NCCL library that lead.c can direct, all tests are skipped and say why.
set -u

[ "${BRAID_TEST_SANITIZER-}" != thread ] || { echo "skip: NCCL itself is not built with ThreadSanitizer"; exit 77; }
[ -x "${BRAID_TEST_BUILDDIR:-.}/tests/nccl/job" ] || { echo "skip: tests/nccl/job is not built"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
here=$(dirname "$0")
n=0

says()				# WHAT LIBNCCL TEXT
{
	n=$((n + 1))
	LIBNCCL=$2 sh "$here/quick.sh" >"$tmp/out" 2>&1
	if [ $? != 77 ] || ! grep -q "^skip: .*$3" "$tmp/out"; then
		cat "$tmp/out"
		printf 'not '
	fi
	echo "ok $n - $1"
}

says "a library that is not there" "$tmp/libnccl.so.2" "No such file"
cc=${BRAID_TEST_CC:-cc}
if command -v "${cc%% *}" >/dev/null && [ -z "${BRAID_TEST_SANITIZER-}" ]; then
	echo "int ncclGetVersion(int *v); int ncclGetVersion(int *v) { *v = 22809; return 0; }" >"$tmp/a.c"
	$cc -shared -fPIC -o "$tmp/whole.so" "$tmp/a.c"
	$cc -shared -fPIC -s -o "$tmp/stripped.so" "$tmp/a.c"
	echo "int none;" | $cc -shared -fPIC -x c -o "$tmp/other.so" -
	says "a library that is stripped" "$tmp/stripped.so" "stripped"
	says "a library without a CUDA runtime" "$tmp/whole.so" "no CUDA runtime"
	says "a library that is not NCCL" "$tmp/other.so" "is no NCCL"
fi
echo "1..$n"
