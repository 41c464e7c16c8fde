#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# compare.bats - braid compare measures, in turn, each transport that is there, and omits the others.

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
export BRAID_PERF_KEY=that-of-all-tests
src=${BRAID_TEST_SRCDIR:-$PWD}
build=${BRAID_TEST_BUILDDIR:-$PWD}
slow=${BRAID_TEST_SLOW:-1}

setup()
{
	export BRAID_SOCKET_IFNAME=lo
	tmp=$BATS_TEST_TMPDIR
	csv=$tmp/compare.csv
}

compare()
{
	timeout -k 5 $((150 * slow)) "$braid" compare --plugin "$plugin" --seconds 0.005 "$@"
}

# TCP alone, quickly.
tcp()
{
	compare --over tcp --lanes 1 --patterns pingpong --sizes 8,64k "$@"
}

bad()					# WORDS OPTIONS...
{
	run -2 --separate-stderr compare "${@:2}"
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "braid compare: "*"$1"* ]]
}

# The values of column $1 in the CSV, each with its number of rows.
in_csv()
{
	awk -F, -v col="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		{ n[$at[col]]++ } END { for (x in n) print x ":" n[x] }' "$csv" | sort | tr '\n' ' '
}

@test "a stored report is printed to the letter" {
	run -0 "$braid" compare --from "$src/tests/cli/compare.json" --seed 1
	diff "$src/tests/cli/compare.txt" - <<<"$output"
}

@test "another seed finds the same winners" {
	run -0 "$braid" compare --from "$src/tests/cli/compare.json" --seed 2
	[[ $(tr '\n' ' ' <<<"$output") == *"The winner changes between 64k and 4m: verbs, then tcp."* ]]
}

@test "the stored report has the figures that were printed" {
	tcp --json "$tmp/a.json" >"$tmp/a"
	"$braid" compare --from "$tmp/a.json" --json "$tmp/b.json" >"$tmp/b"
	diff "$tmp/a" "$tmp/b"
	diff "$tmp/a.json" "$tmp/b.json"
}

@test "no line is wider than 80 columns" {
	compare --over tcp,verbs --patterns all --sizes 4k --rounds 5 >"$tmp/out"
	[ -z "$(awk 'length > 80' "$tmp/out" "$src/tests/cli/compare.txt")" ]
	[ "$(grep -c '^ *4k tcp x4' "$tmp/out")" -eq 9 ]
}

@test "every pattern moves every byte right" {
	tcp --patterns all --sizes 8,64k --check --rounds 1 --csv "$csv" >"$tmp/out"
	grep -E 'checked: [1-9][0-9]* values, 0 wrong' "$tmp/out"
	[ "$(in_csv pattern | wc -w)" -eq 9 ]
}

@test "rounds go over all ways in turn, and begin with another one each" {
	tcp --lanes 1,2 --sizes 8 --rounds 3 --csv "$csv" >/dev/null
	run -0 awk -F, 'NR > 1 { printf "%s %s,", $4, $2 }' "$csv"
	[ "$output" = "0 tcp x1,0 tcp x2,0 raw TCP,1 tcp x2,1 raw TCP,1 tcp x1,2 raw TCP,2 tcp x1,2 tcp x2," ]
}

# All four transports on any machine: a NIC in memory, SMC made of TCP sockets, UCX over TCP.
fakes()
{
	[ -e "$build/tests/fake/.libs/libibverbs.so.1" ] || skip "built without RDMA"
	[ -e "$build/tests/fakesmc/.libs/smc.so" ] || skip "tests/fakesmc is not built"
	case ${BRAID_TEST_SANITIZER-} in
	*address*) skip "two fakes and UCX at once don't go with AddressSanitizer" ;;
	esac
	fabric=$(mktemp -u /dev/shm/braid-XXXXXX)
	export LD_LIBRARY_PATH="$build/tests/fake/.libs" UCX_TLS=tcp,self
	export BRAID_TEST_FAKE_FABRIC=$fabric BRAID_TEST_FAKE_DEVICES=roce0:rocev2,netdev=lo
}

faked()
{
	LD_PRELOAD=$build/tests/fakesmc/.libs/smc.so FAKE_SMC=smcr compare --lanes 1 \
		--patterns pingpong --sizes 8,64k --rounds 1 --csv "$csv" "$@"
}

