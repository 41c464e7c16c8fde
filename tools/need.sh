# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# need.sh - installs packages that a bare Debian 12 lacks.  Sourced by tools/quickstart, tests/run and .ci/run.

# shellcheck disable=SC2034 # for scripts that source this
need_build="autoconf automake libtool make gcc libc6-dev libsodium-dev libjansson-dev libibverbs-dev librdmacm-dev libhwloc-dev libucx-dev libnl-genl-3-dev"
# shellcheck disable=SC2034
need_tests="libcmocka-dev bats binutils iproute2 procps tcpdump openmpi-bin nftables jq python3 python3-jsonschema python3-yaml zsh fish"

# need PACKAGE... - install those that are missing, and only those; false if that fails.
need()
{
	need_missing=
	if ! command -v dpkg-query >/dev/null; then
		echo "This is no Debian: taking for granted what these packages have in it: $*"
		return 0
	fi
	for need_p; do
		dpkg-query -W -f '${Status}' "$need_p" 2>/dev/null | grep -q ' installed$' ||
			need_missing="$need_missing $need_p"
	done
	[ -n "$need_missing" ] || return 0
	if [ "$(id -u)" != 0 ]; then
		echo "Missing packages, which only root can install:$need_missing" >&2
		return 1
	fi
	echo "installing:$need_missing"
	need_log=$(mktemp)
	# If a mirror does not answer, go on: it may not be needed.
	DEBIAN_FRONTEND=noninteractive apt-get -q update >"$need_log" 2>&1 ||
		tail -n 5 "$need_log" >&2
	# shellcheck disable=SC2086 # a list
	if ! DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends \
		$need_missing >"$need_log" 2>&1 </dev/null; then
		tail -n 20 "$need_log" >&2
		rm -f "$need_log"
		return 1
	fi
	rm -f "$need_log"
}

# quietly LOG COMMAND... - run it with its output in LOG; show the end of LOG if it fails.
quietly()
{
	quietly_log=$1
	shift
	"$@" >"$quietly_log" 2>&1 </dev/null && return
	echo "failed: $*" >&2
	tail -n 30 "$quietly_log" >&2
	return 1
}

# configured OPTION... - build/ is configured with these options and its Makefile can be trusted.
configured()
{
	[ -x ./configure ] || quietly build/autogen.log ./autogen.sh || return
	# A build/ that another run configured may lack packages installed since.
	(cd build && quietly configure.log ../configure "$@")
}

jobs=$(nproc 2>/dev/null || echo 2)
