/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_records.c - the opening end of a lane's records against any bytes.
 *
 * Input: a byte of switches, one for the limit of records under a key, one for the room of each
 * call, and then what the other end does.  ANY: it sends these bytes.  INNER: it has the keys, and
 * seals any content under them.  Else it seals data well, and somebody on the path changes it.
 * Whatever happens, what is opened is what was sealed, from its beginning and without a gap.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/proto/aead.h"
#include "core/proto/keys.h"
#include "core/proto/record.h"

enum { CIPHER = 3, LIBCRYPTO = 4, ANY = 8, INNER = 16 };
enum { ROOM = BRAID_RECORD_INNER_MAX + 256, WIRE_MAX = 1 << 18 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t secret[BRAID_TRAFFIC_SIZE] = { 1, 2, 3 };
static uint8_t wire[WIRE_MAX], plain[WIRE_MAX], out[ROOM + 1];
static struct {
	const uint8_t *p, *end;
	uint8_t cipher;
	size_t n;			/* bytes on the wire */
	size_t sealed, opened;		/* bytes of `plain` */
	bool any_content;
} w;

static uint8_t byte(void)
{
	return w.p < w.end ? *w.p++ : 0;
}

static size_t two(void)
{
	size_t n = byte();

	return n << 8 | byte();
}

/* --- what is on the wire --------------------------------------------------------------------- */

static void put_any(void)
{
	w.n = (size_t)(w.end - w.p) < WIRE_MAX ? (size_t)(w.end - w.p) : WIRE_MAX;
	memcpy(wire, w.p, w.n);
	w.p = w.end;
}

/* Data, sealed well, of the same bytes as `plain`. */
static void put_data(struct braid_records *s)
{
	size_t len = two() % (BRAID_RECORD_DATA_MAX + 1);
	const struct iovec iov = { plain, sizeof(plain) };
	ssize_t n;

	if (w.n + BRAID_RECORD_OUT_MAX > WIRE_MAX || w.sealed + len > sizeof(plain))
		return;
	n = braid_records_seal(s, &iov, 1, w.sealed, len, wire + w.n);
	assert(n >= (ssize_t)(len + BRAID_RECORD_EXTRA) && n <= BRAID_RECORD_OUT_MAX);
	w.n += (size_t)n;
	w.sealed += len;
}

static void put_stream(uint8_t limit)
{
	struct braid_records *s = braid_records_new(w.cipher, secret, true);
	size_t at, len;

	assert(s);
	braid_records_limit(s, limit);
	while (w.p < w.end) {
		unsigned what = byte();

		if (what % 4 || !w.n) {
			put_data(s);
			continue;
		}
		at = two() % w.n;		/* somebody on the path */
		len = two() % (w.n - at);
		if (what & 4)
			wire[at] ^= byte();
		else if (what & 8)
			memmove(wire + at, wire + at + len, w.n - at - len), w.n -= len;
		else if (w.n + len <= WIRE_MAX)
			memmove(wire + at + len, wire + at, w.n - at), w.n += len;
	}
	braid_records_free(s);
}

/* Any content, under the right keys. */
static void put_inner(void)
{
	static const uint8_t update[] = { 24, 0, 0, 1, 0, 22 };
	uint8_t key[BRAID_AEAD_KEY_MAX], iv[BRAID_AEAD_IV_SIZE], s[BRAID_TRAFFIC_SIZE], hdr[5];
	uint64_t seq = 0;

	memcpy(s, secret, sizeof(s));
	while (w.p < w.end && w.n + 1024 < WIRE_MAX) {
		size_t left = (size_t)(w.end - w.p), len = byte();
		const struct iovec iov = { (void *)(uintptr_t)w.p, len };
		struct braid_aead *a;

		if (!len || len > left - 1)
			break;
		memcpy(hdr, "\x17\3\3\0", 4);
		hdr[3] = (uint8_t)((len + 16) >> 8);
		hdr[4] = (uint8_t)(len + 16);
		memcpy(wire + w.n, hdr, sizeof(hdr));
		braid_keys_expand(s, w.cipher, key, iv);
		a = braid_aead_new(w.cipher, key, iv, true);
		assert(a && !braid_aead_seal(a, seq++, hdr, 5, &iov, 1, 0, len - 1, w.p[len - 1],
					     wire + w.n + 5));
		braid_aead_free(a);
		if (len == sizeof(update) && !memcmp(w.p, update, len)) {
			braid_keys_next(s);
			seq = 0;
		}
		w.p += len;
		w.n += len + 5 + 16;
	}
}

/* --- opening --------------------------------------------------------------------------------- */

/* What one call has opened is right.  Returns what open() did. */
static ssize_t open_some(struct braid_records *o, const uint8_t *in, size_t n, size_t room,
			 size_t *used)
{
	ssize_t got;

	out[room] = 0x5a;
	got = braid_records_open(o, in, n, out, room, used);
	assert(out[room] == 0x5a);
	assert(got >= 0 || got == -EILSEQ || (got == -ENOBUFS && room < ROOM));
	if (got < 0)
		return got;
	assert((size_t)got <= room && *used <= n && (*used || !got));
	if (!w.any_content) {
		assert((size_t)got <= w.sealed - w.opened);
		assert(!memcmp(out, plain + w.opened, (size_t)got));
	}
	w.opened += (size_t)got;
	return got;
}

static void open_all(uint8_t room_byte)
{
	struct braid_records *o = braid_records_new(w.cipher, secret, false);
	size_t at = 0, have = 0, used, room = room_byte ? (size_t)room_byte * 65 : ROOM;
	ssize_t got = 0;

	assert(o);
	while (have < w.n && got >= 0) {
		have += 1 + (have * 7 + room_byte) % 4000;	/* it comes in pieces */
		if (have > w.n)
			have = w.n;
		do {
			got = open_some(o, wire + at, have - at, room, &used);
			if (got == -ENOBUFS) {
				room = ROOM;
				got = open_some(o, wire + at, have - at, room, &used);
			}
			at += used;
		} while (got >= 0 && used);
	}
	braid_records_free(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t ciphers[] = {
		BRAID_CIPHER_CHACHA20, BRAID_CIPHER_AES256, BRAID_CIPHER_AES128, BRAID_CIPHER_CHACHA20,
	};
	uint8_t switches, limit, room;

	if (size < 3)
		return 0;
	braid_aead_init();
	if (!plain[1]) {
		for (size_t i = 0; i < sizeof(plain); i++)
			plain[i] = (uint8_t)(i * 7 + i / 256);
	}
	memset(&w, 0, sizeof(w));
	w.p = data;
	w.end = data + size;
	switches = byte();
	limit = byte();
	room = byte();
	w.cipher = ciphers[switches & CIPHER];
	braid_aead_use_libcrypto(switches & LIBCRYPTO);
	if (!strcmp(braid_aead_library(w.cipher), "none"))
		w.cipher = BRAID_CIPHER_CHACHA20;
	if (switches & ANY)
		put_any();
	else if (switches & INNER)
		put_inner();
	else
		put_stream(limit);
	w.any_content = switches & INNER;
	open_all(room);
	return 0;
}
