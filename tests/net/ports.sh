#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ports.sh - BRAID_PORT_RANGE: every port that Braid binds is of the range, behind a firewall too.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

# all_in_range - each TCP socket of the wire, at both ends, has both ports in the range; some do.
all_in_range()
{
	for ns in "$a" "$b"; do
		ip netns exec "$ns" ss -Htan >"$tmp/ss" || return
		awk -v low=20000 -v high=20031 '
			$4 ~ /^(10\.77\.1\.|\[?fd77:)/ {
				n = split($4, l, ":"); m = split($5, r, ":")
				if ($1 != "LISTEN" && $1 != "TIME-WAIT") some++
				if (l[n] < low || l[n] > high) bad = 1
				if ($1 != "LISTEN" && (r[m] < low || r[m] > high)) bad = 1
			}
			END { exit bad || !some }' "$tmp/ss" || { cat "$tmp/ss"; return 1; }
	done
}

# through_firewall OPTIONS... - the same where nothing else is let through at either host.
through_firewall()
{
	command -v nft >/dev/null || { echo "nft is not installed"; return 1; }
	for ns in "$a" "$b"; do
		ip netns exec "$ns" nft -f - <<-END || return
			table inet braid {
				chain in {
					type filter hook input priority 0; policy accept;
					iifname w1 tcp dport 20000-20031 tcp sport 20000-20031 accept
					iifname w1 meta l4proto tcp drop
				}
			}
		END
	done
	checked "$@"
	rc=$?
	in_a nft delete table inet braid
	in_b nft delete table inet braid
	return $rc
}

# spread - the lanes of a link leave by ports whose last two bits all differ.
spread()
{
	: >"$tmp/bits"
	for ns in "$a" "$b"; do
		ip netns exec "$ns" ss -Htln >"$tmp/listens"
		ip netns exec "$ns" ss -Htn state established >"$tmp/ss"
		# the dialling end of a link: its ports are none at which a socket listens
		awk 'NR == FNR { n = split($4, l, ":"); listens[l[n]] = 1; next }
			$3 ~ /10\.77\.1\./ { n = split($3, l, ":"); if (!(l[n] in listens)) print $4, l[n] % 4 }' \
			"$tmp/listens" "$tmp/ss" | sort -u >>"$tmp/bits"
	done
	awk '{ n[$1]++ } END { for (link in n) if (n[link] == 4) well = 1; exit !well }' "$tmp/bits" ||
		{ cat "$tmp/bits"; return 1; }
}

# flow_labels - each lane has a flow label of its own, in both directions, where the kernel gives one
# only to sockets that ask.
flow_labels()
{
	for ns in "$a" "$b"; do
		ip netns exec "$ns" sh -c 'echo 2 >/proc/sys/net/ipv6/auto_flowlabels'
		ip netns exec "$ns" nft -f - <<-END || return
			table ip6 braid {
				set labels {
					type integer; size 64; flags dynamic;
					typeof ip6 flowlabel
				}
				chain out {
					type filter hook output priority 0; policy accept;
					oifname w1 tcp dport != 0 ip6 flowlabel != 0 add @labels { ip6 flowlabel }
				}
			}
		END
	done
	checked --pattern bidir --sizes 1m
	rc=$?
	for ns in "$a" "$b"; do
		ip netns exec "$ns" nft list set ip6 braid labels
		ip netns exec "$ns" nft delete table ip6 braid
	done >"$tmp/labels"
	[ $rc = 0 ] && awk '/elements/ { on = 1 }
		on { n += gsub(/[0-9]+/, "") }
		on && /}/ { on = 0; ends += n >= 4; n = 0 }
		END { exit ends != 2 }' "$tmp/labels" || { cat "$tmp/labels"; return 1; }
}

# exhausted - the line names parameter, range, holders and remedy.
exhausted()
{
	! checked --pattern alltoall --procs 4 --sizes 8 >"$tmp/talk" 2>&1 || return
	cat "$tmp/talk"
	grep -h 'no port of BRAID_PORT_RANGE=20000-20000 is left: [1-9] listen (user 0).*Widen it' \
		"$tmp/err" "$tmp/err.b"
}

hosts
wire 1500
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_LANES=4 BRAID_PORT_RANGE=20000-20031"
case_ "every port is of the range: listeners, and 4 lanes of each link" while_talking all_in_range
case_ "4 processes of a host share the range" checked --pattern alltoall --procs 4 --sizes 8,64k
if has_ipv6; then
	ip -n "$a" addr add fd77::1/64 dev w1
	ip -n "$b" addr add fd77::2/64 dev w1
	env_both="$env_both NCCL_SOCKET_FAMILY=AF_INET6"
	case_ "the same over IPv6" while_talking all_in_range
	if command -v nft >/dev/null; then
		case_ "over IPv6 each lane has a flow label of its own" flow_labels
	else
		no_case "over IPv6 each lane has a flow label of its own" "nft is not installed"
	fi
	env_both=${env_both% *}
else
	no_case "the same over IPv6" "this kernel has no IPv6"
	no_case "over IPv6 each lane has a flow label of its own" "this kernel has no IPv6"
fi
if command -v nft >/dev/null; then
	case_ "a firewall that lets only the range through is open enough" \
		through_firewall --pattern alltoall --procs 2 --sizes 8,1m
else
	no_case "a firewall that lets only the range through is open enough" "nft is not installed"
fi
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_LANES=4 BRAID_PORT_RANGE=20000-29999"
case_ "lanes take ports that differ in their last bits" while_talking spread
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_LANES=4"
release=$(uname -r | sed 's/^\([0-9]*\)\.\([0-9]*\).*/\1 \2/')
# shellcheck disable=SC2086 # two numbers
if [ "$(printf '%d%03d' $release)" -ge 6003 ]; then
	case_ "without a range, too" while_talking spread
else
	no_case "without a range, too" "it takes Linux 6.3"
fi
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_CONNECT_TIMEOUT=2 BRAID_PORT_RANGE=20000-20000"
case_ "a range without a port left says what holds it" exhausted
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_PORT_RANGE=20031-20000"
! checked --pattern pingpong --sizes 8 >/dev/null 2>&1
case_ "a range that is none is refused by its name" \
	grep -q "BRAID_PORT_RANGE is '20031-20000', but must be LOW-HIGH" "$tmp/err" "$tmp/err.b"
done_
