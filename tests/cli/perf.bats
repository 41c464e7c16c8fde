#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# perf.bats - braid perf: every pattern moves its data, a mistake causes one line, nothing hangs.

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
export BRAID_PERF_KEY=that-of-all-tests

perf()
{
	timeout 120 "$braid" perf --plugin "$plugin" --seconds 0.02 "$@"
}

bad()					# WORDS OPTIONS...
{
	run -2 --separate-stderr perf "${@:2}"
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "braid perf: "*"$1"* ]]
}

# perf with --check --csv: as many rows for the plugin as for raw TCP, and no wrong values.
checked()				# OPTIONS...
{
	run -0 --separate-stderr perf --check --raw --csv "$@"
	awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		{ n[$2]++; if ($at["wrong"] != 0 || $at["values"] == 0) bad++ }
		END { exit bad || !n["plugin"] || n["plugin"] != n["raw"] }' <<<"$output"
}

@test "pingpong moves every byte right" {
	checked --pattern pingpong --sizes 1,8,127,1k,65537,1m
}

@test "oneway moves every byte right" {
	checked --pattern oneway --sizes 1,8,4k,65537,1m --inflight 32
}

@test "bidir with several comms and threads moves every byte right" {
	checked --pattern bidir --sizes 8,4k,256k --comms 6 --threads 3
}

@test "rate moves every byte right" {
	checked --pattern rate
}

@test "allreduce over 2, 3 and 5 processes sums right" {
	for n in 2 3 5; do
		checked --pattern allreduce --procs $n --sizes 4,100,64k,3m
	done
}

@test "allreduce with two channels sums right" {
	checked --pattern allreduce --procs 3 --comms 2 --threads 2 --sizes 40,1m
}

@test "alltoall over 4 processes moves every byte right" {
	checked --pattern alltoall --procs 4 --sizes 8,64k
}

@test "incast of 5 processes moves every byte right" {
	checked --pattern incast --procs 5 --sizes 8,64k
}

@test "all-reduce in two levels over 2, 3, 4 and 6 processes sums right" {
	for n in 2 3 4 6; do
		checked --pattern hier --procs $n --sizes 4,100,64k,3m
	done
	checked --pattern hier --procs 4 --comms 3 --threads 2 --sizes 4,40,1m
}

@test "sparse all-gather over 2, 3 and 5 processes adds up right" {
	for n in 2 3 5; do
		checked --pattern sparse --procs $n --sizes 4,400,64k,3m
	done
	checked --pattern sparse --procs 4 --comms 3 --threads 2 --sizes 4,40,1m
}

@test "empty messages go through" {
	run -0 perf --pattern oneway --sizes 0
}

@test "setup reports every comm" {
	run -0 --separate-stderr perf --pattern setup --comms 5 --csv
	[ "${#lines[@]}" -eq 6 ]
}

# column NAME - of the CSV in $output, its values.
column()
{
	awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next }
		{ print $at }' <<<"$output"
}

@test "what was not measured is empty in CSV and null in JSON" {
	run -0 --separate-stderr perf --pattern oneway --sizes 8 --csv
	[ "$(column p50_us)" = "" ] && [ "$(column connect_us)" = "" ]
	[ "$(column gbit_s)" ] && [ "$(column wrong)" = 0 ]
	run -0 --separate-stderr perf --pattern setup --comms 1 --csv
	[ "$(column gbit_s)" = "" ] && [ "$(column connect_us)" ]
	run -0 --separate-stderr perf --pattern oneway --sizes 8 --json
	[[ $output == *'"p50_us": null'* ]]
}

@test "within a host no speed of a NIC is named" {
	run -0 perf --sizes 8
	[[ ${lines[0]} == *"; nothing leaves this host" && ${lines[0]} != *"Gbit/s"* ]]
}

@test "every ABI version works" {
	for v in 5 6 7 8 9 10 11 12; do
		run -0 perf --abi $v --sizes 8,64k --check --csv
	done
}

@test "the table fits: title, head and a line for each size" {
	run -0 perf --sizes 8:64 --raw
	[[ ${lines[0]} == *"ABI v12"*"2 processes"* ]]
	[ "$(grep -cE '^ +(8|16|32|64) ' <<<"$output")" -eq 4 ]
	[[ $output == *"ratio"* && $output != *"medians"* ]]
	run -0 perf --sizes 8:64 --raw --rounds 3 --seconds 0.05
	[[ $output == *"medians of 3 rounds"* && $output != *" p90 "* ]]
	awk 'length > 80 { exit 1 }' <<<"$output"
	[ "$(grep -cE '^ +(8|16|32|64) ' <<<"$output")" -eq 4 ]
}

