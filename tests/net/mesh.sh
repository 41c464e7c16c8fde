#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# mesh.sh - braid mesh between network namespaces on bridges: with faults built in, each is named, and
# nothing else; without, nothing is.
#
# Every host sends at most 300 Mbit/s, so that the network and not the CPUs sets the figures.

# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

middle=braid-$$-m
hosts=0

clean_up()
{
	down
	rm -rf "$tmp"
}

down()
{
	i=1
	while [ $i -le $hosts ]; do
		no_hosts "braid-$$-$i"
		i=$((i + 1))
	done
	no_hosts "$middle"
	hosts=0
}

on()				# HOST COMMAND...
{
	ns=braid-$$-$1
	shift
	ip netns exec "$ns" "$@"
}

limit()				# HOST MBIT
{
	tc -n "braid-$$-$1" qdisc replace dev eth0 root tbf rate "$2mbit" burst 16k limit 4m
}

bridge()			# NAME
{
	ip -n "$middle" link add name "$1" type bridge forward_delay 0
	ip -n "$middle" link set "$1" up
}

# up HOSTS - the first half on bridge one, the rest on bridge two; joined by a wire, `join`.
up()
{
	down
	ip netns add "$middle" 2>"$tmp/why" || skip "ip netns add: $(cat "$tmp/why")"
	ip netns exec "$middle" true 2>"$tmp/why" || skip "ip netns exec: $(head -n 1 "$tmp/why")"
	ip -n "$middle" link set lo up
	bridge one 2>"$tmp/why" || skip "no bridge: $(cat "$tmp/why")"
	bridge two
	ip -n "$middle" link add join type veth peer name other
	ip -n "$middle" link set join master one up
	ip -n "$middle" link set other master two up
	ip -n "$middle" addr add 10.78.0.254/24 dev one
	: >"$tmp/hosts"
	while [ $hosts -lt "$1" ]; do
		hosts=$((hosts + 1))
		ip netns add "braid-$$-$hosts"
		ip -n "braid-$$-$hosts" link set lo up
		ip link add eth0 netns "braid-$$-$hosts" type veth peer name "p$hosts" netns "$middle"
		[ $hosts -gt $(($1 / 2)) ] && to=two || to=one
		ip -n "$middle" link set "p$hosts" master $to up
		ip -n "braid-$$-$hosts" addr add "10.78.0.$hosts/24" dev eth0
		ip -n "braid-$$-$hosts" link set eth0 up
		limit $hosts 300 2>"$tmp/why" || skip "tc qdisc add tbf: $(cat "$tmp/why")"
		echo "node$hosts:10.78.0.$hosts" >>"$tmp/hosts"
	done
	for port in "braid-$$-$hosts eth0" "$middle p$hosts"; do
		# shellcheck disable=SC2086 # two words
		ready $port
	done
}

# lose HOST PERCENT - of what it is sent; false, with the reason in $tmp/why, if nothing here does that.
lose()
{
	command -v nft >"$tmp/why" || { echo "nft is not installed" >"$tmp/why"; return 1; }
	on "$1" nft -f - 2>"$tmp/why" <<-END
		table inet braid {
			chain lose {
				type filter hook input priority 0;
				iifname "eth0" numgen random mod 100 < $2 drop
			}
		}
	END
}

# cut HOST HOST
cut_()
{
	ip -n "braid-$$-$1" route add blackhole "10.78.0.$2/32"
	ip -n "braid-$$-$2" route add blackhole "10.78.0.$1/32"
}

# mesh STATUS OPTIONS... - $tmp/out is what it prints, as one line.
mesh()
{
	want=$1
	shift
	timeout -k 5 $((100 * slow)) ip netns exec "$middle" "$braid" mesh "$tmp/hosts" \
		--rsh "$tmp/rsh" --remote-braid "$braid" --plugin "$plugin" --seconds 0.03 \
		--size 32k --parallel 2 --timeout 2 "$@" >"$tmp/text" 2>"$tmp/err"
	rc=$?
	cat "$tmp/text" "$tmp/err"
	tr -s ' \n' ' ' <"$tmp/text" >"$tmp/out"
	[ $rc = "$want" ]
}

