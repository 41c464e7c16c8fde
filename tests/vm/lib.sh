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
#
# Two guests have three wires, as two hosts of tests/net/lib.sh have: w0, w1 and w2, 10.77.N.1 in
# guest 1 and 10.77.N.2 in guest 2, and perf's own connection is on wire 0.

vm=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${BRAID_TEST_GUEST-}" ]; then
	exec "$vm/run" --guests "${guests:-1}" --minutes "${minutes:-4}" "$0"
fi
guest=$BRAID_TEST_GUEST
# shellcheck source=tests/net/lib.sh
. "$vm/../net/lib.sh"

# -- one guest, two namespaces --------------------------------------------------------------------

# netem WIRE WHAT... - what tc-netem(8) has, both ways; nothing: the wire is good again.  Frames are
# on the wire as they would be on a real one, not put together by the kernel.
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

# counted COUNTER - what the kernel counted in both namespaces, by its name in nstat(8).
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

# take NAME - its value, as soon as the other guest has given it; false if that has ended instead.
take()
{
	until [ -e "$BRAID_TEST_SHARE/word.$1" ]; do
		! other_ended || return
		sleep 0.1
	done
	cat "$BRAID_TEST_SHARE/word.$1"
}

# serve - what guest 2 does for talk and there in guest 1, until that has ended.
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

# there COMMAND... - in guest 2, while it serves; its status.
asked=0
there()
{
	give do.$asked "$*"
	there_rc=$(take did.$asked)
	asked=$((asked + 1))
	return "$there_rc"
}

if [ "${guests:-1}" = 2 ]; then
	# talk OPTIONS... - as in tests/net/lib.sh, from guest 1 to guest 2.
	talk()
	{
		port=$(take port)
		# shellcheck disable=SC2086
		env $env_both $env_a timeout $((60 * slow)) "$braid" perf --plugin "$plugin" \
			--connect 10.77.0.2:"$port" --check --csv --seconds 0.05 "$@" \
			>"$tmp/csv" 2>"$tmp/err" || { cat "$tmp/err"; return 1; }
	}
fi
