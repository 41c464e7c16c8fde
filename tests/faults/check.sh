#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# check.sh - the fault runner's short form: every row once, one case each; see faults.c.
exec "${BRAID_TEST_BUILDDIR:-.}/tests/faults/faults" --tap --jobs 2
