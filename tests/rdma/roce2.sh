#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# roce2.sh - RoCE v2; and peers that have TCP alone.
nics=roce0:rocev2,netdev=lo
programs="abi/test_badpeer abi/test_strangers"
# shellcheck source=tests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
