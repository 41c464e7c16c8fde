#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# main.bats - braid itself: its subcommands, and its error for any other word.

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}

# A bad command line: exit status 2, one line on stderr that has $1 in it, nothing on stdout.
bad()
{
	run -2 --separate-stderr "$braid" "${@:2}"
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"$1"* ]]
}

teardown()
{
	[ -z "${dir-}" ] || rm -r "$dir"
}

# In shared/: braid, and beside it a plugin.
share()
{
	shared=$BATS_TEST_TMPDIR/shared
	mkdir "$shared"
	chmod 755 "$shared"
	cp "$braid" "$shared/braid"
	cp "${BRAID_TEST_PLUGIN:?}" "$shared/libnccl-net-braid.so"
	chmod 755 "$shared/braid" "$shared/libnccl-net-braid.so"
}

# Each command that loads a plugin refuses that one, by a line that has $1 in it.
refuses()
{
	for sub in info demo perf validate; do
		run -1 --separate-stderr "$shared/braid" $sub
		[ -z "$output" ]
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ $stderr == "braid $sub: $shared/libnccl-net-braid.so is not loaded: $1"*"--plugin PATH [unsafe-plugin]" ]]
	done
}

@test "output that can't be written is one line and status 2" {
	[ -c /dev/full ] || skip "there is no /dev/full"
	for words in --version help "perf --help" "info --params" topo; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr bash -c '"$@" >/dev/full' _ "$braid" $words
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ $stderr == "braid: standard output: could not be written"*"[cannot-write]" ]]
	done
}

# Else a socket to a process that it starts would be standard output.
@test "a closed standard output is output that can't be written" {
	[ -c /dev/full ] || skip "there is no /dev/full"
	plugin=${BRAID_TEST_PLUGIN:?}
	for words in help "info --plugin $plugin" "perf --sizes 8 --seconds 0.02 --plugin $plugin" \
		"perf --sizes 8,1k --seconds 0.02 --plugin $plugin"; do
		# shellcheck disable=SC2086 # words
		run -2 --separate-stderr bash -c 'exec timeout 120 "$@" >&-' _ "$braid" $words
		echo "$words: $stderr"
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ $stderr == *"standard output: could not be written"*"[cannot-write]" ]]
	done
}

@test "a plugin that others could have put beside braid is not loaded" {
	share
	run -0 "$shared/braid" info
	chmod 777 "$shared"
	refuses "every user can write to $shared (mode 0777)."
	run -0 "$shared/braid" info --plugin "$shared/libnccl-net-braid.so"
	chmod 1777 "$shared"			# as /tmp is: nobody can replace the file
	run -0 "$shared/braid" info
	chmod 666 "$shared/libnccl-net-braid.so"
	refuses "every user can write to $shared/libnccl-net-braid.so (mode 0666)."
}

@test "a plugin of another user beside braid is not loaded" {
	[ "$(id -u)" = 0 ] || skip "needs root"
	share
	chmod 1777 "$shared"
	chown 65534 "$shared/libnccl-net-braid.so"
	refuses "$shared/libnccl-net-braid.so belongs to user 65534."
	chown 65534 "$shared/braid"		# that user could change the program as well
	run -0 "$shared/braid" info
	chgrp 65534 "$shared/libnccl-net-braid.so"
	chmod 775 "$shared/libnccl-net-braid.so"
	refuses "group 65534 can write to $shared/libnccl-net-braid.so (mode 0775)."
}

@test "without a subcommand it says that one is needed" {
	bad "subcommand is needed"
}

@test "an unknown subcommand is named" {
	bad "no subcommand 'frobnicate'" frobnicate
	bad "no subcommand 'valdate'; is validate meant? [bad-option]" valdate
	bad "no subcommand 'prf'; is perf meant?" help prf
}

@test "a misspelt option is named with the one that is meant" {
	bad "unknown option '--size'; is --sizes meant?" perf --size 8
	bad "unknown option '--hmtl=x'; is --html meant?" topo --hmtl=x
	bad "unknown option '--elephant', see --help" perf --elephant
	bad "--iters takes a number from 1 to 2000000000, not 'x'" perf --iters x
}

@test "help SUBCOMMAND is its --help, and -v is --version" {
	run -0 "$braid" help perf
	[ "$output" = "$("$braid" perf --help)" ]
	run -0 "$braid" -v
	[ "$output" = "$("$braid" --version)" ]
}

@test "help lists the subcommands" {
	run -0 "$braid" help
	awk 'length > 80 { exit 1 }' <<<"$output"
	for word in demo perf mesh info topo smc doctor stat dump top validate report diff completion; do
		[[ $output == *"  $word "* ]]
	done
}

@test "--version prints one line" {
	run -0 "$braid" --version
	[[ $output =~ ^braid\ [0-9]+\.[0-9]+\.[0-9]+(\ \(git\ [0-9a-z-]+\))?$ ]]
}

