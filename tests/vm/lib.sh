# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# lib.sh - a case for virtual machines.  Sourced by those in cases/, at their very start.
#
# On the host it starts the guests (tests/vm/run), which run the same case; in a guest it goes on.
# What a case has besides tests/net/lib.sh:
#
#	guest		1 or 2; the verdicts are those of guest 1
#	netem		on a wire between the namespaces of one guest
#	give, take	hand a word from a guest to the other
#	serve, talk	with two guests: braid perf between them
#	there		run a command in the other guest
#	vm_later	modules with a + in the file modules are loaded now
#	vm_rxe, vm_siw	an RDMA device over a network interface
#	perftest	a program of that name's package, between two processes or two guests
#
# Two guests have three wires, as two hosts of tests/net/lib.sh have: w0, w1 and w2, 10.77.N.1 in
# guest 1 and 10.77.N.2 in guest 2, and perf's own connection is on wire 0.

vm=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${BRAID_TEST_GUEST-}" ]; then
	exec "$vm/run" --guests "${guests:-1}" --minutes "${minutes:-4}" --suite "${suite-}" \
		--nic "${nic:-virtio-net-pci}" "$0"
fi
guest=$BRAID_TEST_GUEST
# shellcheck source=tests/net/lib.sh
. "$vm/../net/lib.sh"

# -- one guest, two namespaces --------------------------------------------------------------------

# netem WIRE WHAT... - apply WHAT, in the words of tc-netem(8), both ways; without WHAT, restore the wire.
# Without GSO each packet is a frame of its own, as on a real wire.
netem()
{
	netem_wire=w$1
	shift
	for netem_ns in "$a" "$b"; do
		ip -n "$netem_ns" link set "$netem_wire" gso_max_segs 1 || return
		if [ $# -gt 0 ]; then
			tc -n "$netem_ns" qdisc replace dev "$netem_wire" root netem limit 10000 "$@" ||
				return
		else
			tc -n "$netem_ns" qdisc del dev "$netem_wire" root 2>/dev/null
		fi
	done
}

# counted COUNTER - the sum of a kernel counter over both namespaces, by its name in nstat(8).
counted()
{
	{ in_a nstat -asz "$1"; in_b nstat -asz "$1"; } | awk -v name="$1" '
		$1 == name { n += $2 }
		END { print n + 0 }'
}

# -- two guests -----------------------------------------------------------------------------------

other_ended()
{
	[ -e "$BRAID_TEST_SHARE/rc.$((3 - guest))" ]
}

give()				# NAME [VALUE]
{
	printf '%s\n' "${2-}" >"$BRAID_TEST_SHARE/word.new.$guest"
	mv "$BRAID_TEST_SHARE/word.new.$guest" "$BRAID_TEST_SHARE/word.$1"
}

# take NAME - wait for the value that the other guest gives; false if that guest has ended instead.
take()
{
	until [ -e "$BRAID_TEST_SHARE/word.$1" ]; do
		! other_ended || return
		sleep 0.1
	done
	cat "$BRAID_TEST_SHARE/word.$1"
}

# serve - guest 2's part of talk and there; returns when guest 1 has ended.
serve()
{
	# shellcheck disable=SC2086 # variables and their values
	env $env_both "$braid" perf --plugin "$plugin" --listen 10.77.0.2:0 "$@" 2>"$tmp/err.b" &
	listener=$!
	give port "$(listening "$tmp/err.b" $listener)"
	done=0
	until other_ended; do
		if [ -e "$BRAID_TEST_SHARE/word.do.$done" ]; then
			sh -c "$(take do.$done)"
			give did.$done $?
			done=$((done + 1))
		fi
		sleep 0.05
	done
	kill $listener
	cat "$tmp/err.b"
}

# there COMMAND... - run COMMAND in guest 2, which serves; returns its status.
asked=0
there()
{
	give do.$asked "$*"
	there_rc=$(take did.$asked)
	asked=$((asked + 1))
	return "$there_rc"
}

if [ "${guests:-1}" = 2 ]; then
	# talk OPTIONS... - as in tests/net/lib.sh, from guest 1 to guest 2; $server: the name of the port
	# that guest 2 gave, if it is not that of serve.
	talk()
	{
		port=$(take "${server:-port}")
		# shellcheck disable=SC2086
		env $env_both $env_a timeout $((60 * slow)) "$braid" perf --plugin "$plugin" \
			--connect 10.77.0.2:"$port" --check --csv --seconds 0.05 "$@" \
			>"$tmp/csv" 2>"$tmp/err" || { cat "$tmp/err"; return 1; }
	}
fi

vm_later()
{
	while read -r vm_module; do
		busybox insmod "/run/braid-modules/$vm_module" || return
	done </run/braid-modules/later
}

# -- RDMA -----------------------------------------------------------------------------------------

# vm_rdma TYPE NETDEV - make the device TYPE0, or the next one, over NETDEV, and wait until it is active;
# $rdma is its name and $rdma_ip its address. A NETDEV that does not exist is made, as 10.78.N.1: a
# veth whose far end has no address, for connections within this guest.
#
# Only the first network namespace will do. Two rxe devices of one guest can't reach each other, since
# data between two addresses of a host goes over lo.
# siw applies the memlock limit to root too, so it is raised.
vm_netdevs=0
vm_rdma()
{
	vm_type=$1 vm_netdev=$2
	[ "$vm_type" != siw ] || [ -d /sys/module/siw ] || skip "no siw: ${BRAID_TEST_NO_SIW-}"
	# shellcheck disable=SC3045 # dash and bash have it
	ulimit -l unlimited || return
	if [ ! -e "/sys/class/net/$vm_netdev" ]; then
		ip link add "$vm_netdev" type veth peer name "$vm_netdev.far" &&
			ip addr add "10.78.$vm_netdevs.1/24" dev "$vm_netdev" &&
			ip link set "$vm_netdev.far" addrgenmode none &&
			ip link set "$vm_netdev" up && ip link set "$vm_netdev.far" up || return
		vm_netdevs=$((vm_netdevs + 1))
	fi
	vm_i=0
	while [ -e "/sys/class/infiniband/$vm_type$vm_i" ]; do
		vm_i=$((vm_i + 1))
	done
	rdma=$vm_type$vm_i
	rdma_ip=$(ip -4 -o addr show dev "$vm_netdev" | sed -n 's,.* inet \([0-9.]*\)/.*,\1,p')
	rdma link add "$rdma" type "$vm_type" netdev "$vm_netdev" || return
	vm_i=0
	until grep -q ACTIVE "/sys/class/infiniband/$rdma/ports/1/state"; do
		vm_i=$((vm_i + 1))
		[ $vm_i -lt 100 ] || { echo "$rdma is not active"; return 1; }
		sleep 0.1
	done
}

vm_rxe()			# NETDEV
{
	vm_rdma rxe "$1"
}

vm_siw()			# NETDEV
{
	vm_rdma siw "$1"
}

# Does perftest connect by the RDMA connection manager?  With -R, and always over iWARP.
rdma_cm()			# OPTIONS...
{
	case " $* " in
	*" -R "*) return 0 ;;
	esac
	case $rdma in
	siw*) return 0 ;;
	*) return 1 ;;
	esac
}

