#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# shm.sh - UCX over memory that processes share.
tls=shm,self
# shellcheck source=tests/ucx/lib.sh
. "$(dirname "$0")/lib.sh"
