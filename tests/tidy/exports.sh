#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# exports.sh - the plugin exports one table for each ABI version and nothing else: any other name
# could meet its like in NCCL, in PyTorch or in another plugin.
set -u
# shellcheck source=tests/tidy/lib.sh
. "$(dirname "$0")/lib.sh"

plugin=${BRAID_TEST_PLUGIN:?}

# Print how the names exported by $1 differ from those NCCL looks up.
differ()
{
	nm -D --defined-only "$1" | awk '{ print $NF }' | sed 's/@.*//' | awk '
	{ seen[$0] = 1 }
	END {
		for (v = 5; v <= 12; v++) {
			name = "ncclNetPlugin_v" v
			if (!(name in seen))
				print "missing: " name
			delete seen[name]
		}
		for (name in seen)
			print "exported: " name
	}'
}

planted()				# EXPECTED-COMPLAINT C-TEXT
{
	echo "$2" >"$tmp/a.c"
	${BRAID_TEST_CC:-cc} -shared -fPIC -o "$tmp/a.so" "$tmp/a.c" || faults="no compiler"
	[ "$(differ "$tmp/a.so")" = "$1" ] ||
		faults="$faults said \"$(differ "$tmp/a.so")\" where \"$1\" was due."
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

if [ -e "$plugin" ]; then
	report "exactly ncclNetPlugin_v5 to v12" "$(differ "$plugin")"
else
	report "exactly ncclNetPlugin_v5 to v12" "$plugin does not exist"
fi

all=
for v in 5 6 7 8 9 10 11 12; do
	all="$all int ncclNetPlugin_v$v = $v;"
done
planted "" "$all"
planted "exported: braid_leak" "$all int braid_leak = 1;"
planted "missing: ncclNetPlugin_v12" "${all% int*}"
report "a name too many and one too few are noticed" "$faults"
echo "1..$n"