# perftest_server - start it in the background; true as soon as it listens.
perftest_server()
{
	timeout $((20 * slow)) "$@" >"$tmp/perftest.b" 2>&1 &
	perftest_pid=$!
	until ss -Htln "sport = :$perftest_port" | grep -q . ||
		rdma resource show cm_id | grep -q "state LISTEN.*:$perftest_port "; do
		kill -0 $perftest_pid 2>/dev/null || return
		sleep 0.1
	done
}

perftest_client()
{
	timeout $((20 * slow)) "$@" >"$tmp/perftest.a" 2>&1
}

# perftest PROGRAM OPTIONS... - run it over $rdma, to $rdma_ip; output in $tmp/perftest.a. With two guests
# both call it, and it goes from 1 to 2. With -R perftest connects twice, and on a busy host the second
# time may come before its server listens again, and fail: within a guest it gets three tries.
perftest()
{
	perftest_once "$@" && return
	[ "${guests:-1}" = 1 ] || return
	perftest_once "$@" || perftest_once "$@"
}

perftest_port=18515
perftest_once()
{
	perftest_port=$((perftest_port + 1))
	! rdma_cm "$@" || set -- "$@" -R
	set -- "$@" -d "$rdma" -p $perftest_port -F
	perftest_rc=0
	if [ "${guests:-1}" = 1 ]; then
		perftest_server "$@" && perftest_client "$@" "$rdma_ip" || {
			perftest_rc=1
			kill $perftest_pid 2>/dev/null
		}
		wait $perftest_pid || perftest_rc=1
	elif [ "$guest" = 2 ]; then
		perftest_server "$@" && give "perftest.$perftest_port" "$rdma_ip"
		wait $perftest_pid || perftest_rc=1
	else
		perftest_client "$@" "$(take "perftest.$perftest_port")" || perftest_rc=1
	fi
	[ $perftest_rc = 0 ] || cat "$tmp"/perftest.[ab]
	return $perftest_rc
}

# has_verbs - braid info names a device that verbs serves; what it says of devices is printed.
has_verbs()
{
	"$braid" info --plugin "$plugin" --json >"$tmp/info" || return
	sed -n '/^  "devices": \[/,/^  \]/p' "$tmp/info" | tee "$tmp/devices"
	grep -q '"verbs"\|:1"' "$tmp/devices"
}
