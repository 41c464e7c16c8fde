#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# validate.bats - braid validate: all checks pass for Braid, and each check fails for a plugin that is
# broken in the one way it looks for (tests/validate/broken.c). Also reports, exit status, two hosts.
# shellcheck disable=SC2154 # what run sets

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
export BRAID_PERF_KEY=that-of-all-tests
src=${BRAID_TEST_SRCDIR:-.}
build=${BRAID_TEST_BUILDDIR:-.}
broken=$build/tests/validate/.libs/broken.so

setup()
{
	export BRAID_SOCKET_IFNAME=lo BREAK_PLUGIN=$plugin
	unset BRAID_TRANSPORTS BREAK NO_COLOR
}

validate()				# OPTIONS...
{
	timeout 200 "$braid" validate --plugin "$plugin" "$@"
}

# A wrong command line: exit status 2, one line on stderr with $1 in it, nothing on stdout.
bad()
{
	run -2 --separate-stderr "$braid" validate --plugin "$plugin" "${@:2}"
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "braid validate: "*"$1"* ]]
}

# Plugins that are broken as BREAK says; "MODE ID OTHERS": ID fails, OTHERS pass.
broken_as()
{
	local mode id others complaints=

	while read -r mode id others; do
		[ "$mode" ] || continue
		run --separate-stderr env BREAK="$mode" timeout 100 "$braid" validate \
			--plugin "$broken" --faults --tap --only "$id,$others"
		[ "$status" -eq 1 ] || complaints+="$mode: exit status $status, $output $stderr"$'\n'
		grep -q "^not ok [0-9]* - $id: " <<<"$output" ||
			complaints+="$mode: $id did not fail: $output"$'\n'
		[ "$(grep -c '^not ok' <<<"$output")" -eq 1 ] ||
			complaints+="$mode: others failed than $id: $output"$'\n'
		# a failed check reports what it saw, and what to do
		grep -A2 "^not ok [0-9]* - $id: " <<<"$output" | grep -qE '^  message: ".{10}' ||
			complaints+="$mode: $id does not say what it saw"$'\n'
		grep -qE '^  mend: ".{10}' <<<"$output" ||
			complaints+="$mode: $id does not say what to do"$'\n'
	done
	echo "$complaints"
	[ -z "$complaints" ]
}

@test "there are 220 checks and more of thirteen groups, in 80 columns" {
	run -0 "$braid" validate --list
	[ "$(grep -cE '^[a-z]+-[a-z0-9-]+ +[a-z]+ +(quick|full|faults) ' <<<"$output")" -ge 220 ]
	[ -z "$(awk 'length($0) > 80' <<<"$output")" ]
	[ "$(awk '/^[a-z]/ { print $2 }' <<<"$output" | sort -u | wc -l)" -eq 13 ]
	[ -z "$(awk '/^[a-z]/ { print $1 }' <<<"$output" | sort | uniq -d)" ]
}

@test "docs/user/validate.md has the list" {
	"$braid" validate --list >"$BATS_TEST_TMPDIR/list"
	sed -n '/^    load-open /,/^$/s/^    //p' "$src/docs/user/validate.md" >"$BATS_TEST_TMPDIR/docs"
	diff "$BATS_TEST_TMPDIR/list" "$BATS_TEST_TMPDIR/docs"
}

@test "Braid passes the quick profile, and its figures are reported" {
	run --separate-stderr validate
	echo "$output"
	[ "$status" -eq 0 ]
	[ -z "$(awk 'length($0) > 80 + 6' <<<"$output")" ]	# a symbol has three bytes
	[[ $output == *" 0 fail, "* ]]
	[[ $output == *"latency_8B_p50: "*" us"* ]]
	[[ $output == *"measured; --thresholds FILE says what it must be"* ]]
	[[ $output != *$'\033'* ]]
}

@test "Braid passes the checks that break things" {
	run --separate-stderr validate --faults --only fault
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c ' pass  *fault-' <<<"$output")" -ge 8 ]
}

@test "checks of a plugin's properties find what is wrong" {
	broken_as <<-END
	speed props-speed props-name,props-guid
	ptr props-cuda props-host,props-speed
	dmabuf props-dmabuf props-host
	name props-name props-guid
	pci props-pci props-name
	bounds props-bounds props-stable
	recvs props-recvs props-comms
	changes props-stable props-name
	END
}

