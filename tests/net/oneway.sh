#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# oneway.sh - a firewall drops new connections from the end that dialled a link, and all that there
# were are lost: the link goes on over connections that the other end makes.
#
# Host a dials. Perf's own connection is on wire 0, which has no firewall.
# shellcheck source=tests/net/lib.sh
. "$(dirname "$0")/lib.sh"

hosts
wire 1500
command -v nft >/dev/null || skip "nft is not installed"
common="BRAID_SOCKET_IFNAME=w1 BRAID_PEER_TIMEOUT=20 BRAID_DEBUG=info"
with_b=--verbose
within=$((20 * slow))			# seconds until data moves again

# wall HOST RULE - a firewall on HOST for packets that come in by wire 1.
wall()
{
	eval "ns=\$$1"
	ip netns exec "$ns" nft -f - <<END
table inet wall {
	chain in {
		type filter hook input priority 0;
		iifname w1 $2
	}
}
END
}

no_wall()				# HOST
{
	eval "ns=\$$1"
	ip netns exec "$ns" nft delete table inet wall 2>/dev/null
}

streams()				# how many there are on wire 1
{
	in_a ss -Htn state established src 10.77.1.1 dst 10.77.1.2 | wc -l
}

cut_streams()
{
	in_a ss -KHtn state established dst 10.77.1.2 >/dev/null
}

# goes_on WHAT COMMAND... - wait until COMMAND succeeds; WHAT names that in messages.
goes_on()
{
	goal=$1
	shift
	began=$(now_ms)
	until "$@"; do
		if ! kill -0 "$talker" 2>/dev/null || [ $(($(now_ms) - began)) -gt $((within * 1000)) ]; then
			echo "not within $within s: $goal; $(streams) streams"
			return 1
		fi
		sleep 0.02
	done
	echo "$goal after $(($(now_ms) - began)) ms" >&2
}

has_streams()				# NUMBER
{
	[ "$(streams)" -ge "$1" ]
}

# play STEPS... - run each step, a command, while perf moves data; perf must succeed, too.
play()
{
	no_wall a
	no_wall b
	env_both="$common ${env_case:-}"
	# shellcheck disable=SC2086 # options
	checked --verbose ${pattern:---pattern bidir --sizes 64k --inflight 4 --seconds $((${talk_s:-12} * slow))} \
		--timeout 60 >"$tmp/talk" 2>&1 &
	talker=$!
	until has_streams 1; do
		kill -0 "$talker" 2>/dev/null || { cat "$tmp/talk"; return 1; }
		sleep 0.05
	done
	sleep 0.5
	for step; do
		eval "$step" && continue
		echo "failed: $step"
		stop_talking
		cat "$tmp/talk" "$tmp/err" "$tmp/err.b"
		return 1
	done
	wait $talker || { cat "$tmp/talk" "$tmp/csv"; return 1; }
}

logged()				# a or b, PATTERN - in its log, once perf has ended
{
	[ "$1" = a ] && log=$tmp/err || log=$tmp/err.b
	grep -qE "$2" "$log" || { echo "$1 has not logged: $2"; cat "$log"; return 1; }
}

reversed="don't get through; lane . takes a connection that the peer has made"

shut_in()				# RULE
{
	play "wall b '$1'" cut_streams "goes_on 'data moves' flows" && logged a "$reversed"
}

for rule in 'tcp flags & (syn | ack) == syn drop' \
	'tcp flags & (syn | ack) == syn reject with icmp type admin-prohibited'; do
	case_ "from the end that dials: $rule" shut_in "$rule"
done

again()
{
	play "wall b 'tcp flags & (syn | ack) == syn drop'" cut_streams "goes_on 'data moves' flows" \
		cut_streams "goes_on 'data moves again' flows" "no_wall b" cut_streams \
		"goes_on 'data moves' flows" "wall b 'tcp flags & (syn | ack) == syn drop'" \
		"wall a 'tcp flags & (syn | ack) == syn drop'" "sleep 0.2" "no_wall a" "no_wall b" &&
		logged a "$reversed"
}
talk_s=14
case_ "twice; and once more when the firewall is gone" again
talk_s=12

lanes()
{
	play "wall b 'tcp flags & (syn | ack) == syn drop'" cut_streams "goes_on 'data moves' flows" \
		"goes_on 'all lanes are back' has_streams 4" && logged a "$reversed"
}
env_case="BRAID_LANES=4"
case_ "four lanes all come back" lanes

