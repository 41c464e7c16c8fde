/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sealed.h - the encrypted side of a stream: its bytes are TLS 1.3 records, made in user space.
 *
 * Each direction is by itself: the kernel may seal what one end sends while the other end opens it
 * here.  A struct without records stands for a direction whose bytes go to the socket as they are.
 */
#ifndef BRAID_SOCKET_SEALED_H
#define BRAID_SOCKET_SEALED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/link/lane_io.h"
#include "core/proto/record.h"

enum {
	BRAID_SEALED_RECORDS = 4,	/* that are sealed, or opened, in one go */
	BRAID_SEALED_DATA = BRAID_SEALED_RECORDS * BRAID_RECORD_DATA_MAX,
	BRAID_SEALED_ROOM = BRAID_SEALED_RECORDS * BRAID_RECORD_SIZE_MAX,
};

struct braid_seal {			/* guarded as the lane's push() is */
	struct braid_records *records;
	bool kernel;			/* the kernel seals, and there are no records here */
	uint64_t sealed;		/* records that the kernel has made, at most */
	atomic_bool old_key;		/* the carrier is to be replaced, for a new key */
	uint8_t *out;			/* records of one piece; made by the first push */
	size_t at, end;			/* the part of them that is not sent yet */
	bool held;			/* the piece's last byte counts as unsent until they are */
};

struct braid_unseal {			/* guarded by the lane's io lock */
	struct braid_records *records;
	bool kernel;			/* the kernel opens, and there are no records here */
	uint8_t *in;			/* what was read and is not opened yet */
	size_t at, end;
	uint64_t part_ns;		/* since when a record is here in part; 0: none is */
	unsigned part_reads;		/* reads since then that did not complete it */
};

/* 0 or -ENOMEM.  Secrets are copied.  peer_keeps: see struct braid_lane_keys. */
int braid_seal_init(struct braid_seal *s, uint8_t cipher, const uint8_t *secret, bool peer_keeps);
void braid_seal_fini(struct braid_seal *s);
void braid_seal_idle(struct braid_seal *s);	/* free its buffer, if that is empty */
int braid_unseal_init(struct braid_unseal *u, uint8_t cipher, const uint8_t *secret);
void braid_unseal_fini(struct braid_unseal *u);
void braid_unseal_idle(struct braid_unseal *u);

/* push() of a lane whose bytes are sealed here. */
int braid_seal_push(struct braid_seal *s, struct braid_lane *lane, int fd);

/*
 * The kernel is to seal n bytes more: 0, or -EKEYEXPIRED: its key has sealed all that it may.  A
 * lane's carrier is replaced long before.
 */
int braid_seal_count(struct braid_seal *s, size_t n);

/*
 * Read records from fd and open them into `to`, which has room for BRAID_SEALED_ROOM bytes: how
 * many bytes; 0: the end of the stream; -EAGAIN: no record is here whole; -EILSEQ: one is false;
 * -ETIMEDOUT: bytes come, but for too long they have completed no record; or -errno.  *dry: the
 * socket was emptied, so it is not read again.
 */
ssize_t braid_unseal_read(struct braid_unseal *u, int fd, char *to, bool *dry);

#endif
