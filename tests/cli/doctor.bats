#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# doctor.bats - braid doctor: every check on a host that has the fault and on one that has not, what is
# printed, the comparison of hosts, and this host.
# shellcheck disable=SC2154 # what run sets

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
src=${BRAID_TEST_SRCDIR:-.}

setup_file()
{
	root=$BATS_FILE_TMPDIR/healthy
	bash "$src/tests/topo/mktree" "$src/tests/doctor/healthy.txt" "$root"
	# shellcheck source=tests/doctor/cases.bash
	. "$src/tests/doctor/cases.bash"
	complete
}

setup()
{
	. "$src/tests/doctor/cases.bash"
	healthy=$BATS_FILE_TMPDIR/healthy
	root=$BATS_TEST_TMPDIR/root
	touched=()
	cp -a "$healthy" "$root"
}

ids()
{
	"$braid" doctor --list | cut -d' ' -f1
}

doctor()
{
	run --separate-stderr "$braid" doctor --root "$root" --peer node2:5201 "$@"
	[ -z "$stderr" ]
	flat=$(tr -s ' \n' ' ' <<<"$output")
}

# A bad command line: exit status 2, one line on stderr that has $1 in it, nothing on stdout.
bad()
{
	run -2 --separate-stderr "$braid" doctor "${@:2}"
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"$1"* ]]
}

@test "there are 40 checks and more, each with a title and an id of its own" {
	run -0 "$braid" doctor --list
	[ "${#lines[@]}" -ge 40 ]
	grep -vE '^[a-z]+(-[a-z]+)+ +[A-Z/l]' <<<"$output" && false
	[ -z "$(ids | sort | uniq -d)" ]
}

@test "every check is content with a host that is right for it" {
	complaints=
	[ "$(ids | wc -l)" -ge 40 ]
	for id in $(ids); do
		if declare -F "good_${id//-/_}" >/dev/null; then
			"good_${id//-/_}"
		fi
		doctor --only "$id" --all
		[ "$status" -eq 0 ] && [ "${output%% *}" = ok ] || complaints+="$id: $output"$'\n'
		declare -F "good_${id//-/_}" >/dev/null && again
	done
	echo "$complaints"
	[ -z "$complaints" ]
}

@test "every check finds what is wrong with another, says it, and what mends it" {
	complaints=
	[ "$(ids | wc -l)" -ge 40 ]
	for id in $(ids); do
		if ! declare -F "bad_${id//-/_}" >/dev/null; then
			complaints+="$id: no case of tests/doctor/cases.bash breaks it"$'\n'
			continue
		fi
		"bad_${id//-/_}"
		doctor --only "$id"
		[ "${output%% *}" = "$level" ] && [[ $flat == *"$words"* ]] &&
			grep -qF -- "$mend" <(grep '^      \$ ' <<<"$output") &&
			[[ $flat == *" why: "* ]] && [ "$status" -eq "$([ "$level" = fail ]; echo $((! $?)))" ] ||
			complaints+="$id: not $level, '$words', '$mend': $output"$'\n'
		again
	done
	echo "$complaints"
	[ -z "$complaints" ]
}

@test "a GID set for one port is checked at that port" {
	variables NCCL_IB_GID_INDEX=0 BRAID_IB_GID=mlx5_0:1=0,mlx5_1=3,mlx5_2=3
	doctor --only rdma-gid-index
	[ "$status" -eq 1 ]
	[[ $flat == *"wrong GID: BRAID_IB_GID=0 is RoCE v1 of fe80::202:c9ff:fe00:1 at mlx5_0:1"* ]]
	grep -qF "unset BRAID_IB_GID" <<<"$output"
	again
	variables NCCL_IB_GID_INDEX=0 BRAID_IB_GID=mlx5_0=3,mlx5_1=3
	doctor --only rdma-gid-index --all
	[ "${output%% *}" = ok ]
}

@test "a secret that can't be used is named with its cause, and one that is missing is a note" {
	variables BRAID_SECRET_FILE=/etc/none
	doctor --only braid-secret
	[ "$status" -eq 1 ]
	[[ $flat == *"can't open $root/etc/none"* ]]
	variables BRAID_SECRET_FILE=/etc/job.secret BRAID_SECRET=sixteen-and-more
	doctor --only braid-secret
	[[ $status == 1 && $flat == *"are both set"*"unset BRAID_SECRET"* ]]
	variables BRAID_SECRET=short
	doctor --only braid-secret
	[[ $status == 1 && $flat == *"BRAID_SECRET has 5 bytes"* ]]
	variables BRAID_SECRET=
	doctor --only braid-secret
	[[ $status == 1 && $flat == *"BRAID_SECRET is set and empty"* ]]
	variables NCCL_DEBUG=WARN
	doctor --only braid-secret
	[[ $status == 0 && $output == note*"the job has no secret"* ]]
	variables BRAID_SECRET=sixteen-and-more
	doctor --only braid-secret --all
	[[ $output == ok* && $flat == *"are safe, even where NCCL's bootstrap can be read"* ]]
}

