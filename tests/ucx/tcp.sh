#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tcp.sh - UCX over its TCP.
tls=tcp,self
# shellcheck source=tests/ucx/lib.sh
. "$(dirname "$0")/lib.sh"
