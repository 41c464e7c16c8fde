/* SPDX-License-Identifier: BSD-3-Clause */
/* warns.h - count the WARN lines of core and keep the last one, in place of NCCL's logger. */
#ifndef BRAID_TESTS_WARNS_H
#define BRAID_TESTS_WARNS_H

extern unsigned warn_count;			/* WARN lines since warns_keep() or warns_clear() */
extern char warn_text[1024];		/* the last WARN line */

void warns_keep(void);			/* starts; braid_log_to(NULL) stops */
void warns_clear(void);

#endif