@test "strict RDMA is told of each active port, and missed only where others use the network" {
	variables BRAID_RDMA_STRICT=1
	doctor --only rdma-strict --all
	[[ $status == 0 && $output == ok* && $flat == *"mlx5_0:1: no peer gets a key"* ]]
	[[ $flat == *"mlx5_1:1: no peer"* && $flat != *UCX* && $flat != *SMC* ]]
	variables BRAID_RDMA_STRICT=1 BRAID_TRANSPORTS=verbs,smc,tcp
	doctor --only rdma-strict --all
	[[ $output == ok* && $flat == *"SMC: its keys are those of the kernel's buffers"* ]]
	variables BRAID_ENCRYPT=prefer
	doctor --only rdma-strict
	[[ $status == 0 && $output == note* && $flat == *"BRAID_ENCRYPT=prefer says that others"* ]]
	grep -qF "export BRAID_RDMA_STRICT=1" <<<"$output"
	variables BRAID_ENCRYPT=require BRAID_FABRIC_ENCRYPTED=1
	doctor --only rdma-strict
	[[ $output == note* ]]
	for without in BRAID_ENCRYPT=require BRAID_TRANSPORTS=tcp; do
		variables "$without"
		doctor --only rdma-strict --all
		[[ $output == ok* && $flat == *"Braid's own RDMA is left out"* ]]
	done
	variables NCCL_DEBUG=WARN
	doctor --only rdma-strict --all
	[[ $output == ok* && $flat == *"BRAID_RDMA_STRICT is not set"* ]]
	rm -r "$root/sys/class/infiniband"
	doctor --only rdma-strict --all
	[[ $output == skip*"no RDMA device"* ]]
}

@test "what may be a secret is shown nowhere, under a misspelt name neither" {
	put etc/nccl.conf "BRAID_SECRETS = hidden-one" "BRAID_KEY=hidden-one"
	variables BRAID_SECRET=hidden-one-and-two BRAID_SERCET=hidden-one BRAID_SECRT=hidden-one \
		BRAID_PERF_KEY=hidden-one BRAID_LANE=4
	for how in --all --json; do
		doctor $how
		[[ $output != *hidden-one* ]]
	done
	doctor --only braid-parameters
	[[ $flat == *"unset BRAID_SERCET "* && $flat == *"export BRAID_LANES='4'"* ]]
	[[ $flat != *"BRAID_PERF_KEY is no"* && $flat != *"BRAID_SECRET is no"* ]]
}

@test "every case belongs to a check" {
	diff <(declare -F | sed -n 's/^declare -f bad_\(.*_.*\)$/\1/p' | sort) <(ids | tr - _ | sort)
}

@test "every check has its page, with what it means, and no page is without a check" {
	page=$src/docs/user/doctor.md
	diff <(sed -n 's/^### //p' "$page" | sort) <(ids | sort)
	awk '/^### / { if (id && !(mean && cause && mend)) { print id; bad = 1 }; id = $2; mean = cause = mend = 0 }
		/^Means: / { mean = 1 } /^Cause: / { cause = 1 } /^Remedy: / { mend = 1 }
		END { exit bad || !mean || !cause || !mend }' "$page"
}

@test "a healthy host is reported as such, in few words" {
	doctor
	[ "$status" -eq 0 ]
	[ "${lines[-1]}" = "Nothing is wrong here." ]
	[ "${#lines[@]}" -le 4 ]
}

@test "each of six faults is named" {
	for fault in rdma_gid_index net_mtu plugin_fallback limits_memlock net_flaps numa_binding; do
		"bad_$fault"
		doctor
		[[ $flat == *"$words"* ]]
		again
	done
}

@test "only remedies are wider than 80 columns, and no escapes are printed" {
	for id in $(ids); do
		"bad_${id//-/_}" 2>/dev/null || :	# what one breaks another may look for
	done
	doctor --all
	grep -v '^      \$ ' <<<"$output" | awk 'length > 80 { exit 1 }'
	[[ $output != *$'\033'* ]]
	[ "$status" -eq 1 ]
}

@test "colours are for a terminal, unless NO_COLOR is set" {
	command -v script >/dev/null || skip "script is not installed"
	script -qec true /dev/null >/dev/null 2>&1 || skip "no pseudo-terminal can be had"
	bad_net_mtu
	TERM=xterm run script -qec "'$braid' doctor --root '$root' --only net-mtu" /dev/null
	[[ $output == *$'\033[1;31mfail\033[0m'* ]]
	TERM=xterm NO_COLOR=1 run script -qec "'$braid' doctor --root '$root' --only net-mtu" /dev/null
	[[ $output != *$'\033'* && $output == *fail* ]]
}

