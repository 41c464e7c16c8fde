#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# diff.bats - braid diff names what has become worse, but not what differs by chance.
# shellcheck disable=SC2154 # what run sets

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}

setup()
{
	cd "$BATS_TEST_TMPDIR" || return
}

# A report with one check and one figure.
report()				# FILE RESULT BETTER SAMPLES
{
	cat >"$1" <<-END
	{"schema": "braid-validate", "version": 1, "complete": true, "checks": [
	 {"id": "data-small", "group": "data", "result": "$2", "saw": ["a thing"], "figures": [
	  {"name": "speed", "value": 1, "unit": "x", "better": "$3", "samples": [$4]}]}]}
	END
}

bad()					# WORDS ARGUMENTS...
{
	run -2 --separate-stderr "$braid" diff "${@:2}"
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "braid diff: "*"$1"* ]]
}

low=1,2,3,4,5,6,7
high=11,12,13,14,15,16,17

@test "two equal reports: nothing is worse" {
	report a pass less $low
	run -0 "$braid" diff a a
	[ "${lines[-1]}" = "0 worse, 0 better, 2 as before: nothing has become worse" ]
}

@test "a check that fails now is named" {
	report a pass less $low
	report b fail less $low
	run -1 "$braid" diff a b
	[ "${lines[0]}" = "worse   data-small: fail, was pass: a thing" ]
	run -0 "$braid" diff b a
	[[ ${lines[0]} == "better  data-small: pass, was fail"* ]]
	report c skip less $low
	run -0 "$braid" diff a c
	[[ ${lines[0]} == "other   data-small: skip, was pass"* ]]
}

@test "a figure that is worse is named, by what is better" {
	report a pass less $low
	report b pass less $high
	run -1 "$braid" diff a b
	[[ $output == "worse   speed: 14 x, was 4 (+250.0 %; p = 0.00029 of 7 and 7"* ]]
	run -0 "$braid" diff b a
	[[ $output == "better  speed: 4 x, was 14"* ]]
	report a pass more $low
	report b pass more $high
	run -1 "$braid" diff b a
	run -0 "$braid" diff a b
}

@test "a difference that may be chance is not worse" {
	report a pass less 1,9,3,12,5,6,7
	report b pass less 8,2,14,4,9,10,11
	run -0 "$braid" diff a b
	[[ $output == *"may be chance"* ]]
}

@test "few samples show no difference" {
	report a pass less 1,2,3,4
	report b pass less 11,12,13,14
	run -0 "$braid" diff a b
	[[ $(tr -s ' \n' ' ' <<<"$output") == *"too few to tell from chance"* ]]
}

@test "--threshold sets the difference that is no change" {
	report a pass less 100,101,102,103,104,105,106
	report b pass less 107,108,109,110,111,112,113
	run -0 "$braid" diff a b
	run -1 "$braid" diff --threshold 3 a b
	run -0 "$braid" diff --threshold=300 a b
}

# perf FILE DEVICE CPU_SHARE VALUE... - a report of one size, a round for each value.
perf()
{
	local rows='' round=0 v

	for v in "${@:4}"; do
		rows+="${rows:+,}{\"fabric\": \"plugin\", \"round\": $round, \"size\": 8, \"p50_us\": $v, \"cpu_share\": $3}"
		round=$((round + 1))
	done
	echo "{\"schema\": \"braid-perf-1\", \"pattern\": \"pingpong\", \"pinned\": $([ "$2" = lo ] && echo true || echo false),
	 \"fabrics\": {\"plugin\": {\"name\": \"Braid\", \"device\": \"$2\"}}, \"rows\": [$rows]}" >"$1"
}

@test "a change that other programs caused is not worse" {
	perf a eth0 1 10 11 10 11 10 11 10
	perf b eth0 0.5 20 21 20 21 20 21 20
	run -0 "$braid" diff a b
	[[ $(tr -s ' \n' ' ' <<<"$output") == *"unsure pingpong plugin 8 bytes p50_us: 20 us, was 10"*"other programs had the CPU"* ]]
	perf b eth0 1 20 21 20 21 20 21 20
	run -1 "$braid" diff a b
}

@test "reports of two devices are compared with a word about it" {
	perf a eth0 1 10 11 10 11 10 11 10
	perf b lo 1 10 11 10 11 10 11 10
	run -0 "$braid" diff a b
	[[ $output == *"note    the device differs: eth0, then lo"*"note    --pinned differs"* ]]
}