one_of_four()
{
	# shellcheck disable=SC2016 # play expands it
	play "wall b 'tcp flags & (syn | ack) == syn drop'" \
		'one=$(in_a ss -Htn state established dst 10.77.1.2 | awk "NR == 2 { sub(/.*:/, \"\", \$3); print \$3 }")' \
		'in_a ss -KHtn state established dst 10.77.1.2 sport = :$one >/dev/null' \
		"goes_on 'all lanes are back' has_streams 4" && logged a "$reversed"
}
case_ "one of four lanes comes back" one_of_four

more()
{
	no_wall b
	# the first connection comes through
	wall b 'tcp flags & (syn | ack) == syn limit rate over 1/hour burst 1 packets drop'
	env_both="$common BRAID_LANES=4"
	checked --verbose --pattern oneway --sizes 64k --inflight 4 --seconds $((4 * slow)) --timeout 60 \
		>"$tmp/talk" 2>&1 &
	talker=$!
	goes_on 'four lanes are up' has_streams 4 || { wait $talker; cat "$tmp/talk" "$tmp/err"; return 1; }
	wait $talker || { cat "$tmp/talk"; return 1; }
	logged a "$reversed"
}
case_ "a link's further lanes" more
env_case=

both_shut()
{
	env_case="BRAID_PEER_TIMEOUT=6" talk_s=9
	play "wall b 'tcp flags & (syn | ack) == syn drop'" "wall a 'tcp flags & (syn | ack) == syn drop'" \
		cut_streams "wait \$talker" >/dev/null 2>&1 && { echo "it went on"; return 1; }
	env_case='' talk_s=12
	logged a "our connections to 10[.]77[.]1[.]2.* fail .*none of the peer's has come.*peer-lost" &&
		logged b "our connections to 10[.]77[.]1[.]1.* fail .*none of the peer's has come.*peer-lost"
}
case_ "in both directions: an error in time, which names both tries" both_shut

# -- over NICs ------------------------------------------------------------------------------------

# packets - do packets of NICs move?
packets()
{
	was=$(BRAID_TEST_FAKE_FABRIC=$tmp/nics-$kind "$fake/fakectl" "count packets")
	sleep 0.1
	is=$(BRAID_TEST_FAKE_FABRIC=$tmp/nics-$kind "$fake/fakectl" "count packets")
	[ "$is" -gt $((was + 50)) ]
}

# The wall does not hold rdma_cm's requests, which are no packets here: they come too late instead.
nic()
{
	play "wall b 'tcp flags & (syn | ack) == syn drop'" \
		'BRAID_TEST_FAKE_FABRIC=$tmp/nics-$kind "$fake/fakectl" "requests b/mlx5_0/1 600000"' \
		cut_streams "goes_on 'the lane is back' has_streams 1" "goes_on 'packets move' packets" &&
		logged a "$reversed"
}

fake=${BRAID_TEST_BUILDDIR:-.}/tests/fake
for kind in rocev2 iwarp ib; do
	if [ -e "$fake/.libs/libibverbs.so.1" ]; then
		env_case="LD_LIBRARY_PATH=$fake/.libs BRAID_TEST_FAKE_FABRIC=$tmp/nics-$kind"
		env_a="BRAID_TEST_FAKE_HOST=a BRAID_TEST_FAKE_DEVICES=mlx5_0:$kind,netdev=w1"
		env_b="BRAID_TEST_FAKE_HOST=b BRAID_TEST_FAKE_DEVICES=mlx5_0:$kind,netdev=w1"
		case_ "over a NIC ($kind, of tests/fake): data moves again, and the end that dials says how" nic
	else
		no_case "over a NIC ($kind)" "built without RDMA"
	fi
done

# -- over SMC -------------------------------------------------------------------------------------

is_smc_again()
{
	[ "$(grep -c "lane 0 is SMC-R" "$tmp/err")" -ge 2 ]
}

# The streams of TCP and of SMC end one after the other, so SMC may first count as failed.
smc()
{
	env_case="LD_PRELOAD=$fake_smc FAKE_SMC=smcr BRAID_TRANSPORTS=smc,tcp"
	play "wall b 'tcp flags & (syn | ack) == syn drop'" cut_streams "goes_on 'data moves' flows" \
		"goes_on 'it is SMC again' is_smc_again" && logged a "$reversed"
}

env_a='' env_b=''
fake_smc=${BRAID_TEST_BUILDDIR:-.}/tests/fakesmc/.libs/smc.so
if [ -e "$fake_smc" ]; then
	case_ "over SMC (of tests/fakesmc): it is SMC again" smc
else
	no_case "over SMC" "tests/fakesmc is not built"
fi
done_
