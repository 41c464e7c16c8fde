#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# smc-hang.sh - on Linux 6.1 connect() of SMC-R over soft-RoCE never returns, and no signal ends it: TCP
# carries the job, a WARN gives the reason, and finalize() returns although a thread hangs.
guests=2
minutes=6
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

export BRAID_TRANSPORTS=smc,tcp BRAID_SOCKET_IFNAME="=w1" BRAID_HANDSHAKE_TIMEOUT=20 BRAID_LANES=2
case_ "an RDMA device" vm_rxe w1
case_ "modules of SMC" vm_later
case_ "a pnetid" "$braid" smc setup --pnetid BRAID --net w1 --ib rxe0
case_ "a UEID" "$braid" smc setup --ueid BRAID.TEST
if [ "$guest" = 2 ]; then
	serve --verbose
	exit
fi

# Braid gives up connect() after 10 s, and messages do not wait again. The processes exit only when the
# kernel lets them; the case does not wait for that.
hangs()
{
	talk --sizes 8,1m --seconds 4 --verbose &
	talk_pid=$!
	i=0
	until grep -q "the last context was finalized" "$tmp/err"; do
		i=$((i + 1))
		[ $i -lt 600 ] || { cat "$tmp/err"; return 1; }
		sleep 0.2
	done
	sleep 1
	cat "$tmp/err"
	grep -q "WARN.*connect() of an SMC socket has not come back .* left behind" "$tmp/err" &&
		grep -q "WARN.*tcp carries lane 0: .* can't have smc" "$tmp/err" &&
		! grep -q "is back\|wrong" "$tmp/err"
}
case_ "TCP carries what SMC does not, in time" hangs
sleep 10
if kill -0 "$talk_pid" 2>/dev/null; then
	echo "# 10 s later the process has not ended: $(grep -l "^braid" /proc/[0-9]*/task/*/comm | while read -r f; do
		printf '%s ' "$(cat "$f"):$(sed -n 's/^State:[ 	]*\(.\).*/\1/p' "${f%comm}status")"
	done)"
fi
sed 's/^/# /' "$tmp/err"
done_
