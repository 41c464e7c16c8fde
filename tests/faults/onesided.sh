#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# onesided.sh - rows of the fault table with puts, signals and gets instead of messages: some that
# take little time, or with BRAID_TEST_ALL=1 every row that applies; see faults.c.
rows=F03,F11,F26,F27,F28,F32,F40
[ -z "$BRAID_TEST_ALL" ] || rows=
exec "${BRAID_TEST_BUILDDIR:-.}/tests/faults/faults" --tap --jobs 2 --one-sided --rows "$rows"
