#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# demo.bats - braid demo: every sum is right, on two processes and more, and it ends in time.

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}

demo()
{
	timeout 300 "$braid" demo --plugin "$plugin" "$@"
}

@test "with its defaults all sums are right, within 80 columns" {
	run -0 --separate-stderr demo
	[[ $output == *"161 tensors, 25557032 float32"* ]]
	[[ ${lines[-1]} == *"all are right." ]]
	[[ -z $stderr ]]
	awk 'length > 80 { exit 1 }' <<<"$output"
}

@test "two and three processes work" {
	run -0 demo --procs 2 --steps 1
	run -0 demo --procs 3 --steps 1
}

@test "mistakes are one line and status 2" {
	for words in "--procs 1" "--procs 17" "--steps 0" "--steps 1.5"; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr "$braid" demo $words
		[ -z "$output" ]
		[ "${#stderr_lines[@]}" -eq 1 ]
	done
}
