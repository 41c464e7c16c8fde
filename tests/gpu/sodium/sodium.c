/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sodium.c - BLAKE2b as RFC 7693 has it, for little-endian machines; see sodium.h.  That it is the
 * same function shows at once: ends whose MACs differ do not connect, and the RFC's own example is
 * tried in sodium_init().
 */
#include "tests/gpu/sodium/sodium.h"

#include <string.h>

static const uint64_t iv[8] = {
	0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
	0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static const uint8_t sigma[10][16] = {
	{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	{ 14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3 },
	{ 11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4 },
	{ 7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8 },
	{ 9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13 },
	{ 2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9 },
	{ 12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11 },
	{ 13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10 },
	{ 6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5 },
	{ 10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0 },
};

static uint64_t turned(uint64_t x, int n)
{
	return x >> n | x << (64 - n);
}

static void mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y)
{
	v[a] += v[b] + x;
	v[d] = turned(v[d] ^ v[a], 32);
	v[c] += v[d];
	v[b] = turned(v[b] ^ v[c], 24);
	v[a] += v[b] + y;
	v[d] = turned(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = turned(v[b] ^ v[c], 63);
}

static void compress(crypto_generichash_state *st, uint64_t last)
{
	uint64_t v[16], m[16];

	memcpy(m, st->block, sizeof(m));
	memcpy(v, st->h, sizeof(st->h));
	memcpy(v + 8, iv, sizeof(iv));
	v[12] ^= st->count;
	v[14] ^= last;
	for (int r = 0; r < 12; r++) {
		const uint8_t *s = sigma[r % 10];

		for (int i = 0; i < 4; i++)
			mix(v, i, 4 + i, 8 + i, 12 + i, m[s[2 * i]], m[s[2 * i + 1]]);
		for (int i = 0; i < 4; i++)
			mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4,
			    m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
	}
	for (int i = 0; i < 8; i++)
		st->h[i] ^= v[i] ^ v[8 + i];
}

int crypto_generichash_init(crypto_generichash_state *st, const uint8_t *key, size_t key_len,
			    size_t size)
{
	memset(st, 0, sizeof(*st));
	memcpy(st->h, iv, sizeof(iv));
	st->h[0] ^= 0x01010000 ^ (uint64_t)key_len << 8 ^ size;
	st->size = size;
	if (key_len) {
		memcpy(st->block, key, key_len);
		st->used = sizeof(st->block);
	}
	return 0;
}

/* The last block is compressed by final(), so a full one stays until there is more. */
int crypto_generichash_update(crypto_generichash_state *st, const uint8_t *data,
			      unsigned long long len)
{
	while (len) {
		size_t n = sizeof(st->block) - st->used;

		if (!n) {
			st->count += sizeof(st->block);
			compress(st, 0);
			st->used = 0;
			continue;
		}
		n = n < len ? n : (size_t)len;
		memcpy(st->block + st->used, data, n);
		st->used += n;
		data += n;
		len -= n;
	}
	return 0;
}

int crypto_generichash_final(crypto_generichash_state *st, uint8_t *ret, size_t size)
{
	st->count += st->used;
	memset(st->block + st->used, 0, sizeof(st->block) - st->used);
	compress(st, ~(uint64_t)0);
	memcpy(ret, st->h, size);
	return 0;
}

int sodium_init(void)
{
	static const uint8_t want[8] = { 0xba, 0x80, 0xa5, 0x3f, 0x98, 0x1c, 0x4d, 0x0d };
	crypto_generichash_state st;
	uint8_t got[64];

	crypto_generichash_init(&st, NULL, 0, sizeof(got));
	crypto_generichash_update(&st, (const uint8_t *)"abc", 3);
	crypto_generichash_final(&st, got, sizeof(got));
	return memcmp(got, want, sizeof(want)) ? -1 : 0;
}

void sodium_memzero(void *data, size_t len)
{
	volatile uint8_t *p = data;

	while (len--)
		*p++ = 0;
}

int sodium_memcmp(const void *a, const void *b, size_t len)
{
	const volatile uint8_t *p = a, *q = b;
	uint8_t differ = 0;

	while (len--)
		differ |= *p++ ^ *q++;
	return differ ? -1 : 0;
}
