/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - see text.h. */
#include "topo/text.h"

#include <stdarg.h>
#include <stdio.h>

void braid_topo_add(struct braid_topo_text *w, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (!w->text || w->used + 1 >= w->len)
		return;
	va_start(ap, fmt);
	n = vsnprintf(w->text + w->used, w->len - w->used, fmt, ap);
	va_end(ap);
	w->used += n > 0 ? (size_t)n : 0;
}
