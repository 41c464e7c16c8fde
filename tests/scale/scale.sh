#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# scale.sh - the short form of scale.c: few peers, and what must hold whatever the machine's speed.
scale=${BRAID_TEST_BUILDDIR:-.}/tests/scale/scale
tmp=$(mktemp) || exit 99
trap 'rm -f "$tmp"' EXIT
n=0

# promise PROMISE ARGUMENT...
promise()
{
	n=$((n + 1))
	what=$1
	shift
	if "$scale" "$@" >"$tmp" 2>&1; then
		echo "ok $n - $what"
	else
		sed 's/^/# /' "$tmp"
		echo "not ok $n - $what"
	fi
}

promise "an idle link with a connection keeps at most 64 KiB" links 128 --crowds 2 --seconds 1
promise "dials at once, among strangers, all end in connections" storm 256 256 --crowds 4
promise "a communicator made again takes no socket and no memory more" again 8 30
echo "1..$n"
