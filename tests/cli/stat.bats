#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# stat.bats - braid stat, dump and top ask running processes; other users get an error that says why.

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
examples=${BRAID_TEST_SRCDIR:-.}/docs/examples
tests=${BRAID_TEST_SRCDIR:-.}/tests/cli

setup()
{
	dir=$(mktemp -d)
	export BRAID_STAT_DIR=$dir
	export -n NO_COLOR
}

teardown()
{
	if [ -n "${job-}" ]; then
		kill "$job" 2>/dev/null || true
		wait "$job" 2>/dev/null || true
	fi
	rm -rf "$dir"
}

# Wait until $dir has N sockets; $pids are their paths.
sockets()				# N
{
	for _ in $(seq 500); do
		pids=("$dir"/[0-9]*)
		[ ${#pids[@]} -eq "$1" ] && return
		sleep 0.02
	done
	false
}

# Two processes that send to each other; $pid is one of them.
job()
{
	"$braid" perf --plugin "$plugin" --pattern oneway --sizes 4k:4k --seconds 30 \
		>/dev/null 2>&1 3>&- &
	job=$!
	sockets 2
	pid=${pids[0]##*/}
	for _ in $(seq 500); do		# until messages flow
		[[ $("$braid" stat "$pid") == *"state  "* ]] && break
		sleep 0.02
	done
}

# Start a process, $who, that answers one question with $1 and exits; wait for it afterwards.
says()
{
	python3 -c '
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
name = "%s/%d" % (sys.argv[1], os.getpid())
s.bind(name + ".new")
s.listen()
os.rename(name + ".new", name)
c = s.accept()[0]
c.recv(16)
c.send(os.fsencode(sys.argv[2]))
os.unlink(name)' "$dir" "$1" 3>&- &
	who=$!
	until [ -S "$dir/$who" ]; do sleep 0.02; done
}

# Status 2, one line on stderr that has $1 in it, nothing on stdout.
bad()
{
	run -2 --separate-stderr "$braid" "${@:2}"
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"$1"* ]]
}

@test "stat lists processes, and shows links and lanes of one" {
	job
	run -0 "$braid" stat --dir "$dir"	# others' processes are elsewhere
	[ "$(grep -cE '^ *[0-9]+ braid ' <<<"$output")" -eq 2 ]
	run -0 "$braid" stat "$pid"
	[[ $output == "process $pid on "* ]]
	[[ $output == *"link 1 over "* ]]
	[[ $output =~ \ 0\ \ (tcp|verbs)\ +up,\ home ]]
	awk 'length > 80 { exit 1 }' <<<"$output"
}

@test "dump shows messages, a verdict and events" {
	job
	run -0 "$braid" dump "$pid"
	[[ $output == *"waits for: "* ]]
	[[ $output == *"events, the newest last"*"link up"* ]]
}

# The text is right for who reads it: promtool where it is installed, and a small parser.
well_formed()				# prometheus|openmetrics TEXT
{
	command -v python3 >/dev/null || skip "python3 is not installed"
	python3 "$tests/metrics.py" "$1" <<<"$2"
	if [ "$1" = prometheus ] && command -v promtool >/dev/null; then
		promtool check metrics <<<"$2"
	fi
}

@test "--json is the report, --metrics and --openmetrics are what their readers take" {
	job
	run -0 "$braid" stat "$pid" --json
	[[ $output == '{"braid_report":1,'*'"pid":'$pid,* ]]
	run -0 "$braid" dump --json "$pid"
	[[ $output == *'"events":[{'* ]]
	run -0 "$braid" stat --openmetrics "$pid"
	well_formed openmetrics "$output"
	grep -q '^# TYPE braid_sent_bytes counter$' <<<"$output"
	run -0 "$braid" stat --metrics "$pid"
	well_formed prometheus "$output"
	grep -q '^# TYPE braid_sent_bytes_total counter$' <<<"$output"
	[ "$(grep -c '^# TYPE' <<<"$output")" -ge 15 ]
}

@test "the parser finds what is wrong with metrics" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	head=$'# HELP braid_x_total X.\n# TYPE braid_x_total counter\n'
	python3 "$tests/metrics.py" prometheus <<<"$head"'braid_x_total{a="\"\\"} 1'
	while IFS='|' read -r words text; do
		run -1 python3 "$tests/metrics.py" prometheus <<<"$(printf "$text")"
		[[ $output == *"$words"* ]] || { echo "$text: $output"; return 1; }
	done <<-'END'
		has no heading before it|braid_x_total{a="1"} 1
		has no HELP|# TYPE braid_x gauge\nbraid_x{a="1"} 1
		TYPE of braid_x twice|# HELP braid_x X.\n# TYPE braid_x gauge\n# TYPE braid_x gauge
		is a counter|# HELP braid_x X.\n# TYPE braid_x counter\nbraid_x{a="1"} 1
		twice: |# HELP braid_x X.\n# TYPE braid_x gauge\nbraid_x{a="1",b="2"} 1\nbraid_x{b="2",a="1"} 1
		neither heading nor sample|# HELP braid_x X.\n# TYPE braid_x gauge\nbraid_x{a="1"b"} 1
		no bucket +Inf|# HELP braid_x X.\n# TYPE braid_x histogram\nbraid_x_bucket{le="1"} 1\nbraid_x_sum{a="1"} 1
		not cumulative|# HELP braid_x X.\n# TYPE braid_x histogram\nbraid_x_bucket{le="1"} 2\nbraid_x_bucket{le="+Inf"} 1
		not in order|# HELP braid_x X.\n# TYPE braid_x histogram\nbraid_x_bucket{le="2"} 1\nbraid_x_bucket{le="1"} 1
		one count and one sum|# HELP braid_x X.\n# TYPE braid_x histogram\nbraid_x_bucket{le="+Inf"} 1\n
	END
}

