#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# floors.sh - calls point downwards only, as `nm` sees them in the objects of this build:
#
#	base < proto < contract (core/*.c) < mem < link < msg < rma < setup < watch	all of core/
#	verbs, socket, smc, ucx	call core up to link; nobody but plugin calls them
#	gdr, topo		are below core
#
# The only calls that go up are those of core/link/upcalls.h, from link to msg.  Apart from these,
# at most 8 files of core/setup, core/msg or core/link call each other in a circle, and none elsewhere.
set -u
# shellcheck source=tests/tidy/lib.sh
. "$(dirname "$0")/lib.sh"

src=${BRAID_TEST_SRCDIR:-$(dirname "$0")/../..}
transports=$(transport_folders "$src" | paste -sd " ")

# Print "source symbol kind" of each object of these directories that has a source.
symbols()				# DIR...
{
	find "$@" -name '*.o' ! -path '*/.libs/*' -exec "$nm" -A {} + 2>/dev/null | awk -v src="$src" '
		{
			from = $0
			sub(/\.o:.*/, ".c", from)
			sub(/[^\/]*_a-/, "", from)
			if (!(from in known))
				known[from] = (getline line < (src "/" from)) > 0
			if (known[from])
				print from, $NF, $(NF - 1)
		}'
}

# Reads symbols; prints "from to symbol" for each symbol that one file defines and another uses.
calls()
{
	awk '$3 ~ /^[TDBRCVW]$/ { def[$2] = $1 }
		$3 == "U" { user[++n] = $1; used[n] = $2 }
		END {
			for (i = 1; i <= n; i++)
				if (used[i] in def && def[used[i]] != user[i])
					print user[i], def[used[i]], used[i]
		}'
}

