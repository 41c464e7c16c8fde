# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2054,SC2154,SC2317 # root and healthy are the test's
# cases.bash - for each check of braid doctor a host at which it fires, and one at which it does not.
#
# The host of healthy.txt lies in $healthy, and a copy of it in $root.  bad_ID, for the check of that
# id with _ for -, breaks it, and ends with
#
#	says LEVEL WORDS [MEND]		the check's level; what its text has, and the line that mends
#
# Where the healthy host is not what a check is happy with, good_ID makes one.

says()
{
	level=$1 words=$2 mend=${3-}
}

# All that is changed goes through these two, so that again() can undo it: copying a tree takes long.
into()					# FILE, whose text is stdin
{
	touched+=("$1")
	mkdir -p "$(dirname "$root/$1")"
	cat >"$root/$1"
}

drop()					# FILE
{
	touched+=("$1")
	rm -r "${root:?}/$1"
}

again()
{
	local file

	for file in "${touched[@]}"; do
		rm -rf "${root:?}/$file"
		[ ! -e "$healthy/$file" ] || cp -a "$healthy/$file" "$root/$file"
	done
	touched=()
}

put()					# FILE LINE...
{
	into "$1" < <(printf '%s\n' "${@:2}")
}

variables()				# NAME=VALUE...
{
	into proc/self/environ < <(printf '%s\0' "$@")
}

limits()				# LOCKED FILES PROCESSES
{
	put proc/self/limits \
		"Limit                     Soft Limit           Hard Limit           Units" \
		"Max processes             $3               $3               processes" \
		"Max open files            $2                $2                files" \
		"Max locked memory         $1            $1            bytes"
}

status()				# CPUS
{
	put proc/self/status "Name:	job" "CapEff:	0000000000000000" "Cpus_allowed_list:	$1"
}

routes()				# SUBNET OF ETH0, OF ETH1
{
	put proc/self/net/route "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT" \
		"eth0	$1	00000000	0001	0	0	0	00FFFFFF	0	0	0" \
		"eth1	$2	00000000	0001	0	0	0	00FFFFFF	0	0	0"
}

tcp()					# SEGMENTS AGAIN
{
	put proc/self/net/snmp "Ip: Forwarding DefaultTTL" "Ip: 1 64" \
		"Tcp: RtoAlgorithm InSegs OutSegs RetransSegs" "Tcp: 1 5 $1 $2"
}

# The configuration space of a bridge: AER at 0x100, then ACS at 0x110 with that control word.
config()				# FILE, OCTAL
{
	into "$1" < <(
		head -c 256 /dev/zero
		printf '\001\000\001\021\0\0\0\0\0\0\0\0\0\0\0\0'
		printf '\015\000\001\000\037\000'"\\$2"'\000'
	)
}

libraries()				# ONE THAT IS MISSING, NCCL'S VERSION
{
	local name list=

	for name in libibverbs.so.1 librdmacm.so.1 libucp.so.0 libcuda.so.1 libnccl.so.2; do
		list+="${list:+, }{\"name\": \"$name\", \"why\": \"No such file\", \"version\": $2,
			\"found\": $([ $name = "$1" ] && echo false || echo true)}"
	done
	put probe/libraries.json "[$list]"
}

plugin()				# DEVICES TRANSPORTS
{
	put probe/plugin.json "[{\"name\": \"braid\", \"file\": \"libnccl-net-braid.so\", \"loaded\": true,
		\"abi\": 12, \"net\": \"Braid\", \"devices\": $1, \"why\": \"nothing is plugged in\",
		\"notes\": [\"verbs: libibverbs is too old\"],
		\"list\": [{\"name\": \"mlx5_0:1\", \"transports\": [$2]}]}]"
}

no_plugin()
{
	put probe/plugin.json '[{"name": "braid", "file": "libnccl-net-braid.so", "loaded": false,
		"why": "libnccl-net-braid.so: cannot open shared object file"}]'
}

smc()					# KERNEL WMEM MISSING
{
	put probe/smc.json "{\"kernel\": $1, \"wmem\": $2, \"rmem\": 524288, \"missing\": [$3]}"
}

