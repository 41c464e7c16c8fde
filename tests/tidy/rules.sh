#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# rules.sh - the house rules that a machine can check, each with a planted offence that proves it
# can fail.  A rule is a function that prints complaints about the tree it is called in.
set -u
# shellcheck source=tests/tidy/lib.sh
. "$(dirname "$0")/lib.sh"

transports=$(transport_folders "${BRAID_TEST_SRCDIR:-$(dirname "$0")/../..}" | tr '\n' ' ')
product="plugin core gdr topo $transports"
everything="$product tools tests"

files()					# PATTERN DIR...
{
	local pattern=$1
	shift
	for dir; do
		[ -d "$dir" ] && find "$dir" -name "$pattern" -type f
	done | sort
}

# Files of C without their comments and the text of their strings, as FILE:LINE:TEXT.
bare()					# FILE...
{
	[ $# = 0 ] || awk '{
		if (FNR == 1)
			in_comment = 0
		out = ""
		line = $0
		while (line != "") {
			if (in_comment) {
				i = index(line, "*/")
				if (!i)
					break
				line = substr(line, i + 2)
				in_comment = 0
			} else if (match(line, /^[^"\047\/]+/)) {
				out = out substr(line, 1, RLENGTH)
				line = substr(line, RLENGTH + 1)
			} else if (match(line, /^"([^"\\]|\\.)*"/) || match(line, /^\047([^\047\\]|\\.)*\047/)) {
				out = out "\"\""
				line = substr(line, RLENGTH + 1)
			} else if (substr(line, 1, 2) == "/*") {
				in_comment = 1
				line = substr(line, 3)
			} else if (substr(line, 1, 2) == "//") {
				break
			} else {
				out = out substr(line, 1, 1)
				line = substr(line, 2)
			}
		}
		print FILENAME ":" FNR ":" out
	}' "$@"
}

# We are a guest in NCCL's process.  ucx/lib.c undoes what UCX does to signals as it is loaded;
# ucx/exit.c leaves UCX alone before UCX's own destructors run at exit.  Who asks sigaction() what
# there is changes nothing.
rule_guest()
{
	local banned='setenv|unsetenv|putenv|clearenv|atexit|on_exit|at_quick_exit|signal|sigaction'
	banned="$banned|bsd_signal|exit|quick_exit|printf|vprintf|puts|putchar|system|popen|chdir|umask"

	# shellcheck disable=SC2046,SC2086 # lists
	bare $(files '*.[ch]' $product) |
		grep -E "[^A-Za-z0-9_.>]($banned)[ 	]*\\(|[^A-Za-z0-9_]stdout([^A-Za-z0-9_]|$)" |
		grep -v -e '^ucx/lib\.c:.*sigaction(' -e 'sigaction(SIG[A-Z]*, NULL, ' -e '^ucx/exit\.c:.*atexit(leave_all)'
}

rule_width()
{
	# shellcheck disable=SC2046,SC2086
	# a row of a test's table may be a little wider: it reads better whole
	awk '{
		while (i = index($0, "\t"))
			$0 = substr($0, 1, i - 1) substr("        ", (i - 1) % 8 + 1) substr($0, i + 1)
		if (length($0) > (FILENAME ~ /^tests\// ? 112 : 100))
			print FILENAME ":" FNR ": " length($0) " columns"
	}' /dev/null $(files '*.[ch]' $everything) $(files '*.def' $everything)
}

rule_spdx()
{
	local want='/* SPDX-License-Identifier: BSD-3-Clause */'

	# shellcheck disable=SC2046,SC2086
	awk -v want="$want" 'FNR == 1 && $0 != want { print FILENAME ": the first line is not " want }' \
		/dev/null $(files '*.[ch]' $everything) $(files '*.def' $everything)
}

rule_blanks()
{
	# shellcheck disable=SC2046,SC2086
	grep -nE '[ 	]+$' /dev/null $(files '*.[ch]' $everything) $(files '*.def' $everything) \
		$(files '*.sh' $everything) $(files '*.bats' $everything) $(files '*.mk' $everything docs) \
		$(ls Makefile.am configure.ac autogen.sh m4/braid.m4 2>/dev/null)
}

# Only its owner uses a part of a link or of a lane: PREFIX PART OWNER, where PREFIX is what stands
# before the part.  A pointer to a link has one of two names, so that this finds it.
parts='
	(link|other) lanes core/link
	(link|other) tx core/link
	(link|other) rx core/link
	(link|other) thread core/link
	[^[:space:]] loss core/link
	[^[:space:]] hand core/link
	[^[:space:]] reads core/link
	(link|other) msg core/msg
	(link|other) table core/setup
	(link|other) setup core/setup
	(link|other) dial core/setup
	(link|other) tries core/setup
	(link|other) tick core/setup
	(link|other) reap core/setup
	[^[:space:]] recover core/setup
	[^[:space:]] pace core/setup
	(link|other) share core/setup
	(link|other) lane_count core/setup
'
rule_parts()
{
	local lines prefix part owner

	# shellcheck disable=SC2046,SC2086
	lines=$(bare $(files '*.[ch]' $product))
	while read -r prefix part owner; do
		[ -z "$part" ] || grep -E "$prefix(->|\\.)$part([^A-Za-z0-9_(]|\$)" <<<"$lines" |
			grep -v "^$owner/"
	done <<<"$parts"
	grep -E 'struct braid_link \*+(const )?[a-z_]+([^a-z_(]|$)' <<<"$lines" |
		grep -vE 'struct braid_link \*+(const )?(link|other)([^a-z_]|$)'
	cat core/link/link.h core/link/lane.h 2>/dev/null |
	sed -n 's/^\tstruct braid_\(link\|lane\)_\([a-z_]*\) \2;.*/\2/p' |
	grep -vx key | while read -r part; do
		grep -q "[])] $part core/" <<<"$parts" || echo "part $part has no owner in rules.sh"
	done
}

# A file that no list names is in no tarball and, if it is a test, never run.
rule_listed()
{
	local -A list
	local f

	while read -r f; do
		[ -z "$f" ] || list[$f]=1
	done < <(cat Makefile.am ./*/local.mk 2>/dev/null | tr -cs 'A-Za-z0-9_./-' '\n')
	# shellcheck disable=SC2046,SC2086
	for f in $(files '*.[ch]' $everything) $(files '*.def' $everything) \
		$(files '*.sh' $everything) $(files '*.bats' $everything); do
		[ "${list[$f]-}${list[${f%.c}]-}" ] ||
			echo "$f is in no list of Makefile.am or */local.mk"
	done
}

# A file holds one topic, so it is not long.
rule_rooms()
{
	# shellcheck disable=SC2046,SC2086
	wc -l /dev/null $(files '*.[ch]' $everything) | awk '$2 != "total" {
		most = $2 ~ /^tests\// ? 900 : $2 ~ /\.h$/ ? 250 : 500
		if ($1 > most)
			print $2 ": " $1 " lines, more than " most
	}'
}

# A file of these folders has a unit test of its name, or of its folder's and its name: so if another
# file of core has the same name.
rule_beside()
{
	local f name dir
	local -A count

	for f in $(files '*.c' core); do
		name=${f##*/}
		count[$name]=$((${count[$name]-0} + 1))
	done
	for f in $(files '*.c' core verbs); do
		name=${f##*/}
		dir=${f%/*}
		if [ "${f#core/}" != "$f" ] && [ "${count[$name]}" = 1 ] && [ -e "tests/unit/test_$name" ]; then
			continue
		fi
		[ -e "tests/unit/test_${dir##*/}_$name" ] ||
			echo "$f has no tests/unit/test_${dir##*/}_$name"
	done
}

rule_executable()
{
	# shellcheck disable=SC2046
	for f in $(files '*.sh' tests tools) $(files '*.bats' tests); do
		line=
		read -r line <"$f"
		[[ $line != '#!'* ]] || [ -x "$f" ] || echo "$f has a #! line but may not be executed"
	done
}

# Every row of param.def is in the manual page made from it.
rule_params()
{
	local page=${BRAID_TEST_BUILDDIR:-build}/docs/man/braid-params.7

	[ -f core/base/param.def ] || return
	if [ ! -f "$page" ]; then
		echo "$page does not exist"
		return
	fi
	sed -n 's/^P_[A-Z]*(\([a-z0-9_]*\),.*/\1/p' core/base/param.def | tr '[:lower:]' '[:upper:]' |
	# \-, \& and the like are the page's own
	awk 'FILENAME != "-" { gsub(/\\[-&]/, ""); gsub(/[^A-Z0-9_]+/, " "); for (i = 1; i <= NF; i++) has[$i]; next }
		!("BRAID_" $0 in has) { print "BRAID_" $0 " is not in braid-params.7" }' "$page" -
}

# Every warning ends in an id, every id has its heading, and no heading is without one.  A line whose
# words come from a caller (`why`) has the caller's.
rule_messages()
{
	local calls='braid_(warn|error|link_fail|link_down|no_memory)|opt_fail' page=docs/user/messages.md id ids

	# shellcheck disable=SC2046,SC2086
	awk -v calls="(^|[^a-z_])($calls)[(]" '
			FNR == 1 { text = "" }
			/^[a-z].*[(]/ { next }
			!text && $0 ~ calls { text = " "; at = FNR }
			text { text = text $0 }
			text && /;$/ {
				if (text !~ /\[[a-z0-9-]+\]"/ && text !~ /, why[)];$/ && text !~ /no_memory[(]/)
					print FILENAME ":" at ": a warning without its id"
				text = ""
			}' /dev/null $(files '*.c' $product tools)
	# shellcheck disable=SC2046,SC2086
	ids=$(grep -ohE '[ "]\[[a-z][a-z0-9]*(-[a-z0-9]+)+\]"' /dev/null $(files '*.[ch]' $product tools) |
		tr -d ' "[]' | sort -u)
	for id in $ids; do
		grep -qx "### $id" "$page" 2>/dev/null || echo "$page: no heading for $id"
	done
	[ -e "$page" ] || return
	sed -n 's/^### //p' "$page" | grep -vxF "$ids" | sed "s|^|$page: nothing says |"
}

# Each id is read in a test that provokes its message.
rule_provoked()
{
	local page=docs/user/messages.md

	[ -e "$page" ] || return
	grep -rhoE --include='*.[ch]' --include='*.sh' --include='*.bats' --exclude-dir=tidy \
		-- '[a-z0-9-]+' tests 2>/dev/null | sort -u |
		awk -v page="$page" 'FILENAME == "-" { seen[$0]; next }
			/^### / && !($2 in seen) { print page ": no test reads a warning of " $2 }' - "$page"
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "${BRAID_TEST_SRCDIR:-$(dirname "$0")/../..}" || exit 99

report "a guest's manners: environment, signals, exit, stdout" "$(rule_guest)"
report "no line is wider than 100 columns, 112 in tests" "$(rule_width)"
report "every source says its licence" "$(rule_spdx)"
report "no blanks at the end of a line" "$(rule_blanks)"
report "only its owner uses a part of a link or a lane" "$(rule_parts)"
report "every file is in a list" "$(rule_listed)"
report "no .c file has more than 500 lines, no header 250, no test 900" "$(rule_rooms)"
report "every file of core and of verbs has a unit test" "$(rule_beside)"
report "scripts may be executed" "$(rule_executable)"
report "every parameter is in braid-params.7" "$(rule_params)"
report "every warning has an id, and every id its heading in docs/user/messages.md" "$(rule_messages)"

report "every message of docs/user/messages.md is read in a test" "$(rule_provoked)"

planted guest core/a.c '	setenv("A", "b", 1);'
planted guest socket/a.c '	/* why */ printf("x");'
planted guest plugin/a.c '	fputs("x", stdout);'
planted guest topo/a.h 'static inline void f(void) { exit (1); }'
planted guest core/a.c '	/* printf("x") */ pthread_cond_signal(&c); log("exit(");' fine
planted guest core/a.c '	_exit(1); snprintf(b, n, "%s", "exit(1)");' fine
planted guest tools/a.c '	printf("x");' fine
planted width core/a.c "$(printf '%101s' x)"
planted width core/a.c "$(printf '\t\t\t\t\t\t\t\t\t\t\t\t%5s' x)"
planted width core/a.c "$(printf '%100s' x)" fine
planted width tests/unit/a.c "$(printf '%113s' x)"
planted width tests/unit/a.c "$(printf '%112s' x)" fine
planted spdx core/a.c 'int x;'
planted spdx tests/unit/a.c '/* SPDX-License-Identifier: GPL-2.0 */'
planted spdx core/a.c '/* SPDX-License-Identifier: BSD-3-Clause */' fine
planted blanks core/a.c 'int x; '
planted blanks tests/net/a.sh 'true	'
planted parts core/setup/a.c '	link->tx.pending = 0;'
planted parts core/msg/a.c '	n = c->link->rx.spread;'
planted parts core/link/a.h '	return &link->msg;'
planted parts core/watch/a.c '	ms = lane->recover.rtt_ms;'
planted parts verbs/a.c '	if (w->lane->loss.orphaned)'
planted parts core/setup/a.c 'static void f(struct braid_link *l)'
planted parts core/link/link.h '	struct braid_link_new new;'
planted parts core/msg/a.c '	lane->tx.unsent = link->msg.burst;	/* link->tx.pending */' fine
planted parts core/setup/a.c 'static void f(struct braid_link *link, struct braid_conn *c)' fine
planted listed core/a.c 'int x;'
planted listed tests/net/a.sh 'true'
planted rooms core/a.c "$(yes | head -501)"
planted rooms topo/a.h "$(yes | head -251)"
planted rooms tests/unit/a.c "$(yes | head -901)"
planted rooms core/a.c "$(yes | head -500)" fine
planted beside core/msg/a.c 'int x;'
planted beside core/setup/a.c 'int x;'
planted beside verbs/a.c 'int x;'
planted beside core/link/a.c 'int x;'
planted executable tests/net/a.sh '#!/bin/sh'
planted params core/base/param.def 'P_INT(planted_nowhere, 0, 0, 1, NULL, "x")'
planted messages core/a.c '	braid_warn("device %s: lost", name);'
planted messages core/a.c '	return braid_error(-EINVAL, "device %s is lost [not-told]", name);'
planted messages docs/user/messages.md '### said-by-nobody'
planted messages core/a.c '	braid_link_down(link, err, why);' fine
planted provoked docs/user/messages.md '### never-provoked'
report "every rule notices its planted offences" "$faults"
echo "1..$n"