@test "with raw TCP in both, ratios to it are compared" {
	local f

	for f in a b; do
		perf $f eth0 1 10 11 12 10 11 12 13
	done
	# The host is half as fast in b, and so is raw TCP.
	python3 - <<-'END'
	import json
	for name, slow in ("a", 1), ("b", 2):
	    r = json.load(open(name))
	    r["fabrics"]["raw"] = r["fabrics"]["plugin"]
	    for row in list(r["rows"]):
	        row["p50_us"] *= slow
	        r["rows"].append({**row, "fabric": "raw", "p50_us": 8 * slow})
	    json.dump(r, open(name, "w"))
	END
	run -0 "$braid" diff a b
	[ "$output" = "0 worse, 0 better, 1 as before: nothing has become worse" ]
}

@test "too few samples for so many figures: how many there must be" {
	perf a eth0 1 10 11 10
	perf b eth0 1 20 21 20
	run -0 "$braid" diff a b
	[[ $output == *"with 3 samples and 1 figures nothing can be sure: 5 rounds or more"* ]]
}

@test "--json has what the text has, and when and where" {
	perf a eth0 1 10 11 10 11 10 11 10
	perf b eth0 1 20 21 20 21 20 21 20
	run -1 "$braid" diff --json d a b
	python3 -c '
import json
d = json.load(open("d"))
f, = d["figures"]
assert d["schema"] == "braid-diff-1" and d["worse"] == 1 and f["result"] == "worse", d
assert f["was"] == 10 and f["is"] == 20 and f["percent"] == 100 and f["p"] < 0.01, f
assert d["date"].endswith("Z") and d["command"] == "braid diff --json d a b" and d["host"]["kernel"]'
}

@test "a check that is gone is reported" {
	report a pass less $low
	echo '{"schema": "braid-validate", "version": 1, "checks": []}' >b
	run -0 "$braid" diff a b
	[[ ${lines[0]} == "other   data-small: was pass, and is not in the second report" ]]
	run -0 "$braid" diff b a
	[[ ${lines[0]} == "other   data-small: pass, was not there"* ]]
}

@test "reports of braid validate and of braid perf, as they are" {
	export BRAID_SOCKET_IFNAME=lo
	"$braid" validate --plugin "$plugin" --only data-small,perf-latency --json a >/dev/null || [ $? -eq 77 ]
	run "$braid" diff a a
	[ "$status" -eq 0 ]
	"$braid" perf --plugin "$plugin" --sizes 8,1k --iters 50 --rounds 8 --json |
		sed 's/"cpu_share": [0-9.]*/"cpu_share": 1.0/' >p	# whoever else runs here
	run -0 "$braid" diff p p
	[[ $output == *"0 worse, 0 better, "[1-9]* ]]
	sed 's/"p50_us": /"p50_us": 1000/' p >q
	run -1 "$braid" diff p q
	[[ $output == *"pingpong plugin 8 bytes p50_us: "* ]]
	bad "one report is of braid perf" a p
}

@test "a report that can't be read is one line" {
	report a pass less $low
	bad "two reports are needed" a
	bad "unexpected argument 'c'" a a c
	bad "b: No such file" a b
	echo '{"schema"' >b
	bad "b: line " a b
	echo '{"schema": "braid-validate", "version": 2, "checks": []}' >b
	bad "version 2 is newer than this braid, which knows 1" a b
	echo '{"schema": "braid-perf-2", "rows": []}' >b
	bad "braid-perf-2 is newer" a b
	echo '{"schema": "braid-validate", "version": 1}' >b
	bad "not a whole report [bad-report]" a b
	echo '[1, 2]' >b
	bad "neither of braid validate" a b
	bad "--threshold takes a number from 0 to 1000, not 'x'" --threshold x a a
}

@test "reports with anything in them do no harm" {
	report a pass less $low
	for text in '"checks": [1, null, {}]' '"checks": [{"id": 5, "figures": 7}]' \
		'"checks": [{"id": "x", "figures": [{"name": 1, "samples": ["a", {}]}]}]' \
		'"checks": [{"id": "x", "saw": {"a": 1}, "figures": [{"samples": [1]}]}]'; do
		echo '{"schema": "braid-validate", "version": 1, '"$text"'}' >b
		run --separate-stderr "$braid" diff a b
		[ "$status" -le 1 ]
		run --separate-stderr "$braid" diff b a
		[ "$status" -le 1 ]
	done
}

@test "no colours where there is no terminal, and --help has examples" {
	report a pass less $low
	report b fail less $low
	run -1 "$braid" diff a b
	[[ $output != *$'\033'* ]]
	run -0 "$braid" diff --help
	[[ $output == *"braid diff before.json after.json"* ]]
	[[ $output == "usage: braid diff A B [options]"* ]]
}
