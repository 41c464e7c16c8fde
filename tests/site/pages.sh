#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# pages.sh - make docs: the site is whole, its links lead somewhere, and it asks nothing of a network.
#
# Copies of the site with one offence each prove that it would be noticed.
set -u

src=${BRAID_TEST_SRCDIR:-.}
man=${BRAID_TEST_BUILDDIR:-.}/docs/man
n=0 failed=0

for tool in pandoc mandoc python3; do
	if ! command -v $tool >/dev/null; then
		echo "1..0 # SKIP there is no $tool"
		exit 0
	fi
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

result()				# STATUS NAME
{
	n=$((n + 1))
	[ "$1" = 0 ] || failed=1
	[ "$1" = 0 ] && echo "ok $n - $2" || echo "not ok $n - $2"
}

look()					# SITE
{
	python3 "$src/tests/site/look.py" "$src" "$1"
}

sh "$src/docs/site/build" "$src" "$man" "$dir/site"
result $? the_site_is_built
look "$dir/site"
result $? every_link_resolves_and_nothing_comes_from_a_network

# OFFENCE FILE SED - one change of one page is noticed.
planted()
{
	cp -r "$dir/site" "$dir/planted"
	sed -i "$3" "$dir/planted/$2"
	if cmp -s "$dir/site/$2" "$dir/planted/$2"; then
		echo "# $1: nothing was changed in $2"
		result 1 "$1_is_noticed"
	else
		! look "$dir/planted" >/dev/null
		result $? "$1_is_noticed"
	fi
	rm -rf "$dir/planted"
}

planted a_dead_link user/rdma.html 's|href="reliability.html|href="reliable.html|; s|<p>|<p><a href="none.html">x</a>|'
planted a_dead_heading user/reliability.html 's|messages.html#corrupt-data|messages.html#corrupt-dates|'
planted a_script_from_elsewhere index.html 's|</head>|<script src="https://example.org/a.js"></script></head>|'
planted a_font_from_elsewhere style.css 's|^body {|@import url(https://example.org/a.css); body {|'
planted a_picture_from_elsewhere user/rdma.html 's|<p>|<p><img src="//example.org/a.png">|'
planted a_page_without_a_title dev/wire.html 's|<title>.*</title>|<title> - Braid</title>|'
planted a_path_that_is_no_link user/rdma.html 's|<p>|<p>docs/user/gpu.md |'

# A document that links to one that is not there stops the build.
mkdir "$dir/src"
cp -r "$src/README.md" "$src/CONTRIBUTING.md" "$src/SECURITY.md" "$src/docs" "$dir/src/"
echo '[gone](gone.md)' >>"$dir/src/docs/user/addresses.md"
! sh "$src/docs/site/build" "$dir/src" "$man" "$dir/none" >"$dir/log" 2>&1 &&
	grep -q 'docs/user/addresses.md: gone.md has no page' "$dir/log" && [ ! -e "$dir/none/index.html" ]
result $? a_document_that_is_not_there_stops_the_build

# Without the generator one line says what is missing.
mkdir "$dir/bin"
ln -s "$(command -v mandoc)" "$dir/bin/mandoc"
! PATH=$dir/bin /bin/sh "$src/docs/site/build" "$src" "$man" "$dir/none" 2>"$dir/log" &&
	grep -q ': pandoc$' "$dir/log"
result $? a_missing_generator_is_named
echo "1..$n"
exit $failed
