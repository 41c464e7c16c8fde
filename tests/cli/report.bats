#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# report.bats - pages of reports: --html, --markdown, --anonymize and braid report.
#
# How a page looks is seen in a browser (tests/browser/pages.sh).
# shellcheck disable=SC2154 # what run sets

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}

setup()
{
	cd "$BATS_TEST_TMPDIR" || return
	export BRAID_SOCKET_IFNAME=lo
}

bad()					# WORDS ARGUMENTS...
{
	run -2 --separate-stderr "$braid" "${@:2}"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"$1"* ]]
}

@test "perf writes text, a page and tables for a ticket in one run" {
	run -0 --separate-stderr "$braid" perf --raw --sizes 8,64 --iters 50 --html p.html --markdown p.md
	[[ $output == *"ratio: Braid over raw TCP"* ]]
	[[ $(<p.html) == "<!DOCTYPE html>"*"</html>" ]]
	grep -q '^# braid perf: pingpong$' p.md
	grep -q '^| over | size | round | min\\_us ' p.md
}

@test "a page to standard output is all there" {
	run -0 --separate-stderr "$braid" perf --sizes 8 --iters 50 --html -
	[[ $output == "<!DOCTYPE html>"*"</html>" ]]
	run -0 --separate-stderr "$braid" topo --markdown -
	[[ $output == "# braid topo"* ]]
	bad "standard output, not two" perf --json --html -
}

@test "every page says by which command, when and on what host" {
	"$braid" perf --sizes 8 --iters 50 --markdown p.md >/dev/null
	grep -q "^| command | braid perf --sizes 8 --iters 50 --markdown p.md |$" p.md
	grep -Eq '^\| date \| 20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z \|$' p.md
	grep -Fq "| kernel | $(uname -r | sed 's/[_~]/\\&/g') |" p.md
	grep -q '^## How and where it was made$' p.md
}

# doc NAME... - a mesh of these hosts.
doc()
{
	python3 - "$@" <<-'END'
	import json, sys
	h = sys.argv[1:]
	print(json.dumps({"schema": "braid-mesh-1", "complete": True, "over": "Braid",
	  "command": f"braid mesh /home/alice/hosts --rsh 'ssh -l bob' root@{h[0]}",
	  "median": {"bandwidth": 1e9, "latency": 1e-5},
	  "hosts": [{"name": n, "address": f"10.1.2.{i}", "host": n.split(".")[0]} for i, n in enumerate(h)],
	  "pairs": [{"from": a, "to": b, "state": "failed", "error":
	    f"{a}: no route to 10.1.2.1:7000 at 12:30:45, nor fe80::1:2 by 02:42:ac:11:00:02"}
	    for a in h for b in h if a != b],
	  "findings": [{"kind": "host", "hosts": [h[0]], "with": [], "text": f"{h[0]} is slow", "next": "look"}],
	  "host": {"name": h[0], "kernel": "6.1"}}))
	END
}

@test "--anonymize leaves no name or address, and equal ones stay equal" {
	doc alpha.example.org beta >d.json
	run -0 --separate-stderr "$braid" report d.json --markdown - --anonymize
	for word in alpha beta example 10.1.2 fe80 02:42 alice; do
		[[ $output != *"$word"* ]] || {
			echo "$word is there"
			return 1
		}
	done
	[[ $output == *"host-1 is slow"* && $output == *"| host-1 | host-2 |"* ]]
	[[ $output == *"12:30:45"* ]]		# a time is no address
	[[ $output == *"/home/user/hosts"*"user"*"@host-1"* ]]
	"$braid" perf --sizes 8 --iters 50 --json --anonymize >p.json
	run ! grep -qw -e "$(hostname)" p.json
}

@test "strings of a report are text in its page" {
	doc '<img src=x onerror=alert(1)>' '"><script>' >d.json
	run -0 --separate-stderr "$braid" report d.json --html -
	[[ $output != *"<script"* && $output != *"<img"* ]]
	[[ $output == *"&lt;img src=x onerror=alert(1)&gt;"* ]]
	run -0 --separate-stderr "$braid" report d.json --markdown -
	[[ $output == *'\<img src=x'* ]]
}

@test "a file that is no report of ours, or not there, is one line" {
	echo '{"schema": "other"}' >o.json
	bad "no report of perf, compare" report o.json
	bad "[bad-report]" report none.json
	echo '{' >o.json
	bad "[bad-report]" report o.json
	bad "which report?" report
	bad "/nowhere/" report --html /nowhere/x.html <(doc a b)
}

@test "a report with anything in it makes a page or one line" {
	doc a b >good
	for i in $(seq 1 40); do
		python3 - "$i" <<-'END' >d.json
		import random, sys
		random.seed(int(sys.argv[1]))
		s = open("good").read()
		for _ in range(4):
		    at = random.randrange(len(s))
		    s = s[:at] + random.choice(['null', '[]', '{}', '"', '1e999', '-1', ',']) + s[at + random.randrange(9):]
		print(s)
		END
		run --separate-stderr "$braid" report d.json --html -
		[ "$status" -eq 0 ] || [ "$status" -eq 2 ]
	done
}
