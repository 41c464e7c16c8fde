#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# mesh.bats - braid mesh: what HOSTFILE may have, what it prints and writes, and what is left of a run
# that is stopped.  Every host is this one; tests/net/mesh.sh has hosts of their own, and faults.
# shellcheck disable=SC2154 # what run sets

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
slow=${BRAID_TEST_SLOW:-1}

setup()
{
	export BRAID_SOCKET_IFNAME=lo
	tmp=$BATS_TEST_TMPDIR
	# A remote shell that goes nowhere; a host whose name begins with "gone" can't be reached.
	cat >"$tmp/rsh" <<-END
		#!/bin/sh
		case \$1 in gone*) echo "\$1: no route" >&2; exit 255 ;; esac
		echo \$\$ >"$tmp/pid.\$1"
		shift
		exec "\$@"
	END
	chmod +x "$tmp/rsh"
	how=(--rsh "$tmp/rsh" --remote-braid "$braid" --plugin "$plugin" --seconds 0.01 --size 4k
		--parallel 1)
}

hosts()					# NAME...
{
	for host; do
		echo "$host address=127.0.0.1"
	done >"$tmp/hosts"
}

mesh()
{
	timeout -k 5 $((100 * slow)) "$braid" mesh "$tmp/hosts" "${how[@]}" "$@"
}

# ran OPTIONS... - all pairs are measured.  Whether one of them looks odd depends on what else runs here.
ran()
{
	run --separate-stderr mesh "$@"
	[ "$status" -le 1 ]
}

bad()					# WORDS - one line on stderr, and nothing was started
{
	run -2 --separate-stderr mesh
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "braid mesh: $tmp/hosts"*"$1"*"[bad-hostfile]" ]] || { echo "$stderr"; return 1; }
}

# -- HOSTFILE -------------------------------------------------------------------------------------

@test "a host file with comments, slots, addresses and sides is read" {
	printf '%s\n' '# a cluster' '' 'a slots=8 address=127.0.0.1 side=x  # first' \
		$'\tb:127.0.0.1 max_slots=4 switch=y\r' >"$tmp/hosts"
	ran --json "$tmp/json"
	[ "$(jq -r '.hosts[] | [.name, .address, .side] | join(" ")' "$tmp/json")" = \
		$'a 127.0.0.1 x\nb 127.0.0.1 y' ]
}

@test "a host that is there twice is refused, with both lines" {
	printf '%s\n' a b '# c' a >"$tmp/hosts"
	bad ":4: host 'a' is already in line 1"
}

@test "a file with no host, with one, or that is not there is refused" {
	echo '# nobody' >"$tmp/hosts"
	bad "has no host; a mesh needs two or more"
	echo a >"$tmp/hosts"
	bad "has one host; a mesh needs two or more"
	rm "$tmp/hosts"
	bad "No such file"
	mkdir "$tmp/hosts"
	bad "directory"
}

@test "junk in a host file is refused, with its line" {
	for line in '-oProxyCommand=x' 'a;reboot' '$(reboot)' 'a:' ':b' 'fd00::1' 'a side=' 'a address=-x' \
		'a color=red' 'a b' "a side=x'y" $'a\aside=b' $'\x80\xff'; do
		printf 'one\n%s\n' "$line" >"$tmp/hosts"
		bad ":2: "
	done
	printf 'one\n%01200d\n' 7 >"$tmp/hosts"
	bad ":2: this line has more than 1000 characters"
	head -c 3000 /dev/urandom | tr -d '\n#' | sed 's/^/#/; s/^#/x /' >"$tmp/hosts"
	bad ":1: "
	printf 'a\0b\nb\n' >"$tmp/hosts"
	bad ":1: there is a control character"
}

@test "ten thousand hosts are refused" {
	seq -f 'h%.0f' 10000 >"$tmp/hosts"
	bad ":513: that is one host more than braid mesh takes, 512: 'h513'"
}

@test "words that a remote shell may misread, and sizes that are none, are refused" {
	hosts a b
	run -2 mesh --rsh 'ssh -o "X Y"'
	[[ $output == *"may misread"*"[bad-option]" ]]
	run -2 mesh --plugin '/x;y'
	[[ $output == *"may misread"*"[bad-option]" ]]
	run -2 mesh --rsh ''
	[[ $output == *"needs a command"* ]]
	run -2 mesh --size 8,16
	[[ $output == *"--size takes one size"* ]]
	run -2 mesh --meet host:1
	[[ $output == *"--meet is for mpirun"* ]]
	run -2 env -u OMPI_COMM_WORLD_RANK -u RANK "$braid" mesh
	[[ $output == *"a HOSTFILE is needed"* ]]
}

# -- a run ----------------------------------------------------------------------------------------

