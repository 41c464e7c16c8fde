/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cursor.h - pack and unpack, for handle.c, hello.c and frame.c.  A cursor walks the bytes in
 * order, so that the two directions read alike.
 */
#ifndef BRAID_PROTO_CURSOR_H
#define BRAID_PROTO_CURSOR_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

struct cursor {
	uint8_t *w;
	const uint8_t *r;
};

#define PUT(BITS)								\
	static inline void put##BITS(struct cursor *c, uint##BITS##_t v)	\
	{									\
		v = htole##BITS(v);						\
		memcpy(c->w, &v, sizeof(v));					\
		c->w += sizeof(v);						\
	}									\
	static inline uint##BITS##_t get##BITS(struct cursor *c)		\
	{									\
		uint##BITS##_t v;						\
										\
		memcpy(&v, c->r, sizeof(v));					\
		c->r += sizeof(v);						\
		return le##BITS##toh(v);					\
	}

PUT(16)
PUT(32)
PUT(64)

static inline void put8(struct cursor *c, uint8_t v)
{
	*c->w++ = v;
}

static inline uint8_t get8(struct cursor *c)
{
	return *c->r++;
}

static inline void put_bytes(struct cursor *c, const void *from, size_t n)
{
	memcpy(c->w, from, n);
	c->w += n;
}

static inline void get_bytes(struct cursor *c, void *to, size_t n)
{
	memcpy(to, c->r, n);
	c->r += n;
}

#endif