@test "JSON has a schema, every check, and the facts" {
	command -v python3 >/dev/null || skip "python3 is not installed"
	bad_net_mtu
	doctor --json
	[ "$status" -eq 1 ]
	python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["schema"] == "braid-doctor-1" and d["host"] == "node1"
assert len(d["checks"]) == int(sys.argv[1]) == sum(d["counts"].values())
c = [c for c in d["checks"] if c["id"] == "net-mtu"][0]
assert c["level"] == "fail" and c["why"]
assert [s for s in c["says"] if "mend" in s][0]["mend"].startswith("sudo ip link")
assert d["facts"]["mtu eth1"] == "1500" and d["facts"]["gid index mlx5_0:1"] == "3"
' "$(ids | wc -l)" <<<"$output"
}

@test "--strict counts warnings; --only takes groups" {
	bad_net_flaps
	doctor --only net
	[ "$status" -eq 0 ]
	[[ ${lines[-2]} == "13 checks of node1: 0 fail, 1 warn"* ]]
	doctor --only net --strict
	[ "$status" -eq 1 ]
}

@test "values of NCCL's configuration files count, and are mended there" {
	put etc/nccl.conf "NCCL_IB_TIMEOUT=99" "NCCL_NET=Socket"
	doctor --only nccl-values
	[[ $flat == *"NCCL_IB_TIMEOUT=99 is not from 1 to 31"* ]]
	[[ $flat == *"sudo sed -i '/^NCCL_IB_TIMEOUT=/d' /etc/nccl.conf # line 1"* ]]
	put home/me/.nccl.conf "NCCL_IB_RETRY_CNT=9"
	variables HOME=/home/me
	doctor --only nccl-values
	[[ $flat == *"NCCL_IB_RETRY_CNT=9 is not"* ]]
	variables NCCL_IB_TIMEOUT=20		# the environment wins
	doctor --only nccl-values
	[[ $flat != *"is not from"* ]]
}

@test "a value from a file is mended in that file, whatever the check" {
	put etc/nccl.conf "# site" "NCCL_IB_HCA=\"mlx5_0\"" "NCCL_SOCKET_FAMILY=IPv6"
	variables
	doctor --only rdma-hca
	[[ $flat == *"Braid reads mlx5_0, NCCL itself something else"* ]]
	[[ $flat == *"sudo sed -i 's|^NCCL_IB_HCA=.*|NCCL_IB_HCA=mlx5_0|' /etc/nccl.conf # line 2"* ]]
	doctor --only nccl-values
	[[ $flat == *"NCCL_SOCKET_FAMILY=IPv6 is not AF_INET or AF_INET6, and has no effect"* ]]
	[[ $flat == *"'/^NCCL_SOCKET_FAMILY=/d' /etc/nccl.conf # line 3"* ]]
	put home/me/.nccl.conf "NCCL_SOCKET_IFNAME=ens"
	variables HOME=/home/me
	doctor --only net-interface
	[[ $flat == *"sed -i 's|^NCCL_SOCKET_IFNAME=.*|NCCL_SOCKET_IFNAME=eth0|' /home/me/.nccl.conf # line 1"* ]]
	put elsewhere.conf "NCCL_SOCKET_IFNAME=eno"
	variables HOME=/home/me NCCL_CONF_FILE=/elsewhere.conf
	doctor --only net-interface
	[[ $flat == *"NCCL_SOCKET_IFNAME=eno leaves no interface"*" /elsewhere.conf # line 1"* ]]
}

@test "the home of ~/.nccl.conf is the password file's before NCCL 2.30, and HOME since" {
	put etc/passwd "root:x:0:0::/root:/bin/sh" "me:x:1000:1000::/users/me:/bin/sh"
	put proc/self/status "Name:	job" "Uid:	1000	1000	1000	1000" "CapEff:	0" \
		"Cpus_allowed_list:	0-31"
	put users/me/.nccl.conf "NCCL_IB_RETRY_CNT=9"
	put home/me/.nccl.conf "NCCL_IB_RETRY_CNT=10"
	variables HOME=/home/me
	libraries none 22809
	doctor --only nccl-values
	[[ $flat == *"NCCL_IB_RETRY_CNT=9 is not from 0 to 7"*" /users/me/.nccl.conf # line 1"* ]]
	libraries none 23007
	doctor --only nccl-values
	[[ $flat == *"NCCL_IB_RETRY_CNT=10 is not from 0 to 7"*" /home/me/.nccl.conf # line 1"* ]]
}

