#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# install.bats - make install puts each file in its place, under the names that NCCL and RCCL look for;
# make uninstall leaves nothing.

bats_require_minimum_version 1.5.0

build=${BRAID_TEST_BUILDDIR:?}

setup()
{
	[ -e "$build/Makefile" ] || skip "no build directory"
	tmp=$BATS_TEST_TMPDIR
}

# Runs make without building anything: tests that run beside this one use the same build.
made()					# TARGET... VARIABLE=VALUE...
{
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$build" -o git-hash.h -o config.h "$@"
}

installed()				# VARIABLE=VALUE...
{
	made install-exec-am install-data-am "$@"
}

@test "the plugin has the names that NCCL and RCCL look for" {
	installed DESTDIR="$tmp/root" prefix=/usr
	for name in libnccl-net-braid.so librccl-net-braid.so; do
		cmp "$build/plugin/.libs/libnccl-net-braid.so" "$tmp/root/usr/lib/$name"
	done
	# A job gets the plugin only if it asks for it.
	[ ! -e "$tmp/root/usr/lib/libnccl-net.so" ]
	[ -x "$tmp/root/usr/bin/braid" ]
}

@test "a link by NCCL's own name is installed where it is asked for" {
	installed DESTDIR="$tmp/root" prefix=/usr INSTALL_LINKS="librccl-net-braid.so libnccl-net.so"
	[ "$(readlink "$tmp/root/usr/lib/libnccl-net.so")" = libnccl-net-braid.so ]
}

@test "what the manual pages name is installed" {
	installed DESTDIR="$tmp/root"
	named=$(sed 's/\\&//g' "$build/docs/man/braid.1" "$build/docs/man/braid-params.7" | grep -oE '[^ (]*user/[a-z]+\.md')
	[ "$(wc -l <<<"$named")" -ge 6 ]
	for file in $named; do
		[[ $file == /* ]]
		[ -s "$tmp/root$file" ] || { echo "$file is not installed"; return 1; }
	done
	run -1 grep docs/user "$build/docs/man/braid.1" "$build/docs/man/braid-params.7"
}

@test "a manual page leaves values as they are typed" {
	grep -qx 'pingpong oneway bidir rate allreduce .*' "$build/docs/man/braid.1"
	run -1 grep -E '^(Pingpong|Perftest|Bash|Quick|Of tcp)' "$build/docs/man/braid.1"
}

@test "a directory that the loader does not search is named in the line for the job" {
	command -v ldconfig >/dev/null || PATH=$PATH:/usr/sbin:/sbin
	command -v ldconfig >/dev/null || skip "ldconfig is not installed"
	run -0 installed prefix="$tmp/own"
	[[ $output == *"export NCCL_NET_PLUGIN=$tmp/own/lib/libnccl-net-braid.so"* ]]
}

@test "an install for a package says nothing about this host" {
	run -0 installed DESTDIR="$tmp/root" prefix=/usr
	[[ $output != *NCCL_NET_PLUGIN* ]]
}

@test "uninstall leaves no file" {
	installed DESTDIR="$tmp/root" prefix=/usr
	made uninstall DESTDIR="$tmp/root" prefix=/usr
	[ -z "$(find "$tmp/root" ! -type d)" ]
}
