/* SPDX-License-Identifier: BSD-3-Clause */
/* self.h - this process, as its peers see it. */
#ifndef BRAID_BASE_SELF_H
#define BRAID_BASE_SELF_H

#include <stdint.h>

enum { BRAID_ID_SIZE = 16, BRAID_HOST_SIZE = 56 };

struct braid_self {
	uint8_t process[BRAID_ID_SIZE];
	char host[BRAID_HOST_SIZE];
	uint32_t pid;
	/* A hash of host and network namespace: equal where both are the same; 0: unknown. */
	uint16_t place;
};
extern struct braid_self braid_self;

int braid_self_init(void);		/* once per process; 0 or a negative errno */

#endif
