# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# lib.sh - cases whose result is a list of complaints, and proofs that a rule can complain.  Sourced
# by the scripts beside it.

# The folders of the transports of source tree $1.
transport_folders()
{
	sed -n 's/^BRAID_TRANSPORT(\([a-z]*\),.*/\1/p' "$1/core/base/transports.def" | sort -u
}

n=0
report()				# WHAT COMPLAINTS
{
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n - $1"
	else
		echo "$2"
		echo "not ok $n - $1"
	fi
}

# Put TEXT into FILE of an otherwise empty tree in $tmp: rule_RULE must complain, or, with "fine", must
# not; if not so, a sentence goes into $faults.  Scripts whose rules are no such functions define
# their own planted().
faults=
planted()				# RULE FILE TEXT [fine]
{
	rm -rf "$tmp/tree"
	mkdir -p "$tmp/tree/$(dirname "$2")"
	printf '%s\n' "$3" >"$tmp/tree/$2"
	said=$(cd "$tmp/tree" && "rule_$1")
	if [ "${4-}" = fine ]; then
		[ -z "$said" ] || faults="$faults$1 complains about: $3: $said. "
	else
		[ -n "$said" ] || faults="$faults$1 does not notice: $3. "
	fi
}