@test "the plugin says the version of the command beside it" {
	run -0 "$braid" --version
	[[ $("$braid" info --verbose 2>&1) == *"braid: version ${output#braid }"* ]]
	strings -a "${BRAID_TEST_PLUGIN:?}" | grep -qxF "version ${output#braid }"
}

@test "each subcommand has --help within 80 columns" {
	for sub in demo perf compare mesh info topo smc "smc setup" doctor stat dump top validate report diff completion; do
		run -0 "$braid" $sub --help
		[[ $output == "usage: braid $sub"* ]]
		awk 'length > 80 { exit 1 }' <<<"$output"
	done
}

# The options that the manual page FILE names and no subcommand has, and those that it lacks.
differences()
{
	local has names

	has=$(for sub in demo perf compare mesh info topo smc "smc setup" doctor stat dump top validate diff completion; do
		"$braid" $sub --help
	done | grep -oE '^  --[a-z0-9-]+' | tr -d ' ' | sort -u)
	names=$(sed 's/\\-/-/g' "$1" | grep -oE 'Fl -[a-z0-9-]+' | sed 's/Fl /-/' | sort -u |
		grep -vxE -- '--(help|version)')
	diff <(echo "$has") <(echo "$names")
}

@test "braid(1) and the subcommands' --help name the same options" {
	page=${BRAID_TEST_BUILDDIR:-build}/docs/man/braid.1
	run -0 differences "$page"
	(cat "$page"; echo '.Fl -frobnicate') >"$BATS_TEST_TMPDIR/more"
	run -1 differences "$BATS_TEST_TMPDIR/more"
	[[ $output == *"> --frobnicate"* ]]
	grep -v -- '-inflight' "$page" >"$BATS_TEST_TMPDIR/less"
	run -1 differences "$BATS_TEST_TMPDIR/less"
	[[ $output == *"< --inflight"* ]]
}

@test "an option that no subcommand has is named by each" {
	for sub in demo perf compare info; do
		bad "--frobnicate" $sub --frobnicate
		bad "unexpected argument 'x'" $sub x
		bad "--plugin needs PATH" $sub --plugin
		bad "--abi takes an integer from 5 to 12, not '13'" $sub --abi 13
		bad "--verbose takes no value" $sub --verbose=1
	done
}

@test "a plugin that is not there is one line, and status 1 or 2" {
	for sub in demo perf info; do
		run ! --separate-stderr "$braid" $sub --plugin /nowhere/x.so
		[ -z "$output" ]
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ $stderr == *"/nowhere/x.so"* ]]
	done
}

@test "smc says what is missing, and setup minds what it is given" {
	run -0 "$braid" smc
	[[ ${lines[0]} == "SMC  "* ]]
	run -0 "$braid" smc --json
	[[ $output == *'"missing": ['* ]]
	bad "--frobnicate" smc --frobnicate
	bad "--ueid or --pnetid" smc setup
	bad "--ueid is up to 32" smc setup --ueid lower
	bad "--ueid is up to 32" smc setup --ueid ABCDEFGHIJKLMNOPQRSTUVWXYZ.123456
	bad "--ueid is up to 32" smc setup --ueid .A
	bad "--pnetid is up to 16" smc setup --pnetid A.B --net lo
	bad "--pnetid is of --net" smc setup --pnetid NET1
	bad "from 1 to 2" smc setup --pnetid NET1 --ib x0 --port 3
}

# $other runs a command without root's rights.
without_rights()
{
	other=
	[ "$(id -u)" = 0 ] || return 0
	other="setpriv --reuid 65534 --regid 65534 --clear-groups"
	$other "$braid" --version >/dev/null || skip "another user can't run braid where it is"
}

@test "a file is written that is ours, in a directory that is not" {
	[ "$(id -u)" = 0 ] || skip "only root can make a directory of another user"
	without_rights
	dir=$(mktemp -d)		# not in bats' own, which others can't enter
	chmod 755 "$dir"
	echo before >"$dir/metrics"
	chown 65534 "$dir/metrics"
	run -0 $other "$braid" stat --metrics --textfile "$dir/metrics"
	! grep before "$dir/metrics"
	run -2 --separate-stderr $other "$braid" stat --metrics --textfile "$dir/new"
	[ "$stderr" = "braid stat: $dir/new: Permission denied [cannot-write]" ]
}

# What root sets would stay until the next boot.
@test "smc setup that is refused, or that this braid can't ask for, is one line" {
	without_rights
	run -1 --separate-stderr $other "$braid" smc setup --ueid BRAID-TEST
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "braid smc setup: the UEID: "*"; it is for root [smc-refused]" ||
		$stderr == "braid smc setup: the UEID: this kernel has no SMC, "*"modprobe smc [smc-refused]" ||
		$stderr == "braid smc setup: this braid was built without libnl [no-libnl]" ]]
}
