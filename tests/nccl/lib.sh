# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# lib.sh - NCCL's own library over Braid, on GPUs that the CPU plays (job.c, gpu.h).  Sourced by the
# scripts beside it; docs/user/nccl.md says what this shows.
#
# The library is LIBNCCL, or libnccl.so.2 on the loader's path, or beside nvcc.  Where there is none,
# or one whose entry points can't be found, everything is skipped.
set -u

build=${BRAID_TEST_BUILDDIR:-.}
job=$build/tests/nccl/job
: "${BRAID_TEST_PLUGIN:=$build/plugin/.libs/libnccl-net-braid.so}"

skip()				# WHY
{
	echo "skip: $1"
	exit 77
}

candidates()
{
	echo "${LD_LIBRARY_PATH-}" | tr ':' '\n' | sed -n 's|..*|&/libnccl.so.2|p'
	{ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | sed -n 's|.*libnccl\.so\.2 .*=> ||p'
	for nvcc in "$(command -v nvcc)" /usr/local/cuda/bin/nvcc; do
		[ -x "$nvcc" ] || continue
		top=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
		printf '%s\n' "$top/lib64/libnccl.so.2" "$top/lib/libnccl.so.2" \
			"$top/targets/x86_64-linux/lib/libnccl.so.2"
	done
}

find_nccl()
{
	candidates | while read -r file; do
		[ -e "$file" ] && readlink -f "$file" && break
	done
}

[ -x "$job" ] || skip "$job is not built"
[ "${BRAID_TEST_SANITIZER-}" != thread ] || skip "NCCL itself is not built with ThreadSanitizer"
[ -n "${LIBNCCL-}" ] || LIBNCCL=$(find_nccl)
[ -n "$LIBNCCL" ] || skip "no libnccl.so.2, neither on the loader's path nor beside nvcc; LIBNCCL names another"
export LIBNCCL BRAID_TEST_PLUGIN
why=$("$job" --can 2>&1) || skip "${why#skip: }"
echo "# NCCL: $LIBNCCL"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

verdict()			# GOOD? WHAT
{
	[ "$1" = 0 ] || printf 'not '
	printf 'ok - %s\n1..1\n' "$2"
}
