#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# slurm-prolog.sh - Slurm's Prolog: drain a node on which a check of `braid doctor` fails.
#
# In slurm.conf: Prolog=/etc/slurm/braid-prolog.sh, readable and executable by root alone.  Slurm
# drains a node whose prolog does not exit with 0, and queues the job again.  So every other outcome
# ends with 0: braid is missing or too slow, a check warns, braid itself is broken.  One line in
# the system log says what came of it.
set -u

# slurmd sets no search path.
PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin
export PATH

say()					# PRIORITY TEXT
{
	logger -t braid-prolog -p "daemon.$1" -- "job ${SLURM_JOB_ID:-?}: $2"
}

# LEVEL - the ids of the checks of this level.
checks()
{
	printf '%s\n' "$found" | awk -v level="$1" '$1 == level { ids = ids " " $2 } END { print ids }'
}

if ! command -v braid >/dev/null; then
	say warning "braid is not installed; nothing was checked"
	exit 0
fi

# A check may take six seconds.  To drain for some checks only, add --only net,rdma,limits.
found=$(timeout -k 5 30 braid doctor 2>&1)
status=$?

case $status in
0) say info "no check fails; warnings:$(checks warn)" ;;
1)
	# An exit status of 1 could have another cause: a check that fails has a line of its own.
	failed=$(checks fail)
	if [ -n "$failed" ]; then
		say err "draining this node; checks that fail:$failed; see braid doctor"
		exit 1
	fi
	say warning "braid doctor ended with status 1, but no check fails"
	;;
124 | 137) say warning "braid doctor took more than 30 seconds; nothing was checked" ;;
*) say warning "braid doctor ended with status $status; nothing was checked" ;;
esac
exit 0
