/* SPDX-License-Identifier: BSD-3-Clause */
/* key_int.h - what crosses the network before a peer is trusted: key.c, gate.c. */
#ifndef BRAID_TOOLS_PERF_KEY_INT_H
#define BRAID_TOOLS_PERF_KEY_INT_H

#include "tools/perf/key.h"

enum { GATE_MAGIC = 8, GATE_NONCE = 32 };
enum { GATE_SERVES = 1, GATE_BUSY = 2, GATE_REFUSES = 3 };	/* the first byte of a status */

extern const char gate_magic[GATE_MAGIC];

struct gate_greet {
	char magic[GATE_MAGIC];
	uint8_t nonce[GATE_NONCE];
};

struct gate_claim {
	char magic[GATE_MAGIC];
	uint8_t nonce[GATE_NONCE];
	uint8_t mac[PERF_KEY];
};

struct gate_grant {
	char magic[GATE_MAGIC];
	uint8_t status[8];
	uint8_t mac[PERF_KEY];
};

void gate_claim_mac(const uint8_t *key, const uint8_t *nonce, const struct gate_claim *c,
		    uint8_t ret[PERF_KEY]);
void gate_grant_mac(const uint8_t *key, const uint8_t *nonce, const struct gate_claim *c,
		    const struct gate_grant *g, uint8_t ret[PERF_KEY]);

#endif
