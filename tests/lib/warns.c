/* SPDX-License-Identifier: BSD-3-Clause */
/* warns.c - see warns.h. */
#include "tests/lib/warns.h"

#include <stdio.h>

#include "core/base/log.h"

unsigned warn_count;
char warn_text[1024];

static void keep(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file, (void)line;
	if (level != BRAID_LOG_WARN)
		return;
	warn_count++;
	snprintf(warn_text, sizeof(warn_text), "%s", text);
}

void warns_clear(void)
{
	warn_count = 0;
	warn_text[0] = '\0';
}

void warns_keep(void)
{
	warns_clear();
	braid_log_to(keep);
}
