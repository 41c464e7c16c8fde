#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# layers.sh - includes point downwards only:
#
#	plugin -> core -> gdr, topo
#	in core: watch -> setup -> rma -> msg -> link -> mem -> transport.h, dev.h -> proto -> base
#	verbs, socket, smc, ucx -> core/transport.h, dev.h, link/lane_io.h, mem, proto, base;
#				gdr, topo		and smc -> socket/stream.h
#
# Nobody includes a transport, and all transports are named in one file, the same for all.  To move
# frames, a transport calls at most eight functions of core/link/lane_io.h.
# tools and tests/abi know what NCCL knows, and the parameters; tools also what the machine is
# (topo), which secrets may be used, words for transports and launchers, and histograms; tests/unit, tests/lib
# and tests/fuzz test what is inside and may look at anything.
set -u
# shellcheck source=tests/tidy/lib.sh
. "$(dirname "$0")/lib.sh"

src=${BRAID_TEST_SRCDIR:-$(dirname "$0")/../..}
transports=$(transport_folders "$src" | tr '\n' ' ')

contract="core/base|core/proto|core/mem"

# The same for floor $1 of core/.
floor()
{
	local f under=

	for f in base proto mem link msg rma setup watch; do
		under=$under${under:+|}$f
		[ "$f" = "$1" ] && break
	done
	case $1 in
	base | proto) echo "^core/($under)/|^(gdr|topo)/" ;;
	*) echo "^core/($under)/|^core/[a-z]+\.h\$|^(gdr|topo)/" ;;
	esac
}

# What a file of directory $1 may include, as a regular expression over "dir/file.h".
allowed()
{
	case $1 in
	plugin) echo '^(plugin|core|gdr|topo)/' ;;
	core) echo "^($contract|gdr|topo)/|^core/[a-z]+\.h\$" ;;
	core/*) floor "${1#core/}" ;;
	gdr) echo '^gdr/' ;;
	topo) echo '^topo/' ;;
	smc) echo "^(smc|$contract|gdr|topo)/|^core/([a-z]+|link/lane_io)\.h\$|^socket/stream\.h\$" ;;
	tools) echo '^(tools|topo)/|^plugin/(abi|abi_rma|net)\.h$|^core/base/(param\.(h|def)|transports\.def|(hist|job_secret|launchers)\.h)$' ;;
	tests/abi | tests/net | tests/cli)
		echo '^(tools|tests)/|^plugin/(abi|abi_rma|net)\.h$|^core/base/param\.(h|def)$' ;;
	*)
		case " $transports" in
		*" $1 "*) echo "^($1|$contract|gdr|topo)/|^core/([a-z]+|link/lane_io)\.h\$" ;;
		*) echo '/' ;;
		esac ;;
	esac
}

# Print every include of tree $1 that breaks the rule.
includes()
(
	cd "$1" || exit
	for dir in plugin core core/* gdr topo $transports tools tests/*; do
		[ -d "$dir" ] || continue
		rule=$(allowed "$dir")
		depth=9
		[ "$dir" = core ] && depth=1
		find "$dir" -maxdepth "$depth" -name '*.[ch]' \
			-exec grep -EH '^[[:blank:]]*#[[:blank:]]*include[[:blank:]]*"' {} + |
		sort | while IFS=: read -r file inc; do
			inc=${inc#*\"} inc=${inc%%\"*}
			case $inc in
			config.h | git-hash.h) continue ;;
			esac
			[[ $inc =~ $rule ]] || echo "$file includes \"$inc\""
		done
	done
)

# Print what is wrong with how tree $1 names its transports: each table `const struct
# braid_transport NAME =` in a transport's directory must be used by one and the same file
# outside.
named()
(
	cd "$1" || exit
	for dir in $transports; do
		[ -d "$dir" ] || continue
		cat "$dir"/*.c 2>/dev/null |
		sed -n 's/^const struct braid_transport \([A-Za-z0-9_]*\) *=.*/\1/p' |
		while read -r table; do
			users=$(grep -lw "$table" plugin/*.c core/*.c core/*/*.c core/*/*.def gdr/*.c \
				topo/*.c 2>/dev/null)
			for t in $transports; do
				[ "$t" = "$dir" ] ||
					users="$users $(grep -lw "$table" "$t"/*.[ch] 2>/dev/null)"
			done
			# shellcheck disable=SC2086 # a list of files
			set -- $users
			[ $# = 1 ] || echo "$table of $dir is named in $# files: $*"
			echo "@ $*"
		done
	done | sort -u | awk '/^@/ { if (n++) print "transports are named in several files: " $0; next }
		{ print }'
)

# The functions of lane_io.h that move frames.
movers()
{
	sed -n '/^.\* --- not to move frames/q; s/^[a-z].*[ *]\(braid_[a-z0-9_]*\)(.*/\1/p' \
		"$src/core/link/lane_io.h"
}

# Print each transport of tree $1 that calls too many of them.
crowded()
(
	cd "$1" || exit
	for dir in $transports; do
		used=$(cat "$dir"/*.c 2>/dev/null | grep -owF "$(movers)" | sort -u | paste -sd " ")
		[ "$(echo "$used" | wc -w)" -le 8 ] || echo "$dir calls more than 8: $used"
	done
)

# A tree with one file; the checks must have something to say about it.
planted()				# FILE TEXT CHECK
{
	rm -rf "$tmp/tree"
	mkdir -p "$tmp/tree/core" "$tmp/tree/${1%/*}"
	echo "$2" >"$tmp/tree/$1"
	[ -n "$($3 "$tmp/tree")" ] || faults="$faults$1 with $2 was not noticed. "
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

report "includes point downwards" "$(includes "$src")"
report "transports are named in one file" "$(named "$src")"
report "no transport calls more than 8 functions of its lane to move frames" "$(crowded "$src")"
planted core/a.c '#include "plugin/net.h"' includes
planted core/base/a.c '#include "core/transport.h"' includes
planted core/base/a.c '#include "core/proto/hello.h"' includes
planted core/mem/a.c '#include "core/link/link.h"' includes
planted core/link/a.c '#include "core/msg/comm.h"' includes
planted core/msg/a.h '#include "core/setup/service.h"' includes
planted core/setup/a.c '#include "core/watch/view.h"' includes
planted verbs/a.c '#include "core/link/link.h"' includes
planted ucx/a.c '#include "core/msg/comm.h"' includes
planted topo/a.c '#include "core/base/os.h"' includes
planted core/a.c '#include "socket/stream.h"' includes
planted verbs/a.c '#include "socket/stream.h"' includes
planted smc/a.c '#include "socket/socket.h"' includes
planted tools/a.c '#  include "core/msg/comm.h"' includes
planted tests/abi/a.c '#include "core/msg/comm.h"' includes
planted plugin/a.c '#include "net.h"' includes
planted verbs/a.c 'const struct braid_transport braid_verbs = {' named
planted ucx/a.c "$(movers)" crowded
report "each rule notices its planted offences" "$faults"
echo "1..$n"
