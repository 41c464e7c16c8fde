/* SPDX-License-Identifier: BSD-3-Clause */
/* blob.c - see blob.h.  All integers are little-endian. */
#include "verbs/blob.h"

#include <errno.h>
#include <string.h>

#include "core/transport.h"
#include "verbs/port.h"

enum {
	AT_FABRIC = 0, AT_MTU = 1, AT_IMM = 2, AT_NGIDS = 3, AT_LID = 4, AT_SLOTS = 6,
	AT_CM_PORT = 8, AT_GRH = 10, AT_READS = 11,
	AT_QPN = 12, AT_PSN = 16, AT_ACK_KEY = 20, AT_ACK = 24, AT_NONCE = 32, AT_GIDS = 40,
	GID_STEP = 17, AT_ECE_VENDOR = 76, AT_ECE = 80, AT_REVERSED = 84, AT_BEGINS = 85,
	LEAST = 4,			/* a peer that begins with fewer would be slow */
};

static void put(uint8_t *to, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		to[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *from, unsigned n)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)from[i] << 8 * i;
	return v;
}

void braid_qp_blob_pack(const struct braid_qp_blob *b, uint8_t *to)
{
	memset(to, 0, BRAID_BLOB_SIZE);
	to[AT_FABRIC] = b->fabric;
	to[AT_MTU] = b->mtu;
	to[AT_IMM] = b->imm;
	to[AT_NGIDS] = b->ngids;
	put(to + AT_LID, b->lid, 2);
	put(to + AT_SLOTS, b->slots, 2);
	put(to + AT_CM_PORT, b->cm_port, 2);
	put(to + AT_QPN, b->qpn, 4);
	put(to + AT_PSN, b->psn, 4);
	put(to + AT_ACK_KEY, b->ack_key, 4);
	put(to + AT_ACK, b->ack, 8);
	put(to + AT_NONCE, b->nonce, 8);
	to[AT_GRH] = b->grh;
	to[AT_READS] = b->nreads;
	put(to + AT_ECE_VENDOR, b->ece_vendor, 4);
	put(to + AT_ECE, b->ece_options, 4);
	to[AT_REVERSED] = b->reversed;
	to[AT_BEGINS] = b->begins;
	for (unsigned i = 0; i < b->ngids; i++) {
		to[AT_GIDS + i * GID_STEP] = b->gid[i].type;
		memcpy(to + AT_GIDS + i * GID_STEP + 1, b->gid[i].raw, 16);
	}
}

int braid_qp_blob_unpack(const uint8_t *from, struct braid_qp_blob *ret)
{
	*ret = (struct braid_qp_blob){
		.fabric = from[AT_FABRIC], .mtu = from[AT_MTU], .imm = from[AT_IMM],
		.ngids = from[AT_NGIDS], .lid = (uint16_t)get(from + AT_LID, 2),
		.slots = (uint16_t)get(from + AT_SLOTS, 2),
		.cm_port = (uint16_t)get(from + AT_CM_PORT, 2),
		.qpn = (uint32_t)get(from + AT_QPN, 4), .psn = (uint32_t)get(from + AT_PSN, 4),
		.ack_key = (uint32_t)get(from + AT_ACK_KEY, 4), .ack = get(from + AT_ACK, 8),
		.nonce = get(from + AT_NONCE, 8), .grh = from[AT_GRH] & 1, .nreads = from[AT_READS],
		.ece_vendor = (uint32_t)get(from + AT_ECE_VENDOR, 4),
		.ece_options = (uint32_t)get(from + AT_ECE, 4), .reversed = from[AT_REVERSED] & 1,
		.begins = from[AT_BEGINS],
	};
	if (ret->fabric > BRAID_FABRIC_IWARP || ret->mtu < IBV_MTU_256 || ret->mtu > IBV_MTU_4096 ||
	    ret->imm > 1 || ret->ngids > 2 || ret->slots < 16 || ret->qpn > 0xffffff ||
	    ret->psn > 0xffffff || ret->begins > ret->slots || (ret->begins && ret->begins < LEAST))
		return -EBADMSG;
	for (unsigned i = 0; i < ret->ngids; i++) {
		ret->gid[i].type = from[AT_GIDS + i * GID_STEP];
		memcpy(ret->gid[i].raw, from + AT_GIDS + i * GID_STEP + 1, 16);
		if (ret->gid[i].type > BRAID_GID_ROCE_V2)
			return -EBADMSG;
	}
	return 0;
}
