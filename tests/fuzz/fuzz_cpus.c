/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_cpus.c - any text as a list of CPUs: refused with nothing changed, or a set that is written
 * and read back the same.  A set never has what the text's largest number does not reach.
 */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topo/cpus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned largest(const char *text)
{
	unsigned most = 0;

	while (*text) {
		if (isdigit((unsigned char)*text)) {
			unsigned n = (unsigned)strtoul(text, (char **)(uintptr_t)&text, 10);

			most = n > most ? n : most;
		} else {
			text++;
		}
	}
	return most;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char back[8 * BRAID_CPUS_MAX];
	struct braid_cpus c, again, before;
	char *text = malloc(size + 1), few[16];
	size_t len;

	assert(text);
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	memset(&c, 0x5a, sizeof(c));
	before = c;
	if (braid_cpus_parse(text, &c) < 0) {
		assert(memcmp(&c, &before, sizeof(c)) == 0);
	} else {
		for (unsigned i = largest(text) + 1; i < BRAID_CPUS_MAX; i++)
			assert(!braid_cpus_has(&c, i));
		assert(braid_cpus_empty(&c) == !*text);
		len = braid_cpus_format(&c, back, sizeof(back));
		assert(len == strlen(back));
		assert(braid_cpus_parse(back, &again) == 0);
		assert(memcmp(&c, &again, sizeof(c)) == 0);
		assert(braid_cpus_format(&c, few, sizeof(few)) == len);
		assert(strlen(few) <= len && strncmp(few, back, strlen(few)) == 0);
	}
	free(text);
	return 0;
}
