/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake.h - two ends over the fake NICs of tests/fake, for tests of these NICs.
 *
 * An end is a queue pair with a buffer.  Two ends are two devices of one process, or of two (fork
 * before anything is open).  A call that fails where it must not ends the case.
 */
#ifndef BRAID_TESTS_UNIT_FAKE_H
#define BRAID_TESTS_UNIT_FAKE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "tests/fake/ctl.h"

enum {
	DEPTH = 16,
	BUF = 1 << 16,
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
};

/* Before and after all cases: a fabric with the NICs that are listed in fake.c. */
int fabric_new(void **state);
int fabric_end(void **state);

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_srq *srq;
	struct ibv_port_attr port;
	char *buf;
	uint8_t sgid_index;
	uint8_t eth;
};

/* The address and key that one end sends to the other. */
struct addr {
	uint32_t qpn, lid, rkey;
	uint64_t va;
	union ibv_gid gid;
};

extern const int to_init, to_rtr, to_rts;	/* what each transition needs */

/* Runs a command of ctl.h, which must succeed. */
void ok(const char *cmd);
uint64_t ms_now(void);

struct ibv_context *open_dev(const char *name);
struct ibv_qp *make_qp(struct end *e);
/* RoCE: e->sgid_index may be set afterwards; the first that is v2 and not link-local is 3. */
void end_open(struct end *e, const char *dev, size_t bytes);
void end_close(struct end *e);
struct addr addr_of(struct end *e);
struct ibv_qp_attr attr_to(const struct end *e, const struct addr *peer);
/* Brings the queue pair to RTS; returns an errno. */
int walk(struct end *e, struct ibv_qp_attr *a);
void join(struct end *e, const struct addr *peer);
/* Two ends, joined. */
void pair(struct end *a, struct end *b, const char *dev_a, const char *dev_b, size_t bytes);
/* Post a request to, and a receive into, buf + off.  An errno. */
int post(struct end *e, enum ibv_wr_opcode op, const struct addr *to, uint64_t off, uint32_t len,
	 unsigned flags);
int take(struct end *e, uint64_t off, uint32_t len);
struct ibv_wc wait_wc(struct end *e);
void wait_status(struct end *e, enum ibv_wc_status status);
void fill(struct end *e, size_t n, unsigned seed);
void wait_event(struct end *e, enum ibv_event_type type);

#endif
