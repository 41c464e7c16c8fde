#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# abi.sh - NCCL takes each version of the ABI that it knows, if a plugin offers no other version.
# shellcheck source=tests/nccl/lib.sh
. "$(dirname "$0")/lib.sh"

cc=${BRAID_TEST_CC:-cc}
[ -z "${BRAID_TEST_SANITIZER-}" ] || skip "run without a sanitizer"
command -v "${cc%% *}" >/dev/null || skip "no compiler"

for v in 6 7 8 9 10 11 12; do
	what="by version $v of the ABI: "
	if ! grep -q "ncclNetPlugin_v$v" "$LIBNCCL"; then
		echo "ok - ${what}NCCL takes it # SKIP this NCCL does not know it"
		echo "1..1"
		continue
	fi
	$cc -shared -fPIC -DABI=$v -o "$tmp/v$v.so" "$(dirname "$0")/one_abi.c" -ldl || exit 1
	BRAID_TEST_NCCL_SOAK_S=1 NCCL_NET_PLUGIN="$tmp/v$v.so" NCCL_DEBUG=INFO BRAID_TEST_NCCL_SAYS="(v$v)" \
		"$job" --label "$what" all-reduce soak
done
