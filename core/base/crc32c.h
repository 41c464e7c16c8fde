/* SPDX-License-Identifier: BSD-3-Clause */
/* crc32c.h - CRC32C (Castagnoli), the checksum of iSCSI (RFC 3720), by the CPU's instruction. */
#ifndef BRAID_BASE_CRC32C_H
#define BRAID_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of the bytes whose checksum is `crc` (0: none), followed by the n bytes at p. */
uint32_t braid_crc32c(uint32_t crc, const void *p, size_t n);
/* The same without the CPU's instruction: much slower. */
uint32_t braid_crc32c_plain(uint32_t crc, const void *p, size_t n);

#endif