@test "a rate that does not come back after an outage is found" {
	unshare -n true 2>/dev/null || unshare -rn true 2>/dev/null || skip "no network of its own"
	broken_as <<-END
	tired fault-heal fault-link
	END
}

@test "a rate that comes back later than promised passes, and is called slow" {
	unshare -n true 2>/dev/null || unshare -rn true 2>/dev/null || skip "no network of its own"
	run env BREAK=rests timeout 100 "$braid" validate --plugin "$broken" --faults \
		--only fault-heal
	[ "$status" -ne 77 ] || skip "$output"
	[ "$status" -eq 0 ]
	[[ $(tr -s ' \n' ' ' <<<"$output") == *"slower than Braid promises, 5 s; the check fails at 50 s"* ]]
}

@test "checks of how a plugin is loaded find what is wrong" {
	broken_as <<-END
	members load-members load-symbols,load-name
	open load-name load-symbols
	stdout load-stdout load-init,load-signals
	signal load-signals load-stdout,load-environment
	environ load-environment load-signals
	init load-again load-init
	END
}

@test "checks of connections find what is wrong" {
	broken_as <<-END
	handle connect-handle load-init,props-name
	block connect-waits connect-accept-waits,connect-out
	accept connect-accept-waits connect-waits,connect-in
	fds connect-leak connect-out,connect-in,connect-listens
	refuse connect-out connect-handle,props-devices
	END
}

@test "checks of data find what is wrong" {
	broken_as <<-END
	flip data-large connect-handle
	short data-small data-no-sizes,connect-handle
	behind data-smaller data-page
	early data-middle props-host
	reuse data-large data-small
	swap data-same-tag data-small,data-page
	lose data-inflight data-zero,connect-first
	order data-group data-small,data-tags
	wait data-send-waits connect-waits
	irecv data-recv-waits data-send-waits
	crash data-small connect-waits
	END
}

@test "checks of memory, of the class of traffic and of dead peers find what is wrong" {
	broken_as <<-END
	stale mr-again mr-tiny,data-small
	class path-class data-small
	error fault-kill-receive data-small
	death fault-kill-send data-small
	END
}

@test "a plugin that is not broken is content, through the same library" {
	run -0 timeout 200 "$braid" validate --plugin "$broken" --only load,props,connect,data
	[[ $output == *" 0 fail, "* ]]
}

@test "a plugin that does no more than NCCL asks passes every check of data" {
	run -0 --separate-stderr env BREAK=oldest timeout 200 "$braid" validate --plugin "$broken" \
		--only data,flush,connect,mr --tap
	[[ $output != *"not ok"* ]]
	grep -q "^ok [0-9]* - data-any-order: More than NCCL asks: .* # SKIP " <<<"$output"
	grep -q "^ok [0-9]* - data-tags: More than NCCL asks: .* # SKIP " <<<"$output"
	grep -q "^ok [0-9]* - data-inflight: " <<<"$output"
}

@test "Braid does what is more than NCCL asks" {
	run -0 validate --only data-tags,data-any-order --tap
	[[ $output != *SKIP* ]]
}

@test "a plugin without a device fails once, and nothing else is tried" {
	run -1 --separate-stderr env BREAK=none timeout 100 "$braid" validate --plugin "$broken" --tap
	[ "$(grep -c '^not ok' <<<"$output")" -eq 1 ]
	grep -q '^not ok [0-9]* - props-devices: ' <<<"$output"
	grep -q '^ok [0-9]* - data-small: .* # SKIP props-devices failed, and this needs it' <<<"$output"
	run -77 env BREAK=none timeout 100 "$braid" validate --plugin "$broken" --only data-small
	[[ $output == *"it has no device here"* ]]
}

@test "what is late is not called unsafe" {
	run -1 --separate-stderr env BREAK=hang timeout 100 "$braid" validate --plugin "$broken" --only data-small
	[[ $(tr -s ' \n' ' ' <<<"$output") == *"do: It was late, not wrong"* ]]
	[[ $output != *"not safe"* ]]
	run -1 --separate-stderr env BREAK=flip timeout 100 "$braid" validate --plugin "$broken" --only data-large
	[[ $output == *"Data is not safe over this path"* ]]
}

@test "both ends of path-ipv6 use IPv6" {
	listen
	run --separate-stderr validate --connect "127.0.0.1:$port" --only path-ipv6 --tap
	kill $listener
	echo "$output $stderr"
	[[ $output == *"# SKIP no device has an IPv6 address"* ]] && skip "no IPv6 here"
	[ "$status" -eq 0 ]
}

