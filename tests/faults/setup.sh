#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# setup.sh - the short form of the matrix of set-up faults, one TAP case each (see setup.c), and a
# planted fault that it must find: an accept() that never says for whom it waits.
setup=${BRAID_TEST_BUILDDIR:-.}/tests/faults/setup
tmp=$(mktemp) || exit 99
trap 'rm -f "$tmp"' EXIT

"$setup" --tap --short >"$tmp"
sed '/^1\.\.[0-9]*$/d' "$tmp"
cases=$(sed -n 's/^1\.\.//p' "$tmp")

cases=$((cases + 1))
not=
"$setup" --planted --times 2 --carriers tcp --step hello --what killed >"$tmp" && not="not "
grep -q "waits in accept, and after .* no line says for whom" "$tmp" || not="not "
[ -z "$not" ] || cat "$tmp"
echo "${not}ok $cases - a wait without a line is found"
echo "1..$cases"
