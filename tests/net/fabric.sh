# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# fabric.sh - hosts a and b with NICs of their own, on the bridges and routers of a third namespace.
# Sourced by tests that have a table of such networks. Each row builds its own network, sends data
# both ways, and checks which interface's counters moved, or what the error message says.
#
# A NIC is a veth whose other end is in the third namespace, as in a container: the hosts see an
# interface that stands on none of their own.

# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

middle=braid-$$-m
rows=$(printf '%s\n' "$@")	# run only rows whose names contain one of these lines

clean_up()
{
	no_hosts "$a" "$b" "$middle"
	rm -rf "$tmp"
}

# -- rows -----------------------------------------------------------------------------------------

no()				# WHY - the row does not hold
{
	echo "$1"
	bad=1
}

lacks()				# WHY - the row is skipped here
{
	lacking=${lacking:-$1}
}

# fresh - two hosts with loopback only, and nothing between them.
fresh()
{
	no_hosts "$a" "$b" "$middle"
	bare_hosts
	ip netns add "$middle"
	ip -n "$middle" link set lo up
	wires=0
	control=
	lacking=
	bad=
	env_a='' env_b='' env_both=
	pattern=bidir dev_a='' dev_b='' moved_mb=24
	rm -rf "$tmp"/is.* "$tmp/both" "$tmp"/nics*
}

wanted()			# NAME
{
	[ -z "$rows" ] || printf '%s\n' "$1" | grep -qF -e "$rows"
}

# environment WORDS... - VARIABLE=VALUE for both hosts, a:VARIABLE=VALUE for one.
environment()
{
	for word; do
		case $word in
		a:*) env_a="$env_a ${word#a:}" ;;
		b:*) env_b="$env_b ${word#b:}" ;;
		*) env_both="$env_both $word" ;;
		esac
	done
}

# topology NAME SET-UP ENVIRONMENT CONDITIONS - SET-UP and CONDITIONS are calls of functions below.
topology()
{
	wanted "$1" || return 0
	fresh
	# shellcheck disable=SC2086 # a list
	environment $3
	eval "$2" >"$tmp/setup" 2>&1
	if [ -n "$lacking" ]; then
		no_case "$1" "$lacking"
	elif [ -n "$bad" ]; then
		cat "$tmp/setup"
		case_ "$1" false
	else
		case_ "$1" holds "$4"
	fi
}

holds()				# CONDITIONS
{
	went=
	eval "$1"
	[ -n "$went" ] || worked
	[ -z "$bad" ] || { seen; return 1; }
}

# -- what a network is made of --------------------------------------------------------------------

ip_()				# NETNS ARGUMENTS...
{
	ip -n "$@" 2>&1 || no "ip -n $*: failed"
}

ip_a()
{
	ip_ "$a" "$@"
}

ip_b()
{
	ip_ "$b" "$@"
}

ip_m()				# the network between them
{
	ip_ "$middle" "$@"
}

ip_ab()
{
	ip_a "$@"
	ip_b "$@"
}

netns()				# a or b or m
{
	case $1 in
	a) echo "$a" ;;
	b) echo "$b" ;;
	m) echo "$middle" ;;
	esac
}

# kind HOST ARGUMENTS... - ip link add, of a kind that this kernel may not have.
kind()
{
	kind_host=$1
	shift
	ip -n "$(netns "$kind_host")" link add "$@" 2>"$tmp/why" || lacks "ip link add $*: $(cat "$tmp/why")"
}

# addresses HOST INTERFACE ADDRESS,ADDRESS... - in that order; "-" is none.
addresses()
{
	[ "$3" != - ] || return 0
	for addr in $(echo "$3" | tr , ' '); do
		case $addr in
		*:*) ip_ "$(netns "$1")" addr add "$addr" dev "$2" nodad ;;
		*+*) ip_ "$(netns "$1")" addr add "${addr%+*}" peer "${addr#*+}" dev "$2" ;;
		*) ip_ "$(netns "$1")" addr add "$addr" dev "$2" ;;
		esac
	done
}