@test "all four transports are seen where there are all four" {
	fakes
	faked >"$tmp/out" || { rm -f "$fabric"*; cat "$tmp/out"; false; }
	sent=$("$build/tests/fake/fakectl" "count messages")
	rm -f "$fabric"*
	if grep '^  ucx .*not available' "$tmp/out"; then
		skip "UCX can't be had here"
	fi
	[ "$(in_csv over)" = "raw TCP:2 smc:2 tcp x1:2 ucx:2 verbs:2 " ]
	[ "$sent" -gt 0 ]
}

@test "over TCP the NIC is given nothing, over verbs it is" {
	fakes
	faked --over tcp >/dev/null
	none=$("$build/tests/fake/fakectl" "count messages")
	faked --over verbs >/dev/null
	some=$("$build/tests/fake/fakectl" "count messages")
	rm -f "$fabric"*
	[ "$none" -eq 0 ] && [ "$some" -gt 0 ]
}

@test "a transport that falls back to TCP is not measured under its name" {
	fakes
	FAKE_SMC=tcp:0x03030000 LD_PRELOAD=$build/tests/fakesmc/.libs/smc.so compare --lanes 1 \
		--over tcp,smc --patterns pingpong --sizes 8 --rounds 1 --csv "$csv" >"$tmp/out"
	rm -f "$fabric"*
	grep '^  smc .*not available' "$tmp/out"
	[ "$(in_csv over)" = "raw TCP:1 tcp x1:1 " ]
}

@test "a transport that is not there is reported with its reason" {
	tcp --over tcp,verbs --sizes 8 --csv "$csv" --rounds 1 >"$tmp/out"
	[[ $(tr -s ' \n' ' ' <"$tmp/out") == *"verbs not available: "*"BRAID_TRANSPORTS=verbs"* ]] ||
		skip "there is an RDMA device"
	[ "$(in_csv over)" = "raw TCP:1 tcp x1:1 " ]
}

@test "another plugin goes through the same patterns under its own name" {
	LC_ALL=C sed 's/\x00Braid\x00/\x00Other\x00/' "$plugin" >"$tmp/other.so"
	cmp -s "$plugin" "$tmp/other.so" && skip "its name was not found in the file"
	tcp --plugin "$tmp/other.so" --csv "$csv" --rounds 1 >"$tmp/out"
	[ "$(in_csv over)" = "Other:2 raw TCP:2 " ]
}

@test "JSON is one document, to standard output instead of the table" {
	run -0 --separate-stderr tcp --rounds 2 --json -
	[[ ${lines[0]} == "{" && $output == *'"schema": "braid-compare-1"'* ]]
	command -v python3 >/dev/null || return 0
	python3 -c 'import json, sys; r = json.load(sys.stdin)["rows"]; assert len(r) == 8, r' \
		<<<"$output"
}

@test "colours and progress are for a terminal" {
	run -0 tcp
	[[ $output != *$'\033'* && $output != *$'\r'* && $output != *"round 1 of"* ]]
	command -v script >/dev/null || skip "script is not installed"
	script -qec true /dev/null >/dev/null 2>&1 || skip "no pseudo-terminal can be had"
	golden="'$braid' compare --from '$src/tests/cli/compare.json'"
	TERM=xterm run script -qec "$golden" /dev/null
	[[ $output == *$'\033[32m'* && $output == *$'\033[1;31m'* ]]
	TERM=xterm NO_COLOR=1 run script -qec "$golden" /dev/null
	[[ $output != *$'\033'* ]]
	TERM=xterm run script -qec "'$braid' compare --plugin '$plugin' --over tcp --seconds 0.05 \
		--patterns pingpong --sizes 8" /dev/null
	[[ $output == *"pingpong 8 over tcp x1, round 2 of 5"*" us; "*"s left"* ]]
}

