/* SPDX-License-Identifier: BSD-3-Clause */
/* transports.h - the ids of transports.def. */
#ifndef BRAID_BASE_TRANSPORTS_H
#define BRAID_BASE_TRANSPORTS_H

#define BRAID_TRANSPORTS_ALL
enum {				/* ids on the wire: BRAID_TRANSPORT_TCP and so on */
#define BRAID_TRANSPORT(folder, table, word, id, number) BRAID_TRANSPORT_##id = number,
#include "core/base/transports.def"
#undef BRAID_TRANSPORT
};
enum {
#define BRAID_TRANSPORT(folder, table, word, id, number) BRAID_TRANSPORT_##id##_ROW,
#include "core/base/transports.def"
#undef BRAID_TRANSPORT
	BRAID_TRANSPORT_ROWS,
	BRAID_TRANSPORT_IDS = BRAID_TRANSPORT_ROWS + 1,
};
#undef BRAID_TRANSPORTS_ALL

#endif
