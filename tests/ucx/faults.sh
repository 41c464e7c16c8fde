#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# faults.sh - UCX whose calls fail and whose endpoints break (tests/ucx/shim.c), TCP beside it: the
# bytes arrive all the same.  BRAID_TEST_UCX_STEP: of the calls, every so many-th fails (7).
# shellcheck source=tests/ucx/shim.sh
. "$(dirname "$0")/shim.sh"
: "${BRAID_TEST_UCX_STEP:=7}"

# transfer OPTIONS... - there and back, by UCX or else by TCP.
transfer()
{
	BRAID_TRANSPORTS=ucx,tcp braid_perf --sizes 8,20000,300000 --timeout 200 "${@:---iters=30}"
}

rm -f "$tmp/count"
BRAID_TEST_UCP_COUNT=$tmp/count transfer && [ -s "$tmp/count" ]
verdict $? "the shim passes calls on"
calls=$(sort -n "$tmp/count" | tail -n 1)

tried=0 bad=0 k=1
while [ "$k" -le "$calls" ]; do
	BRAID_TEST_UCP_FAIL=$k transfer || { echo "call $k of $calls"; bad=$((bad + 1)); }
	tried=$((tried + 1))
	# Each of those by which a lane comes up, then some of those that move bytes.
	[ "$k" -lt 60 ] && k=$((k + BRAID_TEST_UCX_STEP)) || k=$((k + 7 * BRAID_TEST_UCX_STEP + 1))
done
echo "$tried of $calls calls have failed, one by one"
[ $bad = 0 ] && [ $tried -gt 5 ]
verdict $? "each call fails once: the bytes arrive"

for k in 1 5 22 30 40; do
	BRAID_TEST_UCP_FAIL=$k+ transfer
	verdict $? "all calls fail from number $k on: the bytes arrive"
done

! BRAID_TEST_UCP_FAIL=1+ BRAID_TRANSPORTS=ucx braid_perf --sizes 8 --iters 5 --timeout 10 >/dev/null &&
	grep -q "ucx" "$tmp/perf"
verdict $? "without TCP that is an error, which names UCX"

BRAID_TEST_UCP_LONG=1 transfer --verbose && grep -q "WARN.*ucx: the address of .*\[ucx-address\]" "$tmp/perf" &&
	grep -q "tcp carries lane 0" "$tmp/perf"
verdict $? "an address of UCX's that the handshake has no room for: TCP carries the lane, and why is said"

BRAID_TEST_UCP_BREAK=5000 transfer --seconds 6 --verbose &&
	grep -q "UCX says: Connection reset" "$tmp/perf" &&
	grep -q "tcp carries lane 0" "$tmp/perf" &&
	[ "$(grep -o "back over [a-z]*" "$tmp/perf" | tail -n 1)" = "back over ucx" ]
verdict $? "an endpoint breaks while data moves: TCP carries the lane, then UCX again"

BRAID_TEST_UCP_BREAK=20000+ transfer --seconds 1
verdict $? "endpoints break again and again: the bytes arrive"

# flips EACH SIZES - a bit of every so many-th message is changed: TCP carries the lane
flips()
{
	BRAID_CHECKSUM=on BRAID_LANES=2 BRAID_TEST_UCP_FLIP=$1 BRAID_TRANSPORTS=ucx,tcp \
		braid_perf --sizes "$2" --timeout 200 --seconds 3 --pattern bidir --verbose &&
		grep -q "WARN.*, over lane [01] (ucx, .*\[corrupt-data\]" "$tmp/perf" &&
		grep -q "WARN.*lane [01] (ucx, .* is left for .*\[lane-left\]" "$tmp/perf"
}
flips 1000 8,20000
verdict $? "a bit of a small message changes again and again: TCP takes over, and the bytes are right"
flips 1000 300000,1m
verdict $? "a bit of a large message changes again and again: TCP takes over, and the bytes are right"

# Who arms a worker is the service thread.
BRAID_TEST_UCP_TIMES=$tmp/times transfer && awk '
	$2 == "ucp_worker_arm" { service[$1] = 1 }
	$2 == "ucp_worker_create" || $2 == "ucp_ep_create" { making[$1] = 1 }
	END { for (thread in service) n++; for (thread in making) m++
	      for (thread in making) bad += thread in service; exit !(n && m && !bad) }' "$tmp/times" ||
	{ cat "$tmp/times"; false; }
verdict $? "no lane is made on the thread that watches the others"

rm -f "$tmp/times"
BRAID_TEST_UCP_BREAK=5000 BRAID_TEST_UCP_TIMES=$tmp/times transfer --seconds 3 && awk '
	$2 == "ucp_worker_arm" { service[$1] = 1 }
	$2 == "ucp_worker_destroy" { ends[$1] = 1 }
	END { for (thread in service) n++; for (thread in ends) m++
	      for (thread in ends) bad += thread in service; exit !(n && m && !bad) }' "$tmp/times" ||
	{ cat "$tmp/times"; false; }
verdict $? "nor is a broken one destroyed there"

mkdir "$tmp/none" && echo no library >"$tmp/none/libucp.so.0"
LD_LIBRARY_PATH=$tmp/none${plain:+:$plain}
transfer --iters 5 --verbose &&
	grep -q "ucx: .*libucp.so.0: .*; install libucx0" "$tmp/perf"
verdict $? "a libucp that can't be loaded is reported, and TCP carries"
LD_LIBRARY_PATH=$plain

# UCX's last step but one stands still for a moment, in which the threads of a process that exits go on.
cat >"$tmp/linger.c" <<-EOF
	#include <unistd.h>
	void ucs_log_cleanup(void);
	void ucs_log_cleanup(void) { usleep(300000); }
EOF
"${BRAID_TEST_CC:-cc}" -shared -fPIC -o "$tmp/linger.so" "$tmp/linger.c" &&
	BRAID_TEST_FILTER='*a process exits well*' ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 \
		BRAID_TEST_WRAP="env LD_PRELOAD=$tmp/linger.so" program abi/test_death ||
	verdict 1 "a process that exits"
