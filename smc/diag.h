/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diag.h - is a connection SMC, or has it fallen back to TCP, and why?
 *
 * The kernel tells it by SMC_DIAG (linux/smc_diag.h): a dump of all sockets of SMC, in which ours
 * is known by its inode.
 */
#ifndef BRAID_SMC_DIAG_H
#define BRAID_SMC_DIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum braid_smc_kind { BRAID_SMC_R, BRAID_SMC_TCP, BRAID_SMC_D };	/* as the kernel has them */

struct braid_smc_mode {
	bool found;
	enum braid_smc_kind kind;
	uint32_t reason, peer_reason;	/* of TCP: of this end, and what the peer said */
	char ib[80];			/* of SMC-R: "mlx5_0:1" */
};

/* 0; -ENOENT: no socket of that inode; or what the kernel says of being asked. */
int braid_smc_diag(int fd, struct braid_smc_mode *ret);
/*
 * One buffer of the answer: what it says of the socket with that inode goes to *ret.  1: more is to
 * come, 0: that was all, or a negative errno: what the kernel says, -EBADMSG: no such answer.
 */
int braid_smc_diag_parse(const void *buf, size_t len, uint64_t inode, struct braid_smc_mode *ret);
/* For a mode of TCP: why, and what to do, in words. */
void braid_smc_why(const struct braid_smc_mode *mode, char *ret, size_t len);
/* The words for one of the kernel's codes; NULL: none that was known when this was written. */
const char *braid_smc_reason(uint32_t code);

#endif
