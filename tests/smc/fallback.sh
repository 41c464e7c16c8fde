#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# fallback.sh - what becomes of a connection that is to be SMC: it is; it falls back; it hangs; it
# breaks; the peer has none.  Over the fake: what is shown is what Braid does about it.
# shellcheck source=tests/smc/lib.sh
. "$(dirname "$0")/lib.sh"

warns()				# of both ends
{
	cat "$tmp"/err.[ab] | grep -c "WARN.*$1"
}

# check WHAT COMMAND... - and what both ends said, if it fails.
check()
{
	what=$1
	shift
	if "$@"; then
		verdict 0 "$what"
	else
		cat "$tmp"/out.b "$tmp"/err.[ab] 2>/dev/null
		verdict 1 "$what"
	fi
}

small="--sizes 8,64k,1m --iters 20 --comms 2"

# carried BY - all lanes are SMC of that kind at both ends, and nobody complains
carried()
{
	# shellcheck disable=SC2086
	pair "$1" "$1" $small || return
	for end in a b; do
		grep -q "lane 0 is $2" "$tmp/err.$end" || return
	done
	[ "$(warns .)" = 0 ]
}

# fell_back MODE REASON - TCP carries it, with one WARN at each end, the dialler's with the reason
fell_back()
{
	# shellcheck disable=SC2086
	pair "$1" "$1" $small || return
	[ "$(warns "tcp carries lane 0: this end can't have smc (connect: fell back to TCP, $2")" = 1 ] ||
		return
	[ "$(warns "tcp carries lane 0: the peer can't have smc (fell back to TCP, $2")" = 1 ] || return
	[ "$(warns .)" = 2 ]
}

# refused MODE REASON - there is nothing but SMC: an error that says why
refused()
{
	# shellcheck disable=SC2086
	! BRAID_TRANSPORTS=smc pair "$1" "$1" $small || return
	[ "$(warns "this end can't have smc (connect: fell back to TCP, $2")" -ge 1 ]
}

# hangs MODE - TCP carries it after half of the handshake's limit, and messages don't wait at all
hangs()
{
	before=$(date +%s)
	BRAID_HANDSHAKE_TIMEOUT=2 BRAID_LANES=2 pair "$1" "$1" --sizes 1m --seconds 2 --inflight 4 || return
	took=$(($(date +%s) - before))
	[ "$(warns "tcp carries lane 0: this end can't have smc (connect() does not come back from the kernel)")" = 1 ] ||
		return
	[ "$(warns "connect() of an SMC socket has not come back .* left behind.*\[stuck-in-kernel\]")" = 1 ] || return
	# and it is not tried again
	[ "$(cat "$tmp"/err.[ab] | grep -c "is back")" = 0 ] || return
	echo "took $took s"
	[ $took -lt $((15 * slow)) ]
}

# breaks - streams fail again and again under load: TCP takes over, SMC comes back, nothing is lost
breaks()
{
	BRAID_LANES=$1 pair break:20000000 break:20000000 --sizes 1m --seconds 8 --inflight 4 \
		--pattern bidir || return
	# of the dialler: how often it was SMC, and how often it came back, which at first is TCP
	grep -l "is up, dialled" "$tmp"/err.[ab] >"$tmp/dialler" || return
	smc=$(grep -c "lane 0 is SMC-R" "$(cat "$tmp/dialler")")
	back=$(grep -c "lane 0 is back" "$(cat "$tmp/dialler")")
	echo "lane 0 was SMC-R $smc times, and came back $back times"
	[ "$smc" -ge 2 ] && [ "$back" -ge "$smc" ] && grep -q "lane 0 is lost" "$tmp"/err.[ab]
}

# flips SIZES - each stream changes a bit: what came is sent again, TCP takes over at the third time
flips()
{
	BRAID_CHECKSUM=on BRAID_LANES=2 pair flip:3000001 flip:3000001 --sizes "$1" --seconds 8 --inflight 4 \
		--pattern bidir || return
	grep -q "WARN.*, over lane [01] (smc, lo).*\[corrupt-data\]" "$tmp"/err.[ab] || return
	grep -q "lane [01] (smc, lo) is left for .* TCP carries the lane meanwhile \[lane-left\]" "$tmp"/err.[ab]
}

# one_sided A B WORDS - an end without SMC: TCP, and words of the end that has it
one_sided()
{
	# shellcheck disable=SC2086
	pair "$1" "$2" $small || return
	grep -q "WARN.*the peer does not offer smc" "$tmp/err.$3" || return
	grep -q "smc: $4" "$tmp/err.$([ "$3" = a ] && echo b || echo a)"
}

has_inet()
{
	FAKE_SMC_INET=1 carried smcr "SMC-R over fake0:1"
}

over_ipv6()
{
	[ -e /proc/net/if_inet6 ] && grep -q " lo$" /proc/net/if_inet6 || { echo "no IPv6 here"; return 0; }
	BRAID_SOCKET_FAMILY=AF_INET6 carried smcr "SMC-R"
}

export BRAID_TRANSPORTS=smc,tcp
check "SMC-R" carried smcr "SMC-R over fake0:1"
check "SMC-D" carried smcd "SMC-D"
check "SMC-R by IPPROTO_SMC" has_inet
check "SMC-R over IPv6" over_ipv6
check "no SMC device" fell_back tcp:03030000 "reason 0x03030000: no device for SMC"
check "no UEID" fell_back tcp:03030008 "reason 0x03030008: the ends have no UEID in common"
check "no SMC in the peer's kernel" fell_back tcp:03010000 "reason 0x03010000: the peer's kernel did not"
check "the peer declines, and why" \
	fell_back tcp:05000000:03070000 "the peer's reason 0x03070000: the ends are in different subnets"
check "a reason of a later kernel" fell_back tcp:03990000 "reason 0x03990000: one that is newer"
check "nothing but SMC allowed" refused tcp:03030000 "reason 0x03030000: no device for SMC"
check "a connect that hangs" hangs hang:20
check "a connect that hangs, and closes that hang" hangs hard:20
check "the only lane breaks" breaks 1
check "four lanes break" breaks 4
check "bits change in large messages" flips 1m
check "bits change in small messages" flips 64
check "the accepter has none" one_sided none smcr b "the kernel has no AF_SMC"
check "the dialler has none" one_sided smcr none a "the kernel has no AF_SMC"
check "no smc_diag" one_sided nodiag smcr b "the kernel does not tell"
