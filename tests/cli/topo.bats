#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# topo.bats - braid topo on recorded machines: the matrix, the choice in words, XML, SVG, JSON.

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
src=${BRAID_TEST_SRCDIR:-.}
machines="cloud-vm dgx-a100 dgx1-v100 four-gpu grace-hopper hgx-h100 hyperv-vm mixed one-side"

# topo MACHINE OPTION...
topo()
{
	root=$BATS_TEST_TMPDIR/$1
	[ -d "$root" ] || bash "$src/tests/topo/mktree" "$src/tests/topo/$1.txt" "$root"
	"$braid" topo --root "$root" "${@:2}"
}

# by_hwloc FILE OPTION... - braid topo --hwloc; skips where braid, by its own message, has no hwloc.
by_hwloc()
{
	run --separate-stderr "$braid" topo --hwloc "$@"
	if [ "$stderr" = "braid topo: --hwloc: this braid was built without hwloc" ]; then
		[ "$status" -eq 2 ] && skip "braid was built without hwloc"
	fi
}

# Section $2 of machine $1's description.
section()
{
	sed -n "/^== $2/,/^==/p" "$src/tests/topo/$1.txt" | grep -v -e '^==' -e '^#' -e '^$'
}

squeezed()
{
	sed 's/  */ /g; s/ $//'
}

@test "the matrix of every recorded machine is the one worked out by hand" {
	for machine in $machines; do
		run -0 --separate-stderr topo "$machine"
		[ -z "$stderr" ]
		diff <(section "$machine" matrix | squeezed) \
			<(sed '/^$/,$d' <<<"$output" | squeezed)
		diff <(section "$machine" nics) <(section "$machine" nics |
			while read -r nic name; do
				grep -qE "^  $nic +$name( |,|$)" <<<"$output" && echo "$nic $name"
			done)
	done
}

@test "JSON has the same choices, for every number of GPUs" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	checked=0
	for machine in $machines; do
		while read -r n choices; do
			run -0 --separate-stderr topo "$machine" --json --gpus "$n"
			tr '\n' ' ' <<<"$output"
			echo "$n $choices"
			checked=$((checked + 1))
		done < <(section "$machine" choices)
	done >"$BATS_TEST_TMPDIR/all"
	[ $checked -eq 50 ]		# 5 machines of 8 GPUs, one of 4, 3, 2, 1
	python3 -c '
import json, sys
for line in open(sys.argv[1]):
    d, end = json.JSONDecoder().raw_decode(line)
    n, *want = line[end:].split()
    assert d["schema"] == "braid-topo-1"
    names = [nic["name"] for nic in d["nics"]]
    have = [",".join(str(names.index(u)) for u in g["uses"]) for g in d["gpus"]][:int(n)]
    assert have == want, (have, n, want)' "$BATS_TEST_TMPDIR/all"
}

@test "the legend explains what is in the matrix, and nothing else" {
	run -0 topo four-gpu
	[[ $output == *"  PIX   through at most one PCIe switch"* ]]
	[[ $output == *"  SYS   between NUMA nodes"* ]]
	[[ $output != *"  PXB"* ]]
	[[ $output == *"  NIC3   mlx5_3:1 (ib3), 100 Gbit/s, 0000:b2:00.0"* ]]
	[[ $output == *"NVLink is not shown"* ]]
}

@test "a link that is down, a bond and a virtual function are reported" {
	run -0 topo mixed
	[[ $output == *"  NIC6   bond0, 50 Gbit/s, a bond, 0000:04:00.0 + 0000:81:00.0"* ]]
	[[ $output == *"  NIC3   mlx5_2:1 (ens1f0v0), 100 Gbit/s, a virtual function, 0000:02:00.2"* ]]
	run -0 topo hgx-h100
	[[ $output == *"  NIC1   eno2, down, 0000:01:00.1"* ]]
}

