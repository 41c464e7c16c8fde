#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# info.bats - braid info prints what the plugin offers and every parameter.

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
fake=${BRAID_TEST_BUILDDIR:-.}/tests/fake/.libs

# with_nics WHICH COMMAND... - run COMMAND with NICs that exist in memory only (tests/fake/ctl.h).
with_nics()
{
	[ -e "$fake/libibverbs.so.1" ] || skip "built without RDMA"
	env LD_LIBRARY_PATH="$fake" BRAID_TEST_FAKE_DEVICES="$1" BRAID_SOCKET_IFNAME=lo "${@:2}"
}

@test "it names plugin, ABI versions and at least one device" {
	run -0 "$braid" info --plugin "$plugin"
	[[ $output == *"plugin     $plugin"* ]]
	[[ $output == *$'\n'"ABI        v5 v6 v7 v8 v9 v10 v11 v12"$'\n'* ]]
	[[ $output == *$'\n'"RMA ABI    v14 v15 v16"$'\n'* ]]
	[[ $output == *"device 0 "* ]]
}

@test "it says that a plugin has no RMA table, or one that lacks a call" {
	cc=$(command -v "${CC%% *}" || command -v cc) || skip "no compiler"
	cd "$BATS_TEST_TMPDIR"
	cat >net.c <<-'END'
		#include <stddef.h>
		static int init(void **ctx) { *ctx = NULL; return 0; }
		static int devices(int *n) { *n = 0; return 0; }
		static int finalize(void *ctx) { (void)ctx; return 0; }
		const void *ncclNetPlugin_v11[22] = { "Other", init, devices, [20] = finalize };
	END
	"$cc" -shared -fPIC -o net.so net.c
	run -0 "$braid" info --plugin ./net.so
	[[ $output == *"name       Other"* && $output == *$'\n'"RMA ABI    none"$'\n'* ]]
	{
		cat net.c
		echo '#define F (void *)devices, (void *)devices, (void *)devices, (void *)devices'
		echo 'const void *ncclRmaPlugin_v14[21] = { "Other", F, F, F, F, F };'
		echo 'const void *ncclRmaPlugin_v15[21] = { "Other", F, F, F, F };'
	} >rma.c
	"$cc" -shared -fPIC -o rma.so rma.c
	run -0 "$braid" info --plugin ./rma.so
	[[ $output == *$'\n'"RMA ABI    v14"$'\n'* ]]
}

@test "it reads NCCL's configuration files, as NCCL does before the plugin starts" {
	printf '%s\n' '# site' 'BRAID_LANES=3' 'NCCL_SOCKET_IFNAME=lo' 'NCCL_IB_USE_INLINE=1' >"$BATS_TEST_TMPDIR/c"
	NCCL_CONF_FILE=$BATS_TEST_TMPDIR/c run -0 "$braid" info --params --plugin "$plugin"
	[[ $output == *"set        BRAID_LANES=3 ($BATS_TEST_TMPDIR/c:2)"* ]]
	[[ $output == *"BRAID_LANES = 3"* && $output == *"device 0     lo"* ]]
	[[ $output == *"not heeded: NCCL_IB_USE_INLINE=1 ("* ]]
	BRAID_LANES=2 NCCL_CONF_FILE=$BATS_TEST_TMPDIR/c run -0 "$braid" info --params --plugin "$plugin"
	[[ $output == *"BRAID_LANES = 2"* && $output != *"BRAID_LANES=3"* ]]
}

@test "it says where the secret of the job comes from, and shows it nowhere" {
	run -0 "$braid" info --plugin "$plugin"
	[[ $output == *"secret: none"* ]]
	BRAID_SECRET=sixteen-and-more run -0 "$braid" info --params --plugin "$plugin"
	[[ $output == *"secret: from BRAID_SECRET"* && $output != *sixteen* ]]
	printf sixteen-and-more >"$BATS_TEST_TMPDIR/s"
	chmod 600 "$BATS_TEST_TMPDIR/s"
	BRAID_SECRET_FILE=$BATS_TEST_TMPDIR/s run -0 "$braid" info --json --verbose --plugin "$plugin"
	[[ $output == *"secret: $BATS_TEST_TMPDIR/s"* && $output != *sixteen* ]]
	echo BRAID_SECRET=sixteen-and-more >"$BATS_TEST_TMPDIR/c"
	NCCL_CONF_FILE=$BATS_TEST_TMPDIR/c run -0 "$braid" info --plugin "$plugin"
	[[ $output == *"BRAID_SECRET=(hidden)"*"secret: from BRAID_SECRET"* && $output != *sixteen* ]]
}