@test "every pair is measured both ways, and a line tells of each round" {
	hosts a b c
	ran --json "$tmp/json"
	[[ ${lines[0]} == "3 hosts, 3 of 3 pairs, Braid, messages of 4k; 3 rounds, "* ]]
	[[ $output == *"Nothing is odd."* ]] || [ "$status" = 1 ]
	[ "$(grep -c '^round [1-3] of 3, [0-2] of 3 pairs' <<<"$stderr")" = 3 ]
	jq -e '.schema == "braid-mesh-1" and .complete and (.pairs | length) == 6 and
		(.hosts | map(select(.kernel and .nic == "lo")) | length) == 3 and (.findings | type == "array") and
		(.pairs | all(.state == "measured" and .bandwidth > 1e5 and .latency > 1e-7 and
			.latency < 1 and .resent >= 0 and .error == null)) and
		.median.bandwidth > 0 and (.command | startswith("braid mesh "))' "$tmp/json"
	[[ $(jq -r .date "$tmp/json") =~ ^20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z$ ]]
}

@test "raw TCP is measured with --tcp" {
	hosts a b
	ran --tcp
	[[ $output == *"1 of 1 pairs, raw TCP"* ]]
}

@test "JSON to standard output has nothing beside it" {
	hosts a b
	ran --json -
	jq -e '.complete' <<<"$output"
}

@test "a map of 16 hosts fits 80 columns" {
	hosts $(seq -f node%.0f 16)
	ran --tcp --parallel 2
	for line in "${lines[@]}"; do
		[ "${#line}" -le 80 ]
	done
	[ "$(grep -cE '^ *[0-9]+ node[0-9]+ ' <<<"$output")" = 16 ]
}

@test "a host that can't be reached is named, and the others are measured" {
	hosts a b gone c
	run -1 mesh --json "$tmp/json"
	[[ $output == *"gone can't be measured: gone: no route."* ]]
	[ "$(jq -c '[.findings[0] | .kind, .hosts]' "$tmp/json")" = '["absent",["gone"]]' ]
	[ "$(jq '[.pairs[] | select(.state == "measured")] | length' "$tmp/json")" = 6 ]
}

@test "if no host can be reached, that is all there is to say" {
	hosts gone1 gone2
	run -1 mesh
	[[ $output == *"gone1 can't be measured"*"gone2 can't be measured"* ]]
	[[ $output != *"Lines send"* ]]
}

# runs_until_round_3 - a mesh of six hosts in the background, whose process is $pid.
runs_until_round_3()
{
	hosts a b c d e f
	"$braid" mesh "$tmp/hosts" "${how[@]}" --seconds 0.1 --json "$tmp/json" \
		>"$tmp/out" 2>"$tmp/err" 3>&- &
	pid=$!
	for _ in $(seq $((600 * slow))); do
		! grep -q '^round 3' "$tmp/err" || break
		sleep 0.05
	done
}

ends()
{
	status=0
	wait $pid || status=$?
}

@test "what was measured before Ctrl-C is kept, and the status is 130" {
	runs_until_round_3
	kill -INT $pid
	ends
	[ $status = 130 ]
	grep -q 'stopped; what is above was measured before \[stopped-early\]$' "$tmp/err"
	grep -q '^ *1 a ' "$tmp/out"
	jq -e '(.complete | not) and ([.pairs[] | select(.state == "measured")] | length) >= 4 and
		([.pairs[] | select(.state == "not-measured")] | length) >= 4' "$tmp/json"
}

@test "a host that dies during the run is named, and what was measured with it is kept" {
	runs_until_round_3
	kill -KILL "$(cat "$tmp/pid.e")"
	ends
	[ $status = 1 ]
	grep -q "^! e can't be measured: its listener ended during the run" "$tmp/out"
	jq -e '.complete and ([.pairs[] | select(.from == "e" and .state == "measured")] | length) >= 2 and
		([.pairs[] | select(.from == "e" and .state == "failed")] | length) >= 1 and
		([.pairs[] | select(.from != "e" and .to != "e")] | all(.state == "measured"))' "$tmp/json"
}

# -- ranks ----------------------------------------------------------------------------------------

@test "ranks of a launcher meet, and rank 0 reports" {
	export BRAID_PERF_KEY=a-key-of-this-test-alone RANK WORLD_SIZE=3 MASTER_ADDR=127.0.0.1
	export MASTER_PORT=$((21000 + RANDOM % 8000))
	for RANK in 2 1; do
		timeout $((60 * slow)) "$braid" mesh --plugin "$plugin" 3>&- &
	done
	RANK=0
	run timeout $((60 * slow)) "$braid" mesh --plugin "$plugin" --seconds 0.01 --size 4k \
		--parallel 1 --json "$tmp/json"
	wait
	[ "$status" -le 1 ]
	[[ $output == *"3 hosts, 3 of 3 pairs, Braid"* ]]
	[ "$(jq -r '.hosts[].name' "$tmp/json" | sed 's|.*/||' | tr '\n' ' ')" = '0 1 2 ' ]
}

@test "with a launcher that does not say where rank 0 is, --meet is asked for" {
	run -2 env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$braid" mesh
	[[ $output == *"mpirun does not say where rank 0 is: --meet HOST:PORT [bad-option]" ]]
}