@test "a PCIe link that is slower or narrower than the device can is reported" {
	run -0 topo four-gpu
	[[ $output != *"(PCIe "* && $output != *"PCIe link"* ]]
	nic=$BATS_TEST_TMPDIR/four-gpu/sys/bus/pci/devices/0000:3e:00.0
	gpu=$BATS_TEST_TMPDIR/four-gpu/sys/bus/pci/devices/0000:b1:00.0
	echo 8 >"$nic/current_link_width"
	echo "2.5 GT/s PCIe" >"$gpu/current_link_speed"
	run -0 topo four-gpu
	[[ $output == *"  NIC1   mlx5_1:1 (ib1), 100 Gbit/s, 0000:3e:00.0 (PCIe x8 of x16)"* ]]
	[[ $output == *"  GPU3   NVIDIA, 0000:b1:00.0 (PCIe 2.5 of 16 GT/s)"* ]]
	[[ $output == *"Note: NIC1: the PCIe link is slower or narrower than the device can."* ]]
	[[ $output == *"Note: GPU3: the PCIe link is "* ]]
	echo Unknown >"$gpu/current_link_speed"		# as a device that sleeps may have it
	echo 255 >"$nic/current_link_width"
	run -0 topo four-gpu
	[[ $output != *"PCIe link"* ]]
}

@test "--explain names the NICs chosen, why, and why no others, within 80 columns" {
	run -0 topo dgx-a100 --explain 1
	[[ $output == "GPU1 uses NIC1 (mlx5_1:1)."* ]]
	flat=$(tr '\n' ' ' <<<"$output")
	[[ $flat == *"Nearest, at PXB "*": NIC0 (mlx5_0:1), NIC1 (mlx5_1:1)."* ]]
	[[ $flat == *"2 GPUs share these 2; GPU1 is number 1 of them"* ]]
	[[ $flat == *"Not NIC5 (mlx5_5:1), NIC11 (mlx5_11:1): their links are down."* ]]
	[[ $flat == *"NIC10 (mlx5_10:1): they are farther."* ]]
	for machine in $machines; do
		run -0 topo "$machine" --explain 0
		awk 'length > 80 { exit 1 }' <<<"$output"
	done
}

@test "--explain takes a number, GPU3 or a PCI address" {
	run -0 topo dgx1-v100 --explain 3
	three=$output
	run -0 topo dgx1-v100 --explain gpu3
	[ "$output" = "$three" ]
	run -0 topo dgx1-v100 --explain 0000:0B:00.0
	[ "$output" = "$three" ]
}

@test "a virtual machine without distances is reported, and its GPUs use all NICs" {
	run -0 topo cloud-vm --explain 5
	[[ $output == "GPU5 uses NIC2 (mlx5_1:1)."* ]]
	flat=$(tr '\n' ' ' <<<"$output")
	[[ $flat == *"is not known, so none is preferred"* ]]
	[[ $flat == *"number 5 mod 4 = 1 of these"* ]]
	[[ $flat == *"Not NIC0 (eth0): it has no RDMA, which others have."* ]]
	[[ $flat == *"this is a virtual machine"* ]]
}

@test "a NIC for management is not taken for a rail" {
	run -0 topo grace-hopper --explain 0
	[[ $output == "GPU0 uses NIC0 (mlx5_0:1)."* ]]
	rm "$BATS_TEST_TMPDIR/grace-hopper/sys/class/infiniband/mlx5_0"
	run -0 topo grace-hopper --explain 0
	[[ $output == "GPU0 uses NIC0 (ib0), NIC1 (eth0)."* ]]	# nothing tells ib0's speed
	echo 400000 >"$BATS_TEST_TMPDIR/grace-hopper/sys/class/net/ib0/speed"
	run -0 topo grace-hopper --explain 0
	[[ $output == "GPU0 uses NIC0 (ib0)."* ]]
	[[ $(tr '\n' ' ' <<<"$output") == *"Not NIC1 (eth0): it has less than a quarter of the fastest's speed."* ]]
}