@test "--metrics without a PID is every process of the host, with job and rank" {
	export SLURM_JOB_ID='4711"\' RANK=3
	job
	run -0 "$braid" stat --metrics
	well_formed prometheus "$output"
	[ "$(grep -c '^braid_up{host="'"$(hostname)"'",job_id="4711\\"\\\\",pid="[0-9]*",rank="3"} 1$' <<<"$output")" -eq 2 ]
	[ "$(grep -c '^braid_sent_bytes_total{device="' <<<"$output")" -ge 2 ]
	run -0 "$braid" stat --metrics --textfile "$dir/all.prom"
	[ -z "$output" ]
	well_formed prometheus "$(cat "$dir/all.prom")"
	grep -q '^braid_up{' "$dir/all.prom"
}

@test "a job or rank that says nothing is no label, and hides no other variable" {
	export TORCHELASTIC_RUN_ID=none PBS_JOBID=12.server RANK='' OMPI_COMM_WORLD_RANK=4
	unset SLURM_JOB_ID SLURM_PROCID
	job
	run -0 "$braid" stat --metrics "$pid"
	grep -q '^braid_up{.*job_id="12.server",pid="'"$pid"'",rank="4"} 1$' <<<"$output"
}

@test "a process that does not answer is 0 in the series in which it was 1" {
	export SLURM_JOB_ID='4711"\' RANK=3
	job
	run -0 "$braid" stat --metrics
	was=$(grep "^braid_up{.*pid=\"$pid\"" <<<"$output")
	kill -STOP "$pid"
	run -0 "$braid" stat --metrics
	kill -CONT "$pid"
	grep -qxF "${was%1}0" <<<"$output"
	grep -q '^braid_up{.*} 1$' <<<"$output"
	well_formed prometheus "$output"
}

@test "so is one of a container, which has a host name of its own" {
	[ "$(id -u)" = 0 ] || skip "only root may make namespaces"
	unshare -u hostname inside 2>/dev/null || skip "no namespace can be had"
	unshare -u sh -c 'hostname inside; HOSTNAME=inside RANK=1 exec "$@"' - "$braid" perf --plugin "$plugin" \
		--pattern oneway --sizes 4k:4k --seconds 30 >/dev/null 2>&1 3>&- &
	job=$!
	sockets 2
	pid=${pids[0]##*/}
	for _ in $(seq 500); do
		was=$("$braid" stat --metrics | grep "^braid_up{.*pid=\"$pid\"") && break
		sleep 0.02
	done
	[[ $was == 'braid_up{host="inside",pid="'$pid'",rank="1"} 1' ]]
	kill -STOP "$pid"
	run -0 "$braid" stat --metrics
	kill -CONT "$pid"
	grep -qxF "${was%1}0" <<<"$output"
}

@test "a directory by two names is one" {
	mkdir -m 700 "$dir/braid"
	export BRAID_STAT_DIR=$dir/braid/
	"$braid" perf --plugin "$plugin" --pattern oneway --sizes 4k:4k --seconds 30 >/dev/null 2>&1 3>&- &
	job=$!
	dir=$dir/braid sockets 2
	for _ in $(seq 20); do		# a busy host's processes may answer late
		XDG_RUNTIME_DIR=$dir run -0 "$braid" stat
		rows=$(awk '$2 == "braid" { print $1 }' <<<"$output")
		[ "$(wc -w <<<"$rows")" -lt 2 ] || break
	done
	[ "$(wc -w <<<"$rows")" -ge 2 ]		# other tests' processes may be there, too
	[ -z "$(sort <<<"$rows" | uniq -d)" ]
	XDG_RUNTIME_DIR=$dir run -0 "$braid" stat --metrics
	well_formed prometheus "$output"
}

@test "two plugins of one process are told apart" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	python3 -c '
import os, socket, sys
all = []
for end in ".1", "":
    s = socket.socket(socket.AF_UNIX)
    s.bind("%s/%d%s" % (sys.argv[1], os.getpid(), end))
    s.listen()
    all.append(s)
while True:
    for s in reversed(all):
        c = s.accept()[0]
        c.recv(16)
        c.send(b"# HELP braid_x X.\n# TYPE braid_x gauge\nbraid_x{pid=\"%d\"} 1\n" % os.getpid())
        c.close()' "$dir" 3>&- &
	job=$!
	sockets 2
	run -0 "$braid" stat --metrics
	well_formed prometheus "$output"
	[ "$(grep '^braid_x' <<<"$output")" = 'braid_x{pid="'$job'"} 1
braid_x{pid="'$job'.1"} 1' ]
}

@test "the file that a process writes is well-formed" {
	export BRAID_METRICS_FILE=$dir/m-%p.prom BRAID_METRICS_S=1
	job
	for _ in $(seq 500); do
		[ -e "$dir/m-$pid.prom" ] && break
		sleep 0.02
	done
	well_formed prometheus "$(cat "$dir/m-$pid.prom")"
	well_formed openmetrics "$("$braid" stat --openmetrics "$pid")"
}

@test "metrics of a process that are not well-formed are left out" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	says '# HELP braid_x X\y.
# HELP braid_x Again.
# TYPE braid_x summary
# TYPE braid_x gauge
# TYPE braid_y counter
# TYPE braid_X gauge
braid_x{a="1",pid="7"} 1
braid_x{pid="8",a="1"} 2
braid_x{a="\n\"\\"} 3
braid_x{a="\t"} 4
braid_x{a="1"b"} 5
braid_x{a="1",a="2"} 6
braid_x{a="1",} 7
braid_x{} 8
braid_x{a="1"} 0x1p2
braid_x{a="1"} nan
braid_x{a="1"} 1 2
braid_x{a="1
braid_x{a="\'
	run -0 "$braid" stat --metrics $who
	[ "$output" = "# HELP braid_x X?y.
# TYPE braid_x gauge
braid_x{a=\"1\",pid=\"$who\"} 1
braid_x{a=\"\\n\\\"\\\\\",pid=\"$who\"} 3" ]
}

@test "a histogram's buckets, sum and count are under one heading, and a sample of its name is none" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	says '# HELP braid_h X.
# TYPE braid_h histogram
braid_h{a="1"} 1
braid_h_bucket{a="1",le="0.5"} 1
braid_h_bucket{a="1",le="0.5"} 2
braid_h_bucket{a="1",le="+Inf"} 3
braid_h_sum{a="1"} 7.25
braid_h_count{a="1"} 3'
	run -0 "$braid" stat --openmetrics $who
	[ "$output" = "# HELP braid_h X.
# TYPE braid_h histogram
braid_h_bucket{a=\"1\",le=\"0.5\",pid=\"$who\"} 1
braid_h_bucket{a=\"1\",le=\"+Inf\",pid=\"$who\"} 3
braid_h_sum{a=\"1\",pid=\"$who\"} 7.25
braid_h_count{a=\"1\",pid=\"$who\"} 3
# EOF" ]
}

@test "the times of a job are histograms that their readers take" {
	job
	for _ in $(seq 500); do
		run -0 "$braid" stat --openmetrics "$pid"
		sent=$(sed -n 's/^braid_send_seconds_count.*} //p' <<<"$output")
		[ "${sent:-0}" -gt 0 ] && break
		run -0 "$braid" stat --openmetrics "${pids[1]##*/}"	# the other one sends
		sent=$(sed -n 's/^braid_send_seconds_count.*} //p' <<<"$output")
		[ "${sent:-0}" -gt 0 ] && break
		sleep 0.02
	done
	[ "$sent" -gt 0 ]
	well_formed openmetrics "$output"
	grep -q '^# TYPE braid_send_seconds histogram$' <<<"$output"
	grep -q '^# TYPE braid_lane_ack_seconds histogram$' <<<"$output"
	grep -q '^braid_send_seconds_bucket{.*le="+Inf",.*size="small"} [1-9]' <<<"$output"
}

@test "--metrics without any process is empty, and no error" {
	run -0 "$braid" stat --metrics --dir "$dir"
	[ -z "$output" ]
	run -0 "$braid" stat --openmetrics --dir "$dir"
	[ "$output" = "# EOF" ]
}

@test "the dashboard and the alerts use metrics that there are" {
	job
	"$braid" stat --metrics >"$dir/metrics.txt"
	for file in grafana-braid.json braid-alerts.yml; do
		for name in $(grep -oE 'braid_[a-z_]+' "$examples/$file" | sort -u); do
			grep -q "^# TYPE $name " "$dir/metrics.txt" || {
				echo "$file: no metric $name"
				return 1
			}
		done
	done
	python3 -m json.tool "$examples/grafana-braid.json" >/dev/null
}

@test "every alert fires where it should, and none where all is well" {
	command -v promtool >/dev/null || skip "promtool is not installed"
	for name in $(sed -n 's/^ *- alert: //p' "$examples/braid-alerts.yml"); do
		grep -q "alertname=\"$name\"" "$examples/braid-alerts.test.yml" || { echo "$name is not tested"; return 1; }
	done
	run -0 promtool check rules "$examples/braid-alerts.yml"
	run -0 promtool test rules "$examples/braid-alerts.test.yml"
	# the dashboard's expressions are PromQL
	python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
e = [t["expr"] for p in d["panels"] for t in p["targets"]]
rules = [{"record": "x:%d" % i, "expr": x.replace("$job", ".*").replace("$host", ".*")} for i, x in enumerate(e)]
print(json.dumps({"groups": [{"name": "x", "rules": rules}]}))' "$examples/grafana-braid.json" >"$dir/rules.yml"
	run -0 promtool check rules "$dir/rules.yml"
}

@test "q ends braid top, and the terminal is as it was" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	timeout 60 python3 -c '
import os, pty, sys, termios, time
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], ["braid", "top", "--seconds", "0.3"])
before = termios.tcgetattr(fd)[3]
seen = b""
while b"PID" not in seen:
    seen += os.read(fd, 4096)
assert not termios.tcgetattr(fd)[3] & termios.ICANON
os.write(fd, b"q")
_, status = os.waitpid(pid, 0)
assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, status
try:
    assert termios.tcgetattr(fd)[3] == before
except termios.error:
    pass' "$braid"
}

# A process that answers every question with the python expression $1, in which n counts them.
answers()
{
	python3 -c '
import json, os, socket, sys
s = socket.socket(socket.AF_UNIX)
name = "%s/%d" % (sys.argv[1], os.getpid())
s.bind(name + ".new")
s.listen()
os.rename(name + ".new", name)
n = 0
while True:
    c = s.accept()[0]
    c.recv(16)
    n += 1
    c.send(json.dumps(eval(sys.argv[2])).encode())
    c.close()' "$dir" "$1" 3>&- &
	job=$!
	until [ -S "$dir/$job" ]; do sleep 0.02; done
}

@test "top shows small and large rates as figures with k, M or G" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	answers '{"braid_report": 1, "links": [{"state": "up", "sent_bytes": 3 * n, "sent_messages": n,
		"received_bytes": n * 10**13, "received_messages": n * 10**7}]}'
	run -0 "$braid" top --once --seconds 1
	echo "$output"
	[[ $output != *[0-9]e[+-]* ]]
	row=$(awk -v pid="$job" '$1 == pid { print $5, $6, $7 }' <<<"$output")
	[[ $row =~ ^[12]?[0-9].[0-9]+\ [0-9.]+T\ [0-9.]+M$ ]]
	awk 'length > 80 { exit 1 }' <<<"$output"
}

# Python for answers(): so many times, each of so many ns.
times='(lambda n, ns: {"timed": n, "max_ns": ns, "sum_ns": n * ns, "buckets": [[ns + 1, n]]})'
link='(lambda number, sends, acks: {"link": number, "device": "eth0", "state": "up",
	"peer": "host%d (pid %d)" % (number, number), "large_sends": TIMES(50, sends) if sends else None,
	"lanes": [{"lane": i, "transport": "tcp", "up": True, "nic": "eth%d" % i, "acks": TIMES(50, ns)}
		for i, ns in enumerate(acks)]})'

# A process with the links $1, a list in which LINK(number, ns of a send, [ns on each lane]) makes one.
linked()
{
	local all=${1//LINK/$link}

	answers "(lambda n: {\"braid_report\": 1, \"host\": \"here\", \"links\": ${all//TIMES/$times}})(n)"
}

@test "stat --slowest names the peer, lane and NIC, and what they are compared with" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	linked '[LINK(1, 10**5, [10**5, 10**5]), LINK(2, 10**5, [10**5, 9 * 10**6]),
		LINK(3, 4 * 10**6, [10**5, 10**5]), dict(LINK(4, 0, [10**5]), large_sends=TIMES(9, 10**9))]'
	for who in "--dir $dir" "$job"; do
		run -0 "$braid" stat --slowest $who
		echo "$output"
		[ "${#lines[@]}" -eq 3 ]
		[[ ${lines[0]} == "slowest peer: host3 (pid 3), link 3 of process $job: sends of more than 8 KiB took 4 ms (p50), 4 ms (p99), 4 ms at most; the median of the 2 other peers is 100 us, 40 times less" ]] || false
		[[ ${lines[1]} == "slowest lane: 1 of link 2 of process $job, over eth1 to host2 (pid 2): frames were acknowledged after 9 ms (p50), 9 ms (p99), 9 ms at most; the median of the 6 other lanes is "*" times less" ]]
		[[ ${lines[2]} == "slowest NIC: eth1 of here: frames were acknowledged after "*", 9 ms at most; that of the other NIC is "*", about the same" ]]
	done
	run -0 "$braid" stat "$job"
	[[ $(tr -s ' \n' '  ' <<<"$output") == *"larger sends took: p50 4 ms, p99 4 ms, at most 4 ms, of 50 timed"* ]]
	[[ $output == *"acknowledged after: p50 9 ms, p99 9 ms, at most 9 ms, of 50 timed"* ]]
}

