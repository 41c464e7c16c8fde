#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# doctor.sh - braid doctor beside a real kernel's RDMA: what it reads of a RoCE port, and the faults
# that a wrong GID and too little locked memory are.
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

# says WORDS COMMAND... - its output, in one line, has the words.
says()
{
	words=$1
	shift
	said=$("$@" | tr -s ' \n' ' ')
	case $said in
	*"$words"*) ;;
	*) echo "not '$words' but: $said"; return 1 ;;
	esac
}

doctor()
{
	"$braid" doctor --all --only "$@"
}

gid()
{
	says "$rdma:1 is active" doctor rdma-state &&
		says "is RoCE v2 of $rdma_ip" doctor rdma-gid &&
		says "/dev/infiniband/uverbs0 can be opened" doctor kernel-uverbs &&
		says "$rdma:1 is software" doctor rdma-kind
}

wrong_gid()
{
	says "wrong GID: NCCL_IB_GID_INDEX=200 is empty at $rdma:1" \
		env NCCL_IB_GID_INDEX=200 "$braid" doctor --only rdma-gid-index
}

no_such_device()
{
	says "NCCL_IB_HCA=mlx5 leaves no active RDMA port" \
		env NCCL_IB_HCA=mlx5 "$braid" doctor --only rdma-hca
}

memlock()
{
	says "fail limits-memlock only 64 KiB" setpriv --bounding-set=-all --inh-caps=-all \
		prlimit --memlock=65536:65536 "$braid" doctor --only limits-memlock
}

mtu()
{
	says "has packets of 1024 bytes only" doctor rdma-mtu
}

whole()
{
	"$braid" doctor >"$tmp/all"
	[ $? -le 1 ] && ! grep -E 'killed by|no answer' "$tmp/all" && grep -q ' checks of ' "$tmp/all"
}

case_ "a RoCE device comes up" vm_rxe v0
case_ "its port, address and device file are seen" gid
case_ "an index that is empty is a wrong GID" wrong_gid
case_ "a name that no device has" no_such_device
case_ "small packets are reported" mtu
if command -v setpriv >/dev/null && command -v prlimit >/dev/null; then
	case_ "locked memory of 64 KiB is too little" memlock
else
	no_case "locked memory of 64 KiB is too little" "setpriv and prlimit are not installed"
fi
case_ "all checks come to an end" whole
done_