@test "a figure without a threshold is measured, and one that is misspelt is refused" {
	run -0 --separate-stderr validate --only perf-latency --json "$BATS_TEST_TMPDIR/r.json"
	[[ $output == *" 0 skip, 1 measured in "* ]]
	grep -q '"result": "measured"' "$BATS_TEST_TMPDIR/r.json"
	echo '{"schema": "braid-thresholds", "version": 1, "figures": {"latency_8B_p5": {"most": 1}}}' \
		>"$BATS_TEST_TMPDIR/t.json"
	bad 'there is no figure "latency_8B_p5"; is "latency_8B_p50" meant?' --thresholds "$BATS_TEST_TMPDIR/t.json"
	run -0 validate --only perf-latency --thresholds "$src/docs/user/thresholds.example.json"
}

@test "a soak that is killed has left what it found, and its times" {
	"$braid" validate soak 0.1 --plugin "$plugin" --only data-small,data-large --json "$BATS_TEST_TMPDIR/s.json" \
		>"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	local pid=$!
	until [ -s "$BATS_TEST_TMPDIR/s.json" ]; do
		kill -0 $pid
		sleep 0.1
	done
	kill -KILL $pid
	python3 -c '
import json, sys
r = json.load(open(sys.argv[1]))
assert r["profile"] == "soak" and not r["complete"] and r["counts"]["pass"] > 0, r
assert r["date"].endswith("Z") and r["command"].startswith("braid validate soak")' "$BATS_TEST_TMPDIR/s.json"
	[ "$(grep -c '^round ' "$BATS_TEST_TMPDIR/out")" -le 2 ]	# a line a minute, not a line a round
}

@test "a report is as docs/user/validate.schema.json has it" {
	report=$BATS_TEST_TMPDIR/report.json
	run -0 validate --only data-small,props,perf-latency --json "$report"
	python3 -c 'import jsonschema' 2>/dev/null || skip "python3-jsonschema is not installed"
	python3 - "$report" "$src/docs/user/validate.schema.json" <<-END
	import json, sys, jsonschema
	report, schema = (json.load(open(p)) for p in sys.argv[1:])
	jsonschema.Draft7Validator.check_schema(schema)
	jsonschema.validate(report, schema)
	report["checks"][0]["result"] = "maybe"
	try:
	    jsonschema.validate(report, schema)
	except jsonschema.ValidationError:
	    sys.exit(0)
	sys.exit("the schema takes anything")
	END
}

@test "a report is JSON with its schema, its version and what a reader elsewhere needs" {
	run -0 --separate-stderr validate --only data-small --json -
	for word in '"schema": "braid-validate"' '"version": 1' '"kernel"' '"memlock"' \
		'"BRAID_SOCKET_IFNAME": "lo"' '"result": "pass"' '"seed"'; do
		[[ $output == *"$word"* ]]
	done
}

