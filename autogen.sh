#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# autogen.sh - make ./configure from configure.ac; needs autoconf, automake and libtool.
set -eu
cd "$(dirname "$0")"
exec autoreconf --force --install "$@"
