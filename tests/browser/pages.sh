#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# pages.sh - what perf, compare, validate, topo, diff and mesh write with --html, in a browser.
#
# Pictures go to BRAID_TEST_PICTURES, where a person looks at them.  A page of a report whose every
# string is hostile must do nothing either.
set -u

braid=${BRAID_TEST_BRAID:-braid}
src=${BRAID_TEST_SRCDIR:-.}
chromium=${BRAID_TEST_CHROMIUM:-chromium}

if ! command -v "$chromium" >/dev/null; then
	echo "1..0 # SKIP there is no $chromium"
	exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
pictures=${BRAID_TEST_PICTURES:-$dir}
mkdir -p "$pictures"
export BRAID_SOCKET_IFNAME=lo
args=()

# page NAME REPORT - by braid report: the same code as --html, from the JSON that is compared.
page()
{
	"$braid" report "$2" --html "$dir/$1.html" || exit 1
	args+=("$dir/$1.html=$2")
}

"$braid" perf --raw --rounds 3 --seconds 0.02 --sizes 8,512,32k,1m --html "$dir/direct.html" \
	--json >"$dir/perf.json" || exit 1
page perf "$dir/perf.json"
"$braid" perf --pattern oneway --seconds 0.02 --sizes 8,512,32k,1m --json >"$dir/oneway.json" || exit 1
page oneway "$dir/oneway.json"
"$braid" compare --from "$src/tests/cli/compare.json" --json "$dir/compare.json" >/dev/null || exit 1
page compare "$dir/compare.json"
"$braid" validate --only props,data-small,perf-latency --json "$dir/validate.json" >/dev/null
page validate "$dir/validate.json"
bash "$src/tests/topo/mktree" "$src/tests/topo/hgx-h100.txt" "$dir/tree" >/dev/null || exit 1
"$braid" topo --root "$dir/tree" --html "$dir/topo.html" >/dev/null || exit 1
args+=("$dir/topo.html")
python3 "$src/tests/browser/reports.py" "$dir" || exit 1
for name in mesh soak hostile; do
	page $name "$dir/$name.json"
done
"$braid" diff "$dir/before.json" "$dir/after.json" --json "$dir/diff.json" >/dev/null
page diff "$dir/diff.json"

# But for when it was made, what --html writes is what braid report makes of the JSON.
if ! cmp -s "$dir/direct.html" "$dir/perf.html"; then
	diff "$dir/direct.html" "$dir/perf.html" | head -n 5
	echo "not ok 1 - perf --html is not the page of its JSON"
	exit 1
fi
python3 "$src/tests/browser/look.py" "$pictures" "${args[@]}"
