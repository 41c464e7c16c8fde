#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# life.sh - communicators come and go, and ranks of every shape.
# shellcheck source=tests/nccl/lib.sh
. "$(dirname "$0")/lib.sh"

"$job" --label "by name: " cycles
mkdir "$tmp/path"
ln -s "$BRAID_TEST_PLUGIN" "$tmp/path/libnccl-net.so"
(
	export LD_LIBRARY_PATH="$tmp/path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
	export NCCL_NET_PLUGIN_REF_COUNT=0
	unset BRAID_TEST_PLUGIN
	"$job" --label "as libnccl-net.so on the loader's path: " cycles
)
"$job" --threads 2 --label "threads are ranks: " types soak
"$job" --ranks 4 --per-host 2 --label "4 ranks on 2 hosts: " types soak
NCCL_SHM_DISABLE=0 "$job" --ranks 4 --per-host 2 --label "the same, with shared memory within a host: " types soak
