#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# docs.sh - documents that are true to the tree: what they link to is there, and their prose is no
# wider than 100 columns.  Each rule has planted offences.  A rule prints complaints.
set -u
# shellcheck source=tests/tidy/lib.sh
. "$(dirname "$0")/lib.sh"

pages()
{
	find . -name '*.md' -not -path './build*' -not -path './.git/*' | sed 's|^\./||' | sort
}

# Paths of the tree, in documents and in C; what make makes, and NAME for any, is none.
rule_paths()
{
	local tops='core|docs|gdr|m4|plugin|smc|socket|tests|tools|topo|ucx|verbs' path

	grep -noE "(^|[^A-Za-z0-9_/.*>-])($tops)(/[A-Za-z0-9_.-]*[A-Za-z0-9_])+" -r --include='*.md' \
		--include='*.[ch]' --include='*.def' \
		--exclude-dir='build*' . |
		sed -E "s#^\./##; s#:[^A-Za-z]($tops)/#:\1/#; s#/\$##" |
		while IFS=: read -r file line path; do
			case $path in
			docs/man/braid* | plugin/.libs* | */libnccl-net-braid*) continue ;;
			*NAME* | *MODULE* | tests/*.log | tests/*.trs) continue ;;
			esac
			# Also without its extension: "core/link".
			compgen -G "$path*" >/dev/null || echo "$file:$line: there is no $path"
		done
}

# [text](page.md#heading), relative to the page.
rule_links()
{
	local page target file heading

	pages | while read -r page; do
		grep -oE '\]\([^)]+\)' "$page" | sed 's/^](//; s/)$//' | while read -r target; do
			case $target in
			http://* | https://* | mailto:*) continue ;;
			esac
			file=${target%%#*} heading=${target#"$file"}
			[ -z "$file" ] && file=$page || file=$(dirname "$page")/$file
			if [ ! -e "$file" ]; then
				echo "$page: there is no $target"
			elif [ "$heading" ] && ! sed -n 's/^##* *//p' "$file" | tr 'A-Z ' 'a-z-' |
				tr -cd 'a-z0-9_\n-' | grep -qx -- "${heading#'#'}"; then
				echo "$page: $target has no such heading"
			fi
		done
	done
}

# A page of results is one table, or one report in a code block, under a head with its date.
rule_results()
{
	pages | grep '^docs/results/' | while read -r page; do
		awk '/^\| -/ || /^```./ || (/^```$/ && (code = !code)) { tables++ }
			!tables && /[1-9][0-9]* [A-Z][a-z]* 20[0-9][0-9]/ { dated = 1 }
			!tables && /^[A-Z][a-z]* 20[0-9][0-9]\./ { dated = 1 }
			END {
				if (tables != 1)
					print FILENAME ": " tables + 0 " tables, not one"
				if (!dated)
					print FILENAME ": no date above its table"
			}' "$page"
	done
}

# Not tables or code.
rule_width()
{
	pages | while read -r page; do
		awk '/^```/ { code = !code }
			!code && !/^(    |\t|\|)/ && length($0) > 100 && / .* / {
				print FILENAME ":" FNR ": " length($0) " columns" }' "$page"
	done
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "${BRAID_TEST_SRCDIR:-$(dirname "$0")/../..}" || exit 99

report "paths in documents and comments exist" "$(rule_paths)"
report "links between documents lead somewhere" "$(rule_links)"
report "a page of results is one table" "$(rule_results)"
report "prose is no wider than 100 columns" "$(rule_width)"

# shellcheck disable=SC2016 # backquotes of Markdown
{
	planted paths docs/a.md 'See `core/nowhere.c`.'
	planted paths core/a.c '/* docs/user/nowhere.md */'
	planted paths core/there.c 'See `core/there.c`, (core/there) and core/.' fine
}
planted links docs/a.md 'See [b](b.md).'
planted links docs/a.md '[here](#nothing)'
planted links docs/a.md "$(printf '# Some thing\n[here](#some-thing) [there](../docs/a.md)')" fine
planted width docs/a.md "$(printf 'a b %97s' x)"
planted width docs/a.md "$(printf '| a b %97s |' x)" fine
planted results docs/results/a.md "$(printf '1 May 2026\n| a |\n| - |\n\n| b |\n| - |')"
planted results docs/results/a.md "$(printf 'May\n| a |\n| - |')"
planted results docs/results/a.md "$(printf '1 May 2026\n```\na\n```')" fine
report "every rule notices its planted offences" "$faults"
echo "1..$n"
