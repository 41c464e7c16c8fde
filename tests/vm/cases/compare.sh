#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# compare.sh - braid compare in one guest, on a soft-RoCE device: each row's data really went over the
# transport that the row names.
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

sent=/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts

compared()
{
	timeout $((300 * slow)) "$BRAID_TEST_BRAID" compare --plugin "$plugin" --lanes 1 \
		--seconds 0.1 --timeout 120 --csv "$tmp/csv" "$@" >"$tmp/out" 2>"$tmp/err"
	compared_rc=$?
	cat "$tmp/out" "$tmp/err"
	return $compared_rc
}

# Runs compare over one transport; the device's packets grow by LEAST to MOST, by none without verbs.
carries()			# OVER LEAST MOST
{
	before=$(cat "$sent")
	compared --over "$1" --patterns pingpong --sizes 8 --rounds 1 --check || return
	after=$(cat "$sent")
	echo "$1: sent_pkts $before -> $after"
	[ $((after - before)) -ge "$2" ] && [ $((after - before)) -le "$3" ]
}

export BRAID_SOCKET_IFNAME=v0
case_ "a RoCE device comes up" vm_rxe v0
case_ "over TCP the device sends nothing" carries tcp 0 20
case_ "over verbs the device sends" carries verbs 40 100000000
done_
