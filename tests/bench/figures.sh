# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# figures.sh - rounds of measurements of several programs, and their ratios.  Sourced by what prints
# them, which has $tmp, $slow (a factor on deadlines), $braid and $plugin.
#
# A round measures every row, and within a row the programs one after the other.  Printed are medians
# over BRAID_TEST_ROUNDS (5) and, for the ratio, the median of the rounds' own ratios with its range.

rounds=${BRAID_TEST_ROUNDS:-5}

# all_rounds COMMAND - forget the figures there are, and run the command in each round.
all_rounds()
{
	: >"$tmp/figures"
	round=0
	while [ $round -lt "$rounds" ]; do
		round=$((round + 1))
		"$@"
	done
}

# figure ROW PROGRAM COMMAND... - what the command prints, or else prints the second time.
figure()
{
	row=$1 who=$2
	shift 2
	"$@" >"$tmp/value" || "$@" >"$tmp/value" || echo "$row: $who gave no figure"
	echo "$row $who $round $(cat "$tmp/value")" >>"$tmp/figures"
}

# by_braid COLUMN SCALE OPTIONS... - from braid perf's CSV.
by_braid()
{
	column=$1 scale=$2
	shift 2
	timeout $((30 * slow)) "$braid" perf --plugin "$plugin" --csv --spin "$@" >"$tmp/csv" 2>"$tmp/err" || {
		cat "$tmp/err" >&2
		return 1
	}
	awk -F, -v column="$column" -v scale="$scale" '
		NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		{ printf "%.3f\n", $at[column] * scale }' "$tmp/csv"
}

table()				# ROW UNIT REFERENCE [BESIDE]
{
	awk -v row="$1" -v unit="$2" -v ref="$3" -v beside="${4-}" '
		$1 != row || $4 == "" { next }
		{
			value[$2, $3] = $4
			list[$2] = list[$2] " " $4
			rounds[$3]
		}
		function median(text,	v, n, i, j, t) {
			n = split(text, v, " ")
			for (i = 2; i <= n; i++)
				for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) {
					t = v[j]
					v[j] = v[j - 1]
					v[j - 1] = t
				}
			lowest = n ? v[1] : 0
			highest = n ? v[n] : 0
			return n % 2 ? v[(n + 1) / 2] : n ? (v[n / 2] + v[n / 2 + 1]) / 2 : 0
		}
		END {
			for (r in rounds)
				if (value[ref, r] > 0 && value["braid", r] > 0)
					ratios = ratios " " value["braid", r] / value[ref, r]
			printf "%-4s %-5s %9.2f", row, unit, median(list["braid"])
			printf "  %-11s %9.2f", ref, median(list[ref])
			ratio = median(ratios)
			printf "  ratio %5.2f (%.2f to %.2f)", ratio, lowest, highest
			if (beside != "")
				printf "  %s %.1f", beside, median(list[beside])
			print ""
		}' "$tmp/figures"
}
