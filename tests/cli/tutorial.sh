#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# tutorial.sh - every command of docs/user/tutorial.md prints what the tutorial shows, in shape.
#
# Small documents that are wrong in one way each prove that it would be noticed.
set -u

src=${BRAID_TEST_SRCDIR:-.}
braid=${BRAID_TEST_BRAID:-braid}
if ! command -v python3 >/dev/null; then
	echo "1..0 # SKIP there is no python3"
	exit 0
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# WHAT RESULT LINE... - a document of one block, which is right (0) or not (1).
planted()
{
	local what=$1 want=$2 status

	shift 2
	# shellcheck disable=SC2016 # the quotes of a block
	printf '%s\n' '```console' "$@" '```' >"$tmp/planted.md"
	python3 "$src/tests/cli/tutorial.py" "$tmp/planted.md" "$braid" >"$tmp/log"
	status=$?
	if [ $status = "$want" ]; then
		echo "ok - $what"
	else
		sed 's/^/# /' "$tmp/log"
		echo "not ok - $what"
	fi
}

planted other_figures_are_the_same_shape 0 '$ echo "8 B in 3.5 us; 10.0.0.1:70 of eth0"' '9 B in 12 ms; 1.2.3.4:5 of lo'
planted a_changed_word_is_noticed 1 '$ braid --version' 'brain 0.1.0'
planted a_missing_line_is_noticed 1 '$ echo "first line"' 'first line' 'second line'
planted an_added_line_is_noticed 1 '$ echo "first line"; echo "second line"' 'second line'
planted lines_in_another_order_are_noticed 1 '$ echo one; echo two' '...' 'two' 'one' '...'
planted a_figure_that_is_a_word_now_is_noticed 1 '$ echo "none us"' '4 us'
planted a_command_that_fails_is_noticed 1 '$ braid no-such-command' '...'
planted an_option_that_is_gone_is_noticed 1 '$ braid perf --no-such-option' '...'

python3 "$src/tests/cli/tutorial.py" "$src/docs/user/tutorial.md" "$braid"
