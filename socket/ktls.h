/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ktls.h - kernel TLS: the kernel seals what a TCP socket sends, or opens what it receives.
 *
 * The keys are those of core/proto/keys.h, and the records are the same bytes that record.h makes.
 * So each direction of each end is by itself, and a peer need not know who does it.
 *
 * The kernel keeps its key: before Linux 6.14 it can't change it.  A lane that has used its key for
 * long gets another carrier instead, which has new keys (core/setup/health.c).
 */
#ifndef BRAID_SOCKET_KTLS_H
#define BRAID_SOCKET_KTLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* At init: find out whether the kernel has TLS, if BRAID_ENCRYPT_BY asks for it.  Logs one line. */
void braid_ktls_init(void);
/*
 * Is the kernel to open what lanes receive?  Then the peer must not change its key.  It is said
 * even if the kernel can't after all: then lanes are dialled again without need, and no harm.
 */
bool braid_ktls_keeps_key(void);
/*
 * Let the kernel seal (rx false) or open all that follows on a connected socket, if it is to and
 * can.  False: nothing has changed, and the caller does it.
 */
bool braid_ktls_take(int fd, uint8_t cipher, const uint8_t *secret, bool rx);
/* The most records that the kernel makes of one send of n bytes. */
static inline uint64_t braid_ktls_records(size_t n)
{
	return n / 16384 + 2;
}
/* What a failed recv() of a socket that the kernel opens means, as a negative errno. */
int braid_ktls_error(int err);

#endif