@test "stat --slowest says so where there is one lane, or nothing was timed" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	linked '[LINK(1, 10**5, [10**5])]'
	run -0 "$braid" stat --slowest --dir "$dir"
	echo "$output"
	[[ ${lines[0]} == "slowest peer: host1 "*"; there is no other peer to compare it with" ]]
	[[ ${lines[1]} == "slowest lane: 0 of link 1 "*"; there is no other lane to compare it with" ]]
	[[ ${lines[2]} == "slowest NIC: eth0 of here"*"; there is no other NIC to compare it with" ]]
	kill "$job"; wait "$job" || true
	rm -f "$dir"/*
	linked '[LINK(1, 0, [])]'
	run -0 "$braid" stat --slowest --dir "$dir"
	[ "$output" = "slowest peer: not known: to none were 10 sends timed
slowest lane: not known: on none were 10 frames of more than 8 KiB timed
slowest NIC: not known: over none were 10 frames of more than 8 KiB timed" ]
	run -0 "$braid" stat --slowest --dir "$BATS_TEST_TMPDIR"
	[ "$output" = "no process of this user has a connection of Braid's open" ]
	bad "--slowest alone, or with PIDs" stat --slowest --json "$job"
	bad "there is no process 4194304999" stat --slowest "$job,4194304999"
}

# What had been slow before the interval does not count.
@test "top names the slowest peer, lane and NIC of the interval" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	answers '{"braid_report": 1, "host": "here", "links": [{"link": i, "state": "up", "peer": "host%d" % i,
		"large_sends": {"buckets": [[was, 900], [(4 - i) * 10**6, 50 * n]]}, "lanes": [{"lane": 0, "up": True,
			"nic": "eth%d" % i, "acks": {"buckets": [[was, 900], [(4 - i) * 10**6, 50 * n]]}}]}
		for i, was in ((1, 10), (2, 9 * 10**8))]}'
	run -0 "$braid" top --once --seconds 0.3 --dir "$dir"
	echo "$output"
	awk 'length > 80 { exit 1 }' <<<"$output"
	words=$(tr -s ' \n' '  ' <<<"$output")
	[[ $words == *"slowest: peer host1: p50 3.15 ms, p99 3.15 ms, others 2.1 ms; lane 0 of link 1 of process $job: p50 3.15 ms, p99 3.15 ms, others 2.1 ms; NIC eth1: p50 3.15 ms, p99 3.15 ms, others 2.1 ms "* ]]
	kill "$job"; wait "$job" || true
	rm -f "$dir"/*
	answers '{"braid_report": 1, "links": []}'
	run -0 "$braid" top --once --seconds 0.1 --dir "$dir"
	[[ $output == *"slowest: not known: to no peer were 10 sends timed meanwhile"* ]]
}

@test "stat and dump break lines between words, and fit 80 columns" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	answers '{"braid_report": 1, "host": "host-of-a-long-name." * 3, "version": "1", "links": [{
		"device": "eth0", "peer": "other-host-of-a-long-name.example (pid 4711, 192.0.2.1 and 2001:db8::1)",
		"state": "down", "error": "Transport endpoint is not connected, which is a long reason",
		"lanes": [{"transport": "tcp", "up": True, "wire": "window of 192 packets, " * 6}],
		"messages": [{"kind": "receive", "comm": 1, "tag": 2**31 - 1, "bytes": 2**31, "age_ms": 99999999,
			"state": "peer has not posted the receive", "lane_ill": True, "failed": True}]}],
		"events": [{"event": "lane added", "link": 1, "lane": 0, "transport": 1},
			{"event": "lane back", "link": 1, "lane": 0, "transport": 2, "epoch": 5},
			{"event": "lane added", "link": 1, "transport": 99},
			{"event": "lane lost for a reason of many words", "link": 1, "lane": 0, "errno": -104,
				"times": 12345678901234}]}'
	for what in stat dump; do
		run -0 "$braid" $what "$job"
		echo "$output"
		awk 'length > 80 { exit 1 }' <<<"$output"
		words=$(tr -s ' \n' '  ' <<<"$output")
		[[ $words == *"(pid 4711, 192.0.2.1 and 2001:db8::1)"* ]]
		[[ $words == *"Transport endpoint is not connected, which is a long reason, heard"* ]]
		[[ $words == *"window of 192 packets, window of 192 packets"* ]]
	done
	[[ $words == *"posted the receive, on a lane that is ill, its comm has failed"* ]]
	[[ $words == *"waits for: a lane that is down or suspect: the network"* ]]
	# a transport has its word; the number of one that is not known stays
	[[ $words == *"lane added, tcp "* && $words == *"lane back, verbs, epoch 5"* ]]
	[[ $words == *"lane added, transport 99"* ]]
}

@test "a lane's window has its unit" {
	job
	run -0 "$braid" stat "$pid"
	[[ $(tr -s ' \n' '  ' <<<"$output") =~ "window of "[0-9]+" packets" ]] ||
		skip "no lane is over TCP here"
}

@test "no answer has the secret of the job" {
	export BRAID_SECRET=sixteen-and-more
	job
	for what in stat "stat --json" "stat --metrics" dump "dump --json"; do
		run -0 "$braid" $what "$pid"
		[[ -n $output && $output != *sixteen* ]]
	done
}

@test "the socket is the user's own, in a directory that is" {
	job
	[ "$(stat -c %a "$dir/$pid")" = 600 ]
	[ "$(stat -c %F "$dir/$pid")" = socket ]
	[ "$(stat -c %a "$dir")" = 700 ]
}

@test "a directory that is made is 0700" {
	export BRAID_STAT_DIR=$dir/new
	"$braid" perf --plugin "$plugin" --pattern oneway --sizes 4k:4k --seconds 30 >/dev/null 2>&1 3>&- &
	job=$!
	for _ in $(seq 500); do
		[ -d "$dir/new" ] && break
		sleep 0.02
	done
	[ "$(stat -c %a "$dir/new")" = 700 ]
}

@test "another user gets no answer" {
	[ "$(id -u)" = 0 ] || skip "only root can be somebody else"
	command -v setpriv >/dev/null || skip "setpriv is not installed"
	job
	other="setpriv --reuid 65534 --regid 65534 --clear-groups"
	$other true 2>/dev/null || skip "no other user can be had here"
	$other "$braid" --version >/dev/null || skip "another user can't run braid where it is"
	run -2 --separate-stderr $other "$braid" stat "$pid"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"another user's"*"[other-user]" ]]
	# nor if the other user can reach the socket itself
	python=$(PATH=/usr/bin:/bin command -v python3) && $other "$python" -c 'import socket' ||
		skip "another user can't run python3"
	chmod 711 "$dir"
	chmod 666 "$dir/$pid"
	ask='
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
	s.send(b"dump\n")
	print("answered" if s.recv(1) else "refused")
except OSError:
	print("refused")'
	run -0 "$python" -c "$ask" "$dir/$pid"
	[ "$output" = answered ]
	run -0 $other "$python" -c "$ask" "$dir/$pid"
	[ "$output" = refused ]
}

@test "a process that can't be queried is one line and status 2" {
	bad "a PID is a number, not 'x'" stat x
	bad "a PID is a number, not '-1'" dump -1 || bad "unexpected argument '-1'" dump -1
	bad "a PID is a number, not ''" dump ""
	bad "there is no process 4194304999 [no-process]" stat 4194304999
	bad "has no connection of Braid's open" dump $$
	bad "it needs a PID" dump
	bad "unexpected argument '2'" stat 1 2
	bad "--json is of one PID" stat --json
	bad "--pids alone" stat --pids 1
	bad "--json or --metrics, not both" stat --json --metrics 1
	bad "unknown option '--PID'" stat --PID 1
}

@test "a socket left behind is reported as such, and removed by the next process" {
	job
	kill -9 "$job" "$pid" "${pids[1]##*/}" 2>/dev/null || true
	wait "$job" 2>/dev/null || true
	left=$pid
	[ -S "$dir/$left" ]
	bad "has ended" stat "$left"
	run -0 "$braid" stat --dir "$dir"	# others' processes are elsewhere
	[ "${#lines[@]}" -eq 1 ]
	job2
	[ ! -e "$dir/$left" ]
}