# bridged BRIDGE PORT - add a port to a bridge between the hosts, which the first call makes.
bridged()
{
	ip -n "$middle" link show "$1" >/dev/null 2>&1 || {
		ip_m link add "$1" type bridge forward_delay 0 mcast_snooping 0
		ip_m link set "$1" mtu 9000 up
	}
	ip_m link set "$2" master "$1"
	ip_m link set "$2" up
}

# nic HOST NAME BRIDGE ADDRESSES [MTU [MTU-OF-THE-OTHER-END]]
nic()
{
	ip link add "$2" netns "$(netns "$1")" mtu "${5:-1500}" type veth \
		peer name "$1.$2" netns "$middle" mtu "${6:-${5:-1500}}" 2>&1 || no "nic $2: failed"
	bridged "$3" "$1.$2"
	addresses "$1" "$2" "$4"
	ip_ "$(netns "$1")" link set "$2" up
	ready "$(netns "$1")" "$2"
	[ "$1" != b ] || [ -n "$control" ] || control=$(first_address "$4")
}

first_address()			# ADDRESSES
{
	addr=${1%%,*}
	addr=${addr%%+*}
	addr=${addr%/*}
	case $addr in
	-) ;;
	fe80:*) ;;
	*:*) echo "[$addr]" ;;
	*) echo "$addr" ;;
	esac
}

# nics NAME BRIDGE ADDRESSES-OF-A ADDRESSES-OF-B [MTU [MTU-OF-THE-OTHER-END]]
nics()
{
	nic a "$1" "$2" "$3" "${5:-}" "${6:-}"
	nic b "$1" "$2" "$4" "${5:-}" "${6:-}"
}

# own_wire - give perf's control connection an interface of its own, which no filter names.
own_wire()
{
	wire 1500
	control=10.77.0.2
}

# bridge NAME ADDRESSES - on both hosts alike, with a container behind it.
bridge()
{
	for host in a b; do
		ns=$(netns $host)
		ip_ "$ns" link add "$1" type bridge forward_delay 0
		addresses $host "$1" "$2"
		ip_ "$ns" link set "$1" up
		pod $host "veth-$wires$(echo "$1" | cut -c 1-5)" "$1"
		ready "$ns" "$1"
	done
}

# pod HOST NAME [BRIDGE] - the host's end of a veth pair, whose other end is a container's.
pod()
{
	ip link add "$2" netns "$(netns "$1")" type veth peer name "$1.$2" netns "$middle" ||
		no "pod $2: failed"
	ip_m link set "$1.$2" up
	[ -z "${3:-}" ] || ip_ "$(netns "$1")" link set "$2" master "$3"
	ip_ "$(netns "$1")" link set "$2" up
}

# pods NUMBER PREFIX [BRIDGE] - on both hosts.
pods()
{
	for host in a b; do
		ns=$(netns $host)
		i=0
		while [ $i -lt "$1" ]; do
			echo "link add $2$i type veth peer name $host.$2$i netns $middle"
			[ -z "${3:-}" ] || echo "link set $2$i master $3"
			echo "link set $2$i up"
			i=$((i + 1))
		done | ip -n "$ns" -batch - || no "pods: failed"
		i=0
		while [ $i -lt "$1" ]; do
			echo "link set $host.$2$i up"
			i=$((i + 1))
		done | ip -n "$middle" -batch - || no "pods: failed"
	done
}

# tunnel NAME ADDRESS-OF-A ADDRESS-OF-B [MTU] - a tun device that a process has open, like a VPN's.
tunnel()
{
	[ -c /dev/net/tun ] || { lacks "no /dev/net/tun"; return; }
	command -v perl >/dev/null || { lacks "perl is not installed"; return; }
	for host in a b; do
		ns=$(netns $host)
		# TUNSETIFF, IFF_TUN: it has a carrier while a process has it open.
		ip netns exec "$ns" perl -e '
			open(my $f, "+<", "/dev/net/tun") or exit 1;
			ioctl($f, 0x400454ca, pack("a16s", $ARGV[0], 1)) or exit 1;
			sleep(60);' "$1" >/dev/null 2>&1 &
		i=0
		until ip -n "$ns" link show "$1" >/dev/null 2>&1; do
			sleep 0.02
			i=$((i + 1))
			[ $i -lt 100 ] || { lacks "no tun device came of /dev/net/tun"; return; }
		done
		case $host in
		a) addresses a "$1" "$2" ;;
		b) addresses b "$1" "$3" ;;
		esac
		ip_ "$ns" link set "$1" mtu "${4:-1280}" up
	done
}

# firewall HOST RULE [HOOK [TYPE]] - a rule of nftables for incoming packets.
firewall()
{
	command -v nft >/dev/null || { lacks "nft is not installed"; return; }
	ip netns exec "$(netns "$1")" nft -f - 2>"$tmp/why" <<END || lacks "nft: $(head -n 1 "$tmp/why")"
table inet braid {
	chain wall {
		type ${4:-filter} hook ${3:-input} priority 0;
		$2
	}
}
END
}

firewall_out()			# HOST RULE
{
	firewall "$1" "$2" output
}

# neighbour HOST INTERFACE ADDRESS OTHER-HOST ITS-INTERFACE - a permanent ARP entry for that address
neighbour()
{
	mac=$(ip netns exec "$(netns "$4")" cat "/sys/class/net/$5/address")
	ip_ "$(netns "$1")" neigh replace "$3" lladdr "$mac" dev "$2" nud permanent
}

# tentative HOST NAME ADDRESS - an address for which duplicate address detection still runs.
tentative()
{
	sysctl_ "$1" "net/ipv6/conf/$2/accept_dad" 1
	sysctl_ "$1" "net/ipv6/conf/$2/dad_transmits" 2
	ip_ "$(netns "$1")" addr add "$3" dev "$2"
}

# nat BRIDGE BRIDGE - hosts on the second bridge reach the first, with the router's address as their
# source; hosts on the first can't open connections to the second.
nat()
{
	command -v nft >/dev/null || { lacks "nft is not installed"; return; }
	ip netns exec "$middle" nft -f - 2>"$tmp/why" <<END || lacks "nft: $(head -n 1 "$tmp/why")"
table ip braid {
	chain out {
		type nat hook postrouting priority 100;
		iifname "$2" oifname "$1" masquerade
	}
	chain through {
		type filter hook forward priority 0;
		iifname "$1" oifname "$2" ct state new drop
	}
}
END
}

# router BRIDGE=ADDRESS... - the network between is a router, with these addresses.
router()
{
	for port; do
		ip -n "$middle" link show "${port%%=*}" >/dev/null 2>&1 || {
			ip_m link add "${port%%=*}" type bridge forward_delay 0 mcast_snooping 0
			ip_m link set "${port%%=*}" up
		}
		ip_m addr add "${port#*=}" dev "${port%%=*}"
	done
	sysctl_ m net/ipv4/ip_forward 1
}

sysctl_()			# HOST NAME VALUE
{
	ip netns exec "$(netns "$1")" sh -c "echo $3 >/proc/sys/$2" 2>&1 || no "$2: can't be set"
}

# whole_packets NAME - no segmentation offload, so that the path sees the size of each packet.
whole_packets()
{
	for host in a b; do
		ip -n "$(netns $host)" link set "$1" gso_max_segs 1 2>"$tmp/why" ||
			lacks "ip link set gso_max_segs: $(cat "$tmp/why")"
	done
}

# rdma NETDEV [KEY=VALUE,...] - both hosts have a NIC of tests/fake, which stands on that interface.
rdma()
{
	fake=${BRAID_TEST_BUILDDIR:-.}/tests/fake
	[ -e "$fake/.libs/libibverbs.so.1" ] || { lacks "built without RDMA"; return; }
	env_both="$env_both LD_LIBRARY_PATH=$fake/.libs BRAID_TEST_FAKE_FABRIC=$tmp/nics"
	env_a="$env_a BRAID_TEST_FAKE_HOST=a BRAID_TEST_FAKE_DEVICES=mlx5_0:rocev2,netdev=$1${2:+,$2}"
	env_b="$env_b BRAID_TEST_FAKE_HOST=b BRAID_TEST_FAKE_DEVICES=mlx5_0:rocev2,netdev=$1${3:+,$3}"
}

# apart - each NIC answers ARP for its own addresses only, as several NICs in one subnet need.
apart()
{
	for host in a b; do
		sysctl_ $host net/ipv4/conf/all/arp_ignore 1
		sysctl_ $host net/ipv4/conf/all/arp_announce 2
	done
}

# over_nic HOST NAME KIND NIC ADDRESSES - an interface of that kind that stands on a NIC.
over_nic()
{
	ns=$(netns "$1")
	case $3 in
	vlan)
		kind "$1" "$2" link "$4" type vlan id 77
		;;
	macvlan)
		kind "$1" "$2" link "$4" type macvlan mode bridge
		;;
	ipvlan)
		kind "$1" "$2" link "$4" type ipvlan mode l2
		;;
	bond)
		kind "$1" "$2" type bond mode active-backup miimon 100
		;;
	bridge)
		kind "$1" "$2" type bridge forward_delay 0
		;;
	esac
	[ -z "$lacking" ] || return 0
	case $3 in
	bond | bridge)
		for port in $(echo "$4" | tr , ' '); do
			ip_ "$ns" link set "$port" down
			ip_ "$ns" link set "$port" master "$2"
			ip_ "$ns" link set "$port" up
		done
		;;
	esac
	addresses "$1" "$2" "$5"
	ip_ "$ns" link set "$2" up
	ready "$ns" "$2"
	[ "$1" != b ] || control=${control:-$(first_address "$5")}
}

# in_vrf HOST NAME NIC ADDRESSES - a NIC in a VRF of that name: its routes are in a table of their own.
in_vrf()
{
	kind "$1" "$2" type vrf table 10
	[ -z "$lacking" ] || return 0
	ns=$(netns "$1")
	ip_ "$ns" link set "$2" up
	ip_ "$ns" link set "$3" master "$2"
	addresses "$1" "$3" "$4"
	ready "$ns" "$3"
}

# pod_of HOST NAME KIND ADDRESSES - host's only interface, which stands on one of another namespace.
pod_of()
{
	ip -n "$middle" link show up0 >/dev/null 2>&1 || {
		ip_m link add up0 type veth peer name up1
		ip_m link set up0 up
		ip_m link set up1 up
	}
	if [ "$3" = macvlan ]; then
		kind m "p$1" link up0 type macvlan mode bridge
	else
		kind m "p$1" link up0 type ipvlan
	fi
	[ -z "$lacking" ] || return 0
	ip_m link set "p$1" netns "$(netns "$1")" name "$2"
	addresses "$1" "$2" "$4"
	ip_ "$(netns "$1")" link set "$2" up
	ready "$(netns "$1")" "$2"
	[ "$1" != b ] || control=${control:-$(first_address "$4")}
}

# strict - drop packets that arrive on another interface than the route back uses.
strict()
{
	for host in a b; do
		sysctl_ $host net/ipv4/conf/all/rp_filter 1
	done
}

# -- data, and what must hold ---------------------------------------------------------------------

counters()			# NETNS - a line for each interface: its name, bytes sent and received
{
	ip netns exec "$1" awk 'NR > 2 { sub(/:/, " "); print $1, $10, $2 }' /proc/net/dev
}

# go - run perf between the hosts, once a row; $went is then yes or no.
go()
{
	counters "$a" >"$tmp/was.a"
	counters "$b" >"$tmp/was.b"
	with_b="--verbose${dev_b:+ --dev $dev_b}"
	# shellcheck disable=SC2086 # words
	if checked --pattern "$pattern" --sizes 1m --iters $moved_mb --warmup 0 --verbose \
		--timeout $((25 * slow)) ${dev_a:+--dev $dev_a} >"$tmp/talk"; then
		went=yes
	else
		went=no
	fi
	counters "$a" >"$tmp/is.a"
	counters "$b" >"$tmp/is.b"
	grep -hvE '^(INFO|TRACE|LOG) ' "$tmp/err" "$tmp/err.b" >"$tmp/both" 2>/dev/null
}

# moved HOST - the bytes that each interface sent and received while perf ran.
moved()
{
	awk 'NR == FNR { sent[$1] = $2; got[$1] = $3; next }
		{ print $1, $2 - sent[$1], $3 - got[$1] }' "$tmp/was.$1" "$tmp/is.$1"
}

seen()				# the evidence, for a row that fails
{
	for host in a b; do
		[ ! -e "$tmp/is.$host" ] || moved $host | awk -v host=$host '$2 + $3 > 10000 {
			printf "%s: %s sent %d bytes, received %d\n", host, $1, $2, $3 }'
	done
	cat "$tmp/both" 2>/dev/null
}

# worked - run perf, unless it has run; false if no data moved, which fails the row.
worked()
{
	[ -n "$went" ] || {
		go
		[ "$went" = yes ] || no "no data moved"
	}
	[ "$went" = yes ]
}

# carried HOST COLUMN - the interfaces that carried a tenth of the data or more (2: sent, 3: received).
carried()
{
	moved "$1" | sort | awk -v column="$2" -v least=$((moved_mb * 104857)) '
		$column >= least { printf "%s%s", some++ ? " " : "", $1 }'
}

# doctor HOST - run braid doctor there with b as peer; says() and never_says() see its output too.
doctor()
{
	[ "$1" = a ] && env_one=$env_a || env_one=$env_b
	# shellcheck disable=SC2086 # variables and their values
	ip netns exec "$(netns "$1")" env $env_both $env_one "$braid" doctor --peer 10.1.0.2 \
		>>"$tmp/both" 2>&1
}

# by HOST sent|received INTERFACE... - each of these interfaces carried data, and no other did.
by()
{
	by_host=$1 by_what=$2
	shift 2
	worked || return
	[ "$by_what" = sent ] && column=2 || column=3
	got=$(carried "$by_host" "$column")
	[ "$got" = "$*" ] || no "$by_host $by_what by '$got', not by '$*'"
}

# over INTERFACE... - on both hosts, both ways.
over()
{
	for host in a b; do
		by $host sent "$@"
		by $host received "$@"
	done
}

# leaves INTERFACE... - the same for sent data only: ARP decides which NIC it arrives at.
leaves()
{
	by a sent "$@"
	by b sent "$@"
}

# nic_carried LEAST [MOST] - how many work requests both fake NICs were given
nic_carried()
{
	worked || return
	# shellcheck disable=SC2086 # variables and their values
	got=$(in_a env $env_both $env_a "$fake/fakectl" "count messages")
	[ "$got" -ge "$1" ] && [ "$got" -le "${2:-$got}" ] || no "the NICs carried $got messages"
}

# leaves_or_warns INTERFACE - with two NICs in one subnet ARP may find the other one; then a WARN says
# that data does not leave by this interface.
leaves_or_warns()
{
	worked || return
	for host in a b; do
		[ "$(carried $host 2)" = "$1" ] || says "^WARN .*device $1.*not-by-device"
	done
}

fails()
{
	go
	[ "$went" = no ] || no "it went through"
}

says()				# REGEX...
{
	for word; do
		grep -qiE -- "$word" "$tmp/both" || no "nobody says '$word'"
	done
}

never_says()			# REGEX...
{
	for word; do
		! grep -iE -- "$word" "$tmp/both" || no "somebody says '$word'"
	done
}

# info HOST - what braid info says there, in the row's environment.
info()
{
	[ "$1" = a ] && env_one=$env_a || env_one=$env_b
	# shellcheck disable=SC2086 # variables and their values
	ip netns exec "$(netns "$1")" env $env_both $env_one "$braid" info --plugin "$plugin" 2>&1
}

# devices NAMES - on both hosts these and no others, in any order
devices()
{
	for host in a b; do
		got=$(info $host | sed -n 's/^device [0-9]* *//p' | sort | tr '\n' ' ')
		[ "$got" = "$1 " ] ||
			no "$host has devices '$(echo "$got" | cut -c 1-60)', not '$1'"
	done
}

# address HOST DEVICE ADDRESS - what braid info says of it
address()
{
	got=$(info "$1" | awk -v name="$2" '/^device/ { here = $3 == name } here && /^ *address / { print $2 }')
	[ "$got" = "$3" ] || no "$2 of $1 has address '$got', not '$3'"
}
