/* SPDX-License-Identifier: BSD-3-Clause */
/* blob.h - what the two ends of a queue pair exchange in the handshake. */
#ifndef BRAID_VERBS_BLOB_H
#define BRAID_VERBS_BLOB_H

#include <stdbool.h>
#include <stdint.h>

struct braid_qp_blob {
	uint8_t fabric, mtu, imm, ngids, grh;
	uint8_t nreads;			/* that it answers at once; 0: none, as older versions */
	uint8_t begins;			/* receives to use at first; 0: all, as older versions */
	uint16_t lid, slots, cm_port;
	uint32_t qpn, psn, ack_key;
	uint64_t ack, nonce;
	bool reversed;			/* iWARP: the accepter connects; the dialler asks for that,
					 * and the accepter agrees */
	uint32_t ece_vendor, ece_options;	/* 0: none */
	struct {
		uint8_t type, raw[16];
	} gid[2];			/* the dialler's, best first; or the accepter's choice */
};

/* to: BRAID_BLOB_SIZE bytes. */
void braid_qp_blob_pack(const struct braid_qp_blob *b, uint8_t *to);
/* 0, or -EBADMSG: a value is out of its range, and *ret is not to be used. */
int braid_qp_blob_unpack(const uint8_t *from, struct braid_qp_blob *ret);

#endif