# Reads calls; complains of each that goes up.  $1: the names that may.
upward()
{
	awk -v may="$1" -v carriers="^(${transports// /|})/" '
		function floor(f) {
			if (f ~ /^(gdr|topo)\//) return 0
			if (f ~ /^core\/base\//) return 1
			if (f ~ /^core\/proto\//) return 2
			if (f ~ /^core\/[a-z_]*\.c$/) return 3
			if (f ~ /^core\/mem\//) return 4
			if (f ~ /^core\/link\//) return 5
			if (f ~ carriers) return 5.5
			if (f ~ /^core\/msg\//) return 6
			if (f ~ /^core\/rma\//) return 6.5
			if (f ~ /^core\/setup\//) return 7
			if (f ~ /^core\/watch\//) return 8
			return 9
		}
		BEGIN { n = split(may, a, " "); for (i = 1; i <= n; i++) ok[a[i]] = 1 }
		floor($2) > floor($1) && !(floor($1) == 5 && floor($2) == 6 && ($3 in ok)) {
			print $1 " uses " $3 " of " $2
		}
		floor($2) == 5.5 && floor($1) != 9 {
			split($1, x, "/"); split($2, y, "/")
			if (x[1] != y[1] && !(x[1] == "smc" && y[1] == "socket"))
				print $1 " uses " $3 " of " $2
		}'
}

# Reads calls; prints each set of files that reach each other: its size, then the files.  Without
# the calls of $1.
knots()
{
	awk -v may="$1" '
		BEGIN { n = split(may, a, " "); for (i = 1; i <= n; i++) up[a[i]] = 1; n = 0 }
		!($3 in up) && !(($1, $2) in edge) { edge[$1, $2]; to[$1] = to[$1] " " $2; f[$1]; f[$2] }
		# All that can be reached from `from`, by one call or more.
		function reach(from,	todo, m, next_, k, q) {
			todo[m = 1] = from
			for (q = 1; q <= m; q++) {
				split(to[todo[q]], next_, " ")
				for (k in next_)
					if (!((from, next_[k]) in e)) {
						e[from, next_[k]] = 1
						todo[++m] = next_[k]
					}
			}
		}
		END {
			for (i in f) name[++n] = i
			for (i = 1; i <= n; i++)
				reach(name[i])
			for (i = 1; i <= n; i++) {
				if (seen[i] || !((name[i], name[i]) in e))
					continue
				size = 0; list = ""
				for (j = 1; j <= n; j++)
					if ((name[i], name[j]) in e && (name[j], name[i]) in e) {
						seen[j] = 1; size++; list = list " " name[j]
					}
				print size list
			}
		}'
}

# Reads knots; complains of those that may not be.
too_large()
{
	awk '{
		for (i = 2; i <= NF; i++) {
			floor = $i
			sub(/\/[^\/]*$/, "", floor)
			one = i == 2 || floor == one ? floor : "several"
		}
		most = one ~ /^core\/(setup|msg|link)$/ ? 8 : 1
		if ($1 > most)
			print "these call each other in a circle: " $0
	}'
}

# The functions that core/link/upcalls.h declares.
upcalls()
{
	sed -n 's/^[a-z].*[ *]\(braid_[a-z0-9_]*\)(.*/\1/p' "$src/core/link/upcalls.h" | tr '\n' ' '
}

for nm in nm gcc-nm llvm-nm none; do	# whichever reads these objects, perhaps made for LTO
	find core -name '*-os.o' -exec "$nm" {} + 2>/dev/null | grep -q ' T braid_lock_wait' && break
done
if [ "$nm" = none ]; then
	echo "skip: no nm that reads these objects"
	exit 77
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

symbols core plugin $transports gdr topo | calls >"$tmp/product"
symbols tools | calls >"$tmp/tools"
may=$(upcalls)
report "no call of the product goes up" "$(upward "$may" <"$tmp/product")"
report "few files of core, and no others, call each other in a circle" \
	"$(knots "$may" <"$tmp/product" | too_large)"
report "no files of tools call each other in a circle" "$(knots "" <"$tmp/tools" | too_large)"

noticed()				# CHECK LINES
{
	[ -n "$(printf '%s\n' "$2" | eval "$1")" ] || faults="$faults$1 does not notice: $2. "
}
unnoticed()
{
	[ -z "$(printf '%s\n' "$2" | eval "$1")" ] || faults="$faults$1 complains about: $2. "
}
noticed 'upward up' 'core/base/a.c core/link/b.c braid_f'
noticed 'upward up' 'core/link/a.c core/msg/b.c braid_f'
noticed 'upward up' 'core/msg/a.c core/setup/b.c up'
noticed 'upward up' 'core/link/a.c core/setup/b.c up'
noticed 'upward up' 'core/watch/a.c verbs/b.c braid_f'
noticed 'upward up' 'verbs/a.c core/msg/b.c braid_f'
noticed 'upward up' 'verbs/a.c socket/b.c braid_f'
noticed 'upward up' 'topo/a.c core/base/b.c braid_f'
noticed 'upward up' 'core/setup/a.c plugin/b.c braid_f'
unnoticed 'upward up' 'core/link/a.c core/msg/b.c up'
unnoticed 'upward up' 'core/watch/a.c core/base/b.c braid_f'
unnoticed 'upward up' 'smc/a.c socket/b.c braid_f'
noticed 'knots up | too_large' 'verbs/a.c verbs/b.c x
verbs/b.c verbs/a.c y'
noticed 'knots up | too_large' 'core/link/a.c core/msg/b.c x
core/msg/b.c core/link/a.c y'
unnoticed 'knots up | too_large' 'core/link/a.c core/msg/b.c up
core/msg/b.c core/link/a.c y'
noticed 'knots up | too_large' "$(for i in 1 2 3 4 5 6 7 8 9; do
	echo "core/setup/$i.c core/setup/$((i % 9 + 1)).c x"; done)"
unnoticed 'knots up | too_large' "$(for i in 1 2 3 4 5 6 7 8; do
	echo "core/setup/$i.c core/setup/$((i % 8 + 1)).c x"; done)"
noticed 'calls' 'a.c f T
b.c f U'
report "each rule notices its planted offences" "$faults"
echo "1..$n"