@test "lines of both configuration files are checked, and homes that differ are reported" {
	put etc/passwd "me:x:1000:1000::/users/me:/bin/sh"
	put proc/self/status "Name:	job" "Uid:	1000	1000	1000	1000" "CapEff:	0" \
		"Cpus_allowed_list:	0-31"
	put users/me/.nccl.conf "NCCL_DEBUG = WARN" "export NCCL_NET=Braid" "NCCL_IB_TC=104"
	put etc/nccl.conf " NCCL_DEBUG=WARN"
	variables HOME=/home/me
	libraries none 22809
	doctor --only nccl-conf
	[[ $flat == *"/users/me/.nccl.conf:1 is not"*"/users/me/.nccl.conf:2 is not"*"/etc/nccl.conf:1 is not"* ]]
	[[ $flat == *"$ sed -i '2d' /users/me/.nccl.conf"*"$ sudo sed -i '1d' /etc/nccl.conf"* ]]
	[[ $flat == *"NCCL before 2.30 reads the latter's .nccl.conf, later ones /home/me/.nccl.conf"* ]]
	variables HOME=/users/me
	doctor --only nccl-conf
	[[ $flat != *"password file"* ]]
}

@test "another vendor's libnccl-net.so is reported where NCCL may load it" {
	put probe/standard.json '{"loaded": true, "net": "AWS Libfabric"}'
	doctor --only plugin-standard --all		# NCCL_NET_PLUGIN names Braid, and NCCL is new
	[ "${output%% *}" = ok ]
	variables NCCL_DEBUG=WARN
	doctor --only plugin-standard
	[[ $flat == *"AWS Libfabric, not Braid, and NCCL loads it"*"NCCL_NET_PLUGIN=braid"* ]]
	again
	put probe/standard.json '{"loaded": true, "net": "Braid"}'
	libraries none 22809				# it forgets the name, and finds Braid again
	doctor --only plugin-nccl --all
	[ "${output%% *}" = ok ]
}

@test "who does one-sided operations follows from version, port and variables" {
	libraries none 23203
	doctor --only plugin-rma --all
	[[ $output == ok* && $flat == *"NCCL's own backend does one-sided operations"* ]]
	variables BRAID_RMA=on
	doctor --only plugin-rma --all
	[[ $output == ok* && $flat == *"NCCL 2.32.3 takes Braid for one-sided operations, by v16"* ]]
	variables NCCL_IB_DISABLE=1
	libraries none 23007
	doctor --only plugin-rma --all
	[[ $output == ok* && $flat == *"NCCL 2.30.7 takes Braid for one-sided operations, by v14"* ]]
	variables BRAID_RMA=off
	doctor --only plugin-rma --all
	[[ $output == ok* && $flat == *"BRAID_RMA=off"* ]]
	variables NCCL_RMA_PLUGIN=other
	doctor --only plugin-rma
	[[ $output == note* && $flat == *"NCCL asks that first"*"unset NCCL_RMA_PLUGIN"* ]]
	libraries none 22809
	doctor --only plugin-rma --all
	[[ $output == ok* && $flat == *"2.30.7 and newer do"* ]]
	libraries libnccl.so.2 0
	doctor --only plugin-rma --all
	[[ $output == skip* ]]
}

@test "each element of a filter is checked" {
	variables NCCL_IB_HCA=mlx5_0,mlxl5_1,mlx5_2:0
	doctor --only rdma-hca
	[ "${output%% *}" = warn ]
	[[ $flat == *"'mlxl5_1', 'mlx5_2:0' matches no RDMA port"* ]]
	variables NCCL_IB_HCA=^=mlx5_0,^=mlx5_1
	doctor --only rdma-hca
	[[ $flat == *"Braid reads ^=mlx5_0,mlx5_1, NCCL itself something else"* ]]
	[[ $flat == *"export NCCL_IB_HCA=^=mlx5_0,mlx5_1"* ]]
	variables NCCL_IB_HCA=mlx5_0,^mlx5_1
	doctor --only rdma-hca
	[ "${output%% *}" = fail ]
	[[ $flat == *"can't be read: a mark"* ]]
	variables NCCL_IB_HCA=^mlx4
	doctor --only rdma-hca
	[ "${output%% *}" = note ]
	variables NCCL_SOCKET_IFNAME=eth,ens
	doctor --only net-interface
	[ "${output%% *}" = warn ]
	[[ $flat == *"NCCL_SOCKET_IFNAME=eth,ens: 'ens' matches no interface"* ]]
	variables BRAID_SOCKET_IFNAME=^lo,^eth1
	doctor --only net-interface
	[[ $flat == *"BRAID_SOCKET_IFNAME=^lo,^eth1: Braid reads ^lo,eth1"* ]]
}

@test "NCCL's numbers are read as NCCL reads them" {
	variables NCCL_IB_TC=0x6a NCCL_IB_DISABLE=2 NCCL_IB_RETRY_CNT=010
	doctor --only nccl-values,nccl-disabled
	[[ $flat != *"no number"* && $flat == *"NCCL_IB_DISABLE=2: NCCL's own code uses no RDMA"* ]]
	[[ $flat == *"NCCL_IB_RETRY_CNT=010 is not from 0 to 7"* ]]
	doctor --only rdma-class
	[[ $flat == *"NCCL_IB_TC=106 is no DSCP times 4"* ]]
	variables "NCCL_IB_TIMEOUT=22 # seconds"
	doctor --only nccl-values
	[[ $flat == *"is no number: NCCL reads 22"* ]]
}

