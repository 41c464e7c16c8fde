#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# exports.sh - the plugin exports one table for each version of NCCL's net and RMA ABIs and nothing
# else: any other name could meet its like in NCCL, in PyTorch or in another plugin.  A table of
# NCCL's GIN ABI would say that a GPU drives the NIC.
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
		for (v = 5; v <= 12; v++)
			due["ncclNetPlugin_v" v]
		for (v = 14; v <= 16; v++)
			due["ncclRmaPlugin_v" v]
		for (name in due) {
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
	report "exactly ncclNetPlugin_v5 to v12 and ncclRmaPlugin_v14 to v16" "$(differ "$plugin")"
else
	report "exactly ncclNetPlugin_v5 to v12 and ncclRmaPlugin_v14 to v16" "$plugin does not exist"
fi

all=
for name in Net_5 Net_6 Net_7 Net_8 Net_9 Net_10 Net_11 Net_12 Rma_14 Rma_15 Rma_16; do
	all="$all int nccl${name%_*}Plugin_v${name#*_};"
done
planted "" "$all"
planted "exported: braid_leak" "$all int braid_leak;"
planted "exported: ncclGinPlugin_v14" "$all int ncclGinPlugin_v14;"
planted "exported: ncclRmaPlugin_v17" "$all int ncclRmaPlugin_v17;"
planted "missing: ncclRmaPlugin_v16" "${all% int*}"
planted "missing: ncclNetPlugin_v5" "${all#*;}"
report "a name too many and one too few are noticed" "$faults"
echo "1..$n"
