#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# no-cmocka.sh - stands for the unit and ABI tests in a build that could not have them.
echo "skip: the unit and ABI tests need cmocka (Debian: libcmocka-dev)"
exit 77
