/* SPDX-License-Identifier: BSD-3-Clause */
/* layout.c - see layout.h. */
#include "tests/nccl/layout.h"

enum { VERSION_MIN = 22703, VERSION_MAX = 23007 };
enum { ROWS_OLD = 1996, ROWS_NEW = 1999 };

bool layout_of(int version, struct nccl_layout *ret)
{
	if (version < VERSION_MIN || version > VERSION_MAX)
		return false;
	*ret = (struct nccl_layout){ .coll_size = 96, .coll_bufs = 8, .coll_parts = 56, .rows = ROWS_OLD };
	ret->mirrored_parts = version < 22800;
	if (version >= 22900) {
		ret->new_ring = true;
		ret->rows = ROWS_NEW;
	}
	if (version >= 23000) {
		ret->coll_size = 128;
		ret->coll_bufs = 24;
		ret->coll_parts = 80;
	}
	return true;
}

/* The rows of a collective: reductions times types times algorithms times protocols. */
struct block {
	enum coll coll;
	unsigned kinds, algorithms, ring;	/* `ring`: which of the algorithms it is */
};

struct nccl_func layout_func(const struct nccl_layout *l, unsigned row)
{
	const struct block blocks[] = {
		{ ALL_GATHER, 1, 4, 0 },
		{ BROADCAST, 1, 1, 0 },
		{ ALL_GATHER_V, l->rows == ROWS_NEW, 1, 0 },
		{ ALL_REDUCE, REDUCTIONS * TYPES, 6, 1 },
		{ REDUCE, REDUCTIONS * TYPES, 1, 0 },
		{ REDUCE_SCATTER, REDUCTIONS * TYPES, 4, 0 },
	};

	if (row--) {
		for (unsigned i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
			const struct block *b = &blocks[i];
			unsigned n = b->kinds * b->algorithms * PROTOCOLS, kind;

			if (row >= n) {
				row -= n;
				continue;
			}
			kind = row / PROTOCOLS / b->algorithms;
			return (struct nccl_func){
				.coll = b->coll, .op = kind / TYPES, .type = kind % TYPES,
				.ring = row / PROTOCOLS % b->algorithms == b->ring,
				.proto = row % PROTOCOLS,
			};
		}
	}
	return (struct nccl_func){ .coll = SEND_RECV, .ring = true, .proto = SIMPLE };
}
