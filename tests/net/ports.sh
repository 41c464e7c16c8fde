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
	env_both=${env_both% *}
else
	no_case "the same over IPv6" "this kernel has no IPv6"
fi
if command -v nft >/dev/null; then
	case_ "a firewall that lets only the range through is open enough" \
		through_firewall --pattern alltoall --procs 2 --sizes 8,1m
else
	no_case "a firewall that lets only the range through is open enough" "nft is not installed"
fi
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_CONNECT_TIMEOUT=2 BRAID_PORT_RANGE=20000-20000"
case_ "a range without a port left says what holds it" exhausted
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_PORT_RANGE=20031-20000"
! checked --pattern pingpong --sizes 8 >/dev/null 2>&1
case_ "a range that is none is refused by its name" \
	grep -q "BRAID_PORT_RANGE is '20031-20000', but must be LOW-HIGH" "$tmp/err" "$tmp/err.b"
done_
