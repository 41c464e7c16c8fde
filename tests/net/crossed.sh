#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# crossed.sh - two processes dial each other at the same moment, and only one of the two directions
# works: they connect over that one, whichever process has the smaller id.
# shellcheck source=tests/net/fabric.sh
. "$(dirname "$0")/fabric.sh"

program=${BRAID_TEST_BUILDDIR:-.}/tests/net/crossed
[ -x "$program" ] || { echo "no $program: build it, or set BRAID_TEST_BUILDDIR"; exit 99; }

# start HOST PEER [LATER] - start the process of that host, which waits for $tmp/go; LATER: ms.
start()
{
	[ "$1" = a ] && env_one=$env_a || env_one=$env_b
	# shellcheck disable=SC2086 # variables and their values
	ip netns exec "$(netns "$1")" env $env_both $env_one BRAID_TEST_PLUGIN="$plugin" \
		timeout $((60 * slow)) "$program" "$1" "$2" "$tmp" 20 ${3:+"$3"} >"$tmp/said.$1" 2>&1 &
}

# of_handle HOST FIRST LENGTH - bytes of its handle (docs/dev/wire.md), as hex digits.
of_handle()
{
	od -An -v -tx1 -j"$2" -N"$3" "$tmp/$1" | tr -d ' \n'
}

# listening_at HOST - the port in its handle.
listening_at()
{
	printf '%d\n' "0x$(of_handle "$1" 73 1)$(of_handle "$1" 72 1)"
}

# someone_else - on both hosts, let a program listen on port 1 and answer as a web server does.
someone_else()
{
	command -v perl >/dev/null || { lacks "perl is not installed"; return; }
	for host in a b; do
		ip netns exec "$(netns $host)" perl -MIO::Socket::INET -e '
			my $s = IO::Socket::INET->new(LocalPort => 1, Listen => 9) or exit 1;
			while (my $c = $s->accept) { print $c "HTTP/1.1 400 Bad Request\r\n\r\n"; }' \
			>/dev/null 2>&1 &
		i=0
		until ip netns exec "$(netns $host)" ss -Hltn sport = :1 | grep -q .; do
			sleep 0.05
			i=$((i + 1))
			[ $i -lt 100 ] || { no "nobody listens on port 1"; return; }
		done
	done
}

# meet WHOM RULE [HOOK TYPE] - both connect. WHOM is "smaller" or "larger": RULE blocks what the process with
# that id sends to the other's port; "" blocks nothing.
meet()
{
	rm -f "$tmp"/a "$tmp"/b "$tmp"/go "$tmp"/*.done
	start a b
	pid_a=$!
	start b a "${later:-}"
	pid_b=$!
	i=0
	until [ -e "$tmp/a" ] && [ -e "$tmp/b" ]; do
		sleep 0.1
		i=$((i + 1))
		[ $i -lt $((200 * slow)) ] || { no "no handles"; cat "$tmp/said.a" "$tmp/said.b"; break; }
	done
	low=$(printf '%s a\n%s b\n' "$(of_handle a 24 16)" "$(of_handle b 24 16)" | sort | head -n 1)
	low=${low#* }
	[ "$low" = a ] && high=b || high=a
	case ${1:-} in
	smaller) shut=$high ;;
	larger) shut=$low ;;
	*) shut= ;;
	esac
	[ -z "$shut" ] || firewall "$shut" "tcp dport $(listening_at $shut) $2" "${3:-}" "${4:-}"
	: >"$tmp/go"
	wait $pid_a || no "a failed"
	wait $pid_b || no "b failed"
	grep -hE '^(WARN|[ab]:)' "$tmp/said.a" "$tmp/said.b" >"$tmp/both"
	for host in a b; do
		links=$(grep -c 'link to .* is up' "$tmp/said.$host")
		[ "$links" = 1 ] || no "$host has $links links"
	done
	went=yes
}

# meet_later RULE - what a sends to b's port is blocked; b connects 2.5 s later.
meet_later()
{
	later=2500
	rm -f "$tmp"/a "$tmp"/b
	start b a $later
	pid_b=$!
	start a b
	pid_a=$!
	i=0
	until [ -e "$tmp/a" ] && [ -e "$tmp/b" ]; do
		sleep 0.1
		i=$((i + 1))
		[ $i -lt $((200 * slow)) ] || { no "no handles"; break; }
	done
	firewall b "tcp dport $(listening_at b) $1"
	: >"$tmp/go"
	began=$(date +%s%3N)
	wait $pid_a || no "a failed"
	wait $pid_b || no "b failed"
	ms=$(($(date +%s%3N) - began))
	cat "$tmp/said.a" "$tmp/said.b" >"$tmp/both"
	[ $ms -lt $((later + 10000 * slow)) ] || no "it took $ms ms"
	grep -q "our own dial has not come through" "$tmp/said.a" || no "a does not say by whose dial"
	went=yes
	later=
}

two="nics eth0 s0 10.1.0.1/24 10.1.0.2/24"
name="NCCL_SOCKET_IFNAME==eth0"

topology "both directions work" "$two" "$name" "meet"

for id in smaller larger; do
	topology "what the process with the $id id sends is dropped" \
		"$two" "$name" "meet $id drop"
	topology "what the process with the $id id sends is answered with resets" \
		"$two" "$name" "meet $id 'reject with tcp reset'"
	topology "something takes the connections of the process with the $id id, and holds them" \
		"$two" "$name" "meet $id 'meta length > 100 drop'"
done

for id in smaller larger; do
	topology "a NAT gives the port to something else than what the process with the $id id dials" \
		"$two; someone_else" "$name" "meet $id 'redirect to :1' prerouting nat"
done

for how in drop 'reject with tcp reset' reject; do
	topology "one end's packets meet $how, and the other connects 2.5 s later" \
		"$two" "$name" "rm -f '$tmp/go' '$tmp'/*.done; meet_later '$how'"
done

done_