job2()
{
	"$braid" perf --plugin "$plugin" --pattern oneway --sizes 4k:4k --seconds 30 >/dev/null 2>&1 3>&- &
	job=$!
	for _ in $(seq 500); do
		[ ! -e "$dir/$left" ] && break
		sleep 0.02
	done
}

@test "a stopped process is reported as such" {
	job
	kill -STOP "$pid"
	run -2 --separate-stderr "$braid" stat "$pid"
	kill -CONT "$pid"
	[[ $stderr == *"it is stopped"*"[process-silent]" ]]
}

@test "a process that does not answer has a row, and no table is wider than 80 columns" {
	job
	kill -STOP "$pid"
	run -0 "$braid" stat
	echo "$output"
	grep -qE "^ *$pid braid  *does not answer within 3 s: it is stopped$" <<<"$output"
	awk 'length > 80 { exit 1 }' <<<"$output"
	run -0 "$braid" top --once
	echo "$output"
	kill -CONT "$pid"
	grep -qE "^ *$pid braid  *does not answer within 3 s: it is stopped$" <<<"$output"
	awk 'length > 80 { exit 1 }' <<<"$output"
	run -0 "$braid" stat "$pid"
	awk 'length > 80 { exit 1 }' <<<"$output"
}

@test "an answer that is no report, or a newer one, is one line" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	for said in '{"braid_report":2}' '{"braid_report":1' 'x' '[]'; do
		says "$said"
		case $said in
		*2*) bad "has a newer Braid (report 2; this command knows 1) [newer-report]" stat $who ;;
		*) bad "is no report of Braid's [bad-report]" stat $who ;;
		esac
		wait $!
	done
}