peer()					# CONNECTED ANSWERED INTERFACE PATH_MTU
{
	put probe/peer.json "{\"port\": 5201, \"address\": \"10.0.0.2\", \"source\": \"10.0.0.1\",
		\"interface\": \"$3\", \"mtu\": 9000, \"path_mtu\": $4, \"connected\": \"$1\", \"answered\": $2}"
}

ethtool()				# PAUSES DROPPED
{
	put probe/ethtool.json "{\"eth0\": {\"driver\": \"mlx5_core\", \"stats\":
		{\"rx_prio3_pause\": $1, \"rx_discards_phy\": $2}}}"
}

asked=(NCCL_NET_PLUGIN=braid NCCL_NET=Braid NCCL_DEBUG=WARN BRAID_TRANSPORTS=verbs,smc,ucx,tcp
	NCCL_IB_GID_INDEX=3 NCCL_IB_TC=104 NCCL_IB_HCA=mlx5 BRAID_SECRET_FILE=/etc/job.secret)

secret()				# MODE
{
	put etc/job.secret sixteen-and-more
	chmod "$1" "$root/etc/job.secret"
}

complete()
{
	variables "${asked[@]}"
	secret 600
	limits unlimited 1048576 515000
	status 0-31
	routes 0000000A 0001000A
	tcp 900000000 100
	put proc/self/net/netstat "TcpExt: ListenOverflows ListenDrops" "TcpExt: 0 0"
	put proc/self/mounts "tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0"
	config sys/bus/pci/devices/0000:19:00.0/config 000
	libraries none 23003
	plugin 2 '"verbs", "tcp"'
	put probe/standard.json '{"loaded": true, "net": "Braid"}'
	smc true 524288 ""
	peer yes true eth0 9000
	ethtool 12 5000
}

# -- limits

bad_limits_memlock() { limits 65536 1048576 515000; says fail "only 64 KiB of memory" "limits.d/90-memlock.conf"; }
bad_limits_nofile() { limits unlimited 1024 515000; says warn "only 1024 files" "nofile"; }
bad_limits_threads() { put sys/fs/cgroup/job/pids.max 512; says warn "/job allows only 512" "pids.max"; }
bad_limits_shm() { put proc/self/mounts "shm /dev/shm tmpfs rw,size=65536k 0 0"; says fail "has only 64 MiB" "size=8g"; }
bad_limits_cpus() { status 3; says warn "only 1 CPU (3), and 2 GPUs are there" "taskset"; }
bad_limits_rdma() { put sys/fs/cgroup/job/rdma.max "mlx5_0 hca_handle=2 hca_object=2000"; says warn "hca_handle=2" "rdma.max"; }

# -- kernel

bad_kernel_version() { put proc/sys/kernel/osrelease 4.15.0-20-generic; says warn "4.15.0-20-generic is older" "linux-image"; }
bad_kernel_modules() { drop sys/class/net/eth1/device/infiniband; says warn "eth1 (mlx5_core) can have RDMA" "modprobe mlx5_ib"; }
bad_kernel_uverbs() { drop dev/infiniband/uverbs0; says fail "uverbs0 is not there" "udevadm"; }
bad_kernel_rdma_cm()
{
	drop dev/infiniband/rdma_cm
	put sys/class/infiniband/mlx5_0/node_type "4: RNIC"
	says fail "iWARP connects by it" "modprobe rdma_ucm"
}
bad_kernel_numa() { put proc/sys/kernel/numa_balancing 1; says warn "moves pages" "kernel.numa_balancing=0"; }
bad_kernel_governor() { put sys/devices/system/cpu/cpu0/cpufreq/scaling_governor powersave; says warn "powersave" "cpupower"; }
bad_kernel_clock() { put sys/devices/system/clocksource/clocksource0/current_clocksource hpet; says warn "hpet" "echo tsc"; }
bad_kernel_virtual() { put proc/cpuinfo "flags	: fpu hypervisor"; says note "virtual machine" "NCCL_TOPO_FILE=FILE"; }
bad_kernel_maps() { put proc/sys/vm/max_map_count 4096; says warn "only 4096 mappings" "vm.max_map_count"; }

# -- TCP

bad_tcp_buffers() { put proc/sys/net/ipv4/tcp_rmem "4096 131072 6291456"; says warn "tcp_rmem lets a stream have 6144 KiB; for 100 Gbit/s take 64 MiB" "'4096 131072 67108864'"; }
bad_tcp_options() { put proc/sys/net/ipv4/tcp_window_scaling 0; says fail "tcp_window_scaling is off" "tcp_window_scaling=1"; }
bad_tcp_congestion() { variables BRAID_CONGESTION=bbr; says warn "asks for bbr" "modprobe tcp_bbr"; }
bad_tcp_ports() { put proc/sys/net/ipv4/ip_local_port_range "60000 60999"; says warn "only 1000 ports" "ip_local_port_range"; }
bad_tcp_range() { variables BRAID_PORT_RANGE=40000-40099; says note "gives other programs' connections (32768 to 60999)" "ip_local_reserved_ports=40000-40099"; }
bad_tcp_backlog() { put proc/sys/net/core/somaxconn 128; says warn "128 connections may wait" "somaxconn=4096"; }
bad_tcp_retransmits() { tcp 1000000 20000; says warn "2.00 % of TCP segments" "nstat"; }
bad_tcp_softnet() { put proc/self/net/softnet_stat "0000ffff 00000fff 00000000"; says warn "dropped 4095 packets" "netdev_max_backlog=10000"; }
bad_tcp_conntrack() { put proc/sys/net/netfilter/nf_conntrack_count 262000; says warn "262000 connections" "nf_conntrack_max=1048576"; }

# -- interfaces

bad_net_interface() { variables NCCL_SOCKET_IFNAME=ens; says fail "NCCL_SOCKET_IFNAME=ens leaves no interface" "export NCCL_SOCKET_IFNAME=eth0"; }
bad_net_choice()
{
	variables NCCL_SOCKET_IFNAME=docker
	put sys/class/net/docker0/operstate up
	put proc/self/net/if_inet6 "fe8000000000000000000000000000aa 09 40 20 80 docker0"
	says warn "docker0 would be used" "NCCL_SOCKET_IFNAME==eth0"
}
bad_net_link() { put sys/class/net/eth1/operstate down; says note "eth1 has no link" "ethtool eth1"; }
bad_net_mtu()
{
	put sys/class/net/eth1/mtu 1500
	routes 0000000A 0000000A
	says fail "eth1 has MTU 1500, but eth0, in the same subnet, has 9000" "dev eth1 mtu 9000"
}
bad_net_duplex() { put sys/class/net/eth0/duplex half; says fail "eth0 runs half duplex" "autoneg on"; }
bad_net_speed() { put sys/class/net/eth1/speed 25000; says warn "eth1 has 25000 Mbit/s, eth0 has 100000" "NCCL_SOCKET_IFNAME==eth0"; }
bad_net_errors() { put sys/class/net/eth0/statistics/rx_crc_errors 70000; says warn "70000 packets of 900000000 were damaged" "ethtool -m eth0"; }
bad_net_drops() { put sys/class/net/eth0/statistics/rx_missed_errors 70000; says warn "no room for 70000" "ethtool -g eth0"; }
bad_net_flaps() { put sys/class/net/eth1/carrier_down_count 37; says warn "eth1 flaps: its link was lost 37 times" "ethtool -m eth1"; }
bad_net_queues() { drop sys/class/net/eth0/queues/rx-1; says warn "eth0 has one receive queue" "ethtool -l eth0"; }
bad_net_bond() { put sys/class/net/eth3/operstate down; says warn "eth3 of the bond bond0 is down" "ethtool eth3"; }
bad_net_subnet() { routes 0000000A 0000000A; says warn "eth0 and eth1 are in one subnet" "ip route show dev eth1"; }
bad_net_path_filter() { put proc/sys/net/ipv4/conf/eth1/rp_filter 1; says warn "eth1 drops" "eth1.rp_filter=2"; }

# -- RDMA

ib0=sys/class/infiniband/mlx5_0 ib2=sys/class/infiniband/mlx5_2
bad_rdma_state()
{
	for i in 0 1 2; do put sys/class/infiniband/mlx5_$i/ports/1/state "1: DOWN"; done
	says fail "mlx5_0:1 is not active: 1: DOWN" "dev eth0 up"
}
bad_rdma_rate() { put $ib0/ports/1/rate "25 Gb/sec (1X EDR)"; says warn "mlx5_0:1 runs at 25 Gbit/s, mlx5_1:1" "mlxlink -d mlx5_0"; }
bad_rdma_gid() { drop $ib0/ports/1/gids/3; says fail "mlx5_0:1 has no GID of RoCE v2" "ip addr add ADDRESS/PREFIX dev eth0"; }
bad_rdma_gid_index() { variables NCCL_IB_GID_INDEX=0; says fail "wrong GID: NCCL_IB_GID_INDEX=0 is RoCE v1 of fe80::202:c9ff:fe00:1 at mlx5_0:1" "export NCCL_IB_GID_INDEX=3"; }
bad_rdma_lid() { put $ib2/ports/1/lid 0x0; says fail "mlx5_2:1 has no LID" "sminfo -C mlx5_2 -P 1"; }
bad_rdma_mtu() { put sys/class/net/eth0/mtu 1500; says warn "mlx5_0:1 has packets of 1024 bytes" "ip -d link show dev eth0"; }
bad_rdma_pkey() { put $ib2/ports/1/pkeys/0 0x7fff; says warn "limited member of partition 0x7fff" "partitions.conf"; }
bad_rdma_class() { variables NCCL_IB_TC=26; says warn "NCCL_IB_TC=26 is no DSCP times 4" "NCCL_IB_TC=104"; }
bad_rdma_firmware() { put $ib0/fw_ver 20.12.0; says warn "mlx5_0 has firmware 20.12.0, mlx5_1" "mlxfwmanager"; }
bad_rdma_library() { libraries libibverbs.so.1 23003; says fail "libibverbs.so.1 can't be loaded" "ibverbs-providers"; }
bad_rdma_hca() { variables NCCL_IB_HCA=mlx4; says fail "NCCL_IB_HCA=mlx4 leaves no active RDMA port" "export NCCL_IB_HCA=mlx5_0"; }
bad_rdma_kind() { put $ib0/node_type "4: RNIC"; says note "mlx5_0:1 is iWARP" "NCCL_NET=Braid"; }
bad_rdma_strict() { variables BRAID_RDMA_STRICT=1 BRAID_TRANSPORTS=ucx,tcp; says warn "BRAID_RDMA_STRICT=1 leaves out UCX" "unset BRAID_RDMA_STRICT"; }

# -- counters

bad_counters_link() { put $ib0/ports/1/counters/symbol_error 90000; says warn "mlx5_0:1: 90001 errors of the link" "mlxlink"; }
bad_counters_loss() { put $ib0/ports/1/hw_counters/out_of_sequence 900000; says fail "900000 packets were lost" "rdma statistic"; }
bad_counters_not_ready() { put $ib0/ports/1/hw_counters/rnr_nak_retry_err 7; says warn "7 times a receiver" "rdma statistic"; }
bad_counters_ecn()
{
	put $ib0/ports/1/hw_counters/np_ecn_marked_roce_packets 0
	put $ib0/ports/1/hw_counters/out_of_sequence 5000
	says warn "none was ever marked" "roce_np"
}
bad_counters_pfc() { ethtool 0 5000; says warn "5000 packets were dropped and no pause" "--pfc"; }
bad_counters_unsent() { put $ib0/ports/1/counters/port_xmit_discards 4000; says warn "4000 packets were given up" "perfquery"; }

# -- PCIe and NUMA

nic=sys/bus/pci/devices/0000:1b:00.0
bad_pcie_speed() { put $nic/current_link_speed "8.0 GT/s PCIe"; says warn "NIC mlx5_0:1 (0000:1b:00.0) runs at 8 of 16 GT/s" "lspci -vvs 0000:1b:00.0"; }
bad_pcie_width() { put $nic/current_link_width 4; says warn "mlx5_0:1 (0000:1b:00.0) has x4 of x16 lanes" "reseat"; }
bad_pcie_bandwidth() { put $nic/current_link_width 4; says warn "mlx5_0:1 has 100 Gbit/s, but its PCIe link carries only 63" "another slot"; }
bad_pcie_acs() { config sys/bus/pci/devices/0000:19:00.0/config 035; says warn "the bridge 0000:19:00.0 sends" "setpci -s 0000:19:00.0"; }
bad_pcie_iommu() { put $nic/iommu_group/type DMA-FQ; says warn "what NIC mlx5_0:1 (0000:1b:00.0) reads and writes (DMA-FQ)" "iommu=pt"; }
bad_pcie_errors() { put $nic/aer_dev_fatal "TOTAL_ERR_FATAL 3"; says warn "3 errors of PCIe (fatal)" "dmesg"; }
bad_numa_gpu_nic()
{
	put sys/class/infiniband/mlx5_1/ports/1/state "1: DOWN"
	says warn "GPU1 has no NIC on its NUMA node" "topo --explain 1"
}
bad_numa_binding()
{
	for i in 0 2; do put sys/class/infiniband/mlx5_$i/ports/1/state "1: DOWN"; done
	status 0-7
	says warn "wrong NUMA node: this process runs on CPUs 0-7 alone, mlx5_1:1 is near 16-31 (node 1)" \
		"numactl --cpunodebind=1 --membind=1"
}
bad_numa_known()
{
	for i in 17:00.0 18:00.0 19:04.0 1b:00.0; do
		put sys/bus/pci/devices/0000:$i/numa_node -1
		put sys/bus/pci/devices/0000:$i/local_cpulist ""
	done
	says note "does not tell the NUMA node of NIC mlx5_0:1" "bios"
}
bad_numa_interrupts() { put proc/irq/90/smp_affinity_list 16-31; says warn "1 of 1 interrupts of mlx5_0:1" "irqbalance"; }

# -- GPUs

bad_gpu_driver() { drop proc/driver/nvidia/version; says fail "no driver is loaded" "modprobe nvidia"; }
bad_gpu_files() { drop dev/nvidia1; says note "of 2 GPUs 1 have a device file" "nvidia-modprobe"; }
bad_gpu_direct()
{
	drop sys/module/nvidia_peermem
	put proc/driver/nvidia/version "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03"
	says fail "NICs can't get at GPU memory" "modprobe nvidia-peermem"
}
bad_gpu_dmabuf() { variables NCCL_DMABUF_ENABLE=0; says note "NCCL_DMABUF_ENABLE=0" "unset NCCL_DMABUF_ENABLE"; }
bad_gpu_gdrcopy() { drop sys/module/gdrdrv; says note "driver is not loaded" "modprobe gdrdrv"; }
bad_gpu_library() { libraries libcuda.so.1 23003; says fail "libcuda.so.1 can't be loaded" "ldconfig"; }

# -- NCCL's variables

bad_nccl_misspelt() { variables NCCL_SOKCET_IFNAME=eth0; says warn "NCCL_SOKCET_IFNAME is no variable of NCCL's: NCCL_SOCKET_IFNAME?" "export NCCL_SOCKET_IFNAME='eth0'"; }
bad_nccl_values() { variables NCCL_IB_TIMEOUT=99; says warn "NCCL_IB_TIMEOUT=99 is not from 1 to 31" "unset NCCL_IB_TIMEOUT"; }
bad_nccl_unheeded() { variables NCCL_IB_QPS_PER_CONNECTION=4; says note "NCCL_IB_QPS_PER_CONNECTION=4 is not heeded by Braid: BRAID_LANES" "man braid-params"; }
bad_nccl_conflicts() { variables NCCL_IB_DISABLE=1 NCCL_IB_HCA=mlx5_0; says warn "NCCL_IB_HCA=mlx5_0 beside NCCL_IB_DISABLE=1" "unset NCCL_IB_HCA"; }
bad_nccl_disabled() { variables NCCL_SHM_DISABLE=1; says warn "ranks of one host go through the network" "unset NCCL_SHM_DISABLE"; }
bad_nccl_files() { variables NCCL_TOPO_FILE=/nowhere.xml; says fail "NCCL_TOPO_FILE names /nowhere.xml" "unset NCCL_TOPO_FILE"; }
bad_nccl_debug() { variables NCCL_DEBUG=TRACE; says warn "a line per operation" "NCCL_DEBUG=WARN"; }
bad_nccl_conf() { put etc/nccl.conf "NCCL_DEBUG=WARN" "NCCL_IB_HCA mlx5"; says warn "/etc/nccl.conf:2 is not NAME=VALUE" "sed -i '2d'"; }
bad_braid_parameters() { variables BRAID_LANES=99; says fail "BRAID_LANES=99 is not possible" "info --params"; }

# -- the plugin

bad_braid_secret() { secret 640; says fail "/etc/job.secret has mode 0640" "chmod 600 /etc/job.secret"; }
bad_plugin_load() { no_plugin; says fail "can't load the plugin 'braid'" "NCCL_NET_PLUGIN=braid"; }
bad_plugin_name() { variables NCCL_NET_PLUGIN=st; says fail "'st' is the beginning of STATIC_PLUGIN" "NCCL_NET_PLUGIN=braid"; }
bad_plugin_net() { variables NCCL_NET_PLUGIN=braid NCCL_NET=Briad; says fail "NCCL_NET=Briad, and no plugin" "export NCCL_NET=Braid"; }
bad_plugin_devices() { plugin 0 ''; says fail "Braid has no device: nothing is plugged in" "braid info"; }
bad_plugin_fallback() { no_plugin; variables NCCL_NET_PLUGIN=braid; says fail "silent fallback: NCCL goes on with its own IB" "NCCL_NET=Braid"; }
bad_plugin_transports() { plugin 2 '"tcp"'; says fail "silent fallback: 3 RDMA ports are active, but Braid would use TCP alone: verbs: libibverbs is too old" "braid info"; }
bad_plugin_merge()
{
	variables NCCL_NET_PLUGIN=braid NCCL_NET=Braid "NCCL_NET_FORCE_MERGE=mlx5_0:1,eth1"
	says fail "names mlx5_0, which is no device" "unset NCCL_NET_FORCE_MERGE"
}
bad_plugin_standard()
{
	put probe/standard.json '{"loaded": true, "net": "AWS Libfabric"}'
	libraries none 22809
	says warn "libnccl-net.so is AWS Libfabric, which this NCCL loads" "NCCL_NET_PLUGIN_REF_COUNT=1"
}
bad_plugin_nccl() { libraries none 22809; drop probe/standard.json; says note "NCCL 2.28.9 forgets" "NCCL_NET_PLUGIN_REF_COUNT=1"; }

bad_plugin_rma() { libraries none 23203; variables NCCL_WIN_ENABLE=0; says note "NCCL_WIN_ENABLE=0: NCCL has no one-sided" "unset NCCL_WIN_ENABLE"; }

# -- SMC and UCX

bad_smc_kernel() { smc false 0 ''; says fail "the kernel has no SMC" "modprobe -a smc"; }
bad_smc_setup() { smc true 524288 '"SMC-R version 2 needs a UEID: braid smc setup --ueid NAME"'; says fail "needs a UEID" "sudo braid smc setup --ueid NAME"; }
bad_smc_buffers() { smc true 65536 ''; says note "net.smc.wmem is 64 KiB" "net.smc.wmem=524288"; }
bad_ucx_library() { libraries libucp.so.0 23003; says fail "libucp.so.0 can't be loaded" "libucx0"; }
bad_ucx_devices() { variables UCX_NET_DEVICES=mlx5_9:1; says warn "UCX_NET_DEVICES names mlx5_9:1" "unset UCX_NET_DEVICES"; }
bad_ucx_transports() { variables UCX_TLS=self,sm,cuda_copy; says warn "nothing that reaches another host" "unset UCX_TLS"; }

# -- a peer

bad_peer_name() { put probe/peer.json '{"name_error": "Name or service not known"}'; says fail "node2 has no address" "getent hosts node2"; }
bad_peer_route() { peer yes true bond0 9000; says warn "10.0.0.2 is reached by bond0, which" "NCCL_SOCKET_IFNAME==bond0"; }
bad_peer_port() { peer "Connection timed out" false eth0 9000; says fail "a firewall is between: 10.0.0.2 port 5201" "ip saddr 10.0.0.1 accept"; }
bad_peer_mtu() { peer yes true eth0 1500; says fail "MTU mismatch: eth0 has MTU 9000, but only 1500 bytes arrive" "tracepath -n 10.0.0.2"; }
bad_peer_self()
{
	put probe/peer.json '{"port": 5201, "address": "127.0.1.1", "source": "127.0.0.1",
		"interface": "lo", "mtu": 65536, "path_mtu": 9000, "connected": "yes", "answered": true}'
	says fail "node2 is 127.0.1.1, which is this host itself" "grep -n node2 /etc/hosts"
}