@test "MTUs are compared in one subnet alone, and a tunnel's is never raised" {
	put sys/class/net/eth1/mtu 1500			# management beside the fabric
	put sys/class/net/eth1/speed 1000
	doctor --only net-mtu --all
	[ "${output%% *}" = ok ]
	[[ $output != *"ip link set"* ]]
	again
	# An overlay with an address of the fabric's subnet: flannel, tailscale, wireguard, vxlan, gre, ipip.
	drop sys/class/net/eth1
	for name in flannel.1 tailscale0 wg0 vxlan7 gre1 tunl0; do
		mkdir -p "$root/sys/class/net/$name"
		echo 1450 >"$root/sys/class/net/$name/mtu"
		echo unknown >"$root/sys/class/net/$name/operstate"
		variables "NCCL_SOCKET_IFNAME=eth0,$name"
		put proc/self/net/route "Iface Destination Gateway" "eth0 0000000A 00000000 0001" \
			"$name 0000000A 00000000 0001"
		doctor --only net-mtu
		[[ $flat == *"$name has MTU 1450, but eth0, in the same subnet, has 9000"* ]]
		[[ $output != *"ip link set"* && $flat == *"ip -d link show dev $name"* ]]
	done
}

@test "MTUs are compared in one subnet of IPv6, and in a fusion" {
	put sys/class/net/eth1/mtu 1500
	put sys/class/net/eth1/speed 1000
	v6="fd010000000000000000000000000001 02 40 00 80 eth0"
	put proc/self/net/if_inet6 "$v6" "fd010000000000000000000000000002 03 40 00 80 eth1"
	doctor --only net-mtu,net-subnet
	[[ $flat == *"eth1 has MTU 1500, but eth0, in the same subnet, has 9000"* ]]
	[[ $flat == *"eth0 and eth1 are in one subnet"* && $flat != *"answers ARP"* ]]
	for other in "fd010000000000010000000000000002 03 40 00 80" \
		"fe800000000000000000000000000002 03 40 20 80" \
		"fd010000000000000000000000000002 03 80 00 80"; do
		put proc/self/net/if_inet6 "$v6" "fe800000000000000000000000000001 02 40 20 80 eth0" \
			"$other eth1"
		doctor --only net-mtu --all
		[ "${output%% *}" = ok ]
	done
	# NCCL fuses two interfaces of two subnets into one device; other fused devices do not matter.
	variables NCCL_NET_FORCE_MERGE="mlx5_0,mlx5_1;eth0:1,eth1"
	doctor --only net-mtu
	[[ $flat == *"eth1 has MTU 1500, but eth0, joined with it by NCCL_NET_FORCE_MERGE, has 9000"* ]]
	variables NCCL_NET_FORCE_MERGE="eth0,eth2;eth1,eth3"
	doctor --only net-mtu --all
	[ "${output%% *}" = ok ]
}

@test "a smaller MTU on the way is mended here only if the peer is in the same subnet" {
	bad_peer_mtu
	doctor --only peer-mtu
	[[ $output != *"ip link set"* && $flat == *"tracepath -n 10.0.0.2"* ]]
	put probe/peer.json '{"port": 5201, "address": "10.0.0.2", "source": "10.0.0.1", "on_link": true,
		"interface": "eth0", "mtu": 9000, "path_mtu": 1500, "connected": "yes", "answered": true}'
	doctor --only peer-mtu
	[[ $flat == *"sudo ip link set dev eth0 mtu 1500 # or 9000 at the switch and the peer"* ]]
}

@test "where /sys or /proc can't be read the interfaces are not known" {
	drop sys/class/net
	doctor --only net-interface --all
	[ "$status" -eq 0 ]
	[[ $flat == "skip net-interface"*"/sys/class/net can't be read"* ]]
	again
	drop proc/self/net
	doctor --only net-interface --all
	[[ $flat == "skip net-interface"*"/proc/self/net/route can't be read"* ]]
	variables NCCL_SOCKET_IFNAME=eth0
	doctor --only net --all
	[ "$status" -eq 0 ]
}

@test "what has no cable is not told to clean one" {
	for count in carrier_down_count statistics/rx_crc_errors; do
		put sys/class/net/eth1/$count 99999
		doctor --only net-flaps,net-errors
		[[ $flat == *"ethtool -m eth1"* && $flat != *"ip -d"* ]]
		drop sys/class/net/eth1/device
		doctor --only net-flaps,net-errors
		[[ $flat == *"ip -d -s link show dev eth1"* && $flat != *"ethtool -m eth1"* ]]
		again
	done
}

