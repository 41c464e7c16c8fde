#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# completion.bats - shells complete, and braid(1) lists, exactly what --help prints.

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
page=${BRAID_TEST_BUILDDIR:-.}/docs/man/braid.1

setup()
{
	[ "$(subcommands | wc -l)" -gt 6 ]
}

# Each subcommand, and "smc setup".
subcommands()
{
	"$braid" help | sed -n 's/^  \([a-z ]*[a-z]\)  .*/\1/p' | grep -vx help
}

options_of()				# SUBCOMMAND
{
	# shellcheck disable=SC2086 # words
	"$braid" $1 --help | sed -n 's/^  \(--[a-z-]*\).*/\1/p'
}

# What bash would offer for the last of WORD...
offered()				# WORD...
{
	COMP_WORDS=(braid "$@") COMP_CWORD=$# COMPREPLY=()
	_braid || true			# nothing fits
	printf '%s\n' "${COMPREPLY[@]}"
}

load_bash()
{
	# shellcheck disable=SC1090
	source <("$braid" completion --shell bash)
}

@test "bash completes every subcommand" {
	load_bash
	for sub in $(subcommands | grep -v ' '); do
		offered "${sub%?}" | grep -qx "$sub"
	done
	offered smc se | grep -qx setup
	[ -z "$(offered xyz)" ]
}

@test "bash completes every option that --help lists, and no other" {
	load_bash
	while read -r sub; do
		# shellcheck disable=SC2086
		diff <(offered $sub -- | sort) <({ options_of "$sub"; echo --help; } | sort)
	done < <(subcommands)
}

@test "bash completes files where an option takes one, and nothing where it takes a number" {
	load_bash
	cd "$BATS_TEST_TMPDIR"
	touch one.xml
	[ "$(offered topo --hwloc on)" = one.xml ]
	[ -z "$(offered perf --procs '')" ]
}

# "braid" of these tests is not in PATH, and each shell calls it.
in_path()
{
	mkdir -p "$BATS_TEST_TMPDIR/bin"
	ln -sf "$(realpath "$(command -v "$braid")")" "$BATS_TEST_TMPDIR/bin/braid"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH
}

# A socket as a process of Braid's has it; $BASHPID is a process that runs, 4194300 is none.
pids_there()
{
	command -v python3 >/dev/null || skip "python3 is not installed"
	export BRAID_STAT_DIR=$BATS_TEST_TMPDIR/stat
	mkdir -m 700 "$BRAID_STAT_DIR"
	python3 -c 'import socket, sys
for name in sys.argv[1:]: socket.socket(socket.AF_UNIX).bind(name)' "$BRAID_STAT_DIR/$BASHPID" \
		"$BRAID_STAT_DIR/4194300"
	me=$BASHPID
}

@test "bash completes patterns, profiles, ids of checks, and PIDs of processes that run" {
	in_path
	load_bash
	pids_there
	[ "$(offered perf --pattern al | sort | xargs)" = "allreduce alltoall" ]
	offered compare --patterns pingpong,al | grep -qx pingpong,alltoall
	[ "$(offered validate so)" = soak ]
	[ "$(offered completion --shell f)" = fish ]
	offered validate --only data-large,data-s | grep -qx data-large,data-small
	offered doctor --only limits-m | grep -qx limits-memlock
	for what in stat dump "doctor --pid"; do
		# shellcheck disable=SC2086
		offered $what "$me" | grep -qx "$me"
		# shellcheck disable=SC2086
		run ! grep -qx 4194300 <<<"$(offered $what 419)"
	done
	# not where an option takes something else
	cd "$BRAID_STAT_DIR"
	[ -z "$(offered stat --dir 99)" ]
}

@test "zsh and fish complete them as well" {
	in_path
	pids_there
	if command -v fish >/dev/null; then
		"$braid" completion --shell fish >"$BATS_TEST_TMPDIR/braid.fish"
		while IFS='|' read -r line word; do
			fish --no-config -c "source $BATS_TEST_TMPDIR/braid.fish
				complete -C 'braid $line'" | sed 's/	.*//' | grep -qx -e "$word" ||
				{ echo "fish: $line"; return 1; }
		done <<-END
			perf --pattern al|alltoall
			compare --patterns pingpong,al|pingpong,alltoall
			validate so|soak
			validate --only data-s|data-small
			doctor --only limits-m|limits-memlock
			stat $me|$me
			dump $me|$me
		END
	fi
	command -v zsh >/dev/null || skip "zsh is not installed"
	"$braid" completion --shell zsh >"$BATS_TEST_TMPDIR/_braid"
	for line in 'dump:1:word:{compadd -- \${(f)"\$(braid stat --pids' 'perf:NAME:{compadd -- pingpong oneway ' \
		'validate:LIST:{_values -s , word \${(f)"\$(braid validate --list'; do
		sed -n "/^	'${line%%:*}')/,/;;/p" "$BATS_TEST_TMPDIR/_braid" | grep -q -e "${line#*:}"
	done
}

@test "zsh takes its script, which has every option" {
	command -v zsh >/dev/null || skip "zsh is not installed"
	"$braid" completion --shell zsh | zsh -n
	"$braid" completion --shell zsh >"$BATS_TEST_TMPDIR/_braid"
	while read -r sub; do
		while read -r option; do
			sed -n "/^	'$sub')/,/;;/p" "$BATS_TEST_TMPDIR/_braid" |
				grep -qF -e "'${option}["
		done < <(options_of "$sub")
	done < <(subcommands)
}

@test "fish takes its script, and completes by it" {
	command -v fish >/dev/null || skip "fish is not installed"
	"$braid" completion --shell fish >"$BATS_TEST_TMPDIR/braid.fish"
	while read -r sub; do
		said=$(fish --no-config -c "source $BATS_TEST_TMPDIR/braid.fish
			complete -C 'braid $sub --'" | sed 's/	.*//')
		diff <(sort <<<"$said") <(options_of "$sub" | sort)
	done < <(subcommands)
}

@test "another shell is refused in one line" {
	run -2 --separate-stderr "$braid" completion --shell csh
	[ -z "$output" ]
	# shellcheck disable=SC2154 # run sets it
	[[ $stderr == "braid completion: --shell is bash, zsh or fish [bad-option]" ]]
	run -2 "$braid" completion
}

@test "braid(1) has every subcommand and every option" {
	while read -r sub; do
		sed -n "/^\.Ss braid $sub$/,/^\.S[sh] /p" "$page" >"$BATS_TEST_TMPDIR/part"
		while read -r option; do
			grep -qE "^\.It Fl -${option#--}( |$)" "$BATS_TEST_TMPDIR/part"
		done < <(options_of "$sub")
	done < <(subcommands)
}

@test "--help of every subcommand has an example" {
	while read -r sub; do
		# shellcheck disable=SC2086
		"$braid" $sub --help | grep -q '^For example$'
	done < <(subcommands)
}
