#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# examples.bats - docs/examples: its files have only names that exist, and its commands are executed on
# this host, with stand-ins for the launchers.  docs/user/clusters.md says what this does not show.
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # scripts in quotes; each test is a subshell; what run sets

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
src=${BRAID_TEST_SRCDIR:-.}
build=${BRAID_TEST_BUILDDIR:-$src}
slow=${BRAID_TEST_SLOW:-1}
examples=$src/docs/examples

setup_file()
{
	root=$BATS_FILE_TMPDIR/healthy
	bash "$src/tests/topo/mktree" "$src/tests/doctor/healthy.txt" "$root"
}

setup()
{
	# shellcheck source=tests/doctor/cases.bash
	. "$src/tests/doctor/cases.bash"
	tmp=$BATS_TEST_TMPDIR
	healthy=$BATS_FILE_TMPDIR/healthy
	root=$tmp/root
	touched=()
	pids=()
	mkdir "$tmp/bin"
	PATH=$tmp/bin:$PATH
	export XDG_RUNTIME_DIR=$tmp
}

teardown()
{
	[ ${#pids[@]} = 0 ] || kill -KILL "${pids[@]}" 2>/dev/null || true
	for ns in "braid-$$-a" "braid-$$-b"; do
		[ ! -e "/run/netns/$ns" ] || ip netns del "$ns"
	done
}

stand_in()				# NAME: a script of bash, whose text is stdin
{
	{ echo '#!/bin/bash' && cat; } >"$tmp/bin/$1"
	chmod +x "$tmp/bin/$1"
}

# The built command: a mesh takes as little time as may be, and doctor looks at a healthy host.
built_braid()
{
	cp -a "$healthy" "$root"
	stand_in braid <<-END
		echo "\$*" >>"$tmp/braid.ran"
		case \$1 in
		mesh) set -- "\$@" --plugin "$plugin" --seconds 0.01 --size 4k ;;
		doctor) set -- "\$@" --root "$root" ;;
		esac
		exec timeout $((60 * slow)) "$braid" "\$@"
	END
}

