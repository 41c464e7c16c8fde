/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diag.h - is a connection SMC, or has it fallen back to TCP, and why?
 *
 * The kernel reports it by SMC_DIAG (linux/smc_diag.h): a dump of all SMC sockets, in which ours
 * is found by its inode.
 */
#ifndef BRAID_SMC_DIAG_H
#define BRAID_SMC_DIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum braid_smc_kind { BRAID_SMC_R, BRAID_SMC_TCP, BRAID_SMC_D };	/* the kernel's numbers */

struct braid_smc_mode {
	bool found;
	enum braid_smc_kind kind;
	uint32_t reason, peer_reason;	/* for a fallback to TCP: this end's and the peer's */
	char ib[80];			/* for SMC-R: "mlx5_0:1" */
};

/* 0; -ENOENT: the kernel lists no such SMC socket; another errno: the kernel can't be asked. */
int braid_smc_diag(int fd, struct braid_smc_mode *ret);
/*
 * Parses one buffer of the answer, and fills *ret if the socket of that inode is in it.  1: more is
 * to come.  0: that was all.  -EBADMSG: the buffer is malformed.  Another errno: the kernel's.
 */
int braid_smc_diag_parse(const void *buf, size_t len, uint64_t inode, struct braid_smc_mode *ret);
/* For a fallback to TCP: why, and what to do, in words. */
void braid_smc_why(const struct braid_smc_mode *mode, char *ret, size_t len);
/* The words for one of the kernel's reason codes; NULL: this library does not know the code. */
const char *braid_smc_reason(uint32_t code);

#endif
