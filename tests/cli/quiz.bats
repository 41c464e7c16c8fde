#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# quiz.bats - six faults that cost people days, each alone in a healthy set-up. One command, without a
# hint where to look, names the fault, the device and the remedy. Without the fault the same command
# names none.
#
# A job is braid perf over a NIC that exists in memory only (tests/fake). It prints what NCCL prints
# with NCCL_DEBUG=WARN. A host is one of two network namespaces, or a recorded one.
# shellcheck disable=SC2154 # what run sets

bats_require_minimum_version 1.5.0

export braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
export BRAID_PERF_KEY=that-of-all-tests
src=${BRAID_TEST_SRCDIR:-.}
build=${BRAID_TEST_BUILDDIR:-.}
slow=${BRAID_TEST_SLOW:-1}

setup()
{
	unset BRAID_TRANSPORTS
	tmp=$BATS_TEST_TMPDIR
}

# named, unnamed SAID WORDS... - all of the words are in SAID, or none of them.
named()
{
	for word in "${@:2}"; do
		[[ $1 == *"$word"* ]] || { echo "no '$word' in: $1"; return 1; }
	done
}

unnamed()
{
	for word in "${@:2}"; do
		[[ $1 != *"$word"* ]] || { echo "'$word' in: $1"; return 1; }
	done
}

flat()
{
	tr -s ' \n' ' '
}

# -- a job over a NIC ----------------------------------------------------------------------------

nic()
{
	[ -e "$build/tests/fake/.libs/libibverbs.so.1" ] || skip "built without RDMA"
	case ${BRAID_TEST_SANITIZER-} in *address*) skip "not with a sanitizer" ;; esac
	export LD_LIBRARY_PATH="$build/tests/fake/.libs" BRAID_SOCKET_IFNAME=lo
	export BRAID_TEST_FAKE_FABRIC=$tmp/fabric BRAID_TEST_FAKE_DEVICES=roce0:rocev2,netdev=lo
}

# job VARIABLE... - run a job, which must succeed, and print its last WARN line, if any.
job()
{
	env "$@" timeout $((60 * slow)) "$braid" perf --plugin "$plugin" --verbose --check \
		--sizes 8,1m --iters 20 >"$tmp/out" 2>"$tmp/err" || { cat "$tmp/err" >&2; return 1; }
	sed -n '/^WARN/h; ${x; p}' "$tmp/err"
}

@test "a wrong GID is named by the job" {
	nic
	well=$(job A=b)
	said=$(job NCCL_IB_GID_INDEX=9)
	unnamed "$well" "wrong GID" WARN
	named "$said" "device roce0:1" GID NCCL_IB_GID_INDEX
	# the rank whose GID table is at fault logs the index
	named "$(cat "$tmp/err")" "wrong GID: index 9 is empty" "unset NCCL_IB_GID_INDEX"
}

@test "a memlock limit is named by the job" {
	nic
	ulimit -l 64
	well=$(job A=b)
	said=$(job BRAID_TEST_FAKE_DEVICES="$BRAID_TEST_FAKE_DEVICES,memlock=65536")
	unnamed "$well" memlock WARN
	named "$said" "port roce0:1: can't register" "the memlock limit is 64 KiB" \
		"ulimit -l unlimited" "[memlock-small]"
}

# to_host NICS - braid validate to a host that has these NICs.
to_host()
{
	local listener port rc=0

	rm -f "$tmp/err"		# of the listener before
	BRAID_TEST_FAKE_DEVICES=$1 "$braid" validate --plugin "$plugin" --listen 127.0.0.1:0 \
		2>"$tmp/err" 3>&- &
	listener=$!
	until port=$(sed -n 's/^listening on port //p' "$tmp/err" 2>/dev/null | grep .); do
		kill -0 $listener || return
		sleep 0.05
	done
	timeout $((100 * slow)) "$braid" validate --plugin "$plugin" \
		--connect "127.0.0.1:$port" --only path-payload >"$tmp/out" 2>&1 || rc=$?
	kill $listener
	flat <"$tmp/out"
	return $rc
}

@test "a silent fallback to TCP is named by validate" {
	nic
	run -0 to_host "$BRAID_TEST_FAKE_DEVICES"
	unnamed "$output" "tcp carries" "fail path-payload"
	run -1 to_host ""
	named "$output" "fail path-payload" "device roce0:1" "tcp carries this link" \
		"the peer does not offer verbs" "braid info on its host says why"
}

# -- two hosts -----------------------------------------------------------------------------------

# between COMMANDS - $well is what braid doctor prints on host a before COMMANDS, $said after them.
between()
{
	rc=0
	tmp=$tmp bash -c '
		out=$tmp src=$1
		. "$src/tests/net/lib.sh"
		doctor()
		{
			in_a env -u NCCL_SOCKET_IFNAME "$braid" doctor --peer 10.77.1.2 || [ $? = 1 ]
		}
		hosts
		wire 9000
		in_a sh -c "echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range" 2>"$tmp/why" ||
			skip "ping_group_range: $(cat "$tmp/why")"
		doctor >"$out/well" && eval "$2" && doctor >"$out/said"' \
		quiz "$src" "$1" >"$tmp/log" 2>&1 || rc=$?
	cat "$tmp/log"
	[ $rc -ne 77 ] || skip "$(sed -n 's/^skip: //p' "$tmp/log")"
	[ $rc -eq 0 ]
	well=$(flat <"$tmp/well")
	said=$(flat <"$tmp/said")
}

@test "an MTU that differs at the other end is named by doctor --peer" {
	between 'ip -n "$b" link set w1 mtu 1500'
	unnamed "$well" "MTU mismatch"
	named "$said" "fail peer-mtu MTU mismatch: w1 has MTU 9000, but only 1500 bytes arrive" \
		"sudo ip link set dev w1 mtu 1500"
}

@test "a link that flaps is named by doctor" {
	between 'for i in 1 2 3 4 5; do
		ip -n "$b" link set w1 down; sleep 0.05; ip -n "$b" link set w1 up; ready "$a" w1
	done'
	unnamed "$well" flaps
	named "$said" "warn net-flaps w1 flaps: its link was lost" "ip -d -s link show dev w1"
	unnamed "$said" "w0 flaps"
}

# -- a recorded host of two nodes ----------------------------------------------------------------

# job_on CPUS - what braid doctor prints on a job on these CPUs that uses mlx5_0, which is on node 0.
job_on()
{
	cp -a "$root/proc/self" "$root/proc/4242"
	root=$root/proc/4242 status "$1"
	mv "$root/proc/4242/proc/self/status" "$root/proc/4242/status"
	printf '%s\0' "${asked[@]/#NCCL_IB_HCA=*/NCCL_IB_HCA=mlx5_0}" >"$root/proc/4242/environ"
	"$braid" doctor --root "$root" --pid 4242 >"$tmp/out" || [ $? -eq 1 ]
	rm -r "$root/proc/4242"
	flat <"$tmp/out"
}

@test "a job on the wrong NUMA node is named by doctor --pid" {
	root=$tmp/root
	bash "$src/tests/topo/mktree" "$src/tests/doctor/healthy.txt" "$root"
	# shellcheck source=tests/doctor/cases.bash
	. "$src/tests/doctor/cases.bash"
	complete
	well=$(job_on 0-7)
	said=$(job_on 16-31)
	unnamed "$well" "wrong NUMA node"
	named "$said" "wrong NUMA node: this process runs on CPUs 16-31 alone," \
		"mlx5_0:1 is near 0-15 (node 0)" \
		"numactl --cpunodebind=0 --membind=0"
}