@test "text of another process can't control the terminal" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	says '{"braid_report":1,"host":"\u001b[31mred","links":[{"peer":"\u001b[2J"}]}'
	run -0 "$braid" dump $who
	[[ $output == *"on ?[31mred"* ]]
	[[ $output != *$'\e'* ]]
	says '{"braid_report":1,"host":"z\u00fcrich\u009b2J\u202ex"}'
	run -0 "$braid" dump $who
	[[ $output == *"on zürich??2J???x,"* ]]
	says $'# TYPE \e[2J\n\xff\nbraid_up{x="\e[2J"} 1\nbraid_up{y="} 1\nother{} 1\n# EOF\n'
	run -0 "$braid" stat --metrics $who
	[ "${lines[-1]}" = 'braid_up{pid="'$who'",x="?[2J"} 1' ]
	[ "${#lines[@]}" -eq 3 ]
}

# The process sends one byte now and then, without end.
@test "a process that answers by single bytes delays no other" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	timeout 100 python3 -c '
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind("%s/%d" % (sys.argv[1], os.getpid()))
s.listen()
c = s.accept()[0]
while True:
    c.send(b" ")
    time.sleep(0.5)' "$dir" 3>&- &
	until [ -e "$dir"/[0-9]* ]; do sleep 0.05; done
	slow=$(basename "$dir"/[0-9]*)
	SECONDS=0
	bad "does not answer within 3 s [process-silent]" stat "$slow"
	[ $SECONDS -lt 30 ]
	kill "$slow" 2>/dev/null || true
}

