/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl.c - NCCL's variables for its own InfiniBand and socket code, which Braid replaces: how they
 * are read, which of them have no effect here, and the line that says so.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* secure_getenv */
#endif
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/param.h"

enum { LINE_MOST = 700, VALUE_MOST = 40, NAME_MOST = 80 };

const struct braid_nccl_row braid_nccl_rows[] = {
#define UNHEEDED(name, least, most, why) { "NCCL_" #name, least, most, why },
#include "core/base/nccl.def"
#undef UNHEEDED
};
const unsigned braid_nccl_count = sizeof(braid_nccl_rows) / sizeof(braid_nccl_rows[0]);

int braid_nccl_number(const char *text, int64_t *ret)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(text, &end, 0);
	if (errno == ERANGE)
		return -ERANGE;
	*ret = v;
	if (end == text)
		return 1;
	while (isspace((unsigned char)*end))
		end++;
	return *end ? 1 : 0;
}

/* Writes "NCCL_IB_USE_INLINE=1 (why)", or nothing if it is not set; returns the length. */
static size_t unheeded(const struct braid_nccl_row *row, char *ret, size_t len)
{
	const char *value = secure_getenv(row->name);

	if (!value || !*value)
		return 0;
	return (size_t)snprintf(ret, len, "%s=%.*s (%s)", row->name, VALUE_MOST, value, row->why);
}

void braid_nccl_log_ignored(void)
{
	char line[LINE_MOST] = "", one[2 * NAME_MOST + VALUE_MOST];
	size_t at = 0;

	for (unsigned i = 0; i < braid_nccl_count; i++) {
		size_t n = unheeded(&braid_nccl_rows[i], one, sizeof(one));

		if (!n)
			continue;
		if (at + n + 3 > sizeof(line)) {	/* a long list goes on in a second line */
			braid_info("not heeded: %s", line);
			at = 0;
		}
		at += (size_t)snprintf(line + at, sizeof(line) - at, "%s%s", at ? ", " : "", one);
	}
	if (at)
		braid_info("not heeded: %s", line);
}
