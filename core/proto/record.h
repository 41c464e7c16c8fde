/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * record.h - one direction of a lane as TLS 1.3 records (RFC 8446, 5.2).
 *
 * A record is 5 bytes of header, then the data, a byte 23, any zeros, and the tag.  The other end
 * may be the kernel's TLS as well: the bytes are the same.
 *
 * Keys change by TLS' KeyUpdate: after `limit` records the sealing end sends that message as a
 * record of its own and goes on under the next key.  Where the other end can't follow, the lane is
 * to be replaced instead: braid_records_due() says so from the limit on, and at twice the limit
 * nothing is sealed any more.  So no nonce is ever used twice under a key.
 */
#ifndef BRAID_PROTO_RECORD_H
#define BRAID_PROTO_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define BRAID_RECORDS_MAX ((uint64_t)1 << 23)	/* under one key */

enum {
	BRAID_RECORD_DATA_MAX = 16384,	/* bytes of data in a record */
	BRAID_RECORD_INNER_MAX = BRAID_RECORD_DATA_MAX + 1,	/* with type and padding */
	BRAID_RECORD_HDR = 5,
	BRAID_RECORD_EXTRA = BRAID_RECORD_HDR + 1 + 16,	/* beside the data */
	BRAID_RECORD_UPDATE = BRAID_RECORD_EXTRA + 5,	/* a record that changes the key */
	/* What braid_records_seal() writes at most, and the longest record that is opened. */
	BRAID_RECORD_OUT_MAX = BRAID_RECORD_UPDATE + BRAID_RECORD_DATA_MAX + BRAID_RECORD_EXTRA,
	BRAID_RECORD_SIZE_MAX = BRAID_RECORD_DATA_MAX + BRAID_RECORD_EXTRA,
	BRAID_RECORDS_EMPTY_MAX = 32,	/* records without data in a row that are borne */
};

struct braid_records;

/*
 * The records of one direction, for sealing or for opening.  The secret, of BRAID_TRAFFIC_SIZE
 * bytes, stays the caller's.  NULL: no memory, or no such cipher here.
 */
struct braid_records *braid_records_new(uint8_t cipher, const uint8_t *secret, bool seal);
void braid_records_free(struct braid_records *r);	/* wipes the keys; NULL is none */

/* The other end can't change the key by which it opens. */
void braid_records_keep_key(struct braid_records *r);
/* Is it time to replace the lane, because its key has been used long enough? */
bool braid_records_due(const struct braid_records *r);
/* For tests: change the key after so many records. */
void braid_records_limit(struct braid_records *r, uint64_t limit);

/*
 * Seal bytes [skip, skip + len) of an iovec as one record; len is at most BRAID_RECORD_DATA_MAX.
 * `out` has room for len + BRAID_RECORD_EXTRA + BRAID_RECORD_UPDATE bytes and does not overlap the
 * iovec.  Returns the bytes written, or -EKEYEXPIRED (see above), -ENOMEM, -EIO; after any of them
 * the lane is to be given up.
 */
ssize_t braid_records_seal(struct braid_records *r, const struct iovec *iov, int niov, size_t skip,
			   size_t len, uint8_t *out);

/*
 * Open the whole records at the front of n bytes, as long as they fit: a record needs room for its
 * data, type and padding, so BRAID_RECORD_INNER_MAX bytes fit each.  Returns the bytes of data,
 * which lie at `out` without gaps, and in *ret_used the bytes of `in` that are done with.  0 with
 * *ret_used 0: the first record is not here whole.
 *
 * -ENOBUFS: the first record is here and does not fit.  -EILSEQ: a record is false.  -ENOMEM.
 * After -EILSEQ and -ENOMEM the lane is to be given up.
 *
 * Behind the data `out` may be written to; it must be memory that nobody but Braid reads, and must
 * not overlap `in`.
 */
ssize_t braid_records_open(struct braid_records *r, const uint8_t *in, size_t n, uint8_t *out,
			   size_t room, size_t *ret_used);

#endif
