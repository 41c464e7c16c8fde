# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# abi.sh - the ABI tests over an RDMA device of one guest, for the newest version.  Sourced by
# cases/abi-rxe.sh and cases/abi-siw.sh, which say what $type the device is of.
#
# Over TCP they would pass as well, so two more cases say that it was not that: braid info names a
# device that verbs serves, and while the tests ran queue pairs of the device were connected.
# BRAID_TEST_PROGRAMS: other programs of the build directory's tests/.
minutes=${minutes:-19}
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

# Not those that are about sockets: test_badpeer, test_fault and test_strangers, and test_shapes,
# which counts calls into libc; nor test_vdevice, for which one device is not enough.
: "${BRAID_TEST_PROGRAMS:=
	abi/test_life
	abi/test_connect
	abi/test_sizes
	abi/test_order
	abi/test_group
	abi/test_queue
	abi/test_pool
	abi/test_threads
	abi/test_hints
	abi/test_mixed
	abi/test_fork
	abi/test_close
	abi/test_death
	abi/test_loss}"

export BRAID_TRANSPORTS=verbs,tcp BRAID_TEST_FILTER='v12*'

# Queue pairs of siw do not say their state, on this kernel; their connections do.
connected()
{
	case $rdma in
	siw*) rdma resource show cm_id link "$rdma" | grep -c 'state CONNECT' ;;
	*) rdma resource show qp link "$rdma" | grep -c 'type RC.*state RTS' ;;
	esac
}

# watch_qps - the most connected queue pairs that the device ever has at a time, in $tmp/qps.
watch_qps()
{
	most=0
	while sleep 0.3; do
		now=$(connected)
		[ "$now" -gt $most ] || continue
		most=$now
		echo "$most" >"$tmp/qps.new"
		mv "$tmp/qps.new" "$tmp/qps"
	done
}

had_qps()
{
	echo "at most $(cat "$tmp/qps") connected"
	[ "$(cat "$tmp/qps")" -gt 0 ]
}

vm_rdma "${type:?}" v0 || exit
case_ "$rdma: braid info names a device with verbs" has_verbs
if ! has_verbs >"$tmp/said"; then
	done_
	exit 1
fi
echo 0 >"$tmp/qps"
watch_qps &
watcher=$!
# shellcheck disable=SC2086 # a list
runs $BRAID_TEST_PROGRAMS
kill $watcher
case_ "$rdma: its queue pairs were connected meanwhile" had_qps
done_