@test "Ctrl-C keeps the results so far" {
	compare --over tcp --lanes 1 --patterns pingpong --sizes 8 --seconds 0.2 --rounds 99 \
		--csv "$csv" >"$tmp/out" 2>"$tmp/err" &
	sleep $((6 * slow))		# something has been measured by then
	pkill -INT -P $! -x braid || pkill -INT -P "$(pgrep -P $!)" -x braid
	status=0
	wait $! || status=$?
	[ "$status" -eq 130 ]
	[ ! -s "$tmp/err" ]
	grep 'note: interrupted' "$tmp/out"
	rows=$(wc -l <"$csv")
	[ "$rows" -ge 2 ] && [ "$rows" -lt 198 ]
}

listener()				# OPTIONS... - sets $port and $listener
{
	"$braid" perf --plugin "$plugin" --listen 127.0.0.1:0 "$@" 2>"$tmp/listen" &
	listener=$!
	for _ in $(seq $((100 * slow))); do
		port=$(sed -n 's/^listening on port //p' "$tmp/listen")
		[ -z "$port" ] || return 0
		sleep 0.1
	done
	return 1
}

@test "half of the processes at a listener" {
	listener
	tcp --connect 127.0.0.1:"$port" --patterns pingpong,allreduce --check >"$tmp/out"
	kill $listener
	grep "half of the processes at" "$tmp/out"
	grep -E 'checked: .*, 0 wrong' "$tmp/out"
}

@test "a peer that vanishes is one line and status 2, and results so far are kept" {
	listener
	tcp --connect 127.0.0.1:"$port" --sizes 8 --seconds 0.2 --rounds 99 --csv "$csv" \
		>"$tmp/out" 2>"$tmp/err" &
	pid=$!
	sleep $((6 * slow))		# something has been measured by then
	kill -KILL $listener
	SECONDS=0
	status=0
	wait $pid || status=$?
	echo "status $status after $SECONDS s; it said: $(cat "$tmp/err" "$tmp/out")"
	[ "$status" -eq 2 ]
	[ $SECONDS -lt $((30 * slow)) ]
	[ "$(wc -l <"$tmp/err")" -eq 1 ]
	grep -E '^braid compare: (tcp x1|raw TCP): rank [01] ' "$tmp/err"
	grep -E '^ +8 tcp x1 +[0-9]' "$tmp/out"
	[ "$(wc -l <"$csv")" -ge 2 ]
}

@test "a warm-up beside other programs does not cut short what follows" {
	for _ in 1 2 3 4 5 6 7 8; do
		timeout 2 sh -c 'while :; do :; done' &
	done
	tcp --sizes 8 --seconds 0.1 --rounds 25 --csv "$csv" >"$tmp/out"
	awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		$at["round"] >= 15 { n++; s += $at["seconds"] }
		END { printf "%d rows, %g s each\n", n, s / n; exit !(n == 20 && s / n > 0.05) }' "$csv"
}

# Replaces ssh by a script that runs the command on this host.
fake_ssh()				# FIRST-LINE-OF-THE-SCRIPT
{
	mkdir -p "$tmp/bin"
	printf '#!/bin/sh\n%s\nshift\nexec sh -c "$*"\n' "$1" >"$tmp/bin/ssh"
	chmod +x "$tmp/bin/ssh"
	PATH=$tmp/bin:$PATH
}

@test "--ssh starts the other end, and ends it" {
	fake_ssh "echo \"\$1\" >'$tmp/host'; echo \$\$ >'$tmp/pid'; echo 'Welcome!' >&2"
	tcp --ssh me@127.0.0.1 --remote-braid "$braid" --check >"$tmp/out"
	[ "$(cat "$tmp/host")" = me@127.0.0.1 ]
	grep -E 'checked: .*, 0 wrong' "$tmp/out"
	! kill -0 "$(cat "$tmp/pid")" 2>/dev/null
}

@test "an ssh that fails is one line, with its error" {
	fake_ssh 'echo "ssh: Could not resolve hostname" >&2; exit 255'
	bad "ssh nowhere: ssh: Could not resolve hostname" --ssh nowhere
	fake_ssh 'exit 1'
	bad "ssh nowhere: it ended without a word" --ssh nowhere
}