# A trainer that writes down what it was started with.
trainer()				# NAME
{
	cat >"$tmp/$1" <<-END
		import os, sys
		names = "RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT NCCL_NET_PLUGIN NCCL_NET".split()
		with open("$tmp/train." + os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK")), "w") as f:
		    print(*[os.environ.get(n, "-") for n in names], *sys.argv[1:], file=f)
	END
}

# -- what is written ------------------------------------------------------------------------------

@test "shells and shellcheck take the scripts" {
	for file in "$examples"/*.sh "$examples"/*.sbatch; do
		case $(head -n 1 "$file") in
		'#!/bin/sh') sh -n "$file" ;;
		'#!/bin/bash') bash -n "$file" ;;
		*) echo "$file: no shell"; return 1 ;;
		esac
		[ -x "$file" ] || [[ $file == *.sbatch ]]
	done
	command -v shellcheck >/dev/null || skip "shellcheck is not installed; the shells took them"
	shellcheck "$examples"/*.sh "$examples"/*.sbatch
}

# FILE... - variables that neither Braid nor NCCL has.
unknown_variables()
{
	{
		"$braid" info --plugin "$plugin" --params
		for sub in perf stat; do "$braid" "$sub" --help; done
	} | grep -oE '\bBRAID_[A-Z0-9_]+' | sort -u >"$tmp/known"
	sed -nE 's/.*/ & /; s/(TEXT|NUMBER|UNHEEDED)\(([A-Z0-9_]+)/\nNCCL_\2\n/gp' \
		"$src/core/base/nccl.def" "$src/tools/doctor/nccl_names.h" | grep '^NCCL_' >>"$tmp/known"
	"$braid" info --plugin "$plugin" --params | grep -oE '\bNCCL_[A-Z0-9_]+' >>"$tmp/known"
	grep -ohE '\b(BRAID|NCCL)_[A-Z0-9_]+' "$@" | sort -u | grep -vxFf "$tmp/known"
}

# FILE... - command lines of braid, one a line, also those of comments and of lists of words.
lines_of_braid()
{
	local subs

	subs=$("$braid" help | sed -nE 's/^  ([a-z]+) .*/\1/p' | sort -u | paste -sd'|')
	sed -e ':a' -e '/\\$/{N;s/\\\n//;ta' -e '}' "$@" | sed 's/", *"/ /g' |
		grep -oE "\bbraid ($subs)\b[^\"'\`|;&#)]*"
}

# FILE... - options that the subcommand does not list.
unknown_options()
{
	local line option words

	lines_of_braid "$@" | while read -r line; do
		read -ra words <<<"$line"
		for option in "${words[@]:2}"; do
			[[ $option == --* ]] || continue
			"$braid" "${words[1]}" --help | grep -qE -- "^  ${option%%=*}( |\$)" || echo "$line: $option"
		done
	done
}

@test "every variable of Braid or NCCL exists" {
	run unknown_variables "$examples"/*
	[ -z "$output" ] || { echo "there is no $output"; return 1; }
	[ "$(grep -chE 'NCCL_NET_PLUGIN' "$tmp/known")" -ge 1 ]
	echo 'BRAID_SECRETFILE=a NCCL_NET_PLUGINS=b NCCL_NET=c' >"$tmp/planted"
	run unknown_variables "$tmp/planted"
	[ "$output" = $'BRAID_SECRETFILE\nNCCL_NET_PLUGINS' ]
}

@test "every option of braid exists" {
	run unknown_options "$examples"/*
	[ -z "$output" ] || { echo "$output"; return 1; }
	for words in 'doctor --json' 'mesh --json' 'stat --metrics --textfile' 'doctor --peer' 'mesh --meet'; do
		lines_of_braid "$examples"/* | grep -q "^braid $words"
	done
	cat >"$tmp/planted" <<-'END'
		braid mesh \
			--jsn a; braid stat --metrics
		CMD ["braid", "info", "--param"]
	END
	run unknown_options "$tmp/planted"
	[ "${#lines[@]}" -eq 2 ]
	[[ ${lines[0]} == *": --jsn" && ${lines[1]} == *": --param" ]]
}

# -- Containerfile --------------------------------------------------------------------------------

@test "every COPY has a source, and every stage a base" {
	[ -e "$build/Makefile" ] || skip "no build directory"
	# What make install puts into /out, without building anything: other tests use this build too.
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$build" -o git-hash.h -o config.h \
		install-exec-am DESTDIR="$tmp/out" prefix=/usr >"$tmp/install.log" 2>&1 || {
		cat "$tmp/install.log"; return 1; }
	stages=' ' copies=0
	while read -r word a b c _; do
		case $word in
		FROM)
			case $a in
			'${BASE}' | '${IMAGE}') ;;
			'${FILES}') [[ $stages == *' tarball '* && $stages == *' deb '* ]] ;;
			*) echo "FROM $a"; return 1 ;;
			esac
			stages+="$c "
			;;
		COPY)
			copies=$((copies + 1))
			case $a in
			--from=*)
				[[ $stages == *" ${a#--from=} "* ]]
				[ -e "$tmp/out${b#/out}" ] || { echo "make install makes no $b"; return 1; }
				;;
			'braid-*.tar.gz') [ "$b" = /src/braid.tar.gz ] ;;	# make dist's name
			braid-*_\*.deb)
				for deb in $a $b; do
					grep -qx "Package: ${deb%_\**}" "$src/build-aux/debian/control"
				done
				;;
			*) echo "COPY $a"; return 1 ;;
			esac
			;;
		esac
	done <"$examples/Containerfile"
	[ "$copies" -eq 5 ]
	# The files of the packages, where the stage `deb` moves them.
	grep -qx 'usr/lib/\*/libnccl-net-braid.so' "$src/build-aux/debian/braid-nccl-plugin.install"
	grep -qx usr/bin/braid "$src/build-aux/debian/braid-tools.install"
}

@test "the image is built with the packages that Braid is built with, and runs with what it needs" {
	# shellcheck source=tools/need.sh
	. "$src/tools/need.sh"
	# A release tarball has what autotools make.
	tr ' ' '\n' <<<"$need_build" | grep -vxE 'autoconf|automake|libtool' | sort >"$tmp/need"
	sed -e ':a' -e '/\\$/{N;s/\\\n//;ta' -e '}' "$examples/Containerfile" |
		sed -n 's/^RUN apt-get update && .*--no-install-recommends//p' >"$tmp/lists"
	sed -n 1p "$tmp/lists" | tr -s ' \t' '\n' | grep . | sort | diff - "$tmp/need"
	grep -q 'Debian 12' "$src/README.md" && grep -q '^ARG BASE=debian:12$' "$examples/Containerfile"
	[[ $(cat /etc/debian_version 2>/dev/null) == 12.* ]] || skip "the packages' names are those of Debian 12"
	[ -z "${BRAID_TEST_SANITIZER-}" ] || skip "a sanitizer build needs the sanitizer's runtime"
	for lib in $(readelf -d "$braid" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
		file=$(find /lib/*-linux-gnu* -name "$lib" | head -n 1)
		owner=$(dpkg -S "$(readlink -f "$file")" "$file" 2>/dev/null | sed 's/:.*//' | head -n 1)
		[[ $owner == libc6 || $owner == libnl-3-200 ]] ||	# libnl-genl-3-200 depends on it
			sed -n 2p "$tmp/lists" | grep -qw -- "$owner" || { echo "$lib is of '$owner'"; return 1; }
	done
}

# -- Kubernetes -----------------------------------------------------------------------------------

need_yaml()
{
	python3 -c 'import yaml' 2>/dev/null || skip "python3-yaml is not installed"
}

# Python over the documents of kubernetes.yaml, in d by their kind; its text is stdin.
yaml()					# [FILE]
{
	{
		cat <<-END
			import re, sys, yaml
			docs = [x for x in yaml.safe_load_all(open("${1:-$examples/kubernetes.yaml}")) if x]
			d = {x["kind"]: x for x in docs}
			def pod(kind): return d[kind]["spec"]["template"]["spec"]
		END
		cat
	} | python3 -
}

# FILE - complaints about it.
complaints()
{
	yaml "$1" <<-'END'
		known = {"Service": "v1", "Job": "batch/v1", "DaemonSet": "apps/v1"}
		keys = {
		    "pod": """subdomain restartPolicy initContainers containers volumes hostNetwork hostPID
		        automountServiceAccountToken tolerations""",
		    "container": "name image command args env resources volumeMounts securityContext",
		    "mount": "name mountPath readOnly",
		    "securityContext": """allowPrivilegeEscalation capabilities privileged runAsUser
		        readOnlyRootFilesystem""",
		}
		def only(what, where, x):
		    for key in x.keys() - set(keys[what].split()):
		        print(f"{where}: {key} is no part of a {what}")
		for x in docs:
		    if known.get(x["kind"]) != x["apiVersion"]:
		        print(f"{x['kind']} is not of {x['apiVersion']}")
		    if not re.fullmatch("[a-z0-9-]+", x["metadata"]["name"]):
		        print(f"{x['metadata']['name']} is no name")
		for kind in d.keys() - {"Service"}:
		    p = pod(kind)
		    only("pod", kind, p)
		    volumes = {v["name"] for v in p["volumes"]}
		    used = set()
		    for c in p.get("initContainers", []) + p["containers"]:
		        only("container", c["name"], c)
		        only("securityContext", c["name"], c["securityContext"])
		        for m in c.get("volumeMounts", []):
		            only("mount", c["name"], m)
		            used.add(m["name"])
		            if not m["mountPath"].startswith("/"):
		                print(f"{c['name']}: {m['mountPath']} is not absolute")
		        if "/" in c["image"]:
		            print(f"{c['image']} names a registry")
		        for e in c.get("env", []):
		            if not isinstance(e["value"], str):
		                print(f"{e['name']} is no text")
		        for w in c.get("command", []) + c.get("args", []):
		            if not isinstance(w, str):
		                print(f"{c['name']}: {w} is no text")
		    for name in used - volumes:
		        print(f"{kind}: there is no volume {name}")
		    for name in volumes - used:
		        print(f"{kind}: nothing mounts {name}")
		p = pod("Job")
		env = {e["name"]: e["value"] for e in p["containers"][0]["env"]}
		mounts = {m["name"]: m["mountPath"] for m in p["containers"][0]["volumeMounts"]}
		copy = p["initContainers"][0]["command"]
		if env["NCCL_NET_PLUGIN"] != mounts["braid"] + "/" + copy[1].split("/")[-1]:
		    print("the plugin is not copied to where the trainer looks for it")
		if not env["BRAID_SECRET_FILE"].startswith(mounts["secret"] + "/"):
		    print("the secret is not where it is mounted")
		secret = [v["secret"] for v in p["volumes"] if v["name"] == "secret"][0]
		if secret["defaultMode"] != 0o400:
		    print("others may read the secret")
		if d["Job"]["spec"]["completionMode"] != "Indexed":
		    print("pods have no index")
		if {p["subdomain"]} != {d["Service"]["metadata"]["name"]} or \
		        d["Service"]["spec"]["selector"] != {"job-name": d["Job"]["metadata"]["name"]}:
		    print("the service does not name the job's pods")
		s = d["DaemonSet"]["spec"]
		if s["selector"]["matchLabels"] != s["template"]["metadata"]["labels"]:
		    print("the DaemonSet does not select its pods")
	END
}

@test "Kubernetes: the file is whole" {
	need_yaml
	run -0 complaints "$examples/kubernetes.yaml"
	[ -z "$output" ] || { echo "$output"; return 1; }
	while IFS=/ read -r from to words; do
		sed "s|$from|$to|" "$examples/kubernetes.yaml" >"$tmp/planted.yaml"
		run complaints "$tmp/planted.yaml"
		[[ $output == *"$words"* ]] || { echo "$from: $output"; return 1; }
	done <<-'END'
		{name: shm, mountPath/{name: sham, mountPath/there is no volume sham
		apps.v1/v1/DaemonSet is not of v1
		value: Braid/value: 1/NCCL_NET is no text
		defaultMode: 0400/defaultMode: 0444/others may read
		hostPID/hostPid/hostPid is no part of a pod
		cp, .usr.lib.libnccl/cp, other/not copied
	END
}

@test "Kubernetes: every privilege has its reason in a comment" {
	while read -r privilege; do
		grep -B3 -E -- "$privilege" "$examples/kubernetes.yaml" | grep -q '#' || {
			echo "$privilege has no reason"; return 1; }
	done <<-'END'
		hostNetwork:
		hostPID:
		privileged: true
		runAsUser: 0.* #
		- IPC_LOCK
		- SYS_PTRACE.* #
		- DAC_OVERRIDE.* #
	END
}

@test "Kubernetes: the init container copies the plugin, which the trainer's variables load" {
	need_yaml
	run -0 yaml <<<'print(*pod("Job")["initContainers"][0]["command"])'
	read -r cp from to <<<"$output"
	mkdir "$tmp/braid"
	"$cp" "${from/#"/usr/lib/libnccl-net-braid.so"/$plugin}" "$tmp$to"
	run -0 yaml <<<'print(*[e["value"] for e in pod("Job")["containers"][0]["env"]])'
	read -r file net _ <<<"$output"
	[ "$net" = Braid ]
	run -0 "$braid" info --plugin "$tmp$file"
	[[ $output == *"plugin     $tmp$file"* ]]
}

# As kubelet mounts a Secret: links to a directory of this moment.
@test "Kubernetes: Braid takes a secret that is mounted as a Secret is" {
	mkdir -p "$tmp/secret/..2026"
	ln -s ..2026 "$tmp/secret/..data"
	(umask 377; head -c 32 /dev/urandom | base64 >"$tmp/secret/..2026/job.secret")
	ln -s ..data/job.secret "$tmp/secret/job.secret"
	BRAID_SECRET_FILE=$tmp/secret/job.secret run -0 "$braid" info --plugin "$plugin"
	[[ $output == *"secret: "*job.secret* ]]
	[[ $output != *bad-secret* ]]
}

# A process of another user in a PID, mount and network namespace of its own, as a pod's is.
@test "Kubernetes: the DaemonSet's metrics have a process of another pod" {
	need_yaml
	[ "$(id -u)" = 0 ] || skip "only root may make namespaces"
	for need in unshare setpriv; do
		command -v $need >/dev/null || skip "$need is not installed"
	done
	unshare -pmn --fork true 2>"$tmp/why" || skip "unshare: $(head -n 1 "$tmp/why")"
	run -0 yaml <<<'print(*[x.lower() for x in pod("DaemonSet")["containers"][0]["securityContext"]["capabilities"]["add"]])'
	caps=-all
	for cap in $output; do
		caps+=,+$cap
	done
	yaml <<<'print(pod("DaemonSet")["containers"][0]["command"][2])' >"$tmp/loop"
	mkdir -m 755 "$tmp/textfile" "$tmp/pod"
	sed -i "s|/textfile/|$tmp/textfile/|g" "$tmp/loop"
	cp "$braid" "$plugin" "$tmp/pod"
	chmod 755 "$tmp/pod"/*
	# Whatever --kill-child ends has to be root's, and ends the rest with it.
	env -u XDG_RUNTIME_DIR RANK=5 unshare -pmn --kill-child --fork --mount-proc sh -c '
		mount --bind "$1" /mnt && mount -t tmpfs -o mode=1777 none /tmp && ip link set lo up
		setpriv --reuid 65534 --clear-groups env BRAID_SOCKET_IFNAME=lo /mnt/braid perf --seconds 100 \
			--plugin /mnt/libnccl-net-braid.so
		exit $?' pod "$tmp/pod" >"$tmp/perf" 2>&1 3>&- &
	pids+=($!)
	stand_in braid <<<"exec \"$braid\" \"\$@\""
	setpriv --bounding-set "$caps" --no-new-privs sh "$tmp/loop" >"$tmp/log" 2>&1 3>&- &
	loop=$!
	pids+=("$loop")
	# The loop looks every 15 seconds, and may have begun before the process.
	for _ in $(seq $((40 * slow))); do
		! grep -q '^braid_up{.*rank="5".*} 1$' "$tmp/textfile/braid.prom" 2>/dev/null || break
		sleep 1
	done
	grep '^braid_up{.*rank="5".*} 1$' "$tmp/textfile/braid.prom" || { cat "$tmp/log" "$tmp/perf"; return 1; }
	# It ends at once when it is asked to, and leaves no metrics behind.
	kill -TERM "$loop"
	wait "$loop"
	[ ! -e "$tmp/textfile/braid.prom" ]
}

# -- Slurm ----------------------------------------------------------------------------------------

# Run the prolog as slurmd does.  Its log line goes to $logged; more than one line is a failure.
prolog()				# STATUS
{
	stand_in logger <<<"echo \"\$*\" >>\"$tmp/logged\""
	rm -f "$tmp/logged"
	run -"$1" env PATH="${path:-$PATH}" SLURM_JOB_ID=7 /bin/sh "$examples/slurm-prolog.sh"
	[ -z "$output" ] || [[ $output == *"Segmentation fault"* ]]	# the shell's own words
	[ "$(wc -l <"$tmp/logged")" -eq 1 ]
	logged=$(cat "$tmp/logged")
	[[ $logged == "-t braid-prolog -p daemon."*" -- job 7: "* ]]
}

@test "Slurm's prolog lets a healthy node pass" {
	built_braid
	prolog 0
	[[ $logged == *"daemon.info"*"no check fails; warnings:"* ]]
	grep -qx 'doctor' "$tmp/braid.ran"
}

@test "Slurm's prolog drains a node on which a check fails" {
	built_braid
	bad_limits_memlock
	[ "$level" = fail ]
	prolog 1
	[[ $logged == *"daemon.err"*"draining this node; checks that fail: limits-memlock;"* ]]
}

@test "Slurm's prolog does not drain a node on which a check warns" {
	built_braid
	for bad in $(declare -F | sed -n 's/^declare -f \(bad_limits_.*\)/\1/p'); do
		$bad
		[ "$level" != warn ] || break
		again
	done
	[ "$level" = warn ]
	prolog 0
	id=${bad#bad_}
	[[ $logged == *"no check fails; warnings:"*" ${id//_/-}"* ]]
}

@test "Slurm's prolog does not drain a node whose braid is missing, hangs or is broken" {
	(PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin; ! command -v braid) || skip "braid is installed here"
	path=$tmp/bin
	prolog 0
	path=
	[[ $logged == *"braid is not installed"* ]]
	stand_in braid <<<'kill -SEGV $$'
	prolog 0
	[[ $logged == *"ended with status 139"* ]]
	stand_in braid <<<'echo "braid: no subcommand" >&2; exit 2'
	prolog 0
	[[ $logged == *"ended with status 2"* ]]
	stand_in braid <<<'exit 1'
	prolog 0
	[[ $logged == *"no check fails" ]]
	stand_in braid <<<'exec sleep 100'
	stand_in timeout <<<'shift 3; exec /usr/bin/timeout -k 1 1 "$@"'
	prolog 0
	[[ $logged == *"took more than 30 seconds"* ]]
}

# sbatch's and srun's variables: two nodes of two tasks, which are addresses of this host.
slurm()
{
	stand_in srun <<-'END'
		n=$SLURM_NTASKS nodes=$SLURM_JOB_NUM_NODES each=
		while :; do
			case $1 in
			-N) nodes=$2; shift 2 ;;
			-n) n=$2; shift 2 ;;
			--ntasks-per-node=*) each=${1#*=}; shift ;;
			-*) echo "srun: $1" >&2; exit 2 ;;
			*) break ;;
			esac
		done
		each=${each:-$((n / nodes))}
		[ $((each * nodes)) = "$n" ] || { echo "srun: $nodes nodes, $n tasks, $each" >&2; exit 2; }
		export SLURM_STEP_NUM_TASKS=$n SLURM_STEP_ID=$BASHPID SLURM_STEP_NODELIST=127.0.0.[1-2]
		for ((i = 0; i < n; i++)); do
			SLURM_PROCID=$i SLURM_LOCALID=$((i % each)) SLURM_NODEID=$((i / each)) "$@" 3>&- &
		done
		status=0
		for job in $(jobs -p); do
			wait "$job" || status=$?
		done
		exit $status
	END
	stand_in scontrol <<-'END'
		[ "$*" = "show hostnames 127.0.0.[1-2]" ] && printf '%s\n' 127.0.0.1 127.0.0.2
	END
	cd "$tmp" || return
	export BRAID_SOCKET_IFNAME=lo SLURM_JOB_ID=$$ SLURM_JOB_NUM_NODES=2 SLURM_NTASKS=4 \
		SLURM_JOB_NODELIST='127.0.0.[1-2]'
	trainer train.py
	run --separate-stderr timeout $((100 * slow)) bash "$examples/slurm-job.sbatch" python3 train.py --epochs 2
}

@test "Slurm's job measures all pairs of nodes, and starts every rank with its variables" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	built_braid
	slurm
	[ "$status" -eq 0 ] || { echo "$output $stderr"; return 1; }
	[[ $output == *"2 hosts, 1 of 1 pairs, Braid"* ]]
	[ -s "$tmp/mesh-$SLURM_JOB_ID.json" ]
	[[ $output$stderr != *"may guess"* ]]
	for rank in 0 1 2 3; do
		[ "$(cat "train.$rank")" = "$rank $((rank % 2)) 4 127.0.0.1 29500 braid Braid --epochs 2" ]
	done
}

@test "Slurm's job does not start the trainer on a bad node" {
	stand_in braid <<<'echo "! node2 sends slowly"; [ "$SLURM_PROCID" != 0 ]'
	slurm
	[ "$status" -eq 1 ]
	[[ $output == *"node2 sends slowly"* && $stderr == "not started: "* ]]
	[ ! -e "$tmp/train.0" ]
}

# -- torchrun -------------------------------------------------------------------------------------

# Starts the ranks of one host, as torchrun does.
torchrun()
{
	stand_in torchrun <<-'END'
		program=python3
		while :; do
			case $1 in
			--nnodes=*) nnodes=${1#*=} ;;
			--node-rank=*) node=${1#*=} ;;
			--master-addr=*) addr=${1#*=} ;;
			--master-port=*) port=${1#*=} ;;
			--nproc-per-node=*) each=${1#*=} ;;
			--no-python) program= ;;
			-*) echo "torchrun: $1" >&2; exit 2 ;;
			*) break ;;
			esac
			shift
		done
		export WORLD_SIZE=$((nnodes * each)) LOCAL_WORLD_SIZE=$each MASTER_ADDR=$addr MASTER_PORT=$port
		for ((i = 0; i < each; i++)); do
			RANK=$((node * each + i)) LOCAL_RANK=$i $program "$@" 3>&- &
		done
		status=0
		for job in $(jobs -p); do
			wait "$job" || status=$?
		done
		exit $status
	END
}

@test "torchrun's script checks two hosts and the wire between them, and starts every rank" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	built_braid
	torchrun
	trainer train.py
	a=braid-$$-a b=braid-$$-b
	if [ "$(id -u)" = 0 ] && ip netns add "$a" && ip netns add "$b" && ip netns exec "$a" true; then
		ip link add w0 netns "$a" type veth peer name w0 netns "$b"
		for i in 1:"$a" 2:"$b"; do
			ip -n "${i#*:}" link set lo up
			ip -n "${i#*:}" addr add "10.77.0.${i%%:*}/24" dev w0
			ip -n "${i#*:}" link set w0 up
		done
		for i in "$a" "$b"; do		# the kernel finds a carrier when it pleases
			timeout 10 bash -c "until ip -n $i link show w0 | grep -q 'state UP'; do sleep 0.1; done"
		done
		first=10.77.0.1 in_a=(ip netns exec "$a" unshare -u) in_b=(ip netns exec "$b" unshare -u)
	else
		first=127.0.0.1 in_a=(env) in_b=(env)
		export BRAID_SOCKET_IFNAME=lo
	fi 2>"$tmp/why"
	host='[ "$1" = env ] || hostname "host$2"; shift 2; exec "$@"'
	export BRAID_PERF_KEY=a-key-of-this-test-alone GPUS=2 PORT=$((21000 + $$ % 9000))
	"${in_b[@]}" bash -c "$host" b "${in_b[0]}" 1 timeout $((100 * slow)) \
		bash "$examples/torchrun.sh" 1 "$first" "$tmp/train.py" --epochs 2 >"$tmp/out.1" 2>&1 3>&- &
	pids+=($!)
	run "${in_a[@]}" bash -c "$host" a "${in_a[0]}" 0 timeout $((100 * slow)) \
		bash "$examples/torchrun.sh" 0 "$first" "$tmp/train.py" --epochs 2
	wait "${pids[0]}" || { cat "$tmp/out.1"; return 1; }
	[ "$status" -eq 0 ]
	[[ $output == *"2 hosts, 1 of 1 pairs, Braid"* ]]
	for rank in 0 1 2 3; do
		[ "$(cat "$tmp/train.$rank")" = "$rank $((rank % 2)) 4 $first $PORT braid Braid --epochs 2" ]
	done
	grep -qx "doctor --peer $first" "$tmp/braid.ran"
	grep -qx doctor "$tmp/braid.ran"
}

@test "torchrun's script starts nothing on a host with a fault, or without a key" {
	built_braid
	stand_in torchrun <<<"echo started >'$tmp/started'"
	bad_limits_memlock
	BRAID_PERF_KEY=a-key-of-this-test-alone run -1 bash "$examples/torchrun.sh" 0 host train.py
	[[ $output == *limits-memlock* ]]
	run ! env -u BRAID_PERF_KEY bash "$examples/torchrun.sh" 0 host train.py
	[[ $output == *"BRAID_PERF_KEY"*"is not set"* ]]
	run -2 bash "$examples/torchrun.sh" 0 host
	[[ $output == usage:* ]]
	[ ! -e "$tmp/started" ]
}

# -- mpirun ---------------------------------------------------------------------------------------

@test "mpirun's script measures all pairs of hosts, and starts every rank" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	built_braid
	stand_in mpirun <<-'END'
		n=4
		while :; do
			case $1 in
			--hostfile) [ -s "$2" ] || exit 2; shift 2 ;;
			-N) n=2; shift 2 ;;
			-x) case $2 in *=*) export "$2" ;; *) [ -n "${!2}" ] || exit 2 ;; esac; shift 2 ;;
			-*) echo "mpirun: $1" >&2; exit 2 ;;
			*) break ;;
			esac
		done
		for ((i = 0; i < n; i++)); do
			OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=$n OMPI_COMM_WORLD_LOCAL_SIZE=1 "$@" 3>&- &
		done
		status=0
		for job in $(jobs -p); do
			wait "$job" || status=$?
		done
		exit $status
	END
	stand_in hostname <<<'echo 127.0.0.1'
	trainer train.py
	printf '%s\n' node1 node2 >"$tmp/hosts"
	export BRAID_SOCKET_IFNAME=lo PORT=$((21000 + $$ % 9000))
	run -0 timeout $((100 * slow)) sh "$examples/mpirun.sh" "$tmp/hosts" python3 "$tmp/train.py"
	[[ $output == *"2 hosts, 1 of 1 pairs, Braid"* ]]
	for rank in 0 1 2 3; do
		[ "$(cat "$tmp/train.$rank")" = "- - - - - braid Braid" ]
	done
	run -2 sh "$examples/mpirun.sh" "$tmp/hosts"
	[[ $output == usage:* ]]
}