# All silent processes share one deadline; after it the other processes are shown.
@test "twelve silent processes take as long as one" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	job
	for i in $(seq 12); do
		timeout 100 python3 -c '
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind("%s/%d" % (sys.argv[1], os.getpid()))
s.listen(0)
if int(sys.argv[2]) % 2:		# its queue is full
    c = socket.socket(socket.AF_UNIX)
    c.connect(s.getsockname())
time.sleep(90)' "$dir" "$i" 3>&- &
		silent+=($!)
	done
	sockets 14
	SECONDS=0
	run -0 "$braid" stat --dir "$dir"
	took=$SECONDS
	[ "$(grep -cE '^ *[0-9]+ braid ' <<<"$output")" -eq 2 ]
	SECONDS=0
	run -0 "$braid" top --dir "$dir" --once --seconds 0.1
	echo "stat took $took s, top $SECONDS s"
	[ "$(grep -cE '^ *[0-9]+ braid ' <<<"$output")" -eq 2 ]
	[ $took -lt 18 ]		# one after another: 36 and 72 s
	[ $SECONDS -lt 36 ]
	kill "${silent[@]}" 2>/dev/null || true
}

@test "a socket of another process is not trusted" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	says '{"braid_report":1,"host":"somewhere"}'
	mv "$dir/$who" "$dir/$$"
	bad "another process listens at the socket of process $$" stat $$
	kill $who 2>/dev/null || true
}