@test "a plugin of newer ABI versions alone is an error in one line" {
	cc=$(command -v "${CC%% *}" || command -v cc) || skip "no compiler"
	echo 'struct { const char *name; } ncclNetPlugin_v13 = { "Newer" };' >"$BATS_TEST_TMPDIR/x.c"
	"$cc" -shared -fPIC -o "$BATS_TEST_TMPDIR/x.so" "$BATS_TEST_TMPDIR/x.c"
	run -1 --separate-stderr "$braid" info --plugin "$BATS_TEST_TMPDIR/x.so"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"has no ncclNetPlugin_v5 to v12"*"[no-plugin]" ]]
}

@test "it finds the plugin without an option" {
	run -0 "$braid" info
	[[ $output == *"libnccl-net-braid.so"* ]]
}

@test "every ABI version reports the same devices" {
	run -0 "$braid" info --plugin "$plugin"
	devices=$(grep '^device' <<<"$output")
	for v in 5 6 7 8 9 10 11 12; do
		run -0 "$braid" info --plugin "$plugin" --abi $v
		[ "$(grep '^device' <<<"$output")" = "$devices" ]
	done
}

@test "--params has every row of param.def, within 80 columns" {
	run -0 "$braid" info --plugin "$plugin" --params
	sed -n 's/^P_[A-Z]*(\([a-z0-9_]*\),.*/\1/p' "${BRAID_TEST_SRCDIR:-.}/core/base/param.def" | tr "[:lower:]" "[:upper:]" |
	while read -r name; do
		grep -q "^BRAID_$name = " <<<"$output"
	done
	awk '/^ / && length > 80 { exit 1 }' <<<"$output"
}

@test "--params shows what the environment says" {
	BRAID_LANES=3 run -0 "$braid" info --plugin "$plugin" --params
	[[ $output == *"BRAID_LANES = 3"* ]]
}

@test "a bad value in the environment, or no plugin, is status 1 and one line" {
	BRAID_LANES=many run -1 --separate-stderr "$braid" info --plugin "$plugin"
	[[ $stderr == *BRAID_LANES*many* ]]
	run -1 --separate-stderr "$braid" info --plugin /nowhere/x.so
	[[ $stderr == "braid info: /nowhere/x.so"*"[no-plugin]" ]]
}

@test "--json is one JSON document with its schema" {
	run -0 --separate-stderr "$braid" info --plugin "$plugin" --json
	[[ $output == *'"schema": "braid-info-1"'* ]]
	if command -v python3 >/dev/null; then
		python3 -c 'import json, sys; d = json.load(sys.stdin); assert d["plugin"]["devices"]; assert d["plugin"]["rma_abis"] == [14, 15, 16]; assert len(d["params"]) > 5' <<<"$output"
	fi
}

@test "an RDMA port is a device that verbs and tcp serve, at its interface's address" {
	run -0 with_nics roce0:rocev2,netdev=lo "$braid" info --plugin "$plugin"
	[[ $output == *"device 0     roce0:1"* ]]
	[[ $output == *"  address    127.0.0.1"$'\n'"  transports verbs, tcp"$'\n'* ]]
	BRAID_TRANSPORTS=tcp run -0 with_nics roce0:rocev2,netdev=lo "$braid" info --plugin "$plugin"
	[[ $output == *"device 0     lo"* && $output == *"  transports tcp"$'\n'* ]]
}

@test "whether a port reaches memory of GPUs is reported, and what was tried" {
	gpu=${BRAID_TEST_BUILDDIR:-.}/tests/fakecuda/.libs
	[ -e "$gpu/libcuda.so.1" ] || skip "built without RDMA"
	run -0 with_nics "nic0:rocev2,netdev=lo,dmabuf=1,peermem=0" env LD_LIBRARY_PATH="$fake:$gpu" \
		"$braid" info --plugin "$plugin"
	[[ $output == *"memory     host cuda dmabuf"* ]]
	[[ $output == *"gpu: memory is offered by nic0:1, also as DMA-BUF: pcie: "*", dmabuf, peermem: Bad address; flush by the NIC, "*" us; GDRCopy: "* ]]
	run -0 with_nics "nic0:rocev2,netdev=lo,dmabuf=1" env LD_LIBRARY_PATH="$fake:$gpu" \
		BRAID_GPU_FLUSH_BY=gdrcopy "$braid" info --plugin "$plugin"
	[[ $output == *"; flush by GDRCopy, "*" us; by the NIC "*" us"* ]]
	run -0 with_nics "nic0:rocev2,netdev=lo,dmabuf=1" env LD_LIBRARY_PATH="$fake:$gpu" \
		BRAID_TEST_FAKECUDA="fail 1 cuMemAlloc_v2 2" "$braid" info --plugin "$plugin"
	[[ $output == *"gpu: memory is not offered by nic0:1: no memory of the GPU to try it with: Cannot allocate memory"* ]]
}

