/* SPDX-License-Identifier: BSD-3-Clause */
/* text.h - text that is put together piece by piece, in a buffer of fixed size. */
#ifndef BRAID_TOPO_TEXT_H
#define BRAID_TOPO_TEXT_H

#include <stddef.h>

struct braid_topo_text {
	char *text;			/* NULL: nothing is written */
	size_t len, used;		/* used may be more than len: then the text is cut */
};

void braid_topo_add(struct braid_topo_text *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
