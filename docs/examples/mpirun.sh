#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# mpirun.sh - a job of Open MPI over Braid: mpirun.sh HOSTFILE PROGRAM [ARGUMENT...]
#
# To be run on the first host of HOSTFILE, where rank 0 is.  PORT is a free port of this host.
set -eu

if [ $# -lt 2 ]; then
	echo "usage: mpirun.sh HOSTFILE PROGRAM [ARGUMENT...]" >&2
	exit 2
fi
hosts=$1
shift
BRAID_PERF_KEY=$(head -c 32 /dev/urandom | base64)
export BRAID_PERF_KEY

# All pairs of the hosts, a process on each.  Exit status 1: something is odd, and it says what.
mpirun --hostfile "$hosts" -N 1 -x BRAID_PERF_KEY braid mesh --meet "$(hostname):${PORT:-7000}"
unset BRAID_PERF_KEY

exec mpirun --hostfile "$hosts" -x NCCL_NET_PLUGIN=braid -x NCCL_NET=Braid "$@"