# As a launcher does: run RANKS processes, with the variables in $2, where N is the rank.
launched()				# RANKS VARIABLES OPTIONS...
{
	local ranks=$1 vars=$2 r pids=()

	for r in $(seq 1 $((ranks - 1))); do
		# shellcheck disable=SC2086
		env $(sed "s/RANKS/$ranks/g; s/\bN\b/$r/g" <<<"$vars") "$braid" compare \
			--plugin "$plugin" >"$tmp/out.$r" 2>&1 &
		pids+=($!)
	done
	# shellcheck disable=SC2086
	env $(sed "s/RANKS/$ranks/g; s/\bN\b/0/g" <<<"$vars") timeout $((100 * slow)) "$braid" \
		compare --plugin "$plugin" --seconds 0.005 --over tcp --lanes 1 --sizes 8,64k \
		--patterns pingpong,allreduce --check "${@:3}" >"$tmp/out"
	for r in "${pids[@]}"; do
		wait "$r"
	done
	grep -E 'checked: .*, 0 wrong' "$tmp/out"
	grep "allreduce.*; $ranks processes" "$tmp/out"
	[ ! -s "$tmp/out.1" ]
}

@test "torchrun's environment" {
	launched 3 "RANK=N WORLD_SIZE=RANKS MASTER_ADDR=127.0.0.1 MASTER_PORT=$((21000 + $$ % 9000))"
}

@test "srun's environment" {
	host=$(hostname)
	getent hosts "$host" >/dev/null || skip "the name of this host can't be resolved"
	launched 3 "SLURM_PROCID=N SLURM_STEP_NUM_TASKS=RANKS SLURM_JOB_ID=$$ SLURM_STEP_ID=0
		SLURM_STEP_NODELIST=$host"
}

@test "mpirun, 8 ranks" {
	command -v mpirun >/dev/null || skip "mpirun is not installed (openmpi-bin)"
	[[ $(mpirun --version) == *"Open MPI"* ]] || skip "mpirun is not Open MPI's"
	timeout $((140 * slow)) mpirun --oversubscribe --allow-run-as-root -n 8 "$braid" compare \
		--plugin "$plugin" --over tcp --lanes 1 --patterns pingpong,alltoall,hier \
		--sizes 8,64k --seconds 0.01 --check --rounds 2 >"$tmp/out"
	grep "8 processes of mpirun" "$tmp/out"
	grep "hier.*; 8 processes" "$tmp/out"
	grep -E 'checked: [1-9].*, 0 wrong' "$tmp/out"
	! grep $'\033' "$tmp/out"
}

@test "a rank that does not come is one line" {
	export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2
	PMIX_NAMESPACE=braid.$$ bad "only 1 of 2 ranks have come to 127.0.0.1:" --timeout 1
	OMPI_COMM_WORLD_LOCAL_SIZE=1 bad "mpirun does not say where rank 0 is: --meet HOST:PORT"
	OMPI_COMM_WORLD_RANK=1 PMIX_NAMESPACE=braid.$$ bad "rank 0 can't be met" --timeout 1
}

