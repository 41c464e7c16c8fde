#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# exit.bats - exit statuses: one table of commands that end with each status that braid(1) lists.

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
src=${BRAID_TEST_SRCDIR:-.}
broken=${BRAID_TEST_BUILDDIR:-.}/tests/validate/.libs/broken.so
slow=${BRAID_TEST_SLOW:-1}
export BRAID_PERF_KEY=that-of-all-tests

setup()
{
	export BRAID_SOCKET_IFNAME=lo BREAK_PLUGIN=$plugin
	unset BREAK BRAID_TRANSPORTS
	cd "$BATS_TEST_TMPDIR" || return
	for result in pass fail; do
		cat >$result.json <<-END
			{"schema": "braid-validate", "version": 1, "complete": true, "checks": [
			 {"id": "data-small", "group": "data", "result": "$result",
			  "saw": ["a thing"], "figures": []}]}
		END
	done
	echo '{' >cut.json
	echo cut.json >list
	printf 'a address=127.0.0.1\nb address=127.0.0.1\n' >hosts
	printf '#!/bin/sh\nshift\nexec "$@"\n' >near
	chmod +x near
	# A port that is taken, by a program that never answers.
	mute=
	if command -v python3 >/dev/null; then
		python3 -c 'import socket, time
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
time.sleep(600)' >port 3>&- &
		mute=$!
		for _ in $(seq 100); do
			[ ! -s port ] || break
			sleep 0.1
		done
		taken=127.0.0.1:$(cat port)
	fi
}

teardown()
{
	[ -z "$mute" ] || kill "$mute" || true
}

# "STATUS COMMAND": @ is the plugin, % one that is broken as BREAK says.
table()
{
	cat <<-END
		0	help
		0	info --plugin @
		1	info --plugin /nowhere.so
		2	info --nonsense
		2	nonsense
		0	smc
		2	smc setup
		0	completion --shell bash
		2	completion --shell csh
		0	demo --help
		1	demo --plugin /nowhere.so
		0	top --once --dir .
		2	top --seconds 0
		0	perf --plugin @ --sizes 8 --seconds 0.01
		1	BREAK=large perf --plugin % --sizes 1m --check --seconds 0.05
		2	perf --plugin /nowhere.so
		2	perf --plugin @ --connect 127.0.0.1:1
		2	perf --plugin @ --seconds 600 --html /nowhere/page.html
		2	perf --plugin @ --seconds 600 --markdown .
		130	INT perf --plugin @ --sizes 8 --seconds 600
		0	compare --plugin @ --over tcp --lanes 1 --patterns pingpong --sizes 8 --rounds 1
		1	BREAK=large compare --plugin % --over tcp --lanes 1 --patterns oneway --sizes 1m --check
		2	compare --plugin /nowhere.so
		2	compare --plugin @ --seconds 60 --csv /nowhere/rows.csv
		130	INT compare --plugin @ --over tcp --lanes 1 --patterns pingpong --sizes 8 --rounds 99 --seconds 1
		1	mesh hosts --rsh /bin/false
		130	INT mesh hosts --rsh ./near --remote-braid $braid --plugin @ --seconds 60
		2	mesh nowhere
		2	mesh hosts --rsh ./near --seconds 60 --json /nowhere/mesh.json
		0	validate --plugin @ --only props-name
		1	BREAK=name validate --plugin % --only props-name
		2	validate --plugin @ --connect 127.0.0.1:1
		2	validate --plugin @ --profile soak --junit /nowhere/junit.xml
		77	validate --plugin @ --only iwarp
		0	diff pass.json pass.json
		1	diff pass.json fail.json
		2	diff pass.json cut.json
		0	report pass.json --markdown -
		2	report cut.json --markdown -
		0	stat
		2	stat 1
		2	dump 1
		0	doctor --list
		1	NCCL_NET_PLUGIN=/nowhere.so NCCL_NET=Braid doctor --only plugin
		2	doctor --nodes list
	END
	[ -z "$mute" ] || cat <<-END
		2	perf --plugin @ --listen $taken
		2	validate --plugin @ --listen $taken
		2	perf --plugin @ --connect $taken
		2	validate --plugin @ --connect $taken
	END
}

# ends WORDS... - run it; INT: with a Ctrl-C once it has begun.  Prints the status.
ends()
{
	local status=0 env=() how=(timeout $((120 * slow)))

	while [[ $1 == *=* ]]; do
		env+=("$1")
		shift
	done
	if [ "$1" = INT ]; then
		how=(timeout --preserve-status -k 60 -s INT $((10 * slow)))
		shift
	fi
	env "${env[@]}" "${how[@]}" "$braid" "$@" </dev/null >out 2>err || status=$?
	echo $status
}

@test "each command ends with the status that braid(1) lists, and says why in one line" {
	local want words have complaints=

	while IFS=$'\t' read -r want words; do
		words=${words//@/$plugin}
		# shellcheck disable=SC2086
		have=$(ends ${words//%/$broken})
		[ "$have" = "$want" ] || complaints+="$want, not $have: $words: $(cat err)"$'\n'
		[ "$want" != 2 ] || [ "$(grep -c "^braid" err)" = 1 ] ||
			complaints+="not one line: $words: $(cat err)"$'\n'
	done < <(table)
	echo "$complaints"
	[ -z "$complaints" ]
}

@test "the table has each status that braid(1) lists" {
	local listed missing

	listed=$(sed -n 's/^\.It Cm \([a-z]*\) No \([0-9]*\)$/\1 \2/p' "$src/docs/man/braid.1.in" | sort)
	missing=$(comm -23 <(grep -v '^any' <<<"$listed") \
		<(table | sed 's/[A-Z_]*=[^ ]* //g; s/INT //' | awk '{ print $2, $1 }' | sort -u))
	echo "$missing"
	[ -z "$missing" ]
	[ "$(wc -l <<<"$listed")" -ge 20 ]
}
