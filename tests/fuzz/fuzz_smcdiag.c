/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_smcdiag.c - any bytes as the kernel's answer about sockets of SMC: an error, or a mode that
 * exists and can be put into words.  The first eight bytes are the inode that is looked for.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "smc/diag.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct braid_smc_mode m = { .found = false };
	uint64_t inode;
	char text[160];
	int n;

	if (size < sizeof(inode))
		return 0;
	memcpy(&inode, data, sizeof(inode));
	n = braid_smc_diag_parse(data + sizeof(inode), size - sizeof(inode), inode, &m);
	assert(n <= 1 && n >= -4095);
	assert(m.kind <= BRAID_SMC_D);
	assert(memchr(m.ib, 0, sizeof(m.ib)));
	if (m.found && m.kind == BRAID_SMC_TCP) {
		braid_smc_why(&m, text, sizeof(text));
		assert(strlen(text) < sizeof(text));
	}
	return 0;
}
