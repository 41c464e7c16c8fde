/* SPDX-License-Identifier: BSD-3-Clause */
/* record.c - see record.h. */
#include "core/proto/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/secret.h"
#include "core/proto/aead.h"
#include "core/proto/keys.h"

enum { TYPE_HANDSHAKE = 22, TYPE_DATA = 23 };

_Static_assert(BRAID_RECORD_EXTRA == BRAID_RECORD_HDR + 1 + BRAID_AEAD_TAG_SIZE, "tag size");
_Static_assert((int)BRAID_SECRET_SIZE == (int)BRAID_TRAFFIC_SIZE, "a secret is one of secret.h");
_Static_assert((int)BRAID_SECRET_SIZE >= (int)BRAID_AEAD_KEY_MAX, "so is a record's key");

/* KeyUpdate, which does not ask the other end for one (RFC 8446, 4.6.3). */
static const uint8_t update[] = { 24, 0, 0, 1, 0 };

_Static_assert(BRAID_RECORD_UPDATE == BRAID_RECORD_EXTRA + sizeof(update), "its record");

struct braid_records {
	uint8_t cipher;
	bool seal, keeps_key;
	unsigned empty;			/* opened in a row, without data */
	uint64_t seq, limit;		/* records under this key, and how many before the next */
	uint8_t *secret;		/* of secret.h */
	struct braid_aead *aead;
};

/* Make the key of the present secret, in place of the one before. */
static int take_key(struct braid_records *r)
{
	uint8_t iv[BRAID_AEAD_IV_SIZE], *key = braid_secret_new();
	struct braid_aead *aead = NULL;

	if (key) {
		braid_keys_expand(r->secret, r->cipher, key, iv);
		aead = braid_aead_new(r->cipher, key, iv, r->seal);
		explicit_bzero(iv, sizeof(iv));
	}
	braid_secret_free(key);
	if (!aead)
		return -ENOMEM;
	braid_aead_free(r->aead);
	r->aead = aead;
	r->seq = 0;
	return 0;
}

struct braid_records *braid_records_new(uint8_t cipher, const uint8_t *secret, bool seal)
{
	struct braid_records *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->cipher = cipher;
	r->seal = seal;
	r->limit = BRAID_RECORDS_MAX;
	r->secret = braid_secret_new();
	if (r->secret)
		memcpy(r->secret, secret, BRAID_TRAFFIC_SIZE);
	if (!r->secret || take_key(r)) {
		braid_records_free(r);
		return NULL;
	}
	return r;
}

void braid_records_free(struct braid_records *r)
{
	if (!r)
		return;
	braid_aead_free(r->aead);
	braid_secret_free(r->secret);
	free(r);
}

void braid_records_keep_key(struct braid_records *r)
{
	r->keeps_key = true;
}

bool braid_records_due(const struct braid_records *r)
{
	return r->keeps_key && r->seq >= r->limit;
}

void braid_records_limit(struct braid_records *r, uint64_t limit)
{
	r->limit = limit;
}

/* --- sealing --------------------------------------------------------------------------------- */

static void pack_hdr(uint8_t *to, size_t inner)
{
	size_t n = inner + BRAID_AEAD_TAG_SIZE;

	to[0] = TYPE_DATA;
	to[1] = to[2] = 3;
	to[3] = (uint8_t)(n >> 8);
	to[4] = (uint8_t)n;
}

static ssize_t seal_one(struct braid_records *r, const struct iovec *iov, int niov, size_t skip,
			size_t len, uint8_t type, uint8_t *out)
{
	int err;

	pack_hdr(out, len + 1);
	/* Counted first: a nonce that may have been used is not used again. */
	err = braid_aead_seal(r->aead, r->seq++, out, BRAID_RECORD_HDR, iov, niov, skip, len, type,
			      out + BRAID_RECORD_HDR);
	return err ? err : (ssize_t)len + BRAID_RECORD_EXTRA;
}

/* Tell the other end, under the old key, that the next one follows. */
static ssize_t seal_update(struct braid_records *r, uint8_t *out)
{
	const struct iovec iov = { (void *)(uintptr_t)update, sizeof(update) };
	ssize_t n = seal_one(r, &iov, 1, 0, sizeof(update), TYPE_HANDSHAKE, out);
	int err;

	if (n < 0)
		return n;
	braid_keys_next(r->secret);
	err = take_key(r);
	return err ? err : n;
}

ssize_t braid_records_seal(struct braid_records *r, const struct iovec *iov, int niov, size_t skip,
			   size_t len, uint8_t *out)
{
	ssize_t first = 0, n;

	if (r->seq >= r->limit) {
		if (!r->keeps_key)
			first = seal_update(r, out);
		else if (r->seq >= 2 * r->limit)
			first = -EKEYEXPIRED;
		if (first < 0)
			return first;
	}
	n = seal_one(r, iov, niov, skip, len, TYPE_DATA, out + first);
	return n < 0 ? n : first + n;
}

/* --- opening --------------------------------------------------------------------------------- */

/* The size of data, type and padding of the record at `in`; 0: such a record is not sent. */
static size_t unpack_hdr(const uint8_t *in)
{
	size_t n = (size_t)in[3] << 8 | in[4];

	if (in[0] != TYPE_DATA || in[1] != 3 || in[2] != 3 || n <= BRAID_AEAD_TAG_SIZE ||
	    n > BRAID_RECORD_INNER_MAX + BRAID_AEAD_TAG_SIZE)
		return 0;
	return n - BRAID_AEAD_TAG_SIZE;
}

static int follow_update(struct braid_records *r, const uint8_t *msg, size_t len)
{
	if (len != sizeof(update) || memcmp(msg, update, sizeof(update)))
		return -EILSEQ;
	braid_keys_next(r->secret);
	return take_key(r);
}

/* Open one record into `out`; returns the bytes of data. */
static ssize_t open_one(struct braid_records *r, const uint8_t *in, size_t inner, uint8_t *out)
{
	size_t len = inner;
	ssize_t n = 0;
	uint8_t type;

	if (braid_aead_open(r->aead, r->seq++, in, BRAID_RECORD_HDR, in + BRAID_RECORD_HDR, inner,
			    out))
		return -EILSEQ;
	while (len && !out[len - 1])
		len--;
	if (!len)
		return -EILSEQ;		/* without a type */
	type = out[--len];
	if (type == TYPE_DATA)
		n = (ssize_t)len;
	else if (type == TYPE_HANDSHAKE)
		n = follow_update(r, out, len);
	else
		return -EILSEQ;
	if (n > 0)
		r->empty = 0;
	else if (!n && ++r->empty > BRAID_RECORDS_EMPTY_MAX)
		return -EILSEQ;
	return n;
}

ssize_t braid_records_open(struct braid_records *r, const uint8_t *in, size_t n, uint8_t *out,
			   size_t room, size_t *ret_used)
{
	size_t used = 0, put = 0;

	*ret_used = 0;
	while (n - used >= BRAID_RECORD_HDR) {
		size_t inner = unpack_hdr(in + used);
		size_t size = BRAID_RECORD_HDR + inner + BRAID_AEAD_TAG_SIZE;
		ssize_t got;

		if (!inner)
			return -EILSEQ;
		if (n - used < size)
			break;
		if (inner > room - put) {
			if (!used)
				return -ENOBUFS;
			break;
		}
		got = open_one(r, in + used, inner, out + put);
		if (got < 0)
			return got;
		put += (size_t)got;
		used += size;
	}
	*ret_used = used;
	return (ssize_t)put;
}