@test "a firewall may be this host's own" {
	bad_peer_port
	doctor --only peer-port
	[[ $flat == *"in the output rules of node1, in the input rules of 10.0.0.2, or on the way"* ]]
	[[ $flat == *"# on node1, then on 10.0.0.2: sudo nft insert rule inet filter input"* ]]
	put probe/peer.json '{"port": 5201, "address": "10.0.0.2", "source": "10.0.0.1", "interface": "eth0",
		"mtu": 9000, "connected": "Operation not permitted", "refused_here": true, "answered": false}'
	doctor --only peer-port
	[[ $flat == *"a firewall of this host: 10.0.0.2 port 5201: Operation not permitted"* ]]
	[[ $flat == *"filter output ip daddr 10.0.0.2 accept # here"* ]]
}

@test "BRAID_PORT_RANGE is read as the plugin reads it" {
	for range in " 30000-30100" "30000- 30100" "+30000-30100" 30100-30000 0-30100 30000-65536 30000; do
		variables "BRAID_PORT_RANGE=$range"
		doctor --only tcp-range
		[[ $flat == *"is '$range', but must be LOW-HIGH, two ports"* ]]
	done
	variables BRAID_PORT_RANGE=30000-30000
	doctor --only tcp-range
	[[ $flat == *"BRAID_PORT_RANGE=30000-30000 has only 1 port: "* ]]
	variables BRAID_PORT_RANGE=
	doctor --only tcp-range --all
	[[ $flat == "ok tcp-range"*"is not set"* ]]
}

@test "a peer that is this host itself gets no advice about its route or MTU" {
	bad_peer_self
	doctor --only peer --all
	[[ $flat == *"fail peer-self"* && $flat == *"skip peer-route"* && $flat == *"skip peer-mtu"* ]]
	[[ $output != *"NCCL_SOCKET_IFNAME"* && $output != *"ip link set"* ]]
	put probe/peer.json '{"port": 5201, "address": "10.0.0.1", "source": "10.0.0.1",
		"interface": "eth0", "mtu": 9000, "path_mtu": 1500, "connected": "yes", "answered": true}'
	doctor --only peer --all
	[[ $flat == *"fail peer-self"*"node2 is 10.0.0.1, which is this host itself"* ]]
	[[ $flat == *"skip peer-mtu"* ]]
	run "$braid" doctor --root "$root" --peer 10.0.0.1 --only peer-self
	[ "${output%% *}" = note ]
}

@test "no remedy changes what only the fabric's people may, or takes a link away" {
	for id in $(ids); do
		"bad_${id//-/_}"
		doctor --only "$id"
		mends+=$(grep '^      \$ ' <<<"$output")$'\n'
		again
	done
	! grep -E "mtu 9000 *$|addr del|mode 802|mlxfwmanager -u|start opensm|^ *\\$ sudo mlnx_qos .*--pfc [^#]*$" <<<"$mends"
	! grep -E "^ *\\$ sudo ethtool -[GL]" <<<"$mends"
	! grep "NCCL_SOCKET_IFNAME==lo" <<<"$mends"
}

@test "a limit is mended where it comes from" {
	bad_limits_memlock
	variables SLURM_JOB_ID=1
	doctor --only limits-memlock
	[[ $flat == *"systemctl edit slurmd"* ]]
	put .dockerenv
	doctor --only limits-memlock
	[[ $flat == *"docker run --ulimit memlock=-1"* ]]
	variables KUBERNETES_SERVICE_HOST=10.96.0.1
	doctor --only limits-memlock
	[[ $flat == *"LimitMEMLOCK containerd # on the node"* && $output != *docker* ]]
	bad_limits_shm
	doctor --only limits-shm
	[[ $flat == *"mount an emptyDir of medium Memory at /dev/shm"* && $output != *docker* ]]
	drop .dockerenv
	variables A=b
	put proc/self/limits "Max locked memory         65536            unlimited            bytes"
	doctor --only limits-memlock
	[[ $flat == *'$ ulimit -l unlimited'* ]]
	# a process with CAP_IPC_LOCK is not limited
	put proc/self/status "CapEff:	0000000000004000"
	doctor --only limits-memlock --all
	[ "${output%% *}" = ok ]
	# and without RDMA it does not matter
	again
	bad_limits_memlock
	drop sys/class/infiniband
	doctor --only limits-memlock
	[ "${output%% *}" = note ]
}

@test "an empty host is no error, nor is a hostile one" {
	rm -rf "$root"
	mkdir -p "$root/proc" "$root/sys"
	doctor --all
	[ "${#lines[@]}" -gt 40 ]
	mkdir -p "$root/sys/class/net/"$'e\033[31m' "$root/proc/self/net" "$root/sys/class/infiniband/%s%n/ports/1"
	put "sys/class/net/"$'e\033[31m'"/operstate" up
	put "sys/class/infiniband/%s%n/ports/1/state" "4: ACTIVE"
	put proc/self/net/route $'e\033[31m 0 0' "%n%n%n" "x"
	head -c 3000 /dev/urandom >"$root/proc/self/environ"
	for f in limits status mounts cgroup net/snmp net/netstat net/softnet_stat; do
		head -c 3000 /dev/urandom >"$root/proc/self/$f"
	done
	mkdir "$root/probe"
	for f in plugin libraries smc ethtool peer; do
		echo '[1, {"name": 3}, null]' >"$root/probe/$f.json"
	done
	doctor --all
	[[ $output != *$'\033'* ]]
	[[ $output != *"killed by"* && $output != *"no answer"* ]]
	doctor --json
	[ "${output:0:1}" = "{" ]
}