@test "--xml is NCCL's: switches without their ports, cpu, gpu and net where they are" {
	run -0 --separate-stderr topo four-gpu --xml
	[ "${lines[0]}" = '<system version="1">' ]
	[ "${lines[1]}" = '  <cpu numaid="0" affinity="000000ff,ffff0000,00ffffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">' ]
	[[ ${lines[2]} == '    <pci busid="0000:18:00.0" class="0x060400" vendor="0x10b5" '*' link_speed="16.0 GT/s PCIe" link_width="16">' ]]
	[[ ${lines[3]} == '      <pci busid="0000:1a:00.0" class="0x030200" '* ]]
	[ "${lines[4]}" = '        <gpu dev="0"/>' ]
	[[ ${lines[6]} == '      <pci busid="0000:1b:00.0" class="0x020700" '* ]]
	[ "${lines[7]}" = '        <nic>' ]
	[ "${lines[8]}" = '          <net name="mlx5_0:1" dev="0"/>' ]
	[ "${lines[-1]}" = '</system>' ]
	[[ $output != *0000:17:00.0* && $output != *0000:19:00.0* ]]
	run -0 topo dgx1-v100 --xml			# the slower end of a link
	[[ $output == *'busid="0000:05:00.0" '*' link_speed="8.0 GT/s PCIe"'* ]]
	run -0 topo dgx-a100 --xml
	[[ $output == *'vendor="AuthenticAMD" familyid="143" modelid="49"'* ]]
}

@test "XML and SVG of every machine are well-formed and have every GPU and NIC" {
	for machine in $machines; do
		run -0 topo "$machine"
		gpus=$(grep -c '^  GPU' <<<"$output")
		placed=$(grep -c '^  NIC.*[0-9a-f]:[0-9a-f][0-9a-f]\.' <<<"$output")
		run -0 --separate-stderr topo "$machine" --xml
		[ "$(grep -c '<gpu ' <<<"$output")" -eq "$gpus" ]
		[ "$(grep -c '<net ' <<<"$output")" -eq "$placed" ]
		[ "$(grep -c '<pci ' <<<"$output")" -eq "$(grep -c '</pci>' <<<"$output")" ]
		echo "$output" >"$BATS_TEST_TMPDIR/a.xml"
		run -0 --separate-stderr topo "$machine" --svg
		[[ $output == "<svg "* && $output == *"GPU0"* && $output == *"NIC0"* ]]
		echo "$output" >"$BATS_TEST_TMPDIR/a.svg"
		# no two boxes overlap
		sed -n 's/^<rect x="\([0-9]*\)" y="\([0-9]*\)" width="\([0-9]*\)" height="\([0-9]*\)".*/\1 \2 \3 \4/p' \
			<<<"$output" | awk '
			{
				for (i = 1; i < NR; i++)
					if ($1 < x[i] + w[i] && x[i] < $1 + $3 && $2 < y[i] + h[i] && y[i] < $2 + $4)
						bad = 1
				x[NR] = $1; y[NR] = $2; w[NR] = $3; h[NR] = $4
			}
			END { exit bad || NR < 4 }'
		if command -v xmllint >/dev/null; then
			xmllint --noout "$BATS_TEST_TMPDIR/a.xml" "$BATS_TEST_TMPDIR/a.svg"
		fi
	done
}