@test "JUnit: one testcase for each check" {
	run -1 --separate-stderr env BREAK=order "$braid" validate --plugin "$broken" \
		--only data-zero,data-group,flush-gpu --junit "$BATS_TEST_TMPDIR/j.xml"
	xml=$(cat "$BATS_TEST_TMPDIR/j.xml")
	[ "$(grep -c '<testcase' <<<"$xml")" -eq 3 ]
	[ "$(grep -c '<failure message="' <<<"$xml")" -eq 1 ]
	[ "$(grep -c '<skipped message="' <<<"$xml")" -eq 1 ]
	if command -v xmllint >/dev/null; then
		xmllint --noout "$BATS_TEST_TMPDIR/j.xml"
	fi
}

@test "TAP 13: a plan, a line for each check, the reason of a skip" {
	run -0 validate --tap --only data-zero,iwarp
	[ "${lines[0]}" = "TAP version 13" ]
	[ "${lines[1]}" = "1..5" ]
	[ "${lines[2]}" = "ok 1 - data-zero: Messages without bytes" ]
	[[ ${lines[3]} == "ok 2 - iwarp-initiator: "*" # SKIP the device is no iWARP NIC" ]]
}

@test "exit status 77 where all checks were skipped" {
	run -77 validate --only iwarp
}

@test "thresholds: kept, broken, for another NIC" {
	t=$BATS_TEST_TMPDIR/t.json
	rule()
	{
		echo '{"schema": "braid-thresholds", "version": 1, "nic": "'"$1"'",
			"figures": {"latency_8B_p50": {"most": '"$2"'}}}' >"$t"
	}
	rule 'l*' 1e9
	run -0 validate --only perf-latency --thresholds "$t"
	[[ $output == *"1 pass, 0 fail"* ]]
	rule 'l*' 0.001
	run -1 validate --only perf-latency --thresholds "$t"
	[[ $output == *"latency_8B_p50 is "*" us, and at most 0.001 was to be"* ]]
	rule 'mlx5_*' 0.001
	run -0 validate --only perf-latency --thresholds "$t"
	[[ $output == *"1 measured"* ]]
}

@test "thresholds that can't be read are one line" {
	t=$BATS_TEST_TMPDIR/t.json
	bad "t.json: No such file" --thresholds "$t"
	try()				# TEXT WORDS
	{
		echo "$1" >"$t"
		bad "$2" --thresholds "$t"
	}
	try '' "t.json: line"
	try '{"schema": 1' "t.json: line"
	try '[]' "its schema is not braid-thresholds"
	try '{"schema": "braid-thresholds"}' "it has no version"
	try '{"schema": "braid-thresholds", "version": 2}' "newer version"
	try '{"schema": "braid-thresholds", "version": 1}' "it has no figures"
	try '{"schema": "braid-thresholds", "version": 1, "nic": 5, "figures": {}}' '"nic" is'
	try '{"schema": "braid-thresholds", "version": 1, "figures": {"a": {}}}' 'neither "least"'
	try '{"schema": "braid-thresholds", "version": 1, "figures": {"a": {"most": "5"}}}' "take a number"
	try '{"schema": "braid-thresholds", "version": 1, "figures": {"a": {"mots": 5}}}' '"mots"'
}

@test "mistakes are one line" {
	bad "no profile 'quik'" quik
	bad "soak takes the hours" soak
	bad "soak takes the hours" soak never
	bad "unexpected argument '3'" full 3
	bad "unexpected argument 'more'" soak 1 more
	bad "no check or group 'nonsense'" --only data,nonsense
	bad "unknown option '--frobnicate'" --frobnicate
	bad "--connect: 'host' is not HOST:PORT" --connect host
	bad "--listen or --connect, not both" --listen 1 --connect host:1
	bad "can be on stdout" --json - --tap
	bad "go together" --port-down true
	bad "what breaks things takes --faults" --only fault
	bad "[no-meeting]" --connect 127.0.0.1:1
	bad "/nowhere/report.json: No such file or directory [cannot-write]" --json /nowhere/report.json
	run -2 --separate-stderr "$braid" validate --plugin /nowhere/x.so
	[[ $stderr == "braid validate: /nowhere/x.so: No such file or directory [bad-option]" ]]
}

@test "a report that can't be written leaves no file behind" {
	cd "$BATS_TEST_TMPDIR" || return
	# The limit is what a full disk is: a file may be made, and have no bytes.
	run -2 bash -c 'set -o pipefail; trap "" XFSZ; (ulimit -f 0; timeout 100 "$@") 2>&1 | cat' _ \
		"$braid" validate --plugin "$plugin" --only props-name --json r.json --junit j.xml
	[[ $output == *"r.json: could not be written"*"[cannot-write]"*"j.xml: "* ]]
	[ -z "$(ls)" ]
}

@test "--help has examples" {
	run -0 "$braid" validate --help
	[[ $output == *"braid validate --connect node1:7400"* ]]
	[[ $output == *"[PROFILE]"* ]]
	[ -z "$(awk 'length($0) > 80' <<<"$output")" ]
}

# Start a second host: its port is $port.
listen()				# OPTIONS...
{
	"$braid" validate --plugin "$plugin" --listen 127.0.0.1:0 "$@" 2>"$BATS_TEST_TMPDIR/err" 3>&- &
	listener=$!
	until port=$(sed -n 's/^listening on port //p' "$BATS_TEST_TMPDIR/err" | grep .); do
		kill -0 $listener
		sleep 0.05
	done
}

@test "between two hosts" {
	listen
	run --separate-stderr validate --connect "127.0.0.1:$port" \
		--only connect-out,connect-in,data,perf-latency
	kill $listener
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[[ $output == *" 0 fail, "* ]]
}

@test "a peer that vanishes during a run: one line, exit status 2, and results so far are kept" {
	listen
	( sleep 1; kill $listener ) 3>&- &
	run -2 --separate-stderr validate --connect "127.0.0.1:$port" \
		--only load,data,connect-leak --json "$BATS_TEST_TMPDIR/r.json"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "braid validate: the peer 127.0.0.1:$port has gone"*"[peer-gone]" ]]
	grep -q '"complete": false' "$BATS_TEST_TMPDIR/r.json"
	grep -q '"result": "pass"' "$BATS_TEST_TMPDIR/r.json"
	grep -q '"fail": 0' "$BATS_TEST_TMPDIR/r.json"		# the peer's end is no fault of the plugin
}