@test "this host gets a verdict in three seconds" {
	start=$(date +%s%N)
	run "$braid" doctor --all
	took=$((($(date +%s%N) - start) / 1000000))
	[ "$status" -le 1 ]
	[[ ${lines[-2]} =~ ^[0-9]+\ checks\ of ]]
	[[ $output != *"no answer"* && $output != *"killed by"* ]]
	echo "took $took ms"
	[ -z "${BRAID_TEST_SANITIZER-}" ] || return 0
	[ $took -ge 3000 ] || return 0
	read -r load _ </proc/loadavg
	[ $took -ge 30000 ] || [ "${load%.*}" -lt "$(nproc)" ] || skip "it took $took ms at a load of $load"
	false
}

@test "the plugin is loaded as NCCL would, and NCCL's silent failures are reported" {
	NCCL_NET_PLUGIN=$plugin NCCL_NET=braid run "$braid" doctor --only plugin-load,plugin-net --all
	[[ $(tr -s ' \n' ' ' <<<"$output") == *"NCCL finds Braid in "*"ABI version 12"*"is the plugin's name"* ]]
	unset NCCL_NET
	NCCL_NET_PLUGIN=/nowhere/x.so run -1 "$braid" doctor --only plugin
	[[ $output == *"silent fallback"* && $output == *"can't load the plugin"* ]]
	NCCL_NET=Braid NCCL_NET_PLUGIN=/nowhere/x.so run -1 "$braid" doctor --only plugin
	[[ $output != *"silent fallback"* && $output == *"NCCL_NET=Braid, and no plugin"* ]]
}

@test "RCCL looks for a name of its own" {
	local dir=$BATS_TEST_TMPDIR/lib

	mkdir "$dir"
	ln -s "$plugin" "$dir/libnccl-net-here.so"
	export LD_LIBRARY_PATH=$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} NCCL_NET_PLUGIN=here
	run -0 "$braid" doctor --only plugin-load --all
	[[ $output != *RCCL* ]]
	ln -s "$plugin" "$dir/librccl.so.1"
	run -0 "$braid" doctor --only plugin-load
	[[ $(tr -s ' \n' ' ' <<<"$output") == *"RCCL is on this host and looks for librccl-net-here.so"* ]]
	[[ $output == *"export NCCL_NET_PLUGIN=/"* ]]
	ln -s "$plugin" "$dir/librccl-net-here.so"
	run -0 "$braid" doctor --only plugin-load
	[[ $output != *RCCL* ]]
}

@test "a plugin that crashes or hangs is reported as such" {
	command -v "${BRAID_TEST_CC%% *}" >/dev/null || skip "no compiler"
	for what in 'abort()' 'for (;;) sleep(1)'; do
		printf '#include <stdlib.h>\n#include <unistd.h>\n%s\n' \
			"__attribute__((constructor)) static void start(void) { $what; }" >"$BATS_TEST_TMPDIR/x.c"
		# shellcheck disable=SC2086 # it may have options
		$BRAID_TEST_CC -shared -fPIC -o "$BATS_TEST_TMPDIR/x.so" "$BATS_TEST_TMPDIR/x.c"
		NCCL_NET_PLUGIN=$BATS_TEST_TMPDIR/x.so run -1 "$braid" doctor --only plugin-load
		said+=$(tr -s ' \n' ' ' <<<"$output")
	done
	[[ $said == *"killed by signal 6"* && $said == *"no answer within 2500 ms"* ]]
}

@test "--pid looks at another process" {
	(exec -a job env NCCL_DEBUGG=INFO sleep 30) &
	pid=$!
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		tr '\0' '\n' <"/proc/$pid/environ" | grep -q NCCL_DEBUGG && break
		sleep 0.1
	done
	run "$braid" doctor --pid $pid --only nccl-misspelt
	kill $pid
	[[ $output == *"NCCL_DEBUGG is no variable of NCCL's: NCCL_DEBUG?"* ]]
	bad "/proc/4194304: No such file" --pid 4194304
}

# reports N: as many reports of the healthy host, n1.json ...
reports()
{
	for host in $(seq -f n%g "$1"); do
		echo "$host" >"$root/proc/sys/kernel/hostname"
		"$braid" doctor --root "$root" --json >"$BATS_TEST_TMPDIR/$host.json"
		echo "$BATS_TEST_TMPDIR/$host.json" >>"$BATS_TEST_TMPDIR/list"
	done
}

@test "--nodes: hosts that are alike do not differ" {
	reports 3
	run -0 --separate-stderr "$braid" doctor --nodes "$BATS_TEST_TMPDIR/list"
	[[ ${lines[0]} == "3 of 3 hosts compared" && $output == *"They do not differ."* ]]
	[ -z "$stderr" ]
}