@test "--json is one JSON document with a row for each round" {
	run -0 --separate-stderr perf --sizes 8,1k --rounds 2 --raw --json
	[[ $output == *'"schema": "braid-perf-1"'* ]]
	command -v python3 >/dev/null || skip "python3 is not installed"
	# a round measures all sizes before the next round begins
	python3 -c 'import json, sys
rows = json.load(sys.stdin)["rows"]
assert [(r["round"], r["size"]) for r in rows] == [
	(i, size) for i in (0, 1) for size in (8, 8, 1024, 1024)]' <<<"$output"
}

@test "SIGTERM ends the rounds, and results so far are reported" {
	"$braid" perf --plugin "$plugin" --sizes 8 --rounds 1000 --seconds 0.5 --check --csv \
		>"$BATS_TEST_TMPDIR/csv" &
	perf=$!
	sleep 6
	kill -TERM $perf
	wait $perf
	rows=$(wc -l <"$BATS_TEST_TMPDIR/csv")
	[ "$rows" -ge 2 ] && [ "$rows" -lt 500 ]
}

@test "rows are printed as they are measured, and Ctrl-C loses none" {
	local out=$BATS_TEST_TMPDIR/out err=$BATS_TEST_TMPDIR/err pid status=0

	timeout 300 "$braid" perf --plugin "$plugin" --seconds 3 --sizes 8,16,32,64,128,256 \
		> >(cat >"$out") 2>"$err" &
	pid=$!
	for ((i = 0; i < 600; i++)); do
		grep -q '^ *8 ' "$out" && break
		sleep 0.1
	done
	pkill -INT -P "$pid" -x braid
	wait "$pid" || status=$?
	[ "$status" = 130 ]
	grep -q '^ *8 ' "$out"
	! grep -q '^ *256 ' "$out"
	[ "$(cat "$err")" = "braid perf: stopped; what is above was measured before [stopped-early]" ]
}

@test "a measurement may last longer than --timeout" {
	run -0 --separate-stderr perf --sizes 8 --timeout 4 --seconds 5
}

@test "a disk that is full is one line and status 2" {
	[ -c /dev/full ] || skip "there is no /dev/full"
	for how in --json --csv --pin; do
		run -2 --separate-stderr bash -c '"$1" perf --plugin "$2" --seconds 0.02 --sizes 8 "$3" >/dev/full' \
			_ "$braid" "$plugin" "$how"
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ $stderr == *"standard output: could not be written"*"[cannot-write]" ]]
	done
}

@test "two sides over the side channel, and the listener ends after one session" {
	: >"$BATS_TEST_TMPDIR/err"
	perf --listen 127.0.0.1:0 --once 2>"$BATS_TEST_TMPDIR/err" &
	listener=$!
	for _ in $(seq 600); do
		port=$(sed -n 's/^listening on port //p' "$BATS_TEST_TMPDIR/err")
		[ -z "$port" ] || break
		sleep 0.1
	done
	run -0 perf --connect 127.0.0.1:"$port" --sizes 8,64k --check --raw
	wait $listener
}

@test "a stranger on the listening port harms nothing" {
	perf --listen 127.0.0.1:0 2>"$BATS_TEST_TMPDIR/err" &
	listener=$!
	for _ in $(seq 600); do
		port=$(sed -n 's/^listening on port //p' "$BATS_TEST_TMPDIR/err")
		[ -z "$port" ] || break
		sleep 0.1
	done
	head -c 5000 /dev/urandom >/dev/tcp/127.0.0.1/"$port" || true
	exec 9<>/dev/tcp/127.0.0.1/"$port"
	run -0 perf --connect 127.0.0.1:"$port" --sizes 8
	exec 9>&-
	pkill -P $listener		# $listener itself is only a shell that waits for it
	wait $listener || true
}

kill_worker()				# the newest of timeout's braid perf, $perf
{
	coordinator=$(pgrep -P $perf)
	until pgrep -P "$coordinator" >/dev/null; do
		kill -0 "$coordinator"	# or there never will be one
		sleep 0.1
	done
	kill -KILL "$(pgrep -n -P "$coordinator")"
}

@test "a process that dies is one line and status 2, at once" {
	timeout 60 "$braid" perf --plugin "$plugin" --seconds 50 2>"$BATS_TEST_TMPDIR/err" &
	perf=$!
	sleep 1.5
	kill_worker
	SECONDS=0
	status=0
	wait $perf || status=$?
	[ "$status" -eq 2 ]
	[ $SECONDS -lt 20 ]
	[ "$(wc -l <"$BATS_TEST_TMPDIR/err")" -eq 1 ]
	grep -q 'died: Killed' "$BATS_TEST_TMPDIR/err"
}