@test "a run that is interrupted prints its results so far" {
	"$braid" validate --plugin "$plugin" --json "$BATS_TEST_TMPDIR/r.json" \
		>"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	pid=$!
	until grep -q pass "$BATS_TEST_TMPDIR/out"; do sleep 0.05; done
	kill -TERM $pid
	rc=0
	wait $pid || rc=$?
	[ $rc -eq 2 ]
	grep -q '"complete": false' "$BATS_TEST_TMPDIR/r.json"
	grep -q "stopped; what is above.*\[stopped-early\]" "$BATS_TEST_TMPDIR/out"
}

@test "soak repeats and prints its seeds" {
	run --separate-stderr validate soak 0.001 --only data-small,data-random
	[ "$status" -eq 0 ]
	[[ $output == *"round 1, seed "*" pass, 0 fail, "*"h left"* ]]
}

@test "a seed gives the same messages again" {
	validate --seed 7 --only data-random --json "$BATS_TEST_TMPDIR/a"
	validate --seed 7 --only data-random --json "$BATS_TEST_TMPDIR/b"
	diff <(grep '"seed"' "$BATS_TEST_TMPDIR/a") <(grep '"seed"' "$BATS_TEST_TMPDIR/b")
	diff <(grep '"seed [0-9]' "$BATS_TEST_TMPDIR/a") <(grep '"seed [0-9]' "$BATS_TEST_TMPDIR/b")
}

# -- devices that exist in memory only ----------------------------------------------------------

fake_nic()				# DESCRIPTION CHECKS [LIBRARIES]
{
	[ -e "$build/tests/fake/.libs/libibverbs.so.1" ] || skip "built without RDMA"
	case ${BRAID_TEST_SANITIZER-} in *address*) skip "not with a sanitizer" ;; esac
	run --separate-stderr env LD_LIBRARY_PATH="$build/tests/fake/.libs${3+:$3}" \
		BRAID_TEST_FAKE_FABRIC="$BATS_TEST_TMPDIR/fabric" BRAID_TEST_FAKE_DEVICES="$1" \
		timeout 100 "$braid" validate --plugin "$plugin" --transport verbs --tap --only "$2"
	echo "$output $stderr"
	[ "$status" -eq 0 ]
}

@test "RDMA: the data does not go over TCP" {
	fake_nic roce0:rocev2,netdev=lo path,data-small,data-large,data-inflight
	grep '^ok [0-9]* - path-payload: ' <<<"$output" | grep -qv SKIP
	grep '^ok [0-9]* - path-transport: ' <<<"$output" | grep -qv SKIP
}

@test "iWARP's own checks, over an iWARP NIC" {
	fake_nic iwarp0:iwarp,netdev=lo iwarp
	[ "$(grep -c '^ok .* - iwarp' <<<"$output")" -eq 4 ]
	[[ $output != *SKIP* ]]
}

@test "memory of a GPU, over a NIC that reaches it" {
	[ -e "$build/tests/fakecuda/.libs/libcuda.so.1" ] || skip "tests/fakecuda is not built"
	fake_nic roce0:rocev2,netdev=lo props-cuda,flush-gpu "$build/tests/fakecuda/.libs"
	[ "$(grep -c '^ok ' <<<"$output")" -eq 2 ]
	[[ $output != *SKIP* ]]
}

@test "SMC's own checks, over a fake kernel's" {
	smc=$build/tests/fakesmc/.libs/smc.so
	[ -e "$smc" ] || skip "tests/fakesmc is not built"
	case ${BRAID_TEST_SANITIZER-} in *address*) skip "not with a sanitizer" ;; esac
	run --separate-stderr env LD_PRELOAD="$smc" FAKE_SMC=smcr timeout 100 \
		"$braid" validate --plugin "$plugin" --transport smc,tcp --tap --only smc
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	grep '^ok [0-9]* - smc-data: ' <<<"$output" | grep -qv SKIP
	grep '^ok [0-9]* - smc-mixed: ' <<<"$output" | grep -qv SKIP
}
