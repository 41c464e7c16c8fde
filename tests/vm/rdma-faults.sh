# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-faults.sh - faults in one guest, between processes on one RDMA device. TCP goes over lo, and so
# works while the interface is down. Sourced by cases/rdma-faults.sh and cases/rdma-faults-siw.sh, which
# set $type, the kind of the device.
minutes=${minutes:-9}
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/vm/rdma-load.sh
. "$vm/rdma-load.sh"

under=				# a command that runs braid perf

talk()
{
	# shellcheck disable=SC2086 # nothing, or a command
	timeout $((60 * slow)) $under "$braid" perf --plugin "$plugin" --check --csv "$@" \
		>"$tmp/csv" 2>"$tmp/err" || { cat "$tmp/err"; return 1; }
}

# Eight tensors of 16 MiB in all.
all_reduce()
{
	load --pattern allreduce --procs 3 --sizes 2m --iters 8 --warmup 0
	ends
}

down_up()
{
	load $endless
	ip link set v0 down
	logged 'is lost' || bad=1
	grows tcp by_tcp || bad=1
	ip link set v0 up
	grows "verbs again" by_verbs || bad=1
	logged 'is back' || bad=1
	note "$(connected) queue pairs connected"
	stops
}

# memlock KIB - run perf with this memlock limit, without CAP_IPC_LOCK, so that it holds for root too.
memlock()
{
	echo "ulimit -l $1; exec \"\$@\"" >"$tmp/limited"
	under="setpriv --bounding-set -ipc_lock sh $tmp/limited"
	before=$(by_verbs)
	checked --pattern bidir --sizes 8,64k,1m --iters 3 --verbose
	memlock_rc=$?
	under=
	note "$(($(by_verbs) - before)) KiB by verbs"
	grep -m 1 "WARN.*the memlock limit is $1 KiB.*ulimit -l unlimited" "$tmp/err" &&
		return $memlock_rc
}

# Delete the device. The kernel may wait until all have closed it; perf must not wait for that.
deleted()
{
	load $bidir --seconds 5
	timeout $((60 * slow)) rdma link delete "$rdma" &
	deleter=$!
	ends || bad=1
	wait $deleter || bad=1
	[ ! -e "/sys/class/infiniband/$rdma" ] || bad=1
	return $bad
}

vm_rdma "${type:?}" v0 || exit
fault "an all-reduce of three processes" all_reduce
fault "the interface goes down and comes up" down_up
fault "a peer is killed" killed
fault "memlock of 64 KiB" memlock 64
fault "memlock of 1 MiB" memlock 1024
fault "the device is deleted" deleted
done_