# 900 bytes are the longest that Braid writes.
@test "the id at the end of a plugin's longest error is printed" {
	BREAK=words BREAK_PLUGIN=$plugin run -2 --separate-stderr timeout 120 "$braid" perf --sizes 8 \
		--plugin "${BRAID_TEST_BUILDDIR:-.}/tests/validate/.libs/broken.so" --seconds 0.02
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "braid perf: rank "*" [peer-lost]" ]]
}

@test "results from before a process died are printed" {
	for wait in 3 9 27; do		# four times S in all: 16 MiB are under way by then
		timeout 60 "$braid" perf --plugin "$plugin" --raw --sizes 8,16m --seconds $((wait / 3)) \
			>"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" &
		perf=$!
		sleep $wait
		kill_worker
		status=0
		wait $perf || status=$?
		[ "$status" -eq 2 ]
		grep -q 'died: Killed.*not-measured' "$BATS_TEST_TMPDIR/err"
		[[ ! $(cat "$BATS_TEST_TMPDIR/out") =~ $'\n'" "+8" "+[0-9.]+ ]] || return 0
	done
	return 1
}

@test "no listener at the other end is one line and status 2" {
	run -2 --separate-stderr perf --connect 127.0.0.1:1
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"127.0.0.1:1"*refused* ]]
}

@test "mistakes are one line and status 2" {
	bad "'fish' is none of pingpong" --pattern fish
	bad "not '8:'" --sizes 8:
	bad "not '1k:8'" --sizes 1k:8
	bad "not '2g'" --sizes 2g
	bad "not '-1'" --sizes -1
	bad "not ''" --sizes ''
	bad "--inflight takes an integer from 1 to 32, not '33'" --inflight 33
	bad "--comms takes an integer from 1 to 1024, not '0'" --comms 0
	bad "--threads takes an integer" --threads x
	bad "--seconds takes a number" --seconds 0
	bad "pingpong is for 2 to 2 processes, not 3" --procs 3
	bad "at least as many comms" --threads 4 --comms 2
	bad "--json or --csv" --json --csv
	bad "--listen or --connect" --listen 1 --connect a:1
	bad "'nonsense' is not HOST:PORT" --connect nonsense
	bad "'x:99999' is not HOST:PORT" --connect x:99999
	bad "is not [ADDR]:PORT" --listen 70000
	bad "--once is for --listen" --once
	bad "--until-eof is for --listen" --until-eof
}

@test "an address that can't be listened at is one line" {
	run -2 --separate-stderr perf --listen 198.51.100.1:0
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"198.51.100.1"*"[not-served]" ]]
}

@test "a device that is not there is named" {
	run -2 --separate-stderr perf --dev nothere0
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"no device 'nothere0'"* ]]
}

@test "one-sided operations are measured beside messages" {
	run -0 --separate-stderr "$braid" perf --plugin "$plugin" --one-sided putsignal --pattern pingpong \
		--sizes 8 --iters 20 --rounds 2
	[[ $output == *"put with signal"*"msg p50  ratio"*"over isend and irecv, less is better" ]]
	for kind in put putsignal get; do
		run -0 "$braid" perf --plugin "$plugin" --one-sided "$kind" --pattern oneway --sizes 8,100k \
			--iters 20 --json
		jq -e --arg kind "$kind" '[.rows[].fabric] | unique == ([$kind, "plugin"] | sort)' <<<"$output"
	done
	run -0 "$braid" perf --plugin "$plugin" --one-sided putsignal --pattern alltoall --procs 4 --sizes 1k \
		--iters 10 --csv
	[[ $output == *"alltoall,putsignal,0,1024"* ]]
	run -0 "$braid" report --markdown - <("$braid" perf --plugin "$plugin" --one-sided put --pattern rate \
		--sizes 8 --iters 100 --json)
	[[ $output == *"| size | put | plugin |"* ]]
}

@test "one-sided operations that can't be measured are refused" {
	run -2 "$braid" perf --plugin "$plugin" --one-sided push
	[[ $output == *"is none of put, putsignal, get"* ]]
	run -2 "$braid" perf --plugin "$plugin" --one-sided put --check
	[[ $output == *"not both"* ]]
	run -2 "$braid" perf --plugin "$plugin" --one-sided get --pattern pingpong
	[[ $output == *"has no --pattern pingpong"* ]]
	BRAID_RMA=off run -2 "$braid" perf --plugin "$plugin" --one-sided put
	[[ $output == *"offers no device for one-sided operations"* ]]
}

@test "raw TCP can ask before each message, in ping-pong alone" {
	rawtcp=${BRAID_TEST_BUILDDIR:-.}/tools/rawtcp
	[ -x "$rawtcp" ] || skip "no rawtcp in the build"
	run -0 "$rawtcp" --asked --check --sizes 8,100k --iters 20
	[[ $output == "raw TCP, asked on "* ]]
	run -2 "$rawtcp" --asked --pattern oneway
	[[ $output == *"--asked is for --pattern pingpong"* ]]
}