@test "names out of a hostile tree do not break XML, SVG or JSON" {
	root=$BATS_TEST_TMPDIR/hostile
	bash "$src/tests/topo/mktree" "$src/tests/topo/four-gpu.txt" "$root"
	mv "$root/sys/class/infiniband/mlx5_0" "$root/sys/class/infiniband/"$'<&"\'\x01\xff>'
	run -0 --separate-stderr "$braid" topo --root "$root" --xml
	[[ $output == *'name="&lt;&amp;&quot;'* ]]
	echo "$output" >"$BATS_TEST_TMPDIR/a.xml"
	run -0 --separate-stderr "$braid" topo --root "$root" --svg
	echo "$output" >"$BATS_TEST_TMPDIR/a.svg"
	if command -v xmllint >/dev/null; then
		xmllint --noout "$BATS_TEST_TMPDIR/a.xml" "$BATS_TEST_TMPDIR/a.svg"
	fi
	run -0 --separate-stderr "$braid" topo --root "$root" --json
	if command -v python3 >/dev/null; then
		python3 -c 'import json, sys; assert len(json.load(sys.stdin)["nics"]) == 4' <<<"$output"
	fi
	run -0 --separate-stderr "$braid" topo --root "$root"
	[[ $output != *$'\x01'* ]]
}

@test "this machine can be shown, and its recording shows the same" {
	run -0 --separate-stderr "$braid" topo --json
	[[ $output == *'"kernel": "'* ]]
	live=$(sed -n '/"gpus"/,/^  ]/p; /"nics": \[$/,$p' <<<"$output" | sed '/"date"/,$d')
	run -0 sh "$src/tools/recordsys" "$BATS_TEST_TMPDIR/recorded"
	run -0 --separate-stderr "$braid" topo --json --root "$BATS_TEST_TMPDIR/recorded"
	[[ $output == *'"host": null'* ]]
	diff <(echo "$live") <(sed -n '/"gpus"/,/^  ]/p; /"nics": \[$/,$p' <<<"$output" |
		sed '/"date"/,$d; /"host": null/d')
	run -0 --separate-stderr "$braid" topo --xml
	live=$output
	run -0 --separate-stderr "$braid" topo --xml --root "$BATS_TEST_TMPDIR/recorded"
	diff <(echo "$live") <(echo "$output")
}