# Fakes of ib_send_lat and ib_write_bw, as server or client, which print as perftest does.
fake_perftest()				# LINE...
{
	mkdir -p "$tmp/bin"
	cat >"$tmp/bin/ib_send_lat" <<-'EOF'
		#!/bin/sh
		for last; do :; done
		[ "$last" = 127.0.0.1 ] || exec sleep 20
		echo "$@" >>"$LOG"
		echo ' #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]'
		echo " $SIZE       $ITERS          1.50           99.00        3.25              3.30          0.10            4.50                   8.75"
		echo '---------------------'
	EOF
	cat >"$tmp/bin/ib_write_bw" <<-'EOF'
		#!/bin/sh
		for last; do :; done
		[ "$last" = 127.0.0.1 ] || exec sleep 20
		echo " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
		echo " $SIZE       $ITERS             24.50              23.75                0.045"
	EOF
	chmod +x "$tmp"/bin/*
	export PATH=$tmp/bin:$PATH LOG=$tmp/log
}

@test "--reference: perftest's figures are read, in turn with the others" {
	fake_perftest
	tcp --reference --patterns pingpong,oneway --rounds 2 --csv "$csv" >"$tmp/out"
	[ "$(in_csv over)" = "perftest:8 raw TCP:8 tcp x1:8 " ]
	run -0 awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		$2 == "perftest" && $4 == 0 { print $1, $3, $at["p50_us"], $at["p99_us"], $at["p99.9_us"],
			$at["max_us"], $at["gbit_s"], $at["msg_s"] }' "$csv"
	[ "${lines[0]}" = "pingpong 8 3.25 4.5 8.75 99  " ]
	[ "${lines[3]}" = "oneway 65536     23.75 45000" ]
	grep -- '-s 65536 -n 1000' "$tmp/log"
	! grep 'perftest is ahead' "$tmp/out"
}

# A fake torch module with PyTorch's names, whose functions do nothing.
@test "--reference: the script for Gloo runs" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	mkdir -p "$tmp/torch"
	echo 'float32 = uint8 = zeros = lambda *a, **b: 0' >"$tmp/torch/__init__.py"
	echo 'init_process_group = send = recv = all_reduce = lambda *a, **b: 0' \
		>"$tmp/torch/distributed.py"
	PYTHONPATH=$tmp tcp --reference --patterns pingpong,allreduce --rounds 1 --sizes 8 \
		--csv "$csv" >"$tmp/out"
	[[ " $(in_csv over)" == *" Gloo:2 "* ]]
}

@test "--reference: a missing program is reported with the reason and how to get it" {
	mkdir -p "$tmp/bin"
	printf '#!/bin/sh\necho "Unable to find the device"; exit 1\n' >"$tmp/bin/ib_send_lat"
	cp "$tmp/bin/ib_send_lat" "$tmp/bin/ib_write_bw"
	chmod +x "$tmp"/bin/*
	PATH=$tmp/bin:$PATH tcp --reference --rounds 1 >"$tmp/out"
	said=$(tr -s ' \n' ' ' <"$tmp/out")
	[[ $said == *"perftest not available: Unable to find the device"* ]]
	command -v osu_latency >/dev/null ||
		[[ $said == *"Open MPI not available: not installed: apt install openmpi-bin"* ]]
}

@test "it starts within a second" {
	start=$(date +%s%N)
	tcp --rounds 1 --sizes 8 --seconds 0.001 >/dev/null
	ms=$((($(date +%s%N) - start) / 1000000))
	echo "# $ms ms" >&3
	[ $ms -lt $((10000 * slow)) ]
}

@test "it needs no privileges" {
	[ "$(id -u)" = 0 ] || skip "all of this runs without"
	setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$braid" -a -r "$plugin" \
		2>/dev/null || skip "the build can't be read by others"
	cd /
	run -0 setpriv --reuid 65534 --regid 65534 --clear-groups "$braid" compare \
		--plugin "$plugin" --over tcp --lanes 1 --patterns pingpong --sizes 8 --seconds 0.005
	[[ $output == *"Medians of 5 rounds"* ]]
}

@test "--help has examples" {
	run -0 "$braid" compare --help
	[[ $output == *"braid compare --ssh HOST"* && $output == *"mpirun -n 8"* ]]
	[ -z "$(awk 'length > 100' <<<"$output")" ]
}

@test "mistakes are one line and status 2" {
	bad "'fish' is none of pingpong" --patterns fish
	bad "'setup' is none of" --patterns pingpong,setup
	bad "--patterns needs one" --patterns ''
	bad "not '8:'" --sizes 8:
	bad "'ipx' is none of tcp" --over tcp,ipx
	bad "from 1 to 16, not '0'" --lanes 0
	bad "from 1 to 16, not 'x'" --lanes 1,x
	bad "--base 'tcp x9'" --base 'tcp x9'
	bad "--connect or --ssh" --connect a:1 --ssh a
	bad "is not HOST:PORT" --connect a
	bad "--ssh takes a host, not '-oProxyCommand=x'" --ssh=-oProxyCommand=x
	bad "--meet is for" --meet a:1
	bad "not both" --json - --csv -
	bad "--rounds takes" --rounds 0
	bad "No such file" --from "$tmp/nothing.json"
	bad "refused" --connect 127.0.0.1:1
	echo '{"schema": "other"}' >"$tmp/x.json"
	bad "no report of braid compare" --from "$tmp/x.json"
	bad "nothing.so: cannot open" --plugin "$tmp/nothing.so"
}
