/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fakectl.c - braid_fake_ctl() for scripts: fakectl 'port ib0 down' 'count packets' ...
 *
 * BRAID_TEST_FAKE_FABRIC names the fabric; its NICs are those that some process has named before.
 * Counts are printed, one a line.
 */
#include "tests/fake/ctl.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	int failed = 0;

	for (int i = 1; i < argc; i++) {
		long rc = braid_fake_ctl(argv[i]);

		if (rc < 0) {
			fprintf(stderr, "fakectl: %s: %s\n", argv[i], strerror((int)-rc));
			failed = 1;
		} else if (!strncmp(argv[i], "count", 5)) {
			printf("%ld\n", rc);
		}
	}
	return failed;
}