@test "colours are for terminals, and not if NO_COLOR is set" {
	job
	run -0 "$braid" dump "$pid"
	[[ $output != *$'\e'* ]]
	command -v script >/dev/null || skip "script is not installed"
	script -qec true /dev/null >/dev/null 2>&1 || skip "no pseudo-terminal can be had"
	TERM=xterm run script -qec "'$braid' dump $pid" /dev/null
	[[ $output == *$'\e['* ]]
	TERM=xterm NO_COLOR=1 run script -qec "'$braid' dump $pid" /dev/null
	[[ $output != *$'\e'* ]]
}

@test "top shows rates: once where there is no terminal, in place where there is one" {
	job
	run -0 "$braid" top --seconds 0.3 --dir "$dir"
	[ "$(grep -cE '^ *[0-9]+ braid ' <<<"$output")" -eq 2 ]
	[[ $output != *$'\e'* ]]
	# the sender's messages of a second; the other's are as many
	[ "$(awk '$2 == "braid" && $7 > 0' <<<"$output" | wc -l)" -eq 2 ]
	run -0 "$braid" top --times 2 --seconds 0.1
	[ "$(grep -c PID <<<"$output")" -eq 2 ]
	bad "--once or --times, not both" top --once --times 2
	bad "--seconds takes a number from 0.1 to 3600, not '0'" top --seconds 0
	bad "unexpected argument '1'" top 1
	command -v script >/dev/null || skip "script is not installed"
	script -qec true /dev/null >/dev/null 2>&1 || skip "no pseudo-terminal can be had"
	# in the foreground, and in the background, where a touch of the terminal stops a process
	for how in --foreground ''; do
		for s in 1 5 25; do		# a busy host needs more for two tables
			SHELL=/bin/sh TERM=xterm run script -qec \
				"timeout $how -s INT $s '$braid' top --seconds 0.2; :" /dev/null
			[[ $output != *$'\e[H\e[J'*$'\e[H\e[J'* ]] || break
		done
		[[ $output == *$'\e[H\e[J'*$'\e[H\e[J'* ]]
	done
}

@test "without a process of Braid's there is nothing to show" {
	run -0 "$braid" top --seconds 0.1 --dir "$BATS_TEST_TMPDIR"
	[[ $output == *"no process of this user"* ]]
}

@test "dump shows which lanes a thread of BRAID_THREADS moves, in words and in JSON" {
	command -v jq >/dev/null || skip "jq is not installed"
	export BRAID_THREADS=2 BRAID_LANES=4
	"$braid" perf --plugin "$plugin" --pattern bidir --sizes 4m:4m --seconds 30 >/dev/null 2>&1 3>&- &
	job=$!
	sockets 2
	for _ in $(seq 100); do
		lanes= words=
		for p in "${pids[@]}"; do
			lanes+=$("$braid" dump --json "${p##*/}" | jq -r '.links[].lanes[].thread // empty')
			words+=$("$braid" dump "${p##*/}" | tr -s ' \n' '  ')
		done
		[[ $lanes == *sends* && $lanes == *receives* &&
			$words == *"a thread of BRAID_THREADS "* ]] && return
		sleep 0.1
	done
	false
}