@test "--nodes: the host that is another is named, and what matters comes first" {
	reports 3
	routes 0000000A 0000000A
	put sys/class/net/eth0/mtu 1500
	put proc/sys/kernel/osrelease 6.1.0
	echo n4 >"$root/proc/sys/kernel/hostname"
	doctor --json
	echo "$output" >"$BATS_TEST_TMPDIR/n4.json"
	echo "$BATS_TEST_TMPDIR/n4.json   # the new one" >>"$BATS_TEST_TMPDIR/list"
	run -1 --separate-stderr "$braid" doctor --nodes "$BATS_TEST_TMPDIR/list"
	flat=$(tr -s ' \n' ' ' <<<"$output")
	[[ $flat == *"fail mtu eth0 9000 n1, n2, n3 1500 n4 "*"note kernel "*"6.1.0 n4 "* ]]
	[[ $output == *"n4 fails: net-mtu"* ]]
	run -1 --separate-stderr "$braid" doctor --json --nodes "$BATS_TEST_TMPDIR/list"
	if command -v python3 >/dev/null; then
		python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["schema"] == "braid-doctor-nodes-1" and len(d["hosts"]) == 4
assert d["differences"][0]["values"][1] == {"value": "1500", "hosts": ["n4"]}' <<<"$output"
	fi
}

@test "--nodes: hosts are queried by ssh; one that does not answer is named" {
	reports 1
	mkdir "$BATS_TEST_TMPDIR/bin"
	cat >"$BATS_TEST_TMPDIR/bin/ssh" <<-END
	#!/bin/sh
	case "\$*" in
	*" -- far braid doctor --json") sed s/9000/1500/ "$BATS_TEST_TMPDIR/n1.json" ;;
	*) exit 255 ;;
	esac
	END
	chmod +x "$BATS_TEST_TMPDIR/bin/ssh"
	printf 'far\nlost\n' >>"$BATS_TEST_TMPDIR/list"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH run -1 --separate-stderr "$braid" doctor --nodes "$BATS_TEST_TMPDIR/list"
	[ "$stderr" = "braid doctor: lost: ssh: ended with status 255 [host-not-asked]" ]
	[[ ${lines[0]} == "2 of 3 hosts compared" ]]
	[[ $(tr -s ' \n' ' ' <<<"$output") == *"mtu eth0 9000 n1 1500 far "* ]]
}

@test "--nodes: a report from the future, or none, is one line; the others are compared" {
	reports 2
	sed s/braid-doctor-1/braid-doctor-2/ "$BATS_TEST_TMPDIR/n1.json" >"$BATS_TEST_TMPDIR/new.json"
	echo '{"schema": 3}' >"$BATS_TEST_TMPDIR/odd.json"
	echo '{"schema": "braid-doctor-1", "facts": {' >"$BATS_TEST_TMPDIR/cut.json"
	for f in new odd cut none; do
		echo "$BATS_TEST_TMPDIR/$f.json" >>"$BATS_TEST_TMPDIR/list"
	done
	run -2 --separate-stderr "$braid" doctor --nodes "$BATS_TEST_TMPDIR/list"
	[ "${#stderr_lines[@]}" -eq 4 ]
	[[ ${stderr_lines[0]} == *"new.json: is of schema braid-doctor-2, and this braid knows braid-doctor-1 [host-not-asked]" ]]
	[[ ${stderr_lines[1]} == *"odd.json: is no report of braid doctor --json [host-not-asked]" ]]
	[[ ${lines[0]} == "2 of 6 hosts compared" ]]
}

@test "mistakes are one line" {
	bad "no check or group 'frob'" --only net,frob
	bad "--peer takes HOST or HOST:PORT" --peer node2:0
	bad "--peer takes HOST or HOST:PORT" --peer node2:ssh
	bad "--peer takes HOST or HOST:PORT" --peer :22
	bad "--peer takes HOST or HOST:PORT" --peer '[::1'
	bad "/nowhere/proc: No such file or directory" --root /nowhere
	bad "/nowhere: No such file or directory" --nodes /nowhere
	bad "two lines at least" --nodes /dev/null
	bad "--nodes goes with" --nodes list --only net
	bad "unknown option '--frobnicate'" --frobnicate
	bad "unexpected argument 'x'" x
}

@test "a list of subnets that Braid ignores is a warning" {
	variables BRAID_ADDRESS=10.0.0.0/33
	doctor --only braid-parameters
	[ "${output%% *}" = warn ]
	[[ $flat == *"BRAID_ADDRESS=10.0.0.0/33 is not a list of at most 16 subnets"* ]]
	variables BRAID_ADDRESS=^10.0.0.0/8,fd00::/8
	doctor --only braid-parameters
	[[ $flat != *BRAID_ADDRESS=* ]]
}