# dgx-a100 has devices under one bridge and under five: of its 190 pairs of PCI devices 64 are such
# that hwloc_get_common_ancestor_obj() of 2.9.0 runs off the tree.
@test "hwloc's XML gives the matrix and the choices that /sys gives" {
	for machine in dgx1-v100 four-gpu dgx-a100; do
		xml=$src/tests/topo/$machine.xml
		by_hwloc "$xml"
		[ "$status" -eq 0 ]
		[ -z "$stderr" ]
		diff <(section "$machine" matrix | squeezed) \
			<(sed '/^$/,$d' <<<"$output" | squeezed)
		[[ $output == *"NVLink is not shown"* ]]
		for gpu in 0 1 2 3; do
			run -0 topo "$machine" --explain $gpu --gpus 4
			said=$output
			by_hwloc "$xml" --explain $gpu --gpus 4
			diff <(echo "$said") <(echo "$output")
		done
		run -0 topo "$machine" --svg
		drawn=$output
		by_hwloc "$xml" --svg
		diff <(echo "$drawn") <(echo "$output")
		run -0 topo "$machine" --xml		# hwloc has no link's capabilities
		[[ $output == *link_width=\"16\"* ]]
		drawn=$(sed 's/ link_[a-z]*="[^"]*"//g' <<<"$output")
		by_hwloc "$xml" --xml
		diff <(echo "$drawn") <(sed 's/ link_[a-z]*="[^"]*"//g' <<<"$output")
	done
}

# nvlink OBJECTS VALUES: looks at four-gpu with a matrix of NVLink's bandwidths, as hwloc exports it.
nvlink()
{
	{
		sed '$d' "$src/tests/topo/four-gpu.xml"
		cat <<-END
		<distances2 type="PCIDev" nbobjs="$(wc -w <<<"$1")" kind="9" name="NVLinkBandwidth" indexing="gp">
		<indexes length="$((${#1} + 1))">$1 </indexes>
		<u64values length="$((${#2} + 1))">$2 </u64values>
		</distances2>
		</topology>
		END
	} >"$BATS_TEST_TMPDIR/nvlink.xml"
	by_hwloc "$BATS_TEST_TMPDIR/nvlink.xml"
	[ "$status" -eq 0 ]
}

@test "NVLink is shown where hwloc reports it, direct or through a switch" {
	# GPU0 and GPU1, GPU0 and GPU2; themselves as hwloc has it
	nvlink "122 120 105 121" "9 2 1 0  2 9 0 0  1 0 9 0  0 0 0 9"
	[[ $output == *$'\n'"GPU0  X    NVL  NVL  SYS  PIX "* ]]
	[[ $output == *$'\n'"GPU1  NVL  X    SYS  SYS  NODE "* ]]
	[[ $output == *$'\n'"GPU2  NVL  SYS  X    NODE SYS "* ]]
	[[ $output == *$'\n'"GPU3  SYS  SYS  NODE X    SYS "* ]]
	[[ $output == *"  NVL   through NVLink"* && $output != *"NVLink is not shown"* ]]
	# GPU0 and GPU3, each with a link to what is no GPU
	nvlink "122 121 113" "0 0 2  0 0 2  2 2 0"
	[[ $output == *$'\n'"GPU0  X    NODE SYS  NVL  PIX "* ]]
	[[ $output == *$'\n'"GPU3  NVL  SYS  NODE X    SYS "* ]]
	# no links
	nvlink "122 121" "9 0 0 9"
	[[ $output != *NVL\ * && $output == *"NVLink is not shown"* ]]
}

@test "hwloc's XML that is damaged, or not there, is one line" {
	cut=$BATS_TEST_TMPDIR/cut.xml
	head -c 9000 "$src/tests/topo/four-gpu.xml" >"$cut"
	by_hwloc "$cut"
	[ "$stderr" = "braid topo: $cut: hwloc can't read this [bad-option]" ]
	[ "$status" -eq 2 ]
	# well-formed, but libhwloc 2.9.0 crashes on it; other versions may not
	sed 's/ complete_cpuset="[^"]*"//' "$src/tests/topo/four-gpu.xml" >"$cut"
	run --separate-stderr "$braid" topo --hwloc "$cut"
	[ "$status" -eq 0 ] || [ "$stderr" = "braid topo: $cut: hwloc can't read this [bad-option]" ]
	: >"$cut"
	run -2 --separate-stderr "$braid" topo --hwloc "$cut" --json
	[ "$stderr" = "braid topo: $cut: hwloc can't read this [bad-option]" ]
	[ -z "$output" ]
	run -2 --separate-stderr "$braid" topo --hwloc /nowhere
	[ "$stderr" = "braid topo: /nowhere: No such file or directory [bad-option]" ]
	run -2 --separate-stderr "$braid" topo --hwloc "$cut" --root /
	[ "${#stderr_lines[@]}" -eq 1 ]
}

@test "this machine can be read by hwloc" {
	[ -d /sys/devices/system/cpu ] || skip "/sys is not mounted: libhwloc complains by itself"
	# hwloc's PCI plugins keep memory and are unloaded before the leak check, which would report it
	export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
	by_hwloc live --json
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	[[ $output == *'"schema": "braid-topo-1"'* ]]
}

@test "mistakes are one line" {
	for words in "--explain 4" "--explain -1" "--explain x" "--explain 3 --gpus 2"; do
		# shellcheck disable=SC2086
		run -1 --separate-stderr topo four-gpu $words
		[ -z "$output" ]
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ $stderr == *"[no-gpu]" ]]
	done
	run -1 --separate-stderr "$braid" topo --root /nowhere
	[ "$stderr" = "braid topo: /nowhere/sys: No such file or directory [cannot-read]" ]
	run -2 --separate-stderr "$braid" topo --json --xml
	[ "${#stderr_lines[@]}" -eq 1 ]
}