@test "why an RDMA port is not used is reported in one line" {
	run -0 with_nics "roce0:rocev2,netdev=lo;iw0:iwarp" "$braid" info --plugin "$plugin"
	[[ $output == *$'\n'"notes      "* && $output == *" verbs: iw0:1 has no interface"* ]]
}

@test "--json has the transports and the notes as lists" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	run -0 --separate-stderr with_nics "ib0:ib;iw0:iwarp" "$braid" info --plugin "$plugin" --json
	python3 -c 'import json, sys
p = json.load(sys.stdin)["plugin"]
assert p["devices"][0]["transports"] == ["verbs", "tcp"]
assert any(n.startswith("verbs: iw0:1 ") for n in p["notes"])
assert any(n.startswith("fork: ") for n in p["notes"])' <<<"$output"
}

@test "the service thread keeps near the devices, unless BRAID_PIN says not to" {
	run -0 "$braid" info --plugin "$plugin"
	paths=$(sed -n 's/^  PCI  *\(\/sys.*\)/\1/p' <<<"$output")
	[ -n "$paths" ] || skip "no device is on PCI here"
	# shellcheck disable=SC2086 # a list of directories
	[ -n "$(cd / && for p in $paths; do cat "$p/local_cpulist"; done)" ] ||
		skip "/sys does not tell the CPUs near the devices"
	run -0 --separate-stderr "$braid" info --plugin "$plugin" --verbose
	[[ $stderr == *"the service thread keeps to CPUs "* ]]
	BRAID_PIN=0 run -0 --separate-stderr "$braid" info --plugin "$plugin" --verbose
	[[ $stderr != *"the service thread keeps"* ]]
}

@test "--peer has the ways to a host in their order, and why" {
	BRAID_SOCKET_IFNAME=lo run -0 "$braid" info --plugin "$plugin" --peer 127.0.0.1
	[[ $output == *"device 0, lo, to 127.0.0.1, tried in this order:"* ]]
	[[ $output == *"1  127.0.0.1 of lo to 127.0.0.1: this host itself"* ]]
	BRAID_SOCKET_IFNAME=lo BRAID_SOCKET_FAMILY=AF_INET run -0 "$braid" info --plugin "$plugin" --peer ::1
	[[ $output == *"no device has an address of that version: ::1"* ]]
	BRAID_SOCKET_IFNAME=lo run -0 --separate-stderr "$braid" info --plugin "$plugin" --peer 127.0.0.1 --json
	[[ $output == *'"peer":'*'"why": "this host itself"'* ]]
}

@test "--peer takes an IPv6 address in brackets, as other commands do" {
	BRAID_SOCKET_IFNAME=lo run -0 "$braid" info --plugin "$plugin" --peer '[::1]'
	[[ $output == *"::1"* ]]
	run -1 --separate-stderr "$braid" info --plugin "$plugin" --peer '[::1'
	[[ $stderr == *"[::1: "*"[no-such-host]" ]]
}

@test "--peer of a name that is none is status 1" {
	run -1 --separate-stderr "$braid" info --plugin "$plugin" --peer no-such-host.invalid
	[[ $stderr == *"no-such-host.invalid: "*"[no-such-host]"* ]]
}

@test "it says whether the job's bytes are encrypted, by which ciphers, and what is left out for that" {
	run -0 "$braid" info --plugin "$plugin"
	[[ $output == *"encrypt: off (BRAID_ENCRYPT)"* ]]
	BRAID_ENCRYPT=prefer BRAID_CIPHER=chacha20 run -0 "$braid" info --plugin "$plugin"
	[[ $output == *"encrypt: prefer, TCP: ChaCha20-Poly1305 by "* ]]
	BRAID_ENCRYPT=require BRAID_TRANSPORTS=smc,ucx,tcp run -0 "$braid" info --plugin "$plugin"
	[[ $output == *"BRAID_ENCRYPT=require leaves out smc, ucx, which"*"[cannot-encrypt]"* ]]
	[[ $output == *"transports tcp"* ]]
	BRAID_ENCRYPT=require BRAID_FABRIC_ENCRYPTED=1 BRAID_TRANSPORTS=smc,tcp run -0 "$braid" info --plugin "$plugin"
	[[ $output != *"[cannot-encrypt]"* ]]
	BRAID_ENCRYPT=require BRAID_TRANSPORTS=verbs run -0 "$braid" info --plugin "$plugin"
	[[ $output == *"no devices"* ]]
}

@test "RDMA is left out where encryption is required, and the reason is given" {
	BRAID_ENCRYPT=require run -0 with_nics roce2 "$braid" info --plugin "$plugin"
	[[ $output != *"transports verbs"* && $output == *"transports tcp"* ]]
}
