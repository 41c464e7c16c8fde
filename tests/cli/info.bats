#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# info.bats - braid info tells what the plugin offers and every parameter.

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}

@test "it names plugin, ABI versions and at least one device" {
	run -0 "$braid" info --plugin "$plugin"
	[[ $output == *"plugin     $plugin"* ]]
	[[ $output == *"ABI        v5 v6 v7 v8 v9 v10 v11 v12"* ]]
	[[ $output == *"device 0 "* ]]
	[[ $output == *"TCP only"* ]]
}

@test "it finds the plugin without being told" {
	run -0 "$braid" info
	[[ $output == *"libnccl-net-braid.so"* ]]
}

@test "every ABI version tells of the same devices" {
	run -0 "$braid" info --plugin "$plugin"
	devices=$(grep '^device' <<<"$output")
	for v in 5 6 7 8 9 10 11 12; do
		run -0 "$braid" info --plugin "$plugin" --abi $v
		[ "$(grep '^device' <<<"$output")" = "$devices" ]
	done
}

@test "--params has every row of param.def, within 80 columns" {
	run -0 "$braid" info --plugin "$plugin" --params
	sed -n 's/^P_[A-Z]*(\([a-z0-9_]*\),.*/\1/p' "${BRAID_TEST_SRCDIR:-.}/core/param.def" | tr "[:lower:]" "[:upper:]" |
	while read -r name; do
		grep -q "^BRAID_$name = " <<<"$output"
	done
	awk '/^ / && length > 80 { exit 1 }' <<<"$output"
}

@test "--params shows what the environment says" {
	BRAID_LANES=3 run -0 "$braid" info --plugin "$plugin" --params
	[[ $output == *"BRAID_LANES = 3"* ]]
}

@test "a bad value in the environment is status 1 and names the variable" {
	BRAID_LANES=many run -1 --separate-stderr "$braid" info --plugin "$plugin"
	[[ $stderr == *BRAID_LANES*many* ]]
}

@test "--json is one JSON document with its schema" {
	run -0 --separate-stderr "$braid" info --plugin "$plugin" --json
	[[ $output == *'"schema": "braid-info-1"'* ]]
	if command -v python3 >/dev/null; then
		python3 -c 'import json, sys; d = json.load(sys.stdin); assert d["plugin"]["devices"]; assert len(d["params"]) > 5' <<<"$output"
	fi
}
