#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# needed.sh - the plugin needs libc alone (and its loader, which a few architectures name): it is
# one file to copy into a container that has neither libibverbs nor libsodium.
set -u
# shellcheck source=tests/tidy/lib.sh
. "$(dirname "$0")/lib.sh"

plugin=${BRAID_TEST_PLUGIN:?}

if [ -n "${BRAID_TEST_SANITIZER-}" ]; then
	echo "skip: a sanitizer build needs the sanitizer's runtime"
	exit 77
fi

# Print what $1 needs beyond that.
surplus()
{
	readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
		grep -Ev '^(libc\.so\.6|ld-linux[-a-z0-9_]*\.so\.[0-9]+|ld64\.so\.[0-9]+)$'
}

# Print which of the promised flags $1 lacks.
flags()
{
	readelf -d "$1" | awk '
	/\(FLAGS_1\)/ { now = /NOW/; nodelete = /NODELETE/ }
	/\((TEXTREL|RPATH|RUNPATH)\)/ { print "has " $2 }
	END {
		if (!now)
			print "not linked with -z now"
		if (!nodelete)
			print "not linked with -z nodelete"
	}'
	readelf -lW "$1" | grep -q GNU_RELRO || echo "not linked with -z relro"
	if readelf -lW "$1" | grep -q 'GNU_STACK.*E'; then
		echo "wants an executable stack"
	fi
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

if [ ! -e "$plugin" ]; then
	report "the plugin is there" "$plugin does not exist"
else
	report "needs libc alone" "$(surplus "$plugin")"
	report "is linked now, relro, nodelete, without run path" "$(flags "$plugin")"
fi

echo 'double planted(double x); double sin(double); double planted(double x) { return sin(x); }' \
	>"$tmp/a.c"
${BRAID_TEST_CC:-cc} -shared -fPIC -o "$tmp/a.so" "$tmp/a.c" -Wl,--no-as-needed -lm -Wl,-z,lazy
if [ "$(surplus "$tmp/a.so")" = libm.so.6 ] && [ -n "$(flags "$tmp/a.so")" ]; then
	report "libm and lazy binding are noticed" ""
else
	report "libm and lazy binding are noticed" "said: $(surplus "$tmp/a.so"; flags "$tmp/a.so")"
fi
echo "1..$n"