# Did other programs keep its processes from the CPUs?  Then its figures say little, as it says itself.
starved()
{
	grep -q "measurements a process had less than" "$tmp/out"
}

# quiz WHAT COMMAND - a case that is tried three times, and then left out, where it is starved.
quiz()
{
	tries=1
	while ! "$2" >"$tmp/tried" 2>&1; do
		if ! starved; then
			case_ "$1" failed
			return
		fi
		if [ $tries = 3 ]; then
			no_case "$1" "other programs had the CPUs, as the report says"
			return
		fi
		tries=$((tries + 1))
	done
	case_ "$1" true
}

failed()
{
	cat "$tmp/tried"
	false
}

findings()			# NUMBER - so many, and no more
{
	[ "$(grep -c '^! ' "$tmp/text")" = "$1" ]
}

says()				# WORDS...
{
	for word; do
		grep -qF -e "$word" "$tmp/out" || { echo "nobody says '$word'"; return 1; }
	done
}

command -v "$braid" >/dev/null || { echo "no $braid: build it, or set BRAID_TEST_BRAID"; exit 99; }
command -v ip >/dev/null || skip "ip is not installed"
command -v tc >/dev/null || skip "tc is not installed"
[ "$(id -u)" = 0 ] || skip "only root may make network namespaces"
printf '#!/bin/sh\nhost=$1\nshift\nexec ip netns exec "braid-%s-${host#node}" "$@"\n' $$ >"$tmp/rsh"
chmod +x "$tmp/rsh"

# -- nothing --------------------------------------------------------------------------------------

healthy()
{
	mesh 0 && findings 0 && says 'Nothing is odd.' '6 hosts, 15 of 15 pairs'
}

up 6
quiz "a healthy mesh has no finding, and exit status 0" healthy

# -- a quiz of three broken clusters --------------------------------------------------------------

thin()
{
	tc -n "$middle" qdisc add dev join root tbf rate 30mbit burst 16k limit 4m
	tc -n "$middle" qdisc add dev other root tbf rate 30mbit burst 16k limit 4m
	mesh 1 && findings 1 &&
		says 'Between these hosts (node1, node2, node3) and those (node4, node5, node6) there are only'
}
quiz "a thin link between two switches is named, and the hosts on each side" thin

fired()
{
	command -v nft >/dev/null || { echo "nft is not installed"; return 1; }
	on 4 nft -f - <<-END
		table inet braid {
			chain wall {
				type filter hook input priority 0;
				ip saddr 10.78.0.1-10.78.0.9 drop
			}
		}
	END
	mesh 1 && findings 1 && says "node4 can't talk to 4 of the 4 hosts"
}
up 6
if command -v nft >/dev/null; then
	case_ "a host whose firewall shuts out all others is named" fired
else
	no_case "a host whose firewall shuts out all others is named" "nft is not installed"
fi

deaf()
{
	tc -n "$middle" qdisc add dev p2 root tbf rate 30mbit burst 16k limit 4m
	mesh 1 && findings 1 && says 'node2 receives slowly, from all:' 'and sends well'
}
up 6
quiz "a host that is slow to receive is named as one" deaf

# -- sixteen hosts with three faults --------------------------------------------------------------

three()
{
	mesh 1 --json "$tmp/json" && findings "$faults" && says 'node3 sends slowly, to all:' \
		"node11 and node12 can't talk to each other, though they can to others"
}

lossy()
{
	says 'Of what node8 is sent' 'is lost and sent again'
}

up 16
limit 3 30
cut_ 11 12
faults=3
lose 8 5 || faults=2
quiz "of 16 hosts, one that is limited and a pair that can't talk are named, and no other" three
if starved && ! lossy; then
	no_case "of the same hosts, one that loses packets is named" "other programs had the CPUs"
elif [ $faults = 3 ]; then
	case_ "of the same hosts, one that loses packets is named" lossy
else
	no_case "of the same hosts, one that loses packets is named" "$(cat "$tmp/why")"
fi
done_
