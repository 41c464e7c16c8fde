#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# torchrun.sh - a PyTorch job on two hosts over Braid, started by hand on both:
#
#	./torchrun.sh 0 node1 train.py		# on node1
#	./torchrun.sh 1 node1 train.py		# on node2
#
# Before, on both, a random text that is the same on both: export BRAID_PERF_KEY=...
# GPUS is the number of GPUs of each host, PORT a port of node1's (the next one must be free too).
set -eu

if [ $# -lt 3 ]; then
	echo "usage: torchrun.sh NODE_RANK FIRST_HOST SCRIPT [ARGUMENT...]" >&2
	exit 2
fi
node=$1 first=$2
shift 2
: "${BRAID_PERF_KEY:?is not set: a random text of 16 characters or more, the same on both hosts}"

export NCCL_NET_PLUGIN=braid
export NCCL_NET=Braid			# fail rather than fall back silently

# This host, and from the second one the way to the first.
if [ "$node" = 0 ]; then
	braid doctor
else
	braid doctor --peer "$first"
fi

hosts=(--nnodes=2 --node-rank="$node" --master-addr="$first" --master-port="${PORT:-29500}")

# Both ways between the two hosts: a process on each.
torchrun "${hosts[@]}" --nproc-per-node=1 --no-python braid mesh

exec torchrun "${hosts[@]}" --nproc-per-node="${GPUS:-8}" "$@"
